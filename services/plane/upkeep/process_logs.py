"""Reads the logs that the processes of a plane write into its home, merged by time.

Services and the Spark job write one JSON object per line (structlog); the broker and the JVM of Spark write text with
their own times. A line without a time, as of a stack trace, belongs to the line before it.
"""

from __future__ import annotations

import heapq
import json
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from services.plane.machine.errors import StackError


class Level(StrEnum):
    """How grave a line is, the least grave first."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


_RANKS = {level: rank for rank, level in enumerate(Level)}
BLOCK_BYTES = 64 * 1024
"""How much of a file is read at a time, from its end backwards."""
MOST_LINES_OF_ONE = 10_000
"""Lines without a time that belong to one with a time, at most: a log without times is not read to its start."""
_KNOWN = ("event", "level", "timestamp", "service", "logger")
_LEVEL_OF = {"warn": Level.WARNING, "fatal": Level.CRITICAL, "trace": Level.DEBUG}
_BROKER_LINE = re.compile(r"(?P<time>\d{4}-\d\d-\d\dT\S+) (?P<level>[A-Z]+) (?P<event>.*)")
"""As ``services/plane/broker/log4j2.xml`` has it written."""
_SPARK_LINE = re.compile(r"(?P<time>\d\d/\d\d/\d\d \d\d:\d\d:\d\d) (?P<level>[A-Z]+) (?P<event>.*)")
"""As Spark's own settings have it written, in the machine's time zone."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a process's log. Lines of one time stay in the order of their file."""

    time_ms: int
    """When it was written; of a line without a time, that of the line before it; -1 if there is none."""
    process: str
    level: Level | None
    """None where the line tells none."""
    event: str
    fields: dict[str, Any]
    """What a structured line says beside its event."""


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which lines are wanted."""

    least_level: Level = Level.DEBUG
    since_ms: int = -1
    text: str = ""
    """What the line must contain, in any case."""

    def wants(self, line: LogLine) -> bool:
        """Return whether a line is wanted. A line that tells no level counts as info."""
        if line.time_ms < self.since_ms:
            return False
        if _RANKS[line.level or Level.INFO] < _RANKS[self.least_level]:
            return False
        return self.text.lower() in f"{line.event} {json.dumps(line.fields, ensure_ascii=False)}".lower()


def log_files(home: Path, processes: Collection[str] = ()) -> dict[str, Path]:
    """Return the logs in a home by process, or those of some processes.

    Raises:
        StackError: there are no logs, or a process has none there.
    """
    found = {file.stem: file for file in sorted((home / "logs").glob("*.log"))}
    if not found:
        raise StackError(f"{home / 'logs'} has no logs: start a plane (deepclean up), or set another home (--home).")
    for process in processes:
        if process not in found:
            raise StackError(f"{home / 'logs'} has no log of {process}; it has: {', '.join(found)}.")
    return {name: file for name, file in found.items() if not processes or name in processes}


def last_lines(files: dict[str, Path], wanted: LogFilter, count: int) -> list[LogLine]:
    """Return the last ``count`` wanted lines of all logs, oldest first. Each file is read from its end."""
    tails = []
    for process, file in files.items():
        kept: deque[LogLine] = deque()
        for line in _backwards(process, file):
            if len(kept) == count or 0 <= line.time_ms < wanted.since_ms:
                break
            if wanted.wants(line):
                kept.appendleft(line)
        tails.append(kept)
    merged = heapq.merge(*tails, key=lambda line: line.time_ms)
    return list(deque(merged, maxlen=count))


def followed(files: dict[str, Path], wanted: LogFilter, pause: Callable[[], bool]) -> Iterator[LogLine]:
    """Yield wanted lines as they are written, from now on, until ``pause`` says so. It waits a moment and returns
    whether to go on.
    """
    opened = {process: _Growing(process, file) for process, file in files.items()}
    try:
        while pause():
            new = [line for growing in opened.values() for line in growing.new_lines()]
            yield from (line for line in sorted(new, key=lambda line: line.time_ms) if wanted.wants(line))
    finally:
        for growing in opened.values():
            growing.close()


class _Growing:
    """The end of a file that is written to."""

    def __init__(self, process: str, file: Path) -> None:
        self._process, self._file = process, file.open("rb")
        self._file.seek(0, 2)
        self._rest = b""
        self._before = LogLine(-1, process, None, "", {})

    def new_lines(self) -> Iterator[LogLine]:
        """Yield the lines that are complete since the last call."""
        *whole, self._rest = (self._rest + self._file.read()).split(b"\n")
        for raw in whole:
            self._before = _after(self._before, parsed(self._process, raw.decode(errors="replace")))
            yield self._before

    def close(self) -> None:
        self._file.close()


def parsed(process: str, text: str) -> LogLine:
    """Return a line of a log: a structured one, one of a JVM, or whatever it is."""
    if text.startswith("{"):
        try:
            fields = json.loads(text)
        except ValueError:
            fields = None
        if isinstance(fields, dict) and "event" in fields:
            rest = {name: value for name, value in fields.items() if name not in _KNOWN}
            time_ms, level = _time_ms(str(fields.get("timestamp", ""))), _level(str(fields.get("level", "")))
            return LogLine(time_ms, process, level, str(fields["event"]), rest)
    if matched := _BROKER_LINE.match(text):
        time_ms = _time_ms(matched["time"])
    elif matched := _SPARK_LINE.match(text):
        time_ms = _time_ms(f"20{matched['time'].replace('/', '-')}")
    else:
        return LogLine(-1, process, None, text, {})
    return LogLine(time_ms, process, _level(matched["level"]), matched["event"], {})


def _level(text: str) -> Level | None:
    name = text.lower()
    return _LEVEL_OF.get(name) or (Level(name) if name in Level.__members__.values() else None)


def _time_ms(text: str) -> int:
    """Return a time as Unix time; -1 for what is none. A time without an offset is the machine's."""
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return -1


def _after(before: LogLine, line: LogLine) -> LogLine:
    """Return a line; without a time of its own it has time and level of the line before it."""
    return line if line.time_ms >= 0 else replace(line, time_ms=before.time_ms, level=line.level or before.level)


def _backwards(process: str, file: Path) -> Iterator[LogLine]:
    """Yield the lines of a file, newest first; those without a time once the line that they belong to is read."""
    behind: list[LogLine] = []
    with file.open("rb") as log:
        for raw in _raw_backwards(log):
            line = parsed(process, raw.decode(errors="replace"))
            if line.time_ms < 0 and len(behind) < MOST_LINES_OF_ONE:
                behind.append(line)
                continue
            yield from (_after(line, one) for one in behind)
            behind = []
            yield line
    yield from behind


def _raw_backwards(log: IO[bytes]) -> Iterator[bytes]:
    position = log.seek(0, 2)
    rest = b""
    while position:
        start = max(0, position - BLOCK_BYTES)
        log.seek(start)
        rest, *whole = (log.read(position - start) + rest).split(b"\n")
        yield from (line for line in reversed(whole) if line)
        position = start
    if rest:
        yield rest

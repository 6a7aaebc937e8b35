"""Processor time and memory of processes, from /proc. A process of the plane leads a session with all its children."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_CPU_FIELDS = slice(11, 13)
_SESSION_FIELD = 3
"""Positions in /proc/<pid>/stat, counted from 0 after the program's name."""
_BYTES_PER_KIBIBYTE = 1024


def session_cpu_seconds(session: int) -> float:
    """Return the processor time of all processes of a session, in seconds; 0 on a system without /proc."""
    return sum(_cpu_seconds(fields) for _, fields in _stats() if _is_in(session, fields))


def cpu_seconds(pid: int) -> float:
    """Return the processor time of one process, in seconds.

    Raises:
        OSError: there is no such process, or no /proc.
    """
    return _cpu_seconds(_fields((Path("/proc") / str(pid) / "stat").read_text()))


def session_peak_bytes(session: int) -> int:
    """Return the sum of the peak resident memory of all processes of a session, in bytes; 0 without /proc."""
    return sum(_peak_bytes(process) for process, fields in _stats() if _is_in(session, fields))


def _cpu_seconds(fields: list[str]) -> float:
    return sum(map(int, fields[_CPU_FIELDS])) / os.sysconf("SC_CLK_TCK")


def _is_in(session: int, fields: list[str]) -> bool:
    return int(fields[_SESSION_FIELD]) == session


def _peak_bytes(process: Path) -> int:
    try:
        status = (process / "status").read_text()
    except OSError:  # it has ended meanwhile
        return 0
    kibibytes = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(next(kibibytes, "0")) * _BYTES_PER_KIBIBYTE


def _stats() -> Iterator[tuple[Path, list[str]]]:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # it has ended meanwhile
            continue
        yield stat.parent, _fields(text)


def _fields(text: str) -> list[str]:
    return text[text.rindex(")") + 2 :].split()

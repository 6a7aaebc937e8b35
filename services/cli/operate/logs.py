"""``deepclean logs``: what the processes of a plane have logged, merged by time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from services.cli.amounts import duration_ms
from services.cli.output import print_json_line
from services.cli.session import JsonOption, made_session
from services.cli.terminal import say
from services.plane.upkeep.process_logs import Level, LogFilter, LogLine, followed, last_lines, log_files
from services.wording.figures import time_text

POLL_SECONDS = 0.25
_COLOURS = {Level.WARNING: "yellow", Level.ERROR: "red", Level.CRITICAL: "red"}


def logs(
    context: typer.Context,
    processes: Annotated[
        list[str] | None, typer.Argument(metavar="[PROCESS…]", help="Only these, such as metadata or streaming.")
    ] = None,
    follows: Annotated[bool, typer.Option("--follow", "-f", help="Then show new records until Ctrl-C.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, metavar="N", help="Number of last lines.")] = 50,
    level: Annotated[Level, typer.Option(help="Least level.")] = Level.INFO,
    since: Annotated[str, typer.Option(metavar="DURATION", help="Not older than this: 90s, 15m, 1d12h.")] = "",
    text: Annotated[str, typer.Option("--with", metavar="TEXT", help="Only lines that contain this.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Show what the plane's processes have logged, merged by time.

    With --json, an object a line.
    """
    files = log_files(made_session(context).home, processes or ())
    since_ms = int(time.time() * 1000) - duration_ms(since) if since else -1
    wanted = LogFilter(level, since_ms, text)
    width = max(map(len, files))
    shown = last_lines(files, wanted, lines) if lines else []
    for line in shown:
        _print(line, width, as_json=as_json)
    if follows:
        for line in _until_interrupted(followed(files, wanted, _pause)):
            _print(line, width, as_json=as_json)


def _pause() -> bool:
    return not threading.Event().wait(POLL_SECONDS)


def _until_interrupted(lines: Iterator[LogLine]) -> Iterator[LogLine]:
    try:
        yield from lines
    except KeyboardInterrupt:
        return


def _print(line: LogLine, width: int, *, as_json: bool) -> None:
    if as_json:
        print_json_line(
            {
                "time_ms": line.time_ms,
                "process": line.process,
                "level": line.level,
                "event": line.event,
                "fields": line.fields,
            }
        )
        return
    fields = " ".join(f"{name}={value}" for name, value in line.fields.items())
    text = f"{time_text(line.time_ms):<19}  {line.process:<{width}}  {line.level or '':<8}  {line.event}  {fields}"
    say(text.rstrip(), colour=_COLOURS.get(line.level) if line.level else None)

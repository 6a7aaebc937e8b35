"""``deepclean top``: the way of deletions through a running plane, live."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from services.cli.operate.status import RUNS, collection_fields, observe_plane, process_state
from services.cli.output import bytes_text, counted, print_json_line, time_text
from services.cli.session import JsonOption, made_session
from services.cli.terminal import printable
from services.plane.stack.plane_file import running_plane
from services.plane.upkeep.status import PlaneStatus


@dataclass(frozen=True, slots=True)
class Station:
    """A place on the way of a deletion."""

    name: str
    rate: str
    waits: str
    oldest: str = ""


def top(
    context: typer.Context,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=60, help="Number of seconds between two pictures; rates are of this time.")
    ] = 2.0,
    pictures: Annotated[int, typer.Option("--count", min=0, metavar="N", help="End after N pictures; 0: never.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Show the way of deletions through the plane, live, until Ctrl-C.

    With --json, an object a picture.
    """
    observed = _observed(context, seconds, pictures)
    try:
        if as_json:
            for plane in observed:
                print_json_line(plane)
            return
        console = Console()
        with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
            for plane in observed:
                live.update(picture(plane), refresh=True)
    except KeyboardInterrupt:
        return


def _observed(context: typer.Context, seconds: float, pictures: int) -> Iterator[PlaneStatus]:
    """Yield the status of the plane again and again; the plane is read anew each time, since it may be restarted."""
    home = made_session(context).home
    for _ in range(pictures) if pictures else count():
        yield observe_plane(running_plane(home), seconds)


def picture(plane: PlaneStatus) -> Group:
    """Return what is drawn of a plane."""
    now = time_text(int(time.time() * 1000))
    title = Text(f"{plane.home}: {plane.state}, {counted(plane.shards, 'shard')}, {now} UTC", style="bold")
    way = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("A DELETION'S WAY", "RATE", "WAITS", "OLDEST"):
        way.add_column(column, justify="left" if column.startswith("A") else "right")
    for station in stations(plane):
        way.add_row(station.name, station.rate, station.waits, station.oldest)
    processes = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("PROCESS", "STATE", "MESSAGES/S", "LAG", "LAG AGE", "DEAD LETTERS"):
        processes.add_column(column, justify="left" if column in ("PROCESS", "STATE") else "right")
    for one in plane.processes:
        processes.add_row(
            one.name,
            Text(process_state(one), style="" if process_state(one) == RUNS else "bold red"),
            f"{one.messages_per_second:,.0f}",
            f"{one.lag_messages:,}",
            f"{one.lag_seconds:.1f} s",
            Text(f"{one.dead_letters:,}", style="bold red" if one.dead_letters else ""),
        )
    suspended = [
        Text(printable(f"{name}: {text}" if text else name), style="yellow")
        for name, text in collection_fields(plane.suspended_collections)
        if (name, text) != ("running", "")
    ]
    return Group(title, Text(), way, Text(), processes, Text(), *suspended)


def stations(plane: PlaneStatus) -> list[Station]:
    """Return the stations of a deletion in their order, with what each passes on per second and what waits there."""
    rates, waiting = plane.throughput, plane.backlog
    return [
        Station("commands are applied", f"{rates.commands_applied:,.0f}/s", "", f"{waiting.oldest_seconds:.1f} s"),
        Station(
            "deleted versions are judged",
            f"{rates.entries_judged:,.0f}/s",
            f"{bytes_text(waiting.held_bytes)} held, {bytes_text(waiting.pending_bytes)} not claimed",
        ),
        Station("directories are expanded", "", f"{waiting.directories_in_progress:,}"),
        Station("undo windows end", "", f"{waiting.purges_in_undo_window:,}"),
        Station("hours and rates allow it", "", f"{waiting.purges_throttled:,}"),
        Station(
            "the block store deletes",
            f"{rates.groups_deleted:,.0f}/s, {bytes_text(rates.bytes_deleted)}/s",
            f"{bytes_text(waiting.claimed_bytes)} claimed",
        ),
        Station("freed", "", bytes_text(waiting.freed_bytes)),
    ]

"""``deepclean top``: the way of deletions through a running plane, live."""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from services.cli.operate.status import RUNS, process_state
from services.cli.output import print_json_line
from services.cli.session import JsonOption, made_session
from services.cli.terminal import printable
from services.domain.words import counted
from services.page.stations import Station, stations
from services.page.troubles import troubles
from services.plane.stack.plane_file import running_plane
from services.plane.upkeep.found_owners import FoundOwners
from services.plane.upkeep.observed import plane_disk, plane_status, scraped_twice
from services.plane.upkeep.status import DiskUse, PlaneStatus
from services.wording.figures import time_text


def top(
    context: typer.Context,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=60, help="Number of seconds between two refreshes; rates are of this time.")
    ] = 2.0,
    pictures: Annotated[int, typer.Option("--count", min=0, metavar="N", help="End after N refreshes; 0: never.")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Show the way of deletions through the plane, live, until Ctrl-C.

    With --json, print one object at each refresh.
    """
    observed = _observed(context, seconds, pictures)
    try:
        if as_json:
            for picture in observed:
                print_json_line(picture)
            return
        console = Console()
        with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
            for picture in observed:
                live.update(drawn(picture), refresh=True)
    except KeyboardInterrupt:
        return


@dataclass(frozen=True, slots=True)
class Picture:
    """The plane at one moment."""

    plane: PlaneStatus
    stations: tuple[Station, ...]
    """The way of a deletion."""


def _observed(context: typer.Context, seconds: float, pictures: int) -> Iterator[Picture]:
    """Yield the plane again and again; its file is read anew each time, since it may be restarted."""
    home = made_session(context).home
    disk: DiskUse | None = None
    with FoundOwners() as owners:
        for _ in range(pictures) if pictures else count():
            plane = running_plane(home)
            found = scraped_twice(plane, owners, seconds)
            disk = disk or plane_disk(plane, found)  # to look at every file takes a while; what is free is asked anew
            disk = replace(disk, free_bytes=shutil.disk_usage(home).free)
            status = plane_status(plane, found, disk)
            yield Picture(status, stations(found, status.backlog))


def drawn(picture: Picture) -> Group:
    """Return what is drawn of a plane."""
    plane, now = picture.plane, time_text(int(time.time() * 1000))
    title = Text(f"{plane.home}: {plane.state}, {counted(plane.shards, 'shard')}, {now} UTC", style="bold")
    columns = ["A DELETION'S WAY", "PROCESS", "WAITS", "RATE", "OLDEST"]
    way = _table(columns, left=columns[:3])
    for station in picture.stations:
        rate = station.rate if station.is_answering else Text("silent", style="bold red")
        way.add_row(station.name, station.process, station.waits, rate, f"{station.age_seconds:.1f} s")
    processes = _table(["PROCESS", "STATE", "MESSAGES/S", "LAG", "LAG AGE", "DEAD LETTERS"], left=["PROCESS", "STATE"])
    for one in plane.processes:
        state = process_state(one)
        processes.add_row(
            one.name if one.is_here else f"{one.name} at {one.url.partition('//')[2]}",
            Text(state, style="" if state == RUNS else "bold red"),
            f"{one.messages_per_second:,.0f}",
            f"{one.lag_messages:,}",
            f"{one.lag_seconds:.1f} s",
            Text(f"{one.dead_letters:,}", style="bold red" if one.dead_letters else ""),
        )
    wrong = [
        Text(printable(f"{one.what} {one.action}"), style="red" if one.is_urgent else "yellow")
        for one in troubles(plane)
    ]
    return Group(title, Text(), way, Text(), processes, Text(), *wrong)


def _table(columns: Sequence[str], *, left: Collection[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, justify="left" if column in left else "right")
    return table

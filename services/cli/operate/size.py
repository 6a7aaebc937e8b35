"""``deepclean size``: how large a plane has to be, by the model of ``services/domain/capacity.py``."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated

import typer

from services.cli.amounts import duration_ms
from services.cli.output import print_fields, print_json, print_table
from services.cli.session import JsonOption
from services.cli.terminal import say
from services.domain.capacity import (
    CORES_PER_EXECUTOR,
    MEASURED,
    SECONDS_PER_DAY,
    Capacity,
    Workload,
    capacity_of,
)
from services.domain.words import counted
from services.wording.figures import bytes_text

_MS_PER_DAY = SECONDS_PER_DAY * 1_000


def size(
    keys: Annotated[float, typer.Option(min=0, metavar="N", help="Live keys, as 1e9.")],
    deletes_per_day: Annotated[
        float, typer.Option(min=0, metavar="N", help="Keys deleted or overwritten a day; as many are put.")
    ],
    snapshots: Annotated[int, typer.Option(min=0, metavar="N", help="Live snapshots of all buckets.")],
    held: Annotated[str, typer.Option(metavar="DURATION", help="How long snapshots hold a deleted version.")] = "7d",
    peak: Annotated[
        float, typer.Option(min=1, metavar="N", help="Rate of the busiest hour, divided by the mean rate.")
    ] = 3.0,
    log: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the log is kept: the time between two backups.")
    ] = "7d",
    replicas: Annotated[int, typer.Option(min=1, metavar="N", help="Copies of the log on the brokers.")] = 3,
    standby: Annotated[
        bool, typer.Option(help="A second host follows each shard, to take it over within seconds.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Estimate shards, cores, memory, disk and log of a plane, from measured costs. It needs no plane."""
    for name, value in (("--keys", keys), ("--deletes-per-day", deletes_per_day), ("--peak", peak)):
        if not math.isfinite(value):
            raise typer.BadParameter(f"{value} is not a number of things: write 1e9", param_hint=name)
    held_days, log_days = (duration_ms(text) / _MS_PER_DAY for text in (held, log))
    work = Workload(keys, deletes_per_day, snapshots, held_days, peak, log_days, replicas, is_followed=standby)
    found = capacity_of(work, MEASURED)
    if as_json:
        print_json({**asdict(found), "limits": [{**asdict(one), "share": one.share} for one in found.limits]})
        return
    _print(work, found)


def _print(work: Workload, found: Capacity) -> None:
    standby = ", and as many standbys" if work.is_followed else ""
    memory, cache = bytes_text(sum(found.memory_bytes.values())), bytes_text(found.page_cache_bytes)
    print_fields(
        [
            ("busiest hour", f"{found.peak_deletes_per_second:,.0f} deletions a second, and as many puts"),
            ("held versions", f"{found.held_versions:,.0f}, by snapshots"),
            ("shards", f"{found.shards:,}, each in a process of metadata{standby}"),
            ("cores", f"{sum(found.cores.values()):,.1f}, of which at most {work.busy:.0%} are in use"),
            ("Spark", f"{counted(found.executors, 'executor')} of {counted(CORES_PER_EXECUTOR, 'core')}"),
            ("memory", f"{memory} without the brokers, and {cache} of page cache for the rows of live keys"),
            ("disk", f"{bytes_text(found.disk_bytes)} of databases"),
            ("log", f"{bytes_text(found.log_bytes_per_day)} a day; {bytes_text(found.log_bytes)} on all brokers"),
        ]
    )
    say("")
    print_table(
        ["PROCESS", "CORES", "MEMORY"],
        (
            (name, f"{cores:,.1f}", bytes_text(found.memory_bytes[name]) if name in found.memory_bytes else "")
            for name, cores in sorted(found.cores.items(), key=lambda item: -item[1])
        ),
        numbers=["CORES", "MEMORY"],
    )
    say("")
    say("Limits that more hosts do not raise, the most used first:")
    print_table(
        ["LIMIT", "USED", "OF", "", "WHEN REACHED"],
        ((one.name, f"{one.used:,.0f}", f"{one.most:,.0f}", one.unit, one.advice) for one in found.limits),
        numbers=["USED", "OF"],
    )

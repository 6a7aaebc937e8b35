"""``deepclean trim-log``: delete log records that no reader, no backup and no unfinished work of metadata needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from schemas.topics import DELETED_ENTRIES
from services.cli.confirmation import DryRunOption, YesOption, confirm
from services.cli.output import print_json, print_table
from services.cli.session import JsonOption, made_session
from services.cli.terminal import say, say_aside
from services.domain.words import counted
from services.log.kafka import KafkaLog
from services.log.schema_topic import follow_schemas
from services.plane.stack.plane_file import running_plane
from services.plane.stack.secrets import administrator
from services.plane.upkeep.backups import damaged_copies, known_backups
from services.plane.upkeep.log_trims import planned_trims, publish_full_chain


def trim_log(
    context: typer.Context,
    is_dry_run: DryRunOption = False,
    is_confirmed: YesOption = False,
    backups: Annotated[
        list[Path] | None,
        typer.Option(
            help="Directory of further backups, besides the home's and that of deepclean.toml; may be repeated."
        ),
    ] = None,
    writes_full_chain: Annotated[
        bool,
        typer.Option(
            "--full-chain",
            help="Publish a full chain, also with --dry-run, so that gc.snapshot-chain can be trimmed later.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete log records that no reader, backup or unfinished work of metadata needs."""
    session = made_session(context)
    plane = running_plane(session.home)
    kept, damaged = known_backups(plane, *(backups or ())), damaged_copies(plane, *(backups or ()))
    for (backup, service, shard), reason in damaged.items():
        say_aside(f"Backup {backup} does not count as one of {service}, shard {shard}: {reason}.")
    log = KafkaLog(plane.bootstrap_servers, "deepclean.trim", credentials=administrator(session.home))
    follow_schemas(log)
    trims = planned_trims(plane, log, kept, damaged)
    messages = sum(trim.messages for trim in trims)
    if messages and not is_dry_run:
        confirm(
            f"This deletes {counted(messages, 'message')} of the log: from then on a shard can be rebuilt only from a "
            f"backup and the rest of the log.",
            is_confirmed=is_confirmed,
        )
    if writes_full_chain:
        publish_full_chain(plane)
    if not is_dry_run:
        for trim in trims:
            if trim.messages:
                log.trim(trim.topic, trim.shard, trim.until)
    if as_json:
        print_json(trims)
        return
    print_table(
        ["TOPIC", "SHARD", "FROM", "TO", "PINNED BY"],
        ((trim.topic, trim.shard, f"{trim.first:,}", f"{trim.until:,}", trim.pinned_by) for trim in trims),
        numbers=["SHARD", "FROM", "TO"],
    )
    _say_what_follows(messages, kept[-1].name if kept else "", is_dry_run=is_dry_run)


def _say_what_follows(messages: int, newest_backup: str, *, is_dry_run: bool) -> None:
    if not newest_backup:
        say(
            "",
            f"Without a backup only {DELETED_ENTRIES.name} can be trimmed, as far as Spark has read it: make a backup "
            f"(deepclean backup), or name its directory.",
        )
    elif is_dry_run:
        say("", f"{counted(messages, 'message')} would be removed.")
    else:
        say(
            "",
            f"{counted(messages, 'message')} removed. From now on a shard can be rebuilt only from a backup and the "
            f"rest of the log: keep {newest_backup}, and another copy of it elsewhere.",
        )

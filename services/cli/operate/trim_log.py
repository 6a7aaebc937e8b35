"""``deepclean trim-log``: gives up what no reader, no backup and no unfinished transaction needs any more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import Producer

from schemas.codec import FINGERPRINT_HEADER, codec
from schemas.records import MetadataCommand, PublishFullChain, SnapshotChainRecord
from schemas.topics import METADATA_COMMANDS, SNAPSHOT_CHAIN, TOPICS
from services.cli.output import counted, print_json, print_table, say
from services.cli.session import JsonOption, made_session
from services.log.clock import SystemClock
from services.log.kafka import KafkaLog, producer_configuration
from services.log.reads import records_between
from services.log.signing import person_command
from services.plane.backups import Backup, backups_directory, list_backups
from services.plane.errors import StackError
from services.plane.plane_file import PlaneFile, running_plane
from services.plane.plane_secrets import administrator, person
from services.plane.reader_positions import reader_positions
from services.plane.trimming import Trim, newest_start, plan_trims

FLUSH_SECONDS = 30.0


def trim_log(
    context: typer.Context,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    backups: Annotated[
        list[Path] | None,
        typer.Option(help="Where backups are kept beside those in the home; each such place must be named."),
    ] = None,
    writes_full_chain: Annotated[
        bool,
        typer.Option(
            "--full-chain", help="Have the whole chain written, so that gc.snapshot-chain can be trimmed later."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Trim the log up to what readers, backups and unfinished transactions still need."""
    session = made_session(context)
    plane = running_plane(session.home)
    kept = all_backups(session.home, backups or ())
    log = KafkaLog(plane.bootstrap_servers, "deepclean.trim", credentials=administrator(session.home))
    if writes_full_chain:
        publish_full_chain(plane)
    trims = planned_trims(plane, log, kept)
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
    _say_what_follows(sum(trim.messages for trim in trims), kept, is_dry_run=is_dry_run)


def all_backups(home: Path, places: Sequence[Path]) -> list[Backup]:
    """The backups in the home, and in the places that are named beside it; oldest first."""
    directories = {place.resolve() for place in (backups_directory(home), *places)}
    found = [backup for directory in sorted(directories) for backup in list_backups(directory)]
    return sorted(found, key=lambda backup: (backup.made_at_ms, backup.name))


def _say_what_follows(messages: int, kept: list[Backup], *, is_dry_run: bool) -> None:
    if not kept:
        say("", "There is no backup, so nothing may go: make one (deepclean backup), or name its place.")
    elif is_dry_run:
        say("", f"{counted(messages, 'message')} would go.")
    else:
        say(
            "",
            f"{counted(messages, 'message')} removed. From now on a shard is made again from a backup and what "
            f"follows: keep {kept[-1].name}, and another copy of it elsewhere.",
        )


def planned_trims(plane: PlaneFile, log: KafkaLog, backups: list[Backup]) -> list[Trim]:
    """What may go of a running plane's log; raises StackError when a backup is of another log."""
    topic_ids = log.topic_ids([topic.name for topic in TOPICS])
    for backup in backups:
        for copy in backup.copies:
            for position in copy.positions:
                if position.topic_id != topic_ids[position.topic]:
                    raise StackError(
                        f"Backup {backup.name} has read another {position.topic} than this broker holds: take it out "
                        f"of there, it fits no plane on this log."
                    )
    positions = reader_positions(plane)
    places = [(topic.name, shard) for topic in TOPICS for shard in range(plane.shards)]
    firsts = {place: log.first_offset(*place) for place in places}
    return plan_trims(
        plane.shards, firsts, positions, backups, lambda shard, until: newest_full_chain(log, shard, until)
    )


def newest_full_chain(log: KafkaLog, shard: int, until: int) -> int | None:
    """Offset where the newest whole chain before an offset begins; all before it is read to find it."""
    topic, decode = SNAPSHOT_CHAIN.name, codec(SnapshotChainRecord).decode_message
    records = records_between(log, topic, shard, log.first_offset(topic, shard), until)
    return newest_start((record.offset, decode(record.value, record.fingerprint)) for record in records)


def publish_full_chain(plane: PlaneFile) -> None:
    """Have metadata write a record of the whole chain of every shard."""
    encoder = codec(MetadataCommand)
    producer = Producer(
        producer_configuration(plane.bootstrap_servers, "deepclean.trim", administrator(Path(plane.home)))
    )
    for shard in range(plane.shards):
        command = MetadataCommand(shard, "", 0, PublishFullChain("the log is to be trimmed"), wants_reply=False)
        body = person_command(command, person(Path(plane.home)), SystemClock().now_ms())
        producer.produce(
            METADATA_COMMANDS.name, body, partition=shard, headers=[(FINGERPRINT_HEADER, encoder.fingerprint)]
        )
    if producer.flush(FLUSH_SECONDS):
        raise StackError(f"The broker on {plane.bootstrap_servers} did not take the command: see that it runs.")

"""``deepclean backup``, ``restore-backup``, ``rebuild`` and ``digest``: databases made again, and the proof of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from schemas.topics import METADATA_COMMANDS
from services.cli.output import bytes_text, counted, print_json, say
from services.cli.session import JsonOption, made_session
from services.log.kafka import KafkaLog
from services.metadata.digest import ShardDigest, digest_shard
from services.metadata.rebuild import Rebuild, surely_sent_txn
from services.plane.backups import (
    backups_directory,
    copy_of_running,
    find_backup,
    list_backups,
    restore_backup,
    take_backup,
)
from services.plane.errors import StackError
from services.plane.plane_file import read_plane_file, running_plane
from services.plane.plane_lock import log_of_stopped_plane, take_plane_lock
from services.plane.shard_databases import (
    database_directory,
    has_database,
    new_database,
    open_copy,
    open_database,
    positions_of,
)
from services.plane.stack_settings import METADATA, SERVICES

SERVICE = Annotated[
    list[str] | None, typer.Option("--service", help=f"Only this one; may be given again. {', '.join(SERVICES)}.")
]
BOOTSTRAP_SERVERS = Annotated[
    str, typer.Option(help="Brokers that run; by default the plane's own one is started for this.")
]
SHARD = Annotated[int, typer.Argument(min=0, help="Number of the shard.")]


def backup(
    context: typer.Context,
    to: Annotated[Path | None, typer.Option(help="Where backups are kept; by default backups in the home.")] = None,
    has_digest: Annotated[
        bool, typer.Option("--digest/--no-digest", help="Read metadata's copy, and write down what it hashes to.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Copy every service's state, with its position in the log, while the plane runs."""
    home = made_session(context).home
    directory = (to or backups_directory(home)).absolute()
    made = take_backup(running_plane(home), directory, has_digest=has_digest)
    if as_json:
        print_json(made)
        return
    say(f"{directory / made.name}: {counted(len(made.copies), 'copy', 'copies')}, {bytes_text(made.size_bytes)}.")
    for copy in made.copies:
        if copy.digest is not None:
            say(f"  metadata, shard {copy.shard}: txn {copy.digest.txn}, digest {copy.digest.digest}")


def restore(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Which backup; the newest when none is named.")] = "",
    directory: Annotated[Path | None, typer.Option("--from", help="Where backups are kept.")] = None,
    service: SERVICE = None,
    shard: Annotated[list[int] | None, typer.Option(help="Only this shard; may be given again.")] = None,
) -> None:
    """Put a backup's copies where a stopped plane looks for its databases; the rest comes from the log at its start."""
    home = made_session(context).home
    unknown = sorted(set(service or ()) - set(SERVICES))
    if unknown:
        raise typer.BadParameter(f"{unknown[0]} is none of {', '.join(SERVICES)}")
    place = (directory or backups_directory(home)).absolute()
    with take_plane_lock(home):
        found = find_backup(place, name)
        restored = restore_backup(home, place, found, service or SERVICES, shard or ())
    for copy in restored:
        say(f"{copy.service}, shard {copy.shard}: restored from {found.name}.")
    say("Start the plane (deepclean up): it takes in what the log has had since.")


def digest(
    context: typer.Context,
    shard: SHARD,
    directory: Annotated[
        Path | None, typer.Option(help="Of a database elsewhere, that nobody runs: where its db and checkpoints are.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a shard of metadata holds, as one digest: of its tables, and of every live snapshot's checkpoint."""
    home = made_session(context).home
    with _readable(home, shard, directory) as store:
        found = PlacedDigest.of(store)
    if as_json:
        print_json({"digest": found.digest.digest, "next_offset": found.next_offset, **asdict(found.digest)})
        return
    _print_digest(found)


@dataclass(frozen=True, slots=True)
class PlacedDigest:
    """A digest, and up to where in the log it goes."""

    digest: ShardDigest
    topic_id: str
    next_offset: int

    @classmethod
    def of(cls, store: Any) -> PlacedDigest:
        """Of a database or a copy."""
        position = positions_of(store, METADATA).get(METADATA_COMMANDS.name)
        return cls(digest_shard(store), position.topic_id if position else "", position.next_offset if position else 0)


def _print_digest(found: PlacedDigest) -> None:
    one = found.digest
    held = sum(checkpoint.rows for checkpoint in one.checkpoints.values())
    say(f"{one.digest}  at offset {found.next_offset} of {METADATA_COMMANDS.name}, txn {one.txn}")
    snapshots = counted(len(one.checkpoints), "live snapshot")
    say(f"  {counted(one.rows, 'row')}; {snapshots} with {counted(held, 'row')} in checkpoints")


@contextmanager
def _readable(home: Path, shard: int, directory: Path | None) -> Iterator[Any]:
    """The database of a shard: a copy of a running one, else itself."""
    plane = read_plane_file(home)
    if directory is None and plane is not None and plane.is_up():
        with copy_of_running(running_plane(home), METADATA, shard, f"digest-{time.time_ns()}") as made:
            copy = open_copy(made, METADATA)
            try:
                yield copy
            finally:
                copy.close()
        return
    store = open_database(directory or database_directory(home, METADATA, shard), METADATA)
    try:
        yield store
    finally:
        store.close()


def rebuild(
    context: typer.Context,
    shard: SHARD,
    compare_with: Annotated[
        Path | None, typer.Option(help="The lost database, moved away: the new one must equal it where it ended.")
    ] = None,
    backups: Annotated[Path | None, typer.Option(help="Where backups are kept, to compare with theirs.")] = None,
    goes_on: Annotated[
        bool, typer.Option("--go-on", help="Go on with a database that is there: restored, or half rebuilt.")
    ] = False,
    sends_all: Annotated[
        bool, typer.Option("--send-all", help="Send every message again, also those that were surely sent.")
    ] = False,
    bootstrap_servers: BOOTSTRAP_SERVERS = "",
    max_batch_messages: Annotated[int, typer.Option(min=1, max=100_000, help="Commands of one unit of work.")] = 2_000,
) -> None:
    """Make a shard of metadata again from the log, snapshots and all, and prove by digest that it is the same."""
    home = made_session(context).home
    target = database_directory(home, METADATA, shard)
    with log_of_stopped_plane(home, bootstrap_servers) as log:
        if has_database(target) and not goes_on:
            raise StackError(
                f"{target} holds a database: move it away and name it with --compare-with, or --go-on with it."
            )
        expected = _expected(log, compare_with, backups or backups_directory(home), shard)
        named = str(compare_with) if compare_with else ""
        sent_txn = 0 if sends_all else surely_sent_txn(log, shard)
        store = new_database(target, METADATA)
        try:
            run = Rebuild(shard, store, log, sent_txn=sent_txn, max_batch_messages=max_batch_messages)
            try:
                _rebuild_and_compare(run, store, expected, named)
                sent = run.send()
            finally:
                run.close()
        finally:
            store.close()
    say(f"Messages up to txn {sent_txn:,} were sent before; {sent:,} later ones were sent again.")


def _expected(log: KafkaLog, lost: Path | None, backups: Path, shard: int) -> list[tuple[int, str, ShardDigest]]:
    """What the new database must equal, by the offset at which it must: the lost one, and backups of this very log."""
    topic = METADATA_COMMANDS.name
    topic_id = log.topic_ids([topic])[topic]
    found = []
    for one in list_backups(backups):
        copy = one.copy_of(METADATA, shard)
        position = copy.position(topic) if copy else None
        if copy and copy.digest and position and position.topic_id == topic_id:
            found.append((position.next_offset, f"backup {one.name}", copy.digest))
    if lost is not None:
        store = open_database(lost, METADATA)
        try:
            placed = PlacedDigest.of(store)
        finally:
            store.close()
        if placed.topic_id != topic_id:
            raise StackError(f"{lost} has read another {topic} than this broker holds: compare with one of this log.")
        found.append((placed.next_offset, str(lost), placed.digest))
    return sorted(found, key=lambda one: one[0])


def _rebuild_and_compare(run: Rebuild, store: Any, expected: list[tuple[int, str, ShardDigest]], named: str) -> None:
    """Apply all of the log and compare on the way. Whatever speaks against the database ends it: nothing is sent."""
    first, end = run.position, run.end
    applying_seconds, found = 0.0, None
    for offset, name, wanted in expected:
        if not first <= offset <= end:
            if name == named:
                raise StackError(
                    f"{name} is at offset {offset} of {METADATA_COMMANDS.name}, outside of {first} to {end}, so "
                    f"nothing can be compared: {_why_outside(offset, end)}."
                )
            say(f"Not compared with {name}: it is at offset {offset}, outside of {first} to {end}.")
            continue
        applying_seconds += _advance(run, offset)
        found = PlacedDigest.of(store)
        differing = found.digest.differences(wanted)
        if differing:
            raise StackError(
                f"The rebuilt database differs from {name} at offset {offset} ({', '.join(differing[:5])}): keep both, "
                f"start neither, and report it."
            )
        say(f"Equal to {name} at offset {offset}: {wanted.digest}")
    applying_seconds += _advance(run, end)
    say(f"Commands {first:,} to {end:,} applied in {applying_seconds:.1f} s.")
    final = found if found and found.next_offset == end else PlacedDigest.of(store)
    run.check()
    for _, name, wanted in expected:
        if wanted.txn > final.digest.txn:
            raise StackError(
                f"{name} is at txn {wanted.txn}, and with all that {METADATA_COMMANDS.name} holds the database comes "
                f"to {final.digest.txn}: {_why_outside(end + 1, end)}."
            )
    _print_digest(final)


def _why_outside(offset: int, end: int) -> str:
    if offset > end:
        return (
            "the broker has lost its tail; restore the log, or put that database or a later backup in place "
            "and go on without what is lost (deepclean accept-lost-tail)"
        )
    return "the database that is gone on with is newer; leave --compare-with out"


def _advance(run: Rebuild, offset: int) -> float:
    """Apply the commands below an offset; says how many seconds it took."""
    started = time.monotonic()
    with Console(stderr=True).status("rebuilding") as shown:
        while (position := run.position) < offset:
            shown.update(f"rebuilding: {position:,} of {offset:,} commands")
            run.step(offset)
    return time.monotonic() - started

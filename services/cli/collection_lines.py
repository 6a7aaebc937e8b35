"""Functions that ``gc`` and ``breaker`` share: change, read and print the collection state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from schemas.answers import CollectionStatus
from schemas.records import CollectionState, ResetBreaker, SetBreaker, SetCollection
from services.cli.output import print_table
from services.cli.session import Session, bucket_path

IdOption = Annotated[
    int,
    typer.Option(
        "--id", metavar="ID", help="Id of the bucket with this name, for instance of a deleted one: see gc status."
    ),
]


def set_collection(
    session: Session, bucket: str, state: CollectionState, reason: str, *, bucket_id: int = 0, ends_stop: bool = False
) -> None:
    """Pause or resume garbage collection for a bucket, for one of several buckets of a name by its id, or for all."""
    volume, name = bucket_path(bucket) if bucket else ("", "")
    order(session, SetCollection(volume, name, state, reason, ends_stop, bucket_id))


def order(session: Session, command: SetCollection | SetBreaker | ResetBreaker) -> None:
    """Send a command to the shard of its bucket, or to all shards."""
    for shard in shards_of(session, command.volume):
        session.execute(shard, command)


def shards_of(session: Session, volume: str) -> Sequence[int]:
    """Return the shard of a volume; all shards if the volume is empty."""
    return [session.volumes().shard_of(volume)] if volume else range(session.connected().shards)


def collection_lines(session: Session, bucket: str) -> list[CollectionStatus]:
    """Return the collection status of all shards, or of the shard that has the bucket."""
    if bucket:
        volume, name = bucket_path(bucket)
        return session.metadata(volume).collection(volume, name)
    return [line for shard in session.shards(None) for line in session.connected().metadata(shard).collection()]


def scope(line: CollectionStatus) -> str:
    """Return the bucket or shard that a line describes."""
    if not line.bucket:
        return "everything"
    return f"{line.volume}/{line.bucket}{f' (deleted, id {line.bucket_id})' if line.is_deleted else ''}"


def are_of_several_shards(lines: Sequence[CollectionStatus]) -> bool:
    """Return whether lines have to name their shards."""
    return len({line.shard for line in lines}) > 1


def print_lines(
    lines: Sequence[CollectionStatus],
    columns: Sequence[str],
    cells: Callable[[CollectionStatus], Sequence[object]],
    *,
    numbers: Sequence[str],
) -> None:
    """Print a table of lines, with a column for the shard if they are of several shards."""
    if are_of_several_shards(lines):
        print_table(["SHARD", *columns], ((line.shard, *cells(line)) for line in lines), numbers=numbers)
    else:
        print_table(columns, map(cells, lines), numbers=numbers)

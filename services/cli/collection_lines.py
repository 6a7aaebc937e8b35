"""Functions that ``gc`` and ``breaker`` share: change, read and print the collection state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from schemas.answers import CollectionStatus
from schemas.records import BreakerCause, BreakerTrip, CollectionState, ResetBreaker, SetBreaker, SetCollection
from services.cli.output import amount_in_words, bytes_text, print_table, time_text
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


def state_words(line: CollectionStatus) -> str:
    """Return a state and its start, with its cause and author where known, in one line."""
    since = f"{line.effective_state.lower()} since {time_text(line.since_ms(line.effective_state))}"
    if line.trip and line.effective_state is CollectionState.TRIPPED:
        return f"{since}: {trip_words(line.trip)}"
    if line.state is CollectionState.STOPPED:
        return f"{since}: {line.reason}"  # changed_by is from the last pause or resume, not from the stop
    by = f" by {line.changed_by}" if line.changed_by else ""
    because = f": {line.reason}" if line.reason else ""
    return f"{since}{by}{because}"


def suspended_words(lines: list[CollectionStatus]) -> str:
    """Return why, since when and by whom claims of a bucket are suspended; empty if they are not suspended."""
    shard, *buckets = lines
    line = next((one for one in buckets if not one.is_deleted), shard)
    is_own = line is not shard and line.state is line.effective_state
    what, by = ("the bucket", line) if is_own else ("everything", shard)
    match line.effective_state:
        case CollectionState.RUNNING:
            return ""
        case CollectionState.STOPPED:
            return f"all claims are stopped since {time_text(shard.stopped_ms)}: {shard.reason}"
        case CollectionState.TRIPPED if by.trip:
            return f"its breaker tripped at {time_text(by.trip.at_ms)}; {trip_words(by.trip)}"
    is_shadow = line.effective_state is CollectionState.SHADOW
    state = "in shadow mode" if is_shadow else "paused"
    who = (f", set by {by.changed_by}," if is_shadow else f" by {by.changed_by}") if by.changed_by else ""
    because = f": {by.reason}" if by.reason else ""
    return f"{what} is {state}{who} since {time_text(by.changed_ms)}{because}"


def trip_words(trip: BreakerTrip) -> str:
    """Return why the breaker has tripped, with the figures of the trip."""
    went = amount_in_words(trip.claimed_bytes, trip.claimed_versions)
    most = amount_in_words(trip.most_bytes, trip.most_versions)
    if trip.cause is BreakerCause.FIGURES:
        return f"its rows and its space figures disagree: one space figure is {most}"
    after = f"and the next version has {bytes_text(trip.next_bytes)}"
    if trip.cause is BreakerCause.LIMITS:
        return f"{went} claimed in one hour, but the maximum is {most}, {after}"
    return f"{went} claimed by one command, but the space figures count only {most} that no snapshot holds, {after}"

"""What ``gc`` and ``breaker`` have in common: changing and reading what the collector does, and saying it."""

from __future__ import annotations

from schemas.answers import CollectorStatus
from schemas.records import BreakerCause, BreakerTrip, CollectorState, ResetBreaker, SetBreaker, SetCollector
from services.client.commands.output import bytes_text, time_text
from services.client.commands.session import Session, bucket_path


def set_collector(
    session: Session, bucket: str, state: CollectorState, reason: str, *, ends_stop: bool = False
) -> None:
    """Pause or resume the collector for a bucket, or for everything."""
    volume, name = bucket_path(bucket) if bucket else ("", "")
    order(session, SetCollector(volume, name, state, reason, ends_stop))


def order(session: Session, command: SetCollector | SetBreaker | ResetBreaker) -> None:
    """Give a command to the shard of its bucket, or to all of them."""
    if command.volume:
        session.execute(session.volumes().shard_of(command.volume), command)
        return
    for shard in range(session.connected().shards):
        session.execute(shard, command)


def collector_lines(session: Session, bucket: str) -> list[CollectorStatus]:
    """Of all shards, or of the one that has the bucket."""
    plane = session.connected()
    if bucket:
        volume, name = bucket_path(bucket)
        return plane.metadata(session.volumes().shard_of(volume)).collector(volume, name)
    return [line for shard in range(plane.shards) for line in plane.metadata(shard).collector()]


def scope(line: CollectorStatus) -> str:
    """What a line is about."""
    if not line.bucket:
        return "everything"
    return f"{line.volume}/{line.bucket}{' (deleted)' if line.is_deleted else ''}"


def state_words(line: CollectorStatus) -> str:
    """A state with its story, in one line."""
    if line.trip and line.effective_state is CollectorState.TRIPPED:
        return f"tripped since {time_text(line.trip.at_ms)}: {trip_words(line.trip)}"
    if line.state is CollectorState.STOPPED:
        return f"stopped: {line.reason}"  # the rest is of what a person said last
    by = f" by {line.changed_by}" if line.changed_by else ""
    because = f": {line.reason}" if line.reason else ""
    return f"{line.effective_state.lower()} since {time_text(line.changed_ms)}{by}{because}"


def trip_words(trip: BreakerTrip) -> str:
    """Why the breaker has tripped, with the figures that did it."""
    went = f"{bytes_text(trip.claimed_bytes)} in {trip.claimed_versions:,} versions"
    most = f"{bytes_text(trip.most_bytes)} in {trip.most_versions:,} versions"
    after = f"and the next version has {bytes_text(trip.next_bytes)}"
    if trip.cause is BreakerCause.LIMITS:
        return f"claimed within an hour: {went}, at most {most} may go, {after}"
    return f"claimed by one command: {went}, but the space figures know of only {most} that nobody holds, {after}"

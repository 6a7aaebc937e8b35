"""Why claims are suspended, since when and by whom."""

from __future__ import annotations

from schemas.answers import CollectionStatus
from schemas.records import BreakerCause, BreakerTrip, CollectionState
from services.wording.figures import amount_in_words, bytes_text, time_text


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

"""What the collector may do for a bucket: of what was said for it and for its whole shard the stricter one counts."""

from __future__ import annotations

from schemas.records import CollectorState

WHOLE_SHARD = 0
"""In place of a bucket id."""
_STRICTNESS = {state: place for place, state in enumerate(CollectorState)}


def stricter(one: CollectorState, other: CollectorState) -> CollectorState:
    """What counts when two things are said at once."""
    return max(one, other, key=_STRICTNESS.__getitem__)


def is_looser(state: CollectorState, before: CollectorState) -> bool:
    """Whether rows that were held back may have to be looked at again."""
    return _STRICTNESS[state] < _STRICTNESS[before]


def may_claim(state: CollectorState) -> bool:
    """Whether rows that nobody holds may go."""
    return state is CollectorState.RUNNING


def may_ask(state: CollectorState) -> bool:
    """Whether claims are made, be it only to learn what would go."""
    return state in (CollectorState.RUNNING, CollectorState.SHADOW)


def may_expand(state: CollectorState) -> bool:
    """Whether deleted trees are taken apart; one that is not comes back as a whole, in one row."""
    return state in (CollectorState.RUNNING, CollectorState.SHADOW)

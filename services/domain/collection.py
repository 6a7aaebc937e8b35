"""What the collector may do for a bucket: of what was said for it and for its whole shard the stricter one counts."""

from __future__ import annotations

from schemas.records import CollectionState

WHOLE_SHARD = 0
"""In place of a bucket id."""
_STRICTNESS = {state: place for place, state in enumerate(CollectionState)}


def stricter(one: CollectionState, other: CollectionState) -> CollectionState:
    """What counts when two things are said at once."""
    return max(one, other, key=_STRICTNESS.__getitem__)


def is_looser(state: CollectionState, before: CollectionState) -> bool:
    """Whether rows that were held back may have to be looked at again."""
    return _STRICTNESS[state] < _STRICTNESS[before]


def may_claim(state: CollectionState) -> bool:
    """Whether rows that nobody holds may go."""
    return state is CollectionState.RUNNING


def may_ask(state: CollectionState) -> bool:
    """Whether claims are made, be it only to learn what would go."""
    return state in (CollectionState.RUNNING, CollectionState.SHADOW)


def may_expand(state: CollectionState) -> bool:
    """Whether deleted trees are taken apart; one that is not comes back as a whole, in one row."""
    return state in (CollectionState.RUNNING, CollectionState.SHADOW)

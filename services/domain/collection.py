"""Collection states. Of a bucket's state and its shard's state the stricter one applies."""

from __future__ import annotations

from schemas.records import CollectionState

WHOLE_SHARD = 0
"""Stands for all buckets where a bucket id is expected."""
_STRICTNESS = {state: place for place, state in enumerate(CollectionState)}


def stricter(one: CollectionState, other: CollectionState) -> CollectionState:
    """Return the stricter of two states."""
    return max(one, other, key=_STRICTNESS.__getitem__)


def is_looser(state: CollectionState, before: CollectionState) -> bool:
    """Return whether a state is looser than the one before, so that suspended rows may need another look."""
    return _STRICTNESS[state] < _STRICTNESS[before]


def may_claim(state: CollectionState) -> bool:
    """Return whether rows that no snapshot holds may be claimed."""
    return state is CollectionState.RUNNING


def may_ask(state: CollectionState) -> bool:
    """Return whether claims are sent. In shadow mode they only count rows that would be claimed."""
    return state in (CollectionState.RUNNING, CollectionState.SHADOW)


def may_expand(state: CollectionState) -> bool:
    """Return whether deleted trees are expanded. A tree that is not expanded is undeleted as a whole, by one row."""
    return state in (CollectionState.RUNNING, CollectionState.SHADOW)

"""The checker itself: histories that can be explained, and such that cannot."""

from __future__ import annotations

import pytest

from tests.linearizability.bucket import Bucket, next_states
from tests.linearizability.checker import find_impossible
from tests.linearizability.history import (
    Call,
    CreateSnapshot,
    Delete,
    DeleteSnapshot,
    DeleteTree,
    History,
    Keys,
    ListKeys,
    ListSnapshot,
    Operation,
    Outcome,
    Put,
    Rename,
    Stat,
    Undelete,
)

OK = Outcome()
SeenCall = tuple[int, int | None, Call, Outcome | None]
"""When a call began, when it was answered, the call, the answer."""


def keys(*pairs: str) -> Keys:
    """Keys from ``path=tag``."""
    return frozenset((path, tag) for path, _, tag in (pair.partition("=") for pair in pairs))


def impossible(*calls: SeenCall) -> int | None:
    """The number of the first call that cannot be explained."""
    history = History(
        [Operation(number, number, call, begun, end, seen) for number, (begun, end, call, seen) in enumerate(calls)]
    )
    found = find_impossible(history.in_halves(), Bucket(), next_states)
    return None if found is None else next(n for n, one in enumerate(calls) if one[1] == found.operation.returned)


EXPLAINED: dict[str, tuple[SeenCall, ...]] = {
    "one after the other": ((0, 1, Put("a", "1"), OK), (2, 3, Stat("a"), Outcome(seen=keys("a=1")))),
    "a read during a put sees it": ((0, 3, Put("a", "1"), OK), (1, 2, Stat("a"), Outcome(seen=keys("a=1")))),
    "a read during a put does not see it": ((0, 3, Put("a", "1"), OK), (1, 2, Stat("a"), Outcome("KEY_NOT_FOUND"))),
    "of two puts at once either is the last": (
        (0, 3, Put("a", "1"), OK),
        (1, 2, Put("a", "2"), OK),
        (4, 5, ListKeys(), Outcome(seen=keys("a=1"))),
    ),
    "nobody knows, and it was done late": (
        (0, None, Put("a", "1"), None),
        (1, 2, Stat("a"), Outcome("KEY_NOT_FOUND")),
        (3, 4, Stat("a"), Outcome(seen=keys("a=1"))),
    ),
    "nobody knows, and it never was": (
        (0, None, Delete("a"), None),
        (1, 2, Put("a", "1"), OK),
        (3, 4, ListKeys(), Outcome(seen=keys("a=1"))),
    ),
    "a snapshot shows a moment before it has its name": (
        (0, 9, CreateSnapshot("s"), OK),
        (1, 2, Put("a", "1"), OK),
        (3, 4, ListSnapshot("s"), Outcome("FILE_NOT_FOUND")),
        (10, 11, ListSnapshot("s"), Outcome(seen=keys())),
    ),
    "what comes back has its tag": (
        (0, 1, Put("a", "1"), OK),
        (2, 3, Delete("a"), OK),
        (4, 5, Undelete("b", "1"), OK),
        (6, 7, ListKeys(), Outcome(seen=keys("b=1"))),
    ),
}
NOT_EXPLAINED: dict[str, tuple[int, tuple[SeenCall, ...]]] = {
    "a lost put": (1, ((0, 1, Put("a", "1"), OK), (2, 3, Stat("a"), Outcome("KEY_NOT_FOUND")))),
    "a stale read": (
        2,
        ((0, 1, Put("a", "1"), OK), (2, 3, Put("a", "2"), OK), (4, 5, Stat("a"), Outcome(seen=keys("a=1")))),
    ),
    "a read that goes back": (
        2,
        (
            (0, 9, Put("a", "1"), OK),
            (1, 2, Stat("a"), Outcome(seen=keys("a=1"))),
            (3, 4, Stat("a"), Outcome("KEY_NOT_FOUND")),
        ),
    ),
    "a delete that was done twice": (
        3,
        (
            (0, 1, Put("a", "1"), OK),
            (2, 3, Delete("a"), OK),
            (4, 5, Put("a", "2"), OK),
            (6, 7, ListKeys(), Outcome(seen=keys())),
        ),
    ),
    "half of a tree's delete": (
        3,
        (
            (0, 1, Put("d/a", "1"), OK),
            (2, 3, Put("d/b", "2"), OK),
            (4, 9, DeleteTree("d"), OK),
            (5, 6, ListKeys(), Outcome(seen=keys("d/a=1"))),
        ),
    ),
    "a key that a rename leaves behind": (
        2,
        ((0, 1, Put("a", "1"), OK), (2, 5, Rename("a", "b"), OK), (3, 4, ListKeys(), Outcome(seen=keys("a=1", "b=1")))),
    ),
    "a snapshot of two moments": (
        3,
        (
            (0, 1, Put("a", "1"), OK),
            (2, 9, CreateSnapshot("s"), OK),
            (3, 4, Put("b", "2"), OK),
            (10, 11, ListSnapshot("s"), Outcome(seen=keys("b=2"))),
        ),
    ),
    "a snapshot of a moment before it was asked for": (
        2,
        ((0, 1, Put("a", "1"), OK), (2, 3, CreateSnapshot("s"), OK), (4, 5, ListSnapshot("s"), Outcome(seen=keys()))),
    ),
    "a snapshot that changes": (
        4,
        (
            (0, 1, CreateSnapshot("s"), OK),
            (2, 3, ListSnapshot("s"), Outcome(seen=keys())),
            (4, 5, Put("a", "1"), OK),
            (6, 7, Delete("a"), OK),
            (8, 9, ListSnapshot("s"), Outcome(seen=keys("a=1"))),
        ),
    ),
    "a snapshot that was deleted": (
        2,
        (
            (0, 1, CreateSnapshot("s"), OK),
            (2, 3, DeleteSnapshot("s"), OK),
            (4, 5, ListSnapshot("s"), Outcome(seen=keys())),
        ),
    ),
    "a version that comes back twice": (
        3,
        (
            (0, 1, Put("a", "1"), OK),
            (2, 3, Delete("a"), OK),
            (4, 5, Undelete("a", "1"), OK),
            (6, 7, Undelete("b", "1"), OK),
        ),
    ),
}


@pytest.mark.parametrize("name", EXPLAINED)
def test_what_can_be_is_explained(name: str) -> None:
    assert impossible(*EXPLAINED[name]) is None


@pytest.mark.parametrize("name", NOT_EXPLAINED)
def test_what_cannot_be_is_found_where_it_is_seen_first(name: str) -> None:
    number, calls = NOT_EXPLAINED[name]
    assert impossible(*calls) == number

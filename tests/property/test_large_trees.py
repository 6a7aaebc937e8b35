"""Deep and wide trees, made, listed, renamed, held by a snapshot, deleted and freed to the last block.

The sizes here are small enough for every run; ``python -m tests.large_trees --levels 10000 --children 1000000`` is for
the large ones.
"""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import MakeDirectory, PutKey
from services.client.errors import PlaneError
from tests.large_trees import LargeTree, live_deep, live_wide

LEVELS = 2 * sys.getrecursionlimit()
"""More than anything that recurses once a level survives."""
CHILDREN = 3_000
NAMES = ("a", "ab", "b", "é", "a-")


def test_a_deep_tree_lives_and_dies() -> None:
    live_deep(LEVELS)


def test_a_wide_directory_lives_and_dies() -> None:
    live_wide(CHILDREN)


def test_more_than_255_directories_in_one_command_are_refused() -> None:
    tree = LargeTree()
    tree.do(MakeDirectory("vol", "tree", "/".join("d" * 255)))
    reply = tree.client.answer(0, tree.client.submit(0, MakeDirectory("vol", "tree", "/".join("e" * 256))))
    assert reply.error == "INVALID_PATH"
    with pytest.raises(PlaneError):
        tree.client.metadata(0).stat("vol", "tree", "e")


PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join)
BEGINNINGS = st.one_of(
    st.just(""),
    PATHS,
    PATHS.map(lambda path: f"{path}/"),
    st.sampled_from(["/", "//", "a//", "/a", "a/b/", "zz", "a/z"]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(PATHS, max_size=12), BEGINNINGS, BEGINNINGS, st.integers(1, 5))
def test_a_listing_from_anywhere_is_that_part_of_the_whole_listing(
    paths: list[str], prefix: str, after: str, limit: int
) -> None:
    tree = LargeTree()
    for path in paths:  # what is in the way of another is refused
        tree.client.answer(0, tree.client.submit(0, PutKey("vol", "tree", path, 1)))
    reads = tree.client.metadata(0)
    whole = [entry.path for entry in reads.entries("vol", "tree", limit=10_000)]
    assert whole == sorted(whole, key=_order)
    expected = [path for path in whole if path.startswith(prefix) and (not after or _order(path) > _order(after))]
    found = [entry.path for entry in reads.entries("vol", "tree", prefix=prefix, start_after=after, limit=limit)]
    assert found == expected[:limit]


def _order(path: str) -> tuple[bytes, ...]:
    return tuple(name.encode() for name in path.split("/"))

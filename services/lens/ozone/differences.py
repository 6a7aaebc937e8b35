"""The rows in which two sorted tables differ: what changed between two stores of a chain."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter

Row = tuple[bytes, bytes]
"""Key and value."""
_KEY = itemgetter(0)


def differing_rows(before: Iterator[list[Row]], after: Iterator[list[Row]]) -> Iterator[tuple[list[Row], list[Row]]]:
    """Yield the rows that only the first table has, and those that only the second has, by ranges of keys.

    A row whose value has changed is in both lists. Each table is read once, in lists of rows ordered by key. Rows are
    compared as members of sets, since most of them are the same: a comparison one by one takes several times as long.
    """
    left, right = next(before, []), next(after, [])
    while left or right:
        # Both are cut behind the same key: the smaller one of their last keys.
        lefts = bisect_right(left, right[-1][0], key=_KEY) if right else len(left)
        rights = bisect_right(right, left[-1][0], key=_KEY) if left else len(right)
        ours, theirs = left[:lefts], right[:rights]
        if ours != theirs:
            both = set(ours) & set(theirs)
            yield [row for row in ours if row not in both], [row for row in theirs if row not in both]
        left, right = left[lefts:] or next(before, []), right[rights:] or next(after, [])

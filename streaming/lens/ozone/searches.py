"""Runs the searches of holders of one task together, so that look-ups go store by store, in the order of the keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.lens.ozone.holders import Names
from services.lens.ozone.messages import KeyInfo
from streaming.lens.ozone.plan import BucketPlan
from streaming.lens.ozone.stores import OpenStores

Row = Any
MAX_WAITING = 20_000
"""Searches that run together, of all buckets. Their rows are in memory: some kilobytes each."""


@dataclass(slots=True)
class _Waiting:
    bucket: BucketPlan
    search: Generator[int, Row | None, Any]
    names: Names
    then: Callable[[Any], None]


class Searches:
    """The searches that wait for look-ups."""

    def __init__(self, stores: OpenStores) -> None:
        self._stores = stores
        self._waiting: list[_Waiting] = []

    def add(
        self,
        bucket: BucketPlan,
        search: Generator[int, Row | None, Any],
        names: Names,
        then: Callable[[Any], None],
    ) -> None:
        """Add a search, which may run all that wait. ``then`` receives what the search returns."""
        self._waiting.append(_Waiting(bucket, search, names, then))
        if len(self._waiting) >= MAX_WAITING:
            self.finish()

    def finish(self) -> None:
        """Run all searches to their ends, round by round: neighbouring snapshots share files, and so the cache."""
        waiting, self._waiting = self._waiting, []
        asked: dict[tuple[str, int], list[tuple[bytes, _Waiting]]] = defaultdict(list)
        for one in waiting:
            _send(one, None, asked)
        while asked:
            now, asked = asked, defaultdict(list)
            for name, number in sorted(now):
                questions = sorted(now[name, number], key=lambda question: question[0])
                bucket = questions[0][1].bucket
                store = self._stores.get(Path(bucket.directory_of(number)))
                values = store.get(bucket.keys.key_table, [key for key, _ in questions])
                for (_, one), value in zip(questions, values, strict=True):
                    _send(one, None if value is None else KeyInfo.FromString(value), asked)


def _send(one: _Waiting, row: Row | None, asked: dict[tuple[str, int], list[tuple[bytes, _Waiting]]]) -> None:
    try:
        place = one.search.send(row)
    except StopIteration as end:
        one.then(end.value)
        return
    number = one.bucket.held_places[place]
    asked[one.bucket.keys.name, number].append((one.names.in_store(number), one))

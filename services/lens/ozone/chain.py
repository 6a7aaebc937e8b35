"""The chain of a bucket's snapshots, and which transactions each of them has seen."""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

SNAPSHOT_DELETED = 2
UNKNOWN = -1
NEVER = 1 << 63
"""A transaction after all others."""


@dataclass(frozen=True, slots=True)
class ChainSnapshot:
    """A row of ``snapshotInfoTable``."""

    id: str
    name: str
    is_deleted: bool
    """Deleted and not purged: it holds nothing, but its garbage tables still count."""
    previous: str | None
    creation_time_ms: int
    create_transaction: int
    """Index of the transaction that created it; ``UNKNOWN`` in rows of releases before 2.1."""
    last_transaction: int
    """Index of the last transaction that changed the row or its database; ``UNKNOWN`` before 2.0."""
    referenced_bytes: int = 0
    exclusive_bytes: int = 0


def snapshot_of(row: Any) -> ChainSnapshot:
    """Return the content of a row. A status that is missing, or that a newer release has, is not "deleted"."""
    return ChainSnapshot(
        id=_uuid(row.id),
        name=row.name,
        is_deleted=row.status == SNAPSHOT_DELETED,
        previous=_uuid(row.previous) if row.HasField("previous") else None,
        creation_time_ms=row.creation_time_ms,
        create_transaction=index_of(row.create_transaction),
        last_transaction=index_of(row.last_transaction),
        referenced_bytes=row.referenced_bytes,
        exclusive_bytes=row.exclusive_bytes + row.exclusive_delta_bytes,
    )


def index_of(transaction: bytes) -> int:
    """Return the index in ``term#index``; ``UNKNOWN`` if there is none."""
    _, _, index = transaction.partition(b"#")
    return int(index) if index.isdigit() else UNKNOWN


def _uuid(row: Any) -> str:
    mask = (1 << 64) - 1
    return str(uuid.UUID(int=(row.most & mask) << 64 | row.least & mask))


def in_order(snapshots: Iterable[ChainSnapshot]) -> tuple[list[ChainSnapshot], list[str]]:
    """Return a bucket's snapshots, the oldest first, and a sentence for each link that does not fit.

    The order is that of the links. What no link from a head leads to is put behind, by transaction and creation time.
    """
    rows = {one.id: one for one in snapshots}
    problems = []
    followers: dict[str | None, list[ChainSnapshot]] = {}
    for one in sorted(rows.values(), key=_by_age):
        previous = one.previous
        if previous is not None and previous not in rows:
            problems.append(f"snapshot {one.name} follows {previous}, which is not in snapshotInfoTable")
            previous = None
        followers.setdefault(previous, []).append(one)
    for before, several in followers.items():
        if len(several) > 1:
            names = ", ".join(one.name for one in several)
            what = "are the first of the chain" if before is None else f"follow {rows[before].name}"
            problems.append(f"snapshots {names} all {what}")
    order: list[ChainSnapshot] = []
    waiting = list(reversed(followers.get(None, [])))
    while waiting:
        one = waiting.pop()
        order.append(one)
        waiting += reversed(followers.get(one.id, []))
    reached = {one.id for one in order}
    unreached = sorted((one for one in rows.values() if one.id not in reached), key=_by_age)
    if unreached:
        problems.append(f"snapshots {', '.join(one.name for one in unreached)} follow each other in a circle")
    return order + unreached, problems


def _by_age(one: ChainSnapshot) -> tuple[int, int]:
    return one.create_transaction, one.creation_time_ms


class SeenTransactions:
    """Which transactions the snapshots at each place have seen.

    A snapshot has all transactions up to the one that its own database names in ``transactionInfoTable``, and none from
    its create transaction on. Where both are there they are neighbours. The log has one order: what an older snapshot
    has seen, a newer one has, too.
    """

    def __init__(self, own: Sequence[int], created: Sequence[int], last: Sequence[int]) -> None:
        self._seen = [max(one, before_create - 1) for one, before_create in zip(own, created, strict=True)]
        bounds = [
            created_at - 1
            if created_at != UNKNOWN
            else one
            if one != UNKNOWN
            else changed
            if changed != UNKNOWN
            else NEVER
            for one, created_at, changed in zip(own, created, last, strict=True)
        ]
        self._possible = bounds
        for place in range(1, len(bounds)):
            self._seen[place] = max(self._seen[place], self._seen[place - 1])
        for place in range(len(bounds) - 2, -1, -1):
            self._possible[place] = min(self._possible[place], self._possible[place + 1])
        self.is_consistent = all(seen <= most for seen, most in zip(self._seen, self._possible, strict=True))
        if not self.is_consistent:
            self._seen = [UNKNOWN] * len(bounds)
            self._possible = [NEVER] * len(bounds)

    def first_with(self, transaction: int) -> int:
        """Return the oldest place that has certainly seen a transaction; the number of places if none has.

        0 is the transaction of a row that names none: nobody knows who has seen it.
        """
        return bisect_left(self._seen, transaction or NEVER)

    def first_possible(self, transaction: int) -> int:
        """Return the oldest place that may have seen a transaction."""
        return bisect_left(self._possible, transaction)

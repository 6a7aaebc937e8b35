"""Purges that came in: they wait until this judge knows enough and has room, then each row is judged again."""

from __future__ import annotations

from collections import Counter, deque

import structlog

from schemas.records import PurgeKeys, RowName, RowNames, WaitingPurge
from services.domain.chain_view import ChainView, ChainViewError
from services.domain.reclaimability import LifetimeError, Verdict
from services.domain.row_columns import (
    ColumnsError,
    check_lengths,
    columns,
    names_between,
    names_of_kind,
    row_count,
    rows,
)
from services.key_deletion.metrics import UNJUDGEABLE, KeyDeletionMetrics
from services.key_deletion.tables import BEYOND, FIRST, PURGE, WAITING_TABLE, Tables, number_key, number_of_key
from services.runtime.counts import next_number
from services.runtime.errors import InvalidMessageError
from services.runtime.service import Work

logger = structlog.get_logger(__name__)


class WaitingPurges:
    """The queue of purges, first come first served."""

    def __init__(self, metrics: KeyDeletionMetrics) -> None:
        self._metrics = metrics
        self._numbers: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._numbers)

    def restore(self, tables: Tables) -> None:
        """Make what is kept in memory anew."""
        self._numbers = deque(number_of_key(key) for key, _ in tables.table(WAITING_TABLE).scan(FIRST, BEYOND))

    def append(self, purge: PurgeKeys, work: Work) -> None:
        """Queue a purge.

        Raises:
            InvalidMessageError: not every row has its place in the chain.
        """
        try:
            check_lengths(*columns(purge.rows), purge.snapshots_before_death)
        except ColumnsError as error:
            raise InvalidMessageError(f"a purge that names no whole rows: {error}") from error
        number = next_number(PURGE, work)
        waiting = WaitingPurge(purge.chain_version, purge.rows, purge.snapshots_before_death)
        work.table(WAITING_TABLE).put(number_key(number), waiting)
        self._numbers.append(number)

    def take(self, view: ChainView, max_rows: int, work: Work) -> list[RowNames] | None:
        """Reclaimable rows for one task, from as many purges as fit whole; None when no purge may be judged yet.

        A purge judged with a newer chain than this view waits, and all behind it: they are as new.
        """
        table = work.table(WAITING_TABLE)
        found: list[RowNames] = []
        taken_rows = 0
        while self._numbers:
            key = number_key(self._numbers[0])
            purge = table.get(key)
            if purge is not None:
                count = row_count([purge.rows])
                if purge.chain_version > view.version or (taken_rows and taken_rows + count > max_rows):
                    break
                found.append(self._judge(purge, view, max_rows))
                taken_rows += min(count, max_rows)
                if count > max_rows:
                    rest = names_between(purge.rows, max_rows, count), purge.snapshots_before_death[max_rows:]
                    table.put(key, WaitingPurge(purge.chain_version, *rest))
                    break
            table.delete(key)
            self._numbers.popleft()
        return found if taken_rows else None

    def _judge(self, purge: WaitingPurge, view: ChainView, max_rows: int) -> RowNames:
        """The rows that nobody holds, by this judge's own view. The others are kept by doing nothing."""
        reclaimable = []
        counted: Counter[str] = Counter()
        kind, judged = purge.rows.kind, names_between(purge.rows, 0, max_rows)
        for row, before in zip(rows(judged), purge.snapshots_before_death, strict=False):
            bucket_id, _, birth, death = row
            try:
                verdict = view.judge(bucket_id, birth, death, before)
            except (ChainViewError, LifetimeError) as error:
                counted[UNJUDGEABLE] += 1
                logger.error(
                    "row cannot be judged: kept",
                    row=RowName(kind, *row),
                    snapshots_before_death=before,
                    reason=str(error),
                )
                continue
            if verdict is Verdict.RECLAIMABLE:
                reclaimable.append(row)
            else:
                counted[verdict.value] += 1
                logger.error("first judge let a held row pass: kept", row=RowName(kind, *row), verdict=verdict.value)
        counted[Verdict.RECLAIMABLE.value] = len(reclaimable)
        for value, number in counted.items():
            self._metrics.rows_judged.labels(value).inc(number)
        return names_of_kind(kind, reclaimable)

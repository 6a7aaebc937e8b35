"""The plans by which batches are judged: kept until the chain grows, one for little and one for much."""

from __future__ import annotations

from pyspark.sql import DataFrame

from streaming.batch import BatchPlan
from streaming.prepared_plan import PlannedBatch, PreparedPlan, partition_count, without_rows

PARTITIONS_OF_ONE_TASK = 2
"""So many parts of a batch are read by a single task, which then needs no shuffle to bring their rows together: every
task makes code and operators anew, which costs more than little a batch does."""


class BatchPlans:
    """Plans every batch with the views as they are; a plan carries them, and serves until their versions change."""

    def __init__(self) -> None:
        self._columns = BatchPlan()
        self._versions = ""
        self._plans: dict[bool, PreparedPlan] = {}

    def over(self, batch: DataFrame, view: DataFrame, versions: str) -> PlannedBatch:
        """All that is to be sent about a batch, for ``BatchPlan.messages`` and with what it observes."""
        if versions != self._versions:
            self._versions, self._plans = versions, {}
        is_small = partition_count(batch) <= PARTITIONS_OF_ONE_TASK
        if is_small not in self._plans:
            rows = without_rows(batch)
            frame = self._columns.messages(rows.coalesce(1) if is_small else rows, view, versions)
            self._plans[is_small] = PreparedPlan(frame)
        return self._plans[is_small].over(batch)

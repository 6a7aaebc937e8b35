"""The plan by which batches are judged: kept until the chain grows."""

from __future__ import annotations

from pyspark.sql import DataFrame

from streaming.batch import BatchPlan
from streaming.prepared_plan import PlannedBatch, PreparedPlan, without_rows


class BatchPlans:
    """Plans every batch with the views as they are; a plan carries them, and serves until their versions change."""

    def __init__(self) -> None:
        self._columns = BatchPlan()
        self._versions = ""
        self._plan: PreparedPlan | None = None

    def over(self, batch: DataFrame, view: DataFrame, versions: str) -> PlannedBatch:
        """All that is to be sent about a batch, for ``BatchPlan.messages`` and with what it observes."""
        if self._plan is None or versions != self._versions:
            self._versions = versions
            self._plan = PreparedPlan(self._columns.messages(without_rows(batch), view, versions))
        return self._plan.over(batch)

"""Cached Spark plans for batches, kept while the chain view changes. Small and large batches have separate plans."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame

from schemas.records import DeletedEntries
from streaming.reclaiming.batch import BatchPlan
from streaming.reclaiming.outcome import BatchOutcome, batch_outcome
from streaming.reclaiming.prepared_plan import (
    PreparedPlan,
    cluster_width,
    partition_count,
    without_rows,
    worked_out_once,
)
from streaming.reclaiming.view_table import JoinedView
from streaming.spark.written_messages import WrittenMessages

PARTITIONS_OF_ONE_TASK = 2
"""A single task reads a batch of at most this many partitions. It needs no shuffle, and every further task would
generate code and operators again, which costs more than a small batch."""
MOST_PLANS = 8
"""Most plans: for one task or for all cores, whose number may change, patient or not."""


@dataclass(frozen=True, slots=True)
class JudgedFrames:
    """A judged batch as two frames. The first action on either frame judges the batch; the other one reuses it."""

    to_send: DataFrame
    results: DataFrame

    def outcome(self) -> BatchOutcome:
        """Return counts, barriers and waiting messages of the batch."""
        return batch_outcome(row.asDict() for row in self.results.collect())


@dataclass(slots=True)
class _PlanOfView:
    """A plan, and the tables that it has now."""

    plan: PreparedPlan
    tables: tuple[DataFrame, DataFrame]

    def follows(self, tables: tuple[DataFrame, DataFrame]) -> bool:
        """Replace the tables that are new; return whether the plan has them all."""
        new = [table for table, old in zip(tables, self.tables, strict=True) if table is not old]
        self.tables = tables
        return not new or self.plan.replace_tables(new)


class BatchPlans:
    """Returns a plan for every batch. A plan is kept; its tables are replaced when the chain views have changed."""

    def __init__(self) -> None:
        self._messages = WrittenMessages(DeletedEntries)
        self._columns = BatchPlan(self._messages)
        self._search_steps = 0
        self._plans: dict[tuple[int, bool], _PlanOfView] = {}
        self._endings: tuple[PreparedPlan, PreparedPlan] | None = None

    def learn_published(self) -> None:
        """Decode messages of published schemas, too, from the next batch on."""
        if self._messages.learn_published():
            self._columns, self._plans, self._endings = BatchPlan(self._messages), {}, None

    @contextmanager
    def over(
        self, batch: DataFrame, view: JoinedView, versions: DataFrame, *, is_patient: bool = True
    ) -> Iterator[JudgedFrames]:
        """Judge a batch once for both frames, inside the context; the arguments are those of ``BatchPlan.judged``."""
        plan = self._plan(batch, view, versions, is_patient=is_patient)
        with worked_out_once(plan.over(batch)) as judged:
            if self._endings is None:
                rows = without_rows(judged)
                to_send, results = self._columns.to_send(rows), self._columns.results(rows)
                self._endings = PreparedPlan(to_send), PreparedPlan(results)
            yield JudgedFrames(*(plan.over(judged) for plan in self._endings))

    def _plan(self, batch: DataFrame, view: JoinedView, versions: DataFrame, *, is_patient: bool) -> PreparedPlan:
        if view.search_steps != self._search_steps or len(self._plans) >= MOST_PLANS:
            self._search_steps, self._plans = view.search_steps, {}
        tasks = 1 if partition_count(batch) <= PARTITIONS_OF_ONE_TASK else cluster_width(batch)
        name, tables = (tasks, is_patient), (view.rows, versions)
        kept = self._plans.get(name)
        if kept is None or not kept.follows(tables):
            batch.sparkSession.conf.set("spark.sql.shuffle.partitions", tasks)
            rows = without_rows(batch).coalesce(tasks)
            plan = PreparedPlan(self._columns.judged(rows, view, versions, is_patient=is_patient))
            kept = self._plans[name] = _PlanOfView(plan, tables)
        return kept.plan

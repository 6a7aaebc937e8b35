"""A plan that Spark makes once and runs over many batches: planning costs many times as much as a small batch.

Spark plans a query at every run. This module keeps the physical plan of a frame without rows and replaces the input of
the plan by each batch. The kept plan itself never runs: every batch gets copies of the operators, because an operator
remembers its shuffle output. Only broadcast tables are shared: they are sent once, until they are replaced
by newer rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streaming.reclaiming.rows_in_jvm import rows_of


class PreparedPlan:
    """The plan of a frame. Each batch replaces its left-most table."""

    def __init__(self, frame: DataFrame) -> None:
        session: Any = frame.sparkSession
        self._session = session
        self._schema = frame._jdf.schema()
        self._to_sequence = session._jvm.PythonUtils.toSeq
        self._operators: list[tuple[Any, list[Any]]] = []
        operator = frame._jdf.queryExecution().executedPlan()
        while operator.children().nonEmpty():
            first, *others = (operator.children().apply(place) for place in range(operator.children().size()))
            self._operators.append((operator, others))
            operator = first
        self._scan = operator

    def replace_tables(self, tables: Iterable[DataFrame]) -> bool:
        """Replace tables of ``RowsInJvm`` by newer ones with the same columns; each is broadcast once more.

        Return whether the plan has all of them. It lacks a table that was empty when it was made: make another plan.
        """
        rows = {tuple(table.columns): rows_of(table) for table in tables}
        missing = set(rows)
        for number, (operator, others) in enumerate(self._operators):
            names = [_table_columns(other) for other in others]
            missing -= set(names)
            named = zip(others, names, strict=True)
            replaced = [self._with_rows(other, rows[name]) if name in rows else other for other, name in named]
            self._operators[number] = (operator, replaced)
        return not missing

    def over(self, batch: DataFrame) -> DataFrame:
        """Return the plan applied to the rows of a batch, whose columns must be those of the planned frame."""
        scan = self._scan
        partitioning, ordering = scan.outputPartitioning(), scan.outputOrdering()
        plan = scan.copy(scan.output(), _rows(batch), scan.name(), partitioning, ordering, scan.stream())
        for operator, others in reversed(self._operators):
            plan = operator.withNewChildren(self._to_sequence([plan, *others]))
        return _frame(self._session, plan.execute(), self._schema)

    def _with_rows(self, operator: Any, rows: Any) -> Any:
        """Return a broadcast of a plan over other rows."""
        children = operator.children()
        if children.isEmpty():
            return operator.copy(operator.output(), rows, operator.stream())
        return operator.withNewChildren(self._to_sequence([self._with_rows(children.apply(0), rows)]))


def use_here(session: SparkSession) -> None:
    """Make a session the active one of this thread, as its operators need; Spark sets it in its own threads."""
    of_threads: Any = session
    of_threads._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(of_threads._jsparkSession)


def without_rows(frame: DataFrame) -> DataFrame:
    """Return an empty frame with the columns of ``frame``: a plan over it keeps no rows of a batch in memory."""
    session: Any = frame.sparkSession
    return _frame(session, session._jsc.emptyRDD().rdd(), frame._jdf.schema())


def handed_in(frame: DataFrame) -> DataFrame:
    """Return the rows of any frame in the form in which the stream passes a batch."""
    return _frame(frame.sparkSession, frame._jdf.queryExecution().toRdd(), frame._jdf.schema())


@contextmanager
def worked_out_once(frame: DataFrame) -> Iterator[DataFrame]:
    """Cache the rows of a frame inside the context: the first action computes them, later actions reuse them."""
    kept = frame.localCheckpoint(eager=False)
    try:
        yield kept
    finally:
        _rows(kept).unpersist(False)


def partition_count(frame: DataFrame) -> int:
    """Return the number of partitions of a batch."""
    return int(_rows(frame).getNumPartitions())


def cluster_width(frame: DataFrame) -> int:
    """Return the number of cores of the executors that Spark has at present, or what is set in place of it."""
    return frame.sparkSession.sparkContext.defaultParallelism


def _table_columns(operator: Any) -> tuple[str, ...]:
    """Return the columns of the table that a broadcast of a plan sends."""
    while operator.children().nonEmpty():
        operator = operator.children().apply(0)
    columns = operator.output()
    return tuple(columns.apply(place).name() for place in range(columns.size()))


def _frame(session: Any, rows: Any, schema: Any) -> DataFrame:
    return DataFrame(session._jsparkSession.internalCreateDataFrame(rows, schema, False), session)


def _rows(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().logical().rdd()

"""A plan that Spark makes once and runs over batch after batch: planning costs many times what a small batch does.

Spark plans a query whenever it runs. Here the physical plan of a frame without rows is kept, and each batch is put in
the place of what it reads. The kept plan itself is never run: a batch has operators of its own, since an operator
remembers what it has shuffled. Only tables that are broadcast are shared: they are sent once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession


class PreparedPlan:
    """The plan of a frame whose left-most table is what each batch takes the place of."""

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

    def over(self, batch: DataFrame) -> DataFrame:
        """The plan over the rows of a frame that was handed in, with the columns it was made for."""
        scan = self._scan
        partitioning, ordering = scan.outputPartitioning(), scan.outputOrdering()
        plan = scan.copy(scan.output(), _rows(batch), scan.name(), partitioning, ordering, scan.stream())
        for operator, others in reversed(self._operators):
            plan = operator.withNewChildren(self._to_sequence([plan, *others]))
        frame = self._session._jsparkSession.internalCreateDataFrame(plan.execute(), self._schema, False)
        return DataFrame(frame, self._session)


def use_here(session: SparkSession) -> None:
    """Have operators that are made by this thread belong to a session; those of threads that Spark knows do."""
    of_threads: Any = session
    of_threads._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(of_threads._jsparkSession)


def without_rows(frame: DataFrame) -> DataFrame:
    """A frame with the columns of another one, over which a plan is made. Its rows stay free to go."""
    session: Any = frame.sparkSession
    nothing = session._jsc.emptyRDD().rdd()
    return DataFrame(session._jsparkSession.internalCreateDataFrame(nothing, frame._jdf.schema(), False), session)


def handed_in(frame: DataFrame) -> DataFrame:
    """The rows of any frame as the stream hands in those of a batch."""
    session: Any = frame.sparkSession
    rows = frame._jdf.queryExecution().toRdd()
    return DataFrame(session._jsparkSession.internalCreateDataFrame(rows, frame._jdf.schema(), False), session)


@contextmanager
def worked_out_once(frame: DataFrame) -> Iterator[DataFrame]:
    """The rows of a frame, kept while this lasts: whoever reads them first works them out, for all others too."""
    kept = frame.localCheckpoint(eager=False)
    try:
        yield kept
    finally:
        _rows(kept).unpersist(False)


def partition_count(frame: DataFrame) -> int:
    """In how many parts the rows of a frame come that was handed in."""
    count: int = _rows(frame).getNumPartitions()
    return count


def _rows(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().logical().rdd()

"""A plan that Spark makes once and runs over batch after batch: planning costs many times what a small batch does.

Spark plans a query whenever it runs. Here the physical plan of a frame without rows is kept, and each batch is put in
the place of what it reads. The kept plan itself is never run: a batch has operators of its own, since an operator
remembers what it has shuffled and counted. Only tables that are broadcast are shared: they are sent once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

COUNTING_OPERATOR = "CollectMetrics"


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """The plan over one batch. Written once: what it has observed is of all that was read from it."""

    frame: DataFrame
    counting: Any

    def observed(self) -> dict[str, Any]:
        """What the plan was told to observe; complete once the frame is written."""
        found: dict[str, Any] = json.loads(self.counting.collectedMetrics().json())
        return found


class PreparedPlan:
    """The plan of a frame that observes its rows once, and whose left-most table is what each batch takes the place of.

    Raises:
        ValueError: the frame observes nothing.
    """

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
        self._counting_at = [above.nodeName() for above, _ in self._operators].index(COUNTING_OPERATOR)

    def over(self, batch: DataFrame) -> PlannedBatch:
        """The plan over the rows of a frame that stream or program handed in, with the columns it was made for."""
        scan = self._scan
        partitioning, ordering = scan.outputPartitioning(), scan.outputOrdering()
        plan = scan.copy(scan.output(), _rows(batch), scan.name(), partitioning, ordering, scan.stream())
        made = []
        for operator, others in reversed(self._operators):
            plan = operator.withNewChildren(self._to_sequence([plan, *others]))
            made.append(plan)
        frame = self._session._jsparkSession.internalCreateDataFrame(plan.execute(), self._schema, False)
        return PlannedBatch(DataFrame(frame, self._session), made[-1 - self._counting_at])


def without_rows(frame: DataFrame) -> DataFrame:
    """A frame with the columns of another one, over which a plan is made. Its rows stay free to go."""
    session: Any = frame.sparkSession
    nothing = session._jsc.emptyRDD().rdd()
    return DataFrame(session._jsparkSession.internalCreateDataFrame(nothing, frame._jdf.schema(), False), session)


def partition_count(frame: DataFrame) -> int:
    """In how many parts the rows of a frame come that was handed in."""
    count: int = _rows(frame).getNumPartitions()
    return count


def _rows(frame: DataFrame) -> Any:
    return frame._jdf.queryExecution().logical().rdd()

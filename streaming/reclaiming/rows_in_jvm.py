"""Small tables whose rows are kept in the JVM, and are part of a plan: Spark reads nothing to have them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession, functions


class RowsInJvm:
    """Rows of one type, by their places. Rows are written as JSON, and the JVM parses them without a Spark job."""

    def __init__(self, session: SparkSession, row_type: str) -> None:
        self._session = cast("Any", session)
        self._type = f"array<{row_type}>"
        parsed: Any = self._parsed([]).schema["rows"].dataType
        self._columns = self._session.createDataFrame([], parsed.elementType)._jdf.queryExecution().analyzed().output()
        self._rows: Any = self._session._jvm.java.util.ArrayList()

    def append(self, rows: Sequence[dict[str, Any]]) -> None:
        """Add rows at the end."""
        self._rows.addAll(self._session._jvm.java.util.Arrays.asList(self._written(rows)))

    def replace(self, places: Sequence[int], rows: Sequence[dict[str, Any]]) -> None:
        """Replace the rows at some places."""
        written = self._written(rows)
        for number, place in enumerate(places):
            self._rows.set(place, written[number])

    def frame(self) -> DataFrame:
        """Return the present rows; later changes do not touch the frame."""
        jvm = self._session._jvm
        relation = jvm.org.apache.spark.sql.catalyst.plans.logical.LocalRelation(
            self._columns, jvm.PythonUtils.toSeq(self._rows), False, jvm.scala.Option.empty()
        )
        made = jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._session._jsparkSession, relation)
        return DataFrame(made, self._session)

    def _written(self, rows: Sequence[dict[str, Any]]) -> Any:
        frame: Any = self._parsed(rows)
        # The optimizer has parsed the text already.
        literal = frame._jdf.queryExecution().optimizedPlan().projectList().head().child()
        return literal.value().toObjectArray(literal.dataType().elementType())

    def _parsed(self, rows: Sequence[dict[str, Any]]) -> DataFrame:
        text = functions.lit(json.dumps(rows, separators=(",", ":")))
        frame: DataFrame = self._session.range(1).select(functions.from_json(text, self._type).alias("rows"))
        return frame


def rows_of(frame: DataFrame) -> Any:
    """Return the rows of a frame of ``RowsInJvm``, as the scan of a plan has them."""
    java: Any = frame._jdf
    return java.queryExecution().analyzed().data()

"""A DataFrame whose rows are read by tasks in Python."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType


def frame_read_by(
    session: SparkSession, name: str, columns: pa.Schema, make_reader: Callable[[], DataSourceReader]
) -> DataFrame:
    """Return the rows of a reader, which is made anew for each plan. Spark shows ``name``."""

    class Source(DataSource):
        """Spark takes options as strings only; a class of its own takes its variables to the tasks."""

        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> StructType:
            return from_arrow_schema(columns)

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  it is the one above
            return make_reader()

    session.dataSource.register(Source)
    return session.read.format(name).load()

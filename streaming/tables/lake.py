"""The Iceberg catalog that holds the tables: makes them, replaces rows of them, and keeps them small.

Each change is one commit of Iceberg: a reader sees the table before it or after it. No change adds rows blindly. A
change replaces the rows that fulfil a condition, or the row of a key, so it may be repeated. If another process has
added rows that fulfil the condition meanwhile, Iceberg refuses the change. A row by its key is replaced whoever wrote
it: run one export at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.functions import max as greatest_of

from services.domain.errors import InvariantError, RetryableError
from streaming.tables.columns import NAMESPACE, TableColumns

CATALOG = "lake"
POSITION = "deepclean.position"
MOST_STATES = 24
"""A table with more states than this is compacted, and its old states are removed."""
_PROPERTIES = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
}


@dataclass(frozen=True, slots=True)
class Position:
    """How far the table of a topic is: the topic's id, and the offset of the next message of each shard.

    It is written after the rows. So it may be behind them, and never ahead.
    """

    topic_id: str
    offsets: Mapping[int, int]


def catalog_settings(warehouse: str) -> list[str]:
    """Return Spark's settings of a catalog whose tables are directories below an address."""
    catalog = f"spark.sql.catalog.{CATALOG}"
    return [
        f"{catalog}=org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type=hadoop",
        f"{catalog}.warehouse={warehouse}",
    ]


class Lake:
    """The tables of one plane in a namespace of the catalog."""

    def __init__(self, session: SparkSession, namespace: str = NAMESPACE) -> None:
        self.session = session
        self.namespace = namespace

    def name(self, table: str) -> str:
        """Return the name of a table in Spark's SQL."""
        return f"{CATALOG}.{self.namespace}.{table}"

    def make_tables(self, tables: Iterable[TableColumns]) -> None:
        """Make the tables that are missing, and the columns that existing tables lack."""
        self.session.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{self.namespace}")
        for table in tables:
            if self.session.catalog.tableExists(self.name(table.name)):
                self._add_columns(table)
            else:
                self.session.sql(_creation(self.name(table.name), table))

    def _add_columns(self, table: TableColumns) -> None:
        there = set(self.session.table(self.name(table.name)).columns)
        new = ", ".join(_column(*column) for column in table.columns if column[0] not in there)
        if new:
            self.session.sql(f"ALTER TABLE {self.name(table.name)} ADD COLUMNS ({new})")

    def state(self, table: TableColumns) -> int | None:
        """Return the id of the table's present state (Iceberg's snapshot id); None for an empty new table."""
        state = self._opened(table).currentSnapshot()
        return None if state is None else int(state.snapshotId())

    def highest(self, table: TableColumns, column: str, shard: int) -> int | None:
        """Return the highest value of a column in a shard. Iceberg knows it without reading rows."""
        rows = self.session.table(self.name(table.name)).filter(col("shard") == shard)
        ((found,),) = rows.agg(greatest_of(column)).collect()
        return None if found is None else int(found)

    def replace(self, table: TableColumns, rows: DataFrame, replaced: Column, since: int | None) -> int:
        """Replace the rows for which ``replaced`` holds by others, in one commit; return the number of new rows.

        ``since``: the state on which the caller has based the rows.

        Raises:
            RetryableError: another process has added such rows since then.
        """
        writer = rows.select(*table.names).writeTo(self.name(table.name)).option("isolation-level", "serializable")
        if since is not None:
            writer = writer.option("validate-from-snapshot-id", str(since))
        with spark_errors(f"The table {table.name}"):
            writer.overwrite(replaced)
        return int(self._opened(table).currentSnapshot().summary().get("added-records") or 0)

    def put(self, table: TableColumns, rows: DataFrame, key: str) -> int:
        """Write rows, each instead of the row that has the same key in the same shard; return their number."""
        news = rows.select(*table.names).persist()
        try:
            news.createOrReplaceTempView("news")
            with spark_errors(f"The table {table.name}"):
                self.session.sql(
                    f"MERGE INTO {self.name(table.name)} t USING news n ON t.shard = n.shard AND t.{key} = n.{key} "
                    f"WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
                )
            return news.count()
        finally:
            news.unpersist()

    def position(self, table: TableColumns) -> Position | None:
        """Return how far the table of a topic is; None for a new table."""
        text = self._opened(table).properties().get(POSITION)
        if text is None:
            return None
        stored = json.loads(text)
        return Position(stored["topic_id"], {int(shard): at for shard, at in stored["offsets"].items()})

    def set_position(self, table: TableColumns, position: Position) -> None:
        """Write how far the table of a topic is."""
        stored = json.dumps({"topic_id": position.topic_id, "offsets": dict(position.offsets)})
        self.session.sql(f"ALTER TABLE {self.name(table.name)} SET TBLPROPERTIES ('{POSITION}' = '{stored}')")

    def maintain(self, tables: Iterable[TableColumns], keep_hours: float, most_states: int = MOST_STATES) -> list[str]:
        """Merge small files, and remove states older than ``keep_hours`` with the files that only they have, of each
        table with more than ``most_states``. Return the names of these tables.

        A reader that has opened a table goes on reading its state until that is removed.
        """
        before = datetime.now(UTC) - timedelta(hours=keep_hours)
        done = []
        for table in tables:
            if len(list(self._opened(table).snapshots())) > most_states:
                self._call("rewrite_data_files", table)
                self._call("expire_snapshots", table, f"older_than => TIMESTAMP '{before.isoformat(' ')}'")
                self._call("remove_orphan_files", table)  # what processes that were killed have left, after three days
                done.append(table.name)
        return done

    def _opened(self, table: TableColumns) -> Any:
        """Return Iceberg's own object for a table. A query of a metadata table would start a job for the same."""
        jvm: Any = self.session._jvm
        return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            self.session._jsparkSession, self.name(table.name)
        )

    def _call(self, procedure: str, table: TableColumns, more: str = "") -> None:
        arguments = ", ".join(filter(None, [f"table => '{self.namespace}.{table.name}'", more]))
        with spark_errors(f"The table {table.name}"):
            self.session.sql(f"CALL {CATALOG}.system.{procedure}({arguments})").collect()


def of_shards(bounds: Mapping[int, Column]) -> Column:
    """Return the condition that holds for the rows of some shards for which the condition of their shard holds."""
    (first, condition), *others = bounds.items()
    found = (col("shard") == first) & condition
    for shard, bound in others:
        found |= (col("shard") == shard) & bound
    return found


def _creation(name: str, table: TableColumns) -> str:
    columns = ", ".join(_column(*column) for column in table.columns)
    mode = {"write.distribution-mode": "none"} if table.is_written_by_each_task else {}
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in {**_PROPERTIES, **mode}.items())
    return (
        f"CREATE TABLE {name} ({columns}) USING iceberg PARTITIONED BY ({table.partitioned_by}) "
        f"TBLPROPERTIES ({properties})"
    )


def _column(name: str, kind: str, comment: str) -> str:
    quoted = comment.replace("'", "\\'")
    return f"{name} {kind} COMMENT '{quoted}'"


@contextmanager
def spark_errors(what: str) -> Iterator[None]:
    """Turn an error of Spark or Iceberg into ours. ``what``: what was to be written, as the beginning of a sentence."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        if any(one in str(error) for one in ("ValidationException", "CommitFailedException")):
            raise RetryableError(
                f"{what} was changed by another process meanwhile: run one export at a time, and export again."
            ) from error
        said = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
        raise InvariantError(f"{what} could not be written: {said[:1_000]}") from error

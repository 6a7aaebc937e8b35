"""The job that writes the tables: follows the topics, and replaces what a copy of metadata shows anew.

``deepclean export`` starts it and has the copies made; ``python -m streaming.tables --help`` lists the arguments.

``ledger`` and ``chain`` follow topics (``streaming.tables.topics``). The others show a state: they are replaced, shard
by shard, by the state of one copy of metadata's database, each in one commit. A shard whose txn is that of the table is
left alone. Then tables that have had many commits are compacted, and their old states removed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pydantic import TypeAdapter
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit, timestamp_millis
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from schemas.credentials import KafkaCredentials, credentials_of, login_file_of
from streaming.rocksdb.checkpoint_rows import CheckpointRows
from streaming.spark.child_job import job_session, say
from streaming.spark.session import session_parser
from streaming.tables.columns import FROM_COPIES, FROM_TOPICS, INVENTORY, NAMESPACE, TABLES, UNREADABLE, TableColumns
from streaming.tables.copied_shard import CopiedShard, read_shard
from streaming.tables.inventory import buckets_to_read, inventory
from streaming.tables.lake import Lake, catalog_settings, spark_errors
from streaming.tables.topics import FOLLOWERS, TopicReader

_BY_NAME = {table.name: table for table in TABLES}


def export_state(lake: Lake, shard: int, directory: str, wanted: Iterable[str]) -> dict[str, int]:
    """Replace a shard's rows of some tables by what a copy of its metadata has; return the number of rows of each.

    Raises:
        InvariantError: a table could not be written.
        RetryableError: another process has changed a table meanwhile.
    """
    copied = read_shard(shard, directory, CheckpointRows)
    written = {}
    for name in wanted:
        table = _BY_NAME[name]
        state, before = lake.state(table), lake.highest(table, "as_of_txn", shard)
        if before == copied.txn:
            continue
        if before is not None or _has_rows(copied, table):
            rows = _as_of(copied, _rows(lake, copied, table))
            written[name] = lake.replace(table, rows, col("shard") == shard, state)
    return written


def _has_rows(copied: CopiedShard, table: TableColumns) -> bool:
    """Return whether there may be rows to write; for a shard without any there is no commit."""
    return bool(copied.buckets) if table is INVENTORY else any(True for _ in copied.rows(table.name))


def _rows(lake: Lake, copied: CopiedShard, table: TableColumns) -> DataFrame:
    if table is INVENTORY:
        return inventory(lake.session, buckets_to_read(copied, CheckpointRows))
    there = lake.session.table(lake.name(table.name)).schema
    schema = to_arrow_schema(StructType([field for field in there if not field.name.startswith("as_of_")]))
    return lake.session.createDataFrame(pa.Table.from_pylist(list(copied.rows(table.name)), schema))


def _as_of(copied: CopiedShard, rows: DataFrame) -> DataFrame:
    return rows.withColumns(
        {"as_of_txn": lit(copied.txn), "as_of_time": timestamp_millis(lit(copied.log_time_ms).cast("long"))}
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a run writes, and from where."""

    bootstrap_servers: str
    shards: int
    tables: tuple[str, ...]
    copies: Mapping[str, str]
    """The directory of the copy of metadata's database of each shard; empty if no table needs one."""
    keep_hours: float
    is_from_beginning: bool = False


def export(lake: Lake, wanted: Wanted, credentials: KafkaCredentials | None = None) -> None:
    """Write the wanted tables, and print the number of new rows of each that has changed.

    Raises:
        InvariantError: a topic or a table is not what it has to be.
        RetryableError: the broker did not answer, or another process has changed a table meanwhile.
    """
    of_topics = [name for name in FROM_TOPICS if name in wanted.tables]
    names = {*wanted.tables, UNREADABLE.name} if of_topics else {*wanted.tables}
    tables = [table for table in TABLES if table.name in names]
    lake.make_tables(tables)
    reader = TopicReader(lake, wanted.bootstrap_servers, wanted.shards, credentials)
    for name in of_topics:
        done = reader.export(FOLLOWERS[name], is_from_beginning=wanted.is_from_beginning)
        say(table=name, rows=done.rows, unreadable=done.unreadable)
    of_state = [name for name in FROM_COPIES if name in wanted.tables]
    for shard, directory in wanted.copies.items():
        for name, rows in export_state(lake, int(shard), directory, of_state).items():
            say(table=name, rows=rows)
    for name in lake.maintain(tables, wanted.keep_hours):
        say(maintained=name)


def main() -> None:
    """Write the tables that a file names."""
    parser = session_parser("streaming.tables", "Write Iceberg tables.")
    parser.add_argument("--warehouse", required=True, help="address below which the tables are")
    parser.add_argument("--namespace", default=NAMESPACE, help="namespace of the tables in the catalog")
    parser.add_argument("wanted", type=Path, help="a JSON file with the fields of Wanted")
    options = parser.parse_args()
    wanted = TypeAdapter(Wanted).validate_json(options.wanted.read_bytes())
    options.conf = [*catalog_settings(options.warehouse), *options.conf]
    with (
        job_session(options, "deepclean-export", login_file_of(os.environ)) as session,
        spark_errors(f"What is at {options.warehouse}"),
    ):
        export(Lake(session, options.namespace), wanted, credentials_of(os.environ))


if __name__ == "__main__":
    main()

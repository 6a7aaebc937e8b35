"""The tables over a broker, by Spark: each message once, each commit whole, and the queries of the documents."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.functions import col, lit
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from schemas.records import (
    BucketLayout,
    CollectionState,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteKey,
    DeleteSnapshot,
    PutKey,
    SetCollection,
    Settle,
)
from schemas.topics import LEDGER as LEDGER_TOPIC
from schemas.topics import SCHEMAS, SNAPSHOTS_INFO
from services.client.plane import NamespaceCommand, SnapshotRequest, accepted
from services.client.tasks.ledger_reads import LedgerFilter, read_ledger
from services.domain.errors import InvariantError, RetryableError
from services.domain.ledger_rows import LedgerRow
from services.metadata.service import MetadataService
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.topics import create_topics
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.plane.machine.home import jars_directory
from services.plane.machine.jars import ICEBERG, fetch_jars
from services.runtime.loop.runner import RUNTIME_TABLES
from services.storage.rocks import RocksStore
from streaming.tables.__main__ import export_state
from streaming.tables.columns import (
    CHAIN,
    FROM_COPIES,
    INVENTORY,
    LEDGER,
    NAMESPACE,
    TABLES,
    UNREADABLE,
    TableColumns,
)
from streaming.tables.inventory import SCHEMA
from streaming.tables.lake import Lake, Position, catalog_settings
from streaming.tables.topics import FOLLOWERS, TopicReader
from tests.metric_catalogue import ROOT
from tests.spark_session import SPARK_MARKS, started_session
from tests.waiting import eventually

pytestmark = [*SPARK_MARKS, pytest.mark.broker, pytest.mark.timeout(300), pytest.mark.long]
DAY_MS = 86_400_000
TOPICS = (LEDGER_TOPIC.name, SNAPSHOTS_INFO.name)
PAGE = (ROOT / "docs" / "tables.md").read_text("utf-8")


class History:
    """What clients do on a plane in memory, in three days."""

    def __init__(self) -> None:
        self.plane = InMemoryPlane()
        self.client = InMemoryClient(self.plane)
        self._settled = 0
        self.do(CreateVolume("sales"))
        for bucket, layout in (("flat", BucketLayout.OBJECT_STORE), ("tree", BucketLayout.FILE_SYSTEM_OPTIMIZED)):
            self.do(CreateBucket("sales", bucket, layout))
            for number in range(1, 6):
                self.do(PutKey("sales", bucket, f"dir/{number}", 100 * number))
        self.request(CreateSnapshot("sales", "flat", "monday"))
        for bucket in ("flat", "tree"):
            self.do(DeleteKey("sales", bucket, "dir/1"))
        for _ in range(4):
            self.do(PutKey("sales", "flat", "temporary", 50))
            self.do(DeleteKey("sales", "flat", "temporary"))
            self.settle()
        self.plane.clock.advance(DAY_MS)
        self.request(CreateSnapshot("sales", "flat", "tuesday"))
        self.request(CreateSnapshot("sales", "tree", "alone"))
        for bucket in ("flat", "tree"):
            self.do(DeleteKey("sales", bucket, "dir/2"))
            self.do(PutKey("sales", bucket, "dir/3", 1))
            self.do(DeleteKey("sales", bucket, "dir/3"))
        self.request(DeleteSnapshot("sales", "flat", "monday"))
        self.settle()
        self.plane.clock.advance(DAY_MS)
        self.do(SetCollection("sales", "tree", CollectionState.PAUSED, "to see what is pending"))
        self.do(PutKey("sales", "tree", "dir/6", 7))
        self.do(DeleteKey("sales", "tree", "dir/6"))
        self.settle()

    def do(self, command: NamespaceCommand) -> None:
        accepted(self.client.answer(0, self.client.submit(0, command)))

    def request(self, asked: SnapshotRequest) -> None:
        accepted(self.client.request(0, asked))

    def settle(self) -> None:
        self._settled += 1
        self.request(Settle(f"settled-{self._settled}"))

    def ledger(self) -> list[LedgerRow]:
        return [row for _, row in read_ledger(self.plane.log, 0, LedgerFilter())]

    def copy(self, directory: Path) -> str:
        """A copy of metadata's database, on disk."""
        tables = (*MetadataService.tables, *RUNTIME_TABLES)
        rows, store = self.plane.processes["metadata", 0].store.clone(), RocksStore(directory / "db", tables)
        store.write({table.name: dict(rows.scan(table.name, b"", b"\xff")) for table in tables})
        store.copy_to(directory / "copy").close()
        store.close()
        return str(directory / "copy")


class Bench(NamedTuple):
    history: History
    broker: str
    session: SparkSession
    warehouse: Path

    def lake(self, namespace: str, *tables: TableColumns) -> Lake:
        """Empty tables."""
        made = Lake(self.session, namespace)
        made.make_tables(tables)
        return made

    def reader(self, lake: Lake) -> TopicReader:
        return TopicReader(lake, self.broker, 1)

    def static(self, lake: Lake, table: str) -> StaticTable:
        """The table as another program opens it."""
        return StaticTable.from_metadata(str(self.warehouse / lake.namespace / table))

    def parquet_files(self, lake: Lake, table: str) -> int:
        return sum(1 for _ in (self.warehouse / lake.namespace / table / "data").rglob("*.parquet"))

    def send(self, topic: str, values: list[bytes]) -> None:
        producer = Producer({"bootstrap.servers": self.broker, "linger.ms": 5})
        for value in values:
            producer.produce(topic, value, partition=0)
        assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    fetch_jars(jars_directory(), consumers=(ICEBERG,))
    history = History()
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as broker, started_session() as session:
        session.conf.set("spark.sql.session.timeZone", "UTC")
        create_topics(broker.bootstrap_servers, {name: {} for name in (*TOPICS, SCHEMAS)}, 1)
        warehouse = tmp_path_factory.mktemp("warehouse") / "exported"
        for name, value in (setting.split("=", 1) for setting in catalog_settings(str(warehouse))):
            session.conf.set(name, value)
        made = Bench(history, broker.bootstrap_servers, session, warehouse)
        for topic in TOPICS:
            values = [record.value for record in history.plane.log.records(topic, 0)]
            made.send(topic, [*values, values[-1]])  # a message may come again
        yield made


@pytest.fixture(scope="module")
def filled(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """All tables, as a run writes them."""
    directory = tmp_path_factory.mktemp("copied")
    lake = bench.lake(NAMESPACE, *TABLES)
    for follower in FOLLOWERS.values():
        bench.reader(lake).export(follower)
    assert list(export_state(lake, 0, bench.history.copy(directory), FROM_COPIES)) == list(FROM_COPIES)
    return lake


def _rows(lake: Lake, table: str) -> list[dict[str, Any]]:
    return [row.asDict() for row in lake.session.table(lake.name(table)).collect()]


def _milliseconds(moment: datetime) -> int:
    return round(moment.astimezone(UTC).timestamp() * 1000)


def _as_listed(rows: list[dict[str, Any]]) -> list[list[tuple[str, Any]]]:
    """Rows of the table ``ledger`` as ``deepclean ledger list --json`` has them."""
    for row in rows:
        row |= {f"{name}_ms": _milliseconds(row.pop(name)) for name in ("claim_time", "finish_time")}
    return sorted(sorted(row.items()) for row in rows)


@pytest.fixture(scope="module")
def in_small_files(bench: Bench) -> Lake:
    """The ledger, a commit for each message, by a process that was killed after a commit, and by the next one."""
    lake, follower = bench.lake("once", LEDGER), FOLLOWERS[LEDGER.name]
    with pytest.MonkeyPatch.context() as killed:

        def die(*_: object) -> None:
            raise KeyboardInterrupt

        killed.setattr(lake, "set_position", die)
        with pytest.raises(KeyboardInterrupt):
            bench.reader(lake).export(follower, max_messages=1)
    assert len(_rows(lake, LEDGER.name)) == 1, "the rows are there, and the position is not"
    messages = len(bench.history.plane.log.records(LEDGER_TOPIC.name, 0))
    assert bench.reader(lake).export(follower, max_messages=1).rows == messages - 1
    return lake


def test_each_message_counts_once_whatever_is_repeated(bench: Bench, in_small_files: Lake) -> None:
    lake, follower = in_small_files, FOLLOWERS[LEDGER.name]
    expected = [{"shard": 0, **row.pop("claim"), **row} for row in map(asdict, bench.history.ledger())]
    assert _as_listed(_rows(lake, "ledger")) == sorted(sorted(row.items()) for row in expected)
    assert bench.reader(lake).export(follower, is_from_beginning=True).rows == 0
    assert bench.reader(lake).export(follower).rows == 0
    assert len(_rows(lake, "ledger")) == len(expected)


def test_what_cannot_be_read_or_belongs_to_another_plane_is_said(bench: Bench) -> None:
    lake, follower = bench.lake("said", CHAIN, UNREADABLE), FOLLOWERS[CHAIN.name]
    bench.send(SNAPSHOTS_INFO.name, [b"none"])
    for _ in range(2):  # an unreadable message that comes again counts once, too
        assert bench.reader(lake).export(follower, is_from_beginning=True).unreadable == 1
    ((topic, value),) = [(row["topic"], bytes(row["value"])) for row in _rows(lake, UNREADABLE.name)]
    assert (topic, value) == (SNAPSHOTS_INFO.name, b"none")
    known = lake.position(CHAIN)
    assert known is not None
    lake.set_position(CHAIN, Position(known.topic_id, {0: known.offsets[0] + 1}))
    with pytest.raises(InvariantError, match=r"lost its end.*--from-beginning"):
        bench.reader(lake).export(follower)
    lake.set_position(CHAIN, Position("another", known.offsets))
    with pytest.raises(InvariantError, match=r"another snapshots\.info than this plane's"):
        bench.reader(lake).export(follower)


class SlowRows(DataSource):
    """Two rows of the inventory; the second one comes when a file is there."""

    @classmethod
    def name(cls) -> str:
        return "slow-rows"

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> DataSourceReader:
        gate = Path(self.options["gate"])

        class Reader(DataSourceReader):
            def read(self, partition: InputPartition) -> Iterator[Any]:
                row = dict.fromkeys(SCHEMA.names) | {"shard": 0}
                yield pa.RecordBatch.from_pylist([row], SCHEMA)
                gate.with_suffix(".reached").touch()
                eventually(gate.exists)
                yield pa.RecordBatch.from_pylist([row], SCHEMA)

        return Reader()


def test_a_reader_sees_each_commit_whole_or_not_at_all(bench: Bench, tmp_path: Path) -> None:
    """By pyiceberg, before, while and after Spark replaces all rows of a shard."""
    lake = bench.lake("read", INVENTORY)
    export_state(lake, 0, bench.history.copy(tmp_path), [INVENTORY.name])
    opened, state, gate = bench.static(lake, INVENTORY.name), lake.state(INVENTORY), tmp_path / "gate"
    before = _count(opened)
    assert before == len(_rows(lake, INVENTORY.name)) > 2
    bench.session.dataSource.register(SlowRows)
    rows = bench.session.read.format(SlowRows.name()).option("gate", str(gate)).load()
    rows = rows.withColumns({"as_of_txn": lit(1), "as_of_time": lit(None).cast("timestamp")})
    with ThreadPoolExecutor(1) as beside:
        written = beside.submit(lake.replace, INVENTORY, rows, col("shard") == 0, state)
        eventually(gate.with_suffix(".reached").exists)
        assert _count(bench.static(lake, INVENTORY.name)) == before, "of the new rows one is written, none is seen"
        gate.touch()
        assert written.result(60) == 2
    assert _count(opened) == before, "what is opened stays as it is"
    assert _count(bench.static(lake, INVENTORY.name)) == 2
    with pytest.raises(RetryableError, match="run one export at a time"):
        lake.replace(INVENTORY, rows, col("shard") == 0, state)
    assert _count(bench.static(lake, INVENTORY.name)) == 2


def _count(table: StaticTable) -> int:
    return int(table.scan().to_arrow().num_rows)


def test_small_files_are_merged_and_old_states_removed(bench: Bench, in_small_files: Lake) -> None:
    lake, only = in_small_files, [LEDGER]
    states, opened, rows = f"{lake.name(LEDGER.name)}.snapshots", bench.static(lake, LEDGER.name), _rows(lake, "ledger")
    files = bench.parquet_files(lake, LEDGER.name)
    assert bench.session.table(states).count() == files == len(rows)
    assert lake.maintain(only, 24, files) == [], "there are not too many states"
    assert lake.maintain(only, 24, files - 1) == [LEDGER.name]
    assert _count(opened) == len(rows), "a state that is not old enough is still read"
    assert bench.session.table(states).count() == files + 1
    assert lake.maintain(only, 0, 1) == [LEDGER.name]
    assert bench.session.table(states).count() == 1
    assert bench.parquet_files(lake, LEDGER.name) < files
    assert sorted(map(str, _rows(lake, "ledger"))) == sorted(map(str, rows))


def test_the_chain_keeps_what_was_dropped(filled: Lake) -> None:
    rows = {row["name"]: row for row in _rows(filled, CHAIN.name)}
    assert {name: row["status"] for name, row in rows.items()} == {
        "monday": "DROPPED",
        "tuesday": "ACTIVE",
        "alone": "ACTIVE",
    }
    monday, tuesday = rows["monday"], rows["tuesday"]
    assert monday["create_txn"] < tuesday["create_txn"] < monday["drop_txn"]
    assert monday["creation_time"] < monday["deletion_time"]
    assert (tuesday["deletion_time"], tuesday["drop_txn"]) == (None, None)


def test_a_state_is_written_when_it_is_another_one(bench: Bench, filled: Lake, tmp_path: Path) -> None:
    assert export_state(filled, 0, bench.history.copy(tmp_path), FROM_COPIES) == {}
    for bucket in _rows(filled, "buckets"):
        space = bench.history.client.metadata(0).space(bucket["volume"], bucket["bucket"])
        assert (bucket["live_bytes"], bucket["held_bytes"]) == (space.live_bytes, space.held_bytes)
        assert (bucket["pending_bytes"], bucket["freed_bytes"]) == (space.pending_bytes, space.freed_bytes)
    stages = {row["stage"] for row in _rows(filled, "inventory")}
    assert stages == {"LIVE", "HELD", "PENDING"}


def test_the_queries_of_the_documents_run_as_printed(
    bench: Bench, filled: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = bench.history.ledger()
    queries = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    by_day, exclusive, durations = ([row.asDict() for row in bench.session.sql(query).collect()] for query in queries)
    freed = Counter[tuple[str, int]]()
    for row in ledger:
        day = datetime.fromtimestamp(row.finish_time_ms / 1000, UTC).date().isoformat()
        freed[day, row.bucket_id] += row.size_bytes
    names = {row["bucket_id"]: row["bucket"] for row in _rows(filled, "buckets")}
    assert {(str(row["day"]), row["bucket"]): row["freed_bytes"] for row in by_day} == {
        (day, names[bucket_id]): size_bytes for (day, bucket_id), size_bytes in freed.items()
    }
    assert len({row["day"] for row in by_day}) > 1
    spaces = {
        row["snapshot_id"]: row["exclusive_bytes"] for row in _rows(filled, "snapshot_space") if row["exclusive_bytes"]
    }
    names_of = {row["snapshot_id"]: row["name"] for row in _rows(filled, CHAIN.name)}
    found = {row["snapshot"]: row["exclusive_bytes"] for row in exclusive}
    assert found == {names_of[one]: size_bytes for one, size_bytes in spaces.items()}
    assert all(row["creation_time"] <= row["deleted_since"] for row in exclusive)
    waited = sorted((row.finish_time_ms - row.claim.claim_time_ms) / 1000 for row in ledger)
    assert sum(row["versions"] for row in durations) == len(ledger)
    assert all(waited[0] <= row["p50_seconds"] <= row["p99_seconds"] <= waited[-1] for row in durations)
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(bench.warehouse.parent)
    names_there: dict[str, Any] = {}
    exec(block, names_there)  # noqa: S102  as a reader runs it
    assert names_there["freed"].num_rows == len(names)
    assert sum(names_there["freed"]["size_bytes_sum"].to_pylist()) == sum(row.size_bytes for row in ledger)

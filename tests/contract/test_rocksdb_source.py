"""The data source: every table of every service as columns, tables of others as they are, each row once."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from rocksdict import Options, Rdict

from schemas import records
from schemas.codec import DecodeError
from schemas.stored_rows import row_codec
from services.datanode import tables as datanode
from services.plane.stack.process_names import SERVICES
from services.plane.upkeep.shard_databases import layout_of
from services.storage.rocks import RocksStore
from services.storage.tables import TableDefinition
from streaming.rocksdb.checkpoint_rows import CheckpointRows
from streaming.rocksdb.own_rows import TABLES
from streaming.rocksdb.source import FORMAT, RocksDbSource, TableError, register
from tests.example_records import example
from tests.spark_session import SPARK_MARKS, started_session

KEYS = (b"/1/a", b"/1/b")
LAYOUTS: dict[str, tuple[TableDefinition[Any], ...]] = {
    **{service: layout_of(service)[0] for service in SERVICES},
    "datanode": datanode.TABLES,
}
VARIED = ("fileTable", "deletedTable", "bucketTable", "returnedBarrierTable", "collectionTable")
"""Tables whose rows have every kind of field between them."""


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a database of each service, with two rows in each table."""
    made = tmp_path_factory.mktemp("databases")
    for service, tables in LAYOUTS.items():
        store = RocksStore(made / "stores" / service / "db", tables)
        rows = {table.name: row_codec(table.record).encode(example(table.record)) for table in tables}
        store.write({name: dict.fromkeys(KEYS, row) for name, row in rows.items()})
        store.copy_to(made / "stores" / service / "copy").close()
        store.close()
        (made / service).symlink_to(made / "stores" / service / "copy")
    return made


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    with started_session() as session:
        register(session)
        yield session


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A database that no program of this project has written, with 20,000 rows in two files."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    database = Rdict(str(tmp_path / "foreign"), options)
    for half in range(2):
        for number in range(half, 20_000, 2):
            database[b"%05d" % number] = b"value %d" % number
        database.flush()
    database.close()
    return tmp_path / "foreign"


def contents(directory: Path) -> Mapping[str, tuple[bytes, int]]:
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in directory.iterdir()}


def read_alone(path: Path, table: str, **options: str) -> list[dict[str, Any]]:
    """What the source's tasks read, one after the other, without Spark."""
    source = RocksDbSource({"path": str(path), "table": table, **options})
    reader = source.reader(source.schema())
    batches: list[Any] = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [shown(row) for batch in batches for row in batch.to_pylist()]


def read(session: SparkSession, path: Path, table: str, **options: str) -> DataFrame:
    return session.read.format(FORMAT).options(path=str(path), table=table, **options).load()


def shown(value: Any) -> Any:
    """Columns as plain values, without nulls."""
    if isinstance(value, Row):
        value = value.asDict()
    if isinstance(value, dict):
        return {name: shown(one) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [shown(one) for one in value]
    return bytes(value) if isinstance(value, bytearray) else value


def plain(value: Any) -> Any:
    """A record as its columns should be."""
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if not is_dataclass(value):
        return value
    hints = typing.get_type_hints(type(value), vars(records))
    shown = [field.name for field in fields(value) if field.repr]  # secrets are not
    found = {name: (plain(getattr(value, name)), hints[name]) for name in shown}
    return {
        name: {type(getattr(value, name)).__name__: one}
        if isinstance(hint, UnionType) and len(typing.get_args(hint)) > 2
        else one
        for name, (one, hint) in found.items()
    }


def test_every_table_of_every_service_is_known() -> None:
    every = {(table.name, table.record) for tables in LAYOUTS.values() for table in tables}
    assert {(name, record) for name, found in TABLES.items() for record in found} == every


@pytest.mark.parametrize(
    ("service", "table"),
    [
        pytest.param(
            service, table, id=f"{service}-{table.name}", marks=() if table.name in VARIED else pytest.mark.long
        )
        for service, tables in LAYOUTS.items()
        for table in tables
    ],
)
def test_every_table_has_the_columns_of_its_record(copies: Path, service: str, table: TableDefinition[Any]) -> None:
    before = contents(copies / service)
    expected = plain(example(table.record))
    assert read_alone(copies / service, table.name) == [{"row_key": key, **expected} for key in KEYS]
    assert contents(copies / service) == before


class TestWithSpark:
    """What Spark makes of it."""

    pytestmark = SPARK_MARKS

    @pytest.mark.long
    def test_spark_shows_the_same_columns(self, session: SparkSession, copies: Path) -> None:
        for service, tables in LAYOUTS.items():
            for table in tables:
                if table.name in VARIED:
                    found = [shown(row) for row in read(session, copies / service, table.name, parts="1").collect()]
                    assert found == read_alone(copies / service, table.name), table

    def test_ranges_hold_every_row_once(self, session: SparkSession, foreign: Path) -> None:
        before = contents(foreign)
        whole = read(session, foreign, "default", parts="6")
        assert 6 <= whole.rdd.getNumPartitions() <= 12
        found = sorted((bytes(row.row_key), bytes(row.value)) for row in whole.collect())
        assert found == [(b"%05d" % number, b"value %d" % number) for number in range(20_000)]
        part = read(session, foreign, "default", start=b"00010".hex(), end=b"00012".hex()).select("row_key")
        assert sorted(bytes(row.row_key) for row in part.collect()) == [b"00010", b"00011"]
        assert contents(foreign) == before


def test_a_broken_block_is_no_end(foreign: Path) -> None:
    damaged = next(file for file in sorted(foreign.iterdir()) if file.suffix == ".sst")
    with damaged.open("r+b") as file:
        file.seek(damaged.stat().st_size // 2)
        file.write(b"\xff" * 64)
    with pytest.raises(Exception, match="Corruption"):
        read_alone(foreign, "default")


def test_a_row_that_is_none_is_named(copies: Path, tmp_path: Path) -> None:
    tables = LAYOUTS["mock_scm"]
    store = RocksStore(tmp_path / "db", tables)
    store.write({"inventoryTable": {b"broken": b"\x01\xff"}})
    store.copy_to(tmp_path / "copy").close()
    store.close()
    with pytest.raises(DecodeError, match="the row b'broken': not a InventoryRow"):
        read_alone(tmp_path / "copy", "inventoryTable")


def test_what_is_not_there_is_named(copies: Path, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="holds no RocksDB database"):
        read_alone(tmp_path, "fileTable")
    with pytest.raises(TableError, match=r"has no table files: it has .*fileTable"):
        read_alone(copies / "metadata", "files")
    with pytest.raises(TableError, match="needs the option table"):
        RocksDbSource({"path": str(tmp_path)}).schema()


def test_rows_are_read_in_chunks_of_any_size(foreign: Path) -> None:
    with CheckpointRows(str(foreign), ["default"], is_own=False) as rows:
        for most in (1, 7, 10_000, 20_000, 30_000):
            chunks = list(rows.chunks("default", b"00100", b"19900", most))
            assert [row for chunk in chunks for row in chunk] == list(rows.scan("default", b"00100", b"19900"))
            assert sum(map(len, chunks)) == 19_800

"""``deepclean tables`` over homes on disk: every table of every service, read beside a writer, and nothing written."""

from __future__ import annotations

import base64
import json
import os
import threading
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from schemas import formats
from schemas.codec import codec
from schemas.records import (
    BlockRun,
    ClaimedRow,
    ClaimFacts,
    ClientRow,
    CountRow,
    DeadLetter,
    DeletedKeyRow,
    KeyRow,
    MetadataCommand,
    MetadataReply,
    OutboxRow,
    OutboxRun,
    RowChange,
    SecretRole,
    SecretRow,
    SetSecret,
    SnapshotInfo,
    StateChange,
)
from schemas.stored_rows import row_codec
from schemas.topics import METADATA_COMMANDS, SNAPSHOTS_CHANGELOG
from services.cli.main import app
from services.metadata.state.tables import CHECKPOINTED, DIRECTORY_TABLE, FILE_TABLE, KEY_TABLE
from services.plane.stack.process_names import SERVICES
from services.plane.upkeep.key_formats import key_formats
from services.plane.upkeep.readable_tables import UNREADABLE, KeyRange
from services.plane.upkeep.shard_databases import database_directory, layout_of, new_database
from services.plane.upkeep.stored_tables import COUNTED_ROWS
from services.plane.upkeep.table_places import TablesPlace, reading_tables
from services.storage.rocks import RocksStore
from services.storage.rocks_files import reading_files
from services.storage.rocks_options import RocksOptions
from services.storage.store import StoreError
from tests.example_records import example
from tests.upgrade.kept_home import VERSIONS, unpack

TABLES = [(service, table) for service in SERVICES for table in layout_of(service)[0]]
KEYS = (b"/1/a", b"/1/b")
SNAPSHOT_ID = "0b52136e-17f8-58fe-bcde-e8ad5846034c"
HIDDEN = b"the secret of ann"
FACTS = ClaimFacts(140, 1_700_000_000_000, 2, 0, 0, 7, 2, 2)


def row_of(record: type[Any]) -> Any:
    """A row with something in each field, and what belongs into fields of bytes."""
    made = example(record)
    if record is ClaimedRow:
        numbers = b"".join(number.to_bytes(8, "big") for number in (100, 4_096, 1, 2, 3, 4, 5))
        return ClaimedRow(row_codec(ClaimFacts).encode(FACTS), numbers, made.version)
    secret = SecretRow("ann", SecretRole.USER, HIDDEN, HIDDEN)
    if record is SecretRow:
        return secret
    command = replace(example(MetadataCommand), body=SetSecret("ann", SecretRole.USER, HIDDEN))
    message = codec(MetadataCommand).encode_message(command)
    if record is OutboxRow:
        change = RowChange("s3SecretTable", b"ann", False, row_codec(SecretRow).encode(secret))
        changes = replace(example(StateChange), rows=(change,), messages=())
        sent = codec(StateChange).encode_message(changes)
        runs = ((METADATA_COMMANDS, (message, HIDDEN)), (SNAPSHOTS_CHANGELOG, (sent,)))
        return OutboxRow(tuple(OutboxRun(topic.name, values, ()) for topic, values in runs))
    if record is DeadLetter:
        return replace(made, value=message)
    if record is ClientRow:
        return ClientRow(1, 2, codec(MetadataReply).encode_message(example(MetadataReply)))
    return made


def _names(record: type[Any]) -> list[str]:
    return [field.name for field in fields(record)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two rows in each table of each service, and one snapshot checkpoint."""
    made = tmp_path_factory.mktemp("home")
    for service in SERVICES:
        store = new_database(database_directory(made, service, 0), service)
        rows: dict[str, Any] = {
            table.name: dict.fromkeys(KEYS, row_codec(table.record).encode(row_of(table.record)))
            for table in layout_of(service)[0]
        }
        if service == "snapshots":
            info = replace(
                example(SnapshotInfo), snapshot_id=SNAPSHOT_ID, volume="sales", bucket="reports", name="monday"
            )
            rows["snapshotInfoTable"] = {b"/sales/reports/monday": row_codec(SnapshotInfo).encode(info)}
        store.write(rows)
        if service == "metadata":
            store.checkpoint(SNAPSHOT_ID)
        store.close()
    return made


class Command:
    """Runs ``deepclean tables`` on a home."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def run(self, *words: str, status: int = 0) -> str:
        result = CliRunner().invoke(app, ["--home", str(self._home), "tables", *words])
        assert result.exit_code == status, result.output
        return result.stdout if status == 0 else result.stderr

    def json(self, *words: str) -> list[Any]:
        return [json.loads(line) for line in self.run(*words, "--json").splitlines()]


@pytest.fixture
def tables(home: Path) -> Command:
    return Command(home)


def files_of(directory: Path) -> Mapping[str, tuple[bytes, int, int]]:
    """Every file with its bytes, its inode and the time of its last change."""
    return {
        str(path.relative_to(directory)): (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(("service", "table"), TABLES, ids=lambda one: one if isinstance(one, str) else one.name)
def test_every_table_of_every_service_is_scanned(home: Path, service: str, table: Any) -> None:
    tables, place = Command(home), ("--service", service)
    rows = tables.json("scan", table.name, *place)
    if table.name != "snapshotInfoTable":
        assert [row["key"] for row in rows] == [key.decode() for key in KEYS]
    assert [list(row["value"]) for row in rows] == [_names(table.record)] * len(rows), "decoded"
    assert tables.json("get", table.name, rows[0]["key"], *place) == rows[:1]
    shown = tables.run("scan", table.name, *place)
    assert all(f"\n  {name}" in shown for name in _names(table.record))
    assert tables.run("count", table.name, *place) == ("2 rows\n" if len(rows) == 2 else "1 row\n")


@pytest.mark.parametrize(("service", "table"), TABLES, ids=lambda one: one if isinstance(one, str) else one.name)
def test_each_value_has_the_path_by_which_it_is_named(home: Path, service: str, table: Any) -> None:
    with reading_tables(TablesPlace(database_directory(home, service, 0) / "db", service)) as tables:
        row = next(tables.scan(table.name, KeyRange()))
        assert set(paths_of(row.value, "")) <= set(tables.fields(table.name))


def paths_of(value: Any, path: str) -> Iterator[str]:
    """The paths of all values but those within messages, whose records no table names."""
    if isinstance(value, list):
        for one in value:
            yield from paths_of(one, path)
    elif isinstance(value, dict) and not path.endswith((".values", "value", "reply")):
        for name, one in value.items():
            yield from paths_of(one, f"{path}.{name}" if path else name)
    else:
        yield path


@pytest.mark.parametrize("service", SERVICES)
def test_the_format_of_every_key_is_documented(service: str) -> None:
    found = key_formats(service)
    assert sorted(found) == sorted(table.name for table in layout_of(service)[0])
    assert all(found.values())


def test_tables_are_listed_with_their_rows(tables: Command) -> None:
    listed = tables.json("list")
    assert [(one["service"], one["name"]) for one in listed] == [(service, table.name) for service, table in TABLES]
    deleted = next(one for one in listed if one["name"] == "deletedTable")
    assert (deleted["rows"], deleted["is_exact"], deleted["record"]) == (2, True, "DeletedKeyRow")
    assert deleted["key_format"] == "/volumeId/bucketId/death/objectId"
    shown = tables.run("list", "--service", "metadata").splitlines()
    assert shown[1].split() == ["TABLE", "ROWS", "BYTES", "RECORD", "KEY"]
    assert "/bucketId/n/parentId/name NUL death/objectId or /bucketId/o/objectId/death/objectId" in "".join(shown)


def test_a_claimed_row_is_shown_with_its_facts_and_numbers(tables: Command) -> None:
    value = tables.json("get", "reclaimTable", "/1/a")[0]["value"]
    assert value["facts"]["claim_txn"] == 140
    assert value["numbers"] == {
        "birth": 100,
        "size_bytes": 4_096,
        "blocks": {name: number for number, name in enumerate(_names(BlockRun), start=1)},
    }
    shown = tables.run("get", "reclaimTable", "/1/a")
    assert "facts.claim_time_ms                  1700000000000 (2023-11-14 22:13:20)\n" in shown
    assert "version.deletion_time_ms             3\n" in shown, "too small to be a time"


def test_messages_are_shown_as_their_records(tables: Command) -> None:
    (row, _) = tables.json("scan", "clientTable", "--service", "metadata")
    assert row["value"]["reply"]["MetadataReply"]["client_id"] == "name"
    sent = tables.json("scan", "outbox", "--service", "snapshots", "--limit", "1")[0]["value"]["runs"]
    assert sent[0]["values"][0]["MetadataCommand"]["body"]["SetSecret"]["name"] == "ann"
    assert sent[1]["values"][0]["StateChange"]["rows"][0]["value"]["role"] == "USER"


def test_no_secret_is_shown(home: Path) -> None:
    tables = Command(home)
    shown = [
        tables.run("scan", table.name, "--service", service, *form)
        for service, table in TABLES
        for form in ([], ["--json"])
    ]
    text = "".join(shown)
    assert text.count("(secret)") >= 8, "s3SecretTable of two services, outboxes and letters"
    for hidden in (HIDDEN.decode(), HIDDEN.hex(), base64.b64encode(HIDDEN).decode().rstrip("=")):
        assert hidden not in text


def test_rows_are_filtered_and_their_fields_chosen(tables: Command) -> None:
    assert tables.json("scan", "deletedTable", "--where", "size_bytes=3", "--fields", "name,blocks.block_count") == [
        {"key": key.decode(), "value": {"name": "name", "blocks.block_count": 3}} for key in KEYS
    ]
    assert tables.run("scan", "deletedTable", "--where", "@key~b$", "--fields", "size_bytes,@version,name") == (
        f"KEY   SIZE_BYTES  @VERSION  NAME\n/1/b           3         {row_codec(DeletedKeyRow).version}  name\n"
    )
    assert tables.json("count", "deletedTable", "--where", "size_bytes > 3")[0]["rows"] == 0
    assert tables.run("scan", "keyTable", "--keys-only") == "/1/a\n/1/b\n"
    assert tables.run("scan", "keyTable", "--keys-only", "--prefix", "/1/", "--from", "/1/b") == "/1/b\n"
    assert tables.run("count", "keyTable", "--prefix", "/1/", "--to", "/1/b") == "1 row\n"


def test_a_scan_that_ends_at_its_limit_says_how_to_continue(home: Path) -> None:
    words = ["tables", "scan", "keyTable", "--keys-only", "--limit", "1"]
    result = CliRunner().invoke(app, ["--home", str(home), *words])
    assert (result.stdout, result.stderr) == ("/1/a\n", "The limit is reached: continue with --from /1/b\n")


@pytest.mark.parametrize("snapshot", ["monday", "sales/reports/monday", SNAPSHOT_ID])
def test_a_snapshot_checkpoint_is_read(tables: Command, snapshot: str) -> None:
    assert {one["name"] for one in tables.json("list", "--snapshot", snapshot)} == CHECKPOINTED
    assert tables.run("count", "keyTable", "--snapshot", snapshot) == "2 rows\n"


def test_a_database_is_read_by_its_directory(home: Path, tables: Command) -> None:
    shard = database_directory(home, "mock_scm", 0)
    for directory in (shard, shard / "db"):
        assert {one["service"] for one in tables.json("list", "--db", str(directory))} == {"mock_scm"}
    checkpoint = database_directory(home, "metadata", 0) / "checkpoints" / SNAPSHOT_ID
    assert tables.run("count", "fileTable", "--db", str(checkpoint)) == "2 rows\n"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("count keytabel", "no service has a table keytabel: choose keyTable"),
        ("count keyTable --service mock_scm", "has no table keyTable: "),
        ("count spaceTable", "several services have a table spaceTable: add --service metadata or --service snapshots"),
        ("count keyTable --service scm", "there is no service scm: choose mock_scm"),
        ("count keyTable --shard 7", "has no database of metadata, shard 7: set another --home or --shard, or name it"),
        ("count keyTable --db /", "/ holds no database: name a directory with a file CURRENT"),
        ("count keyTable --db / --service metadata", "--db names one database: leave out --service and --snapshot"),
        ("count keyTable --snapshot mondy", "has no checkpoint of a snapshot mondy: there are sales/reports/monday"),
        ("count taskTable --service key_deletion --snapshot monday", "key_deletion has no snapshot checkpoints"),
        ("count accountTable --snapshot monday", "has no table accountTable"),
        ("get keyTable /1/c", "keyTable has no key /1/c: list its keys (deepclean tables scan keyTable --keys-only"),
        ("get keyTable 0xabc", "0xabc is no key: after 0x give two hex digits for each byte"),
        ("scan keyTable --where sizebytes=1", "no field is named sizebytes: choose size_bytes"),
        ("scan keyTable --fields txn", "no field is named txn: there are @bytes, @key"),
        ("scan keyTable --where size_bytes=many", "size_bytes is a number, and many is none: compare it with one"),
    ],
)
def test_an_error_says_in_one_line_what_to_do(tables: Command, words: str, text: str) -> None:
    shown = tables.run(*words.split(), status=1)
    assert text in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize("condition", ["size_bytes", "=3", "name~("])
def test_a_condition_that_is_none_is_refused(tables: Command, condition: str) -> None:
    assert "Invalid value" in tables.run("scan", "keyTable", "--where", condition, status=2)


def test_nothing_of_the_source_changes(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = files_of(home)
    tables = Command(home)
    for words in (["list"], ["scan", "deletedTable"], ["get", "keyTable", "/1/a"], ["list", "--snapshot", "monday"]):
        tables.run(*words)
    tables.run("list", "--db", str(database_directory(home, "metadata", 0) / "checkpoints" / SNAPSHOT_ID))
    assert files_of(home) == before
    assert list(tmp_path.iterdir()) == [], "nothing is left of the links either"


def test_a_database_is_read_while_its_writer_replaces_its_files(tmp_path: Path) -> None:
    """Each unit writes its number into two tables: a reader sees the same number in both, and never an older one."""
    path = database_directory(tmp_path, "metadata", 0) / "db"
    store = RocksStore(path, *layout_of("metadata"), options=RocksOptions(memtables_bytes=64 * 1024))
    store.write({KEY_TABLE.name: {b"/unit": _number(0)}, FILE_TABLE.name: {b"/unit": _number(0)}})
    written, stop = [0], threading.Event()

    def write() -> None:
        for number in count(1):
            if stop.is_set():
                return
            batch: dict[bytes, bytes | None] = {b"/%d/%d" % (number, part): os.urandom(512) for part in range(20)}
            one = {b"/unit": _number(number)}
            store.write({KEY_TABLE.name: one, FILE_TABLE.name: one, DIRECTORY_TABLE.name: batch})
            written[0] = number
            time.sleep(0.002)  # some eighty flushes a second, instead of one or two

    writer = threading.Thread(target=write)
    writer.start()
    try:
        reads = 0
        while reads < 20 or written[0] <= 50:
            reads, least = reads + 1, written[0]
            with reading_files(path, layout_of("metadata")[0]) as view:
                numbers = {view.get(table.name, b"/unit") for table in (KEY_TABLE, FILE_TABLE)}
                assert len(numbers) == 1
                assert int(numbers.pop() or b"") >= least
                assert sum(1 for _ in view.scan(DIRECTORY_TABLE.name, b"", b"\xff")) >= 20 * least
    finally:
        stop.set()
        writer.join()
        store.close()


def _number(number: int) -> bytes:
    return b"%d" % number


def test_a_view_stays_as_it_is_when_the_files_are_deleted(tmp_path: Path, home: Path) -> None:
    store = RocksStore(tmp_path / "db", *layout_of("metadata"))
    store.write({KEY_TABLE.name: {b"/1/%d" % number: b"row" for number in range(1_000)}})
    store.close()
    with reading_files(tmp_path / "db", layout_of("metadata")[0]) as view:
        for file in (tmp_path / "db").iterdir():
            file.unlink()
        assert sum(1 for _ in view.scan(KEY_TABLE.name, b"", b"\xff")) == 1_000


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    directory = database_directory(tmp_path, "mock_scm", 0)
    store = new_database(directory, "mock_scm")
    store.write({formats.FAMILY: {formats.FORMAT_KEY: b"99"}})
    store.close()
    shown = Command(tmp_path).run("list", status=1)
    assert shown.startswith(f"{directory / 'db'} has format 99, this program reads up to")
    with pytest.raises(StoreError), reading_files(directory / "db", layout_of("mock_scm")[0]):
        pass


def test_a_row_that_cannot_be_decoded_says_why_and_is_never_left_out(tmp_path: Path) -> None:
    store = new_database(database_directory(tmp_path, "key_deletion", 0), "key_deletion")
    good = row_codec(CountRow).encode(CountRow(5))
    store.write({"countTable": {b"a": b"\x63newer", b"b": good, b"c": b""}})
    store.close()
    rows = Command(tmp_path).json("scan", "countTable", "--where", "count=5")
    assert [row["value"] for row in rows] == [
        {UNREADABLE: "a CountRow has version 99, this program knows 1: start the newer one"},
        {"count": 5},
        {UNREADABLE: "a CountRow begins with 0, which is no version of its schema"},
    ]
    shown = Command(tmp_path).run("scan", "countTable", "--fields", "@version,count", "--where", "@version!=1")
    assert shown.splitlines()[1:] == [
        "a          99  a CountRow has version 99, this program knows 1: start the newer one",
        "c           0  a CountRow begins with 0, which is no version of its schema",
    ]


def test_of_a_large_table_the_rows_are_estimated_and_a_scan_takes_no_memory(tmp_path: Path) -> None:
    store = new_database(database_directory(tmp_path, "metadata", 0), "metadata")
    row = row_codec(KeyRow).encode(example(KeyRow))
    store.write({KEY_TABLE.name: {b"/v/b/%06d" % number: row for number in range(2 * COUNTED_ROWS)}})
    store.close()
    (listed,) = [one for one in Command(tmp_path).json("list") if one["name"] == "keyTable"]
    assert not listed["is_exact"]
    assert listed["rows"] == pytest.approx(2 * COUNTED_ROWS, rel=0.1)
    assert f"~{listed['rows']:,}" in Command(tmp_path).run("list")
    with reading_tables(TablesPlace(database_directory(tmp_path, "metadata", 0) / "db", "metadata")) as tables:
        tracemalloc.start()
        assert sum(one.value["size_bytes"] for one in tables.scan("keyTable", KeyRange())) == 6 * COUNTED_ROWS
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
        tracemalloc.stop()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_home_of_a_release_is_read_completely(version: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    unpack(version, home)
    before = files_of(home / "data")
    tables = Command(home)
    rows = 0
    for listed in tables.json("list"):
        shown = tables.json("scan", listed["name"], "--service", listed["service"])
        assert len(shown) == listed["rows"]
        assert not any(UNREADABLE in row["value"] for row in shown)
        rows += len(shown)
    assert rows > 300
    assert tables.json("count", "keyTable", "--snapshot", "kept/flat/first")[0]["rows"] == 27
    assert files_of(home / "data") == before

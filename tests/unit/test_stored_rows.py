"""Rows by older and newer versions of a schema, and what a database says of its own format."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

from schemas import formats, stored_rows
from schemas.codec import DecodeError, codec
from schemas.formats import FormatError
from schemas.records import LastRead, PositionRow
from schemas.schema_files import resolved_schema
from schemas.stored_rows import NewerRowError, RowCodec, row_codec
from services.runtime.loop.positions import POSITIONS
from services.storage.rocks import RocksStore
from services.storage.rocks_backups import RocksCopy
from services.storage.store import StoreError
from services.storage.tables import RowCache, TablesReader, UnitOfWork
from streaming.reclaiming.checkpoint import LocalCheckpoint, check_format

ROW = PositionRow("gc.space", "id", 7)
Schema = dict[str, Any]


def without(name: str) -> Schema:
    """The schema of a program that did not have a field yet."""
    schema = resolved_schema("PositionRow")
    return schema | {"fields": [field for field in schema["fields"] if field["name"] != name]}


def with_field(name: str, **field: object) -> Schema:
    """The schema of a program that has one more field."""
    schema = resolved_schema("PositionRow")
    return schema | {"fields": [*schema["fields"], {"name": name, **field}]}


def written(version: int, schema: Schema, **fields: object) -> bytes:
    """A row as the program with that version stores it."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, fields)
    return bytes([version]) + body.getvalue()


@pytest.fixture
def second_version(monkeypatch: pytest.MonkeyPatch) -> RowCodec[PositionRow]:
    """The codec of a program whose second version of a row has one field more than its first."""
    versions = [without("last_read"), resolved_schema("PositionRow")]
    monkeypatch.setattr(stored_rows, "released_schemas", lambda _: versions)
    return RowCodec(codec(PositionRow))


def test_a_row_begins_with_the_version_of_its_schema(second_version: RowCodec[PositionRow]) -> None:
    stored = second_version.encode(ROW)
    assert stored == b"\x02" + codec(PositionRow).encode(ROW)
    assert second_version.decode(stored) == ROW
    assert second_version.mark + second_version.body(stored) == stored


def test_a_row_of_an_older_version_is_resolved(second_version: RowCodec[PositionRow]) -> None:
    older = written(1, without("last_read"), topic="gc.space", topic_id="id", next_offset=7)
    assert second_version.decode(older) == ROW
    assert second_version.body(older) == codec(PositionRow).encode(ROW)


def test_a_digest_is_the_same_before_and_after_a_row_is_written_again(second_version: RowCodec[PositionRow]) -> None:
    older = written(1, without("last_read"), topic="gc.space", topic_id="id", next_offset=7)
    again = second_version.encode(second_version.decode(older))
    assert second_version.oldest_form(older) == second_version.oldest_form(again) == older


def test_a_digest_loses_nothing_that_the_older_version_has_no_field_for(second_version: RowCodec[PositionRow]) -> None:
    stored = second_version.encode(PositionRow("gc.space", "id", 7, LastRead(6, 1)))
    assert second_version.oldest_form(stored) == stored


def test_a_row_of_a_newer_version_is_read_once_its_schema_is_learnt() -> None:
    rows = RowCodec(codec(PositionRow))
    newer = with_field("colour", type="string", default="", doc="Added later.")
    stored = written(9, newer, topic="gc.space", topic_id="id", next_offset=7, colour="red")
    with pytest.raises(NewerRowError, match=r"version 9, this program knows .*start the newer one"):
        rows.decode(stored)
    rows.learn(9, newer)
    assert rows.decode(stored) == ROW


@pytest.mark.parametrize("stored", [b"", b"\0abc"])
def test_what_begins_with_no_version_is_no_row(stored: bytes) -> None:
    with pytest.raises(DecodeError):
        row_codec(PositionRow).decode(stored)
    with pytest.raises(DecodeError):
        row_codec(PositionRow).body(stored)


def open_store(directory: Path) -> RocksStore:
    return RocksStore(directory / "db", [POSITIONS], frozenset({POSITIONS.name}))


def put(store: RocksStore) -> None:
    work = UnitOfWork(store, RowCache())
    work.table(POSITIONS).put(b"gc.space", ROW)
    work.write()


def set_format(directory: Path, value: bytes | None) -> None:
    store = open_store(directory)
    store.write({formats.FAMILY: {formats.FORMAT_KEY: value}})
    store.close()


def test_a_database_keeps_its_format_and_the_schemas_of_its_rows(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store)
    rows = dict(store.scan(formats.FAMILY, b"", b"\xff"))
    assert rows[b"format"] == b"1"
    assert [json.loads(rows[key])["name"] for key in rows if key.startswith(b"schema/")] == ["PositionRow"]
    store.checkpoint("kept")
    store.close()
    again = open_store(tmp_path)
    assert TablesReader(again).table(POSITIONS).get(b"gc.space") == ROW
    assert TablesReader(again.open_checkpoint("kept")).table(POSITIONS).get(b"gc.space") == ROW
    again.close()


@pytest.mark.parametrize(
    ("value", "reason"),
    [(b"2", "has format 2, this program reads up to 1: start the newer deepclean"), (None, r"before 0\.2\.0")],
)
def test_what_this_program_cannot_read_is_refused(tmp_path: Path, value: bytes | None, reason: str) -> None:
    store = open_store(tmp_path)
    put(store)
    store.close()
    set_format(tmp_path, value)
    for _ in range(2):  # a refusal leaves nothing open and nothing changed
        with pytest.raises(StoreError, match=reason):
            open_store(tmp_path)
    with pytest.raises(StoreError, match=reason):
        RocksCopy(tmp_path, [POSITIONS])


def test_an_empty_database_whose_start_was_cut_off_is_new(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    store = open_store(tmp_path)
    store.write({formats.FAMILY: dict.fromkeys(dict(store.scan(formats.FAMILY, b"", b"\xff")))})
    store.close()
    again = open_store(tmp_path)
    assert again.get(formats.FAMILY, formats.FORMAT_KEY) == b"1"
    again.close()


def test_schemas_that_a_newer_program_has_written_are_learnt_when_a_database_is_opened(tmp_path: Path) -> None:
    newer = with_field("colour", type="string", default="", doc="Added later.")
    stored = written(9, newer, topic="gc.space", topic_id="id", next_offset=7, colour="red")
    store = open_store(tmp_path)
    store.write(
        {
            formats.FAMILY: {b"schema/PositionRow/9": json.dumps(newer).encode(), b"schema/Unknown/1": b"{}"},
            POSITIONS.name: {b"gc.space": stored},
        }
    )
    store.close()
    again = open_store(tmp_path)
    assert TablesReader(again).table(POSITIONS).get(b"gc.space") == ROW
    again.close()


def test_a_directory_beside_databases_is_marked_when_it_is_new_and_compared_later(tmp_path: Path) -> None:
    place = tmp_path / "streaming"
    checkpoint = LocalCheckpoint(place)
    check_format(checkpoint)
    check_format(checkpoint)
    (place / formats.FILE).write_text("2\n")
    with pytest.raises(FormatError, match=r"Spark's checkpoint .* has format 2"):
        check_format(checkpoint)
    (place / formats.FILE).rename(place / "offsets")
    with pytest.raises(FormatError, match=r"before 0\.2\.0"):
        check_format(checkpoint)

"""What an Iceberg table's metadata says: snapshots in their order, retention, and where the newest metadata is."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyiceberg.utils.config import Config

from services.lens.iceberg.errors import IcebergError
from services.lens.iceberg.location import find_table, plain_path, read_file, version_of
from services.lens.iceberg.metadata import Snapshot, TableMetadata, decode_metadata
from services.lens.iceberg.neighbours import metadata_of_others, tables_below
from services.lens.iceberg.order import in_order
from services.lens.iceberg.references import EXPIRABLE, references
from services.lens.iceberg.retention import expired_now, own_policy
from services.lens.relation import RefKind

DAY_MS = 24 * 3_600_000
NOW_MS = 1_000 * DAY_MS


def table(
    parents: dict[int, int | None], refs: dict[str, Any], properties: dict[str, str] | None = None
) -> TableMetadata:
    """A table whose snapshot with the number n was made n days after the first day."""
    return decode_metadata(
        json.dumps(
            {
                "format-version": 2,
                "location": "/lake/db.db/t",
                "snapshots": [
                    {
                        "snapshot-id": number,
                        "timestamp-ms": number * DAY_MS,
                        "sequence-number": number,
                        **({} if parent is None else {"parent-snapshot-id": parent}),
                    }
                    for number, parent in parents.items()
                ],
                "refs": {
                    name: {"type": "tag" if name.startswith("tag") else "branch", **one} for name, one in refs.items()
                },
                "properties": properties or {},
            }
        ).encode(),
        "v1.metadata.json",
    )


def order(parents: dict[int, int | None], current: int | None) -> list[int]:
    snapshots = table(parents, {}).snapshots
    return [one.snapshot_id for one in in_order(snapshots, current)]


def test_a_branch_stands_behind_the_snapshot_it_begins_at_and_the_current_one_is_last() -> None:
    assert order({1: None, 2: 1, 3: 2, 4: 3}, 4) == [1, 2, 3, 4]
    assert order({1: None, 2: 1, 3: 1, 4: 3, 5: 2, 6: 5}, 6) == [1, 3, 4, 2, 5, 6]
    # After a rollback to 2, what came after it is a branch of it.
    assert order({1: None, 2: 1, 3: 2, 4: 3}, 2) == [1, 3, 4, 2]
    # Snapshots 2 and 5 have expired: each part of a line is put by its age, and the line of main last.
    assert order({1: None, 3: 2, 4: 3, 6: 5, 7: 1}, 6) == [1, 7, 3, 4, 6]
    assert order({1: None, 2: 1}, None) == [1, 2]
    assert order({}, None) == []


@given(st.lists(st.integers(0, 12), max_size=12), st.integers(0, 12))
def test_the_order_has_each_snapshot_once_and_parents_first_but_for_the_current_one(
    parents: list[int], current: int
) -> None:
    tree = {number: (parent if 0 < parent < number else None) for number, parent in enumerate(parents, 1)}
    found = order(tree, current)
    assert sorted(found) == sorted(tree)
    assert current not in tree or found[-1] == current
    for one, parent in tree.items():
        assert parent is None or one == current or parent == current or found.index(parent) < found.index(one)


def test_the_current_snapshot_is_the_active_namespace_and_names_protect_theirs() -> None:
    refs = references(table({1: None, 2: 1, 3: 2}, {"main": {"snapshot-id": 3}, "tag": {"snapshot-id": 2}}), 3 * DAY_MS)
    assert [(ref.name, ref.kind, ref.protected_by, ref.is_droppable) for ref in refs] == [
        ("1", RefKind.SNAPSHOT, (), True),
        ("2", RefKind.SNAPSHOT, ("tag",), True),
        ("main", RefKind.ACTIVE, (), False),
    ]
    assert [ref.id for ref in refs] == ["1", "2", "3"]


def test_a_table_without_a_current_snapshot_shows_nothing() -> None:
    assert [ref.id for ref in references(table({}, {}), NOW_MS)] == [""]
    assert [ref.id for ref in references(table({1: None}, {"branch": {"snapshot-id": 1}}), NOW_MS)] == ["1", ""]


def test_metadata_without_references_names_the_current_snapshot_of_main() -> None:
    old = {"format-version": 1, "location": "/t", "snapshots": [{"snapshot-id": 7, "timestamp-ms": 5}]}
    read = decode_metadata(json.dumps({**old, "current-snapshot-id": 7}).encode(), "v1")
    assert references(read, 9)[-1].id == "7"
    empty = decode_metadata(json.dumps({**old, "current-snapshot-id": -1}).encode(), "v1")
    assert [ref.id for ref in references(empty, 9)] == ["7", ""]


@pytest.mark.parametrize(
    ("refs", "properties", "expired"),
    [
        ({"main": {}}, {}, {1, 2, 3, 4}),  # five days is the default: 5 is exactly as old
        ({"main": {}}, {"history.expire.min-snapshots-to-keep": "7"}, {1, 2, 3}),
        ({"main": {"min-snapshots-to-keep": 9}}, {}, {1}),
        ({"main": {"max-snapshot-age-ms": 8 * DAY_MS}}, {}, {1}),
        ({"main": {}}, {"history.expire.max-snapshot-age-ms": "0"}, set(range(1, 10))),
        ({"main": {}, "tag": {"snapshot-id": 2}}, {}, {1, 3, 4}),
        ({"main": {}, "tag": {"snapshot-id": 2, "max-ref-age-ms": 8 * DAY_MS}}, {}, {1, 3, 4}),
        ({"main": {}, "tag": {"snapshot-id": 2, "max-ref-age-ms": 8 * DAY_MS - 1}}, {}, {1, 2, 3, 4}),
        ({"main": {}, "tag": {"snapshot-id": 2}}, {"history.expire.max-ref-age-ms": "1"}, {1, 2, 3, 4}),
        ({"main": {}, "branch": {"snapshot-id": 4, "min-snapshots-to-keep": 2}}, {}, {1, 2}),
        ({"main": {"snapshot-id": 6}}, {}, {1, 2, 3, 4}),  # 7 to 10 are in no branch, and young
        ({"main": {"snapshot-id": 6}}, {"history.expire.max-snapshot-age-ms": str(2 * DAY_MS)}, {1, 2, 3, 4, 5, 7}),
        ({"main": {}, "tag-of-a-missing-one": {"snapshot-id": 77}}, {}, {1, 2, 3, 4}),
    ],
)
def test_retention_is_that_of_the_table_and_of_its_references(
    refs: dict[str, Any], properties: dict[str, str], expired: set[int]
) -> None:
    line: dict[int, int | None] = {1: None, **{number: number - 1 for number in range(2, 11)}}
    named = {name: {"snapshot-id": 10, **one} for name, one in refs.items()}
    metadata = table(line, named, properties)
    assert expired_now(metadata, 10 * DAY_MS) == expired
    marked = {int(ref.id) for ref in references(metadata, 10 * DAY_MS) if ref.status == EXPIRABLE}
    assert marked == expired


def test_the_own_policy_names_its_limits_and_what_it_expires() -> None:
    metadata = table({}, {}, {"history.expire.min-snapshots-to-keep": "3", "history.expire.max-ref-age-ms": "9"})
    limits = (
        "(history.expire.max-snapshot-age-ms=432000000, history.expire.min-snapshots-to-keep=3, "
        "history.expire.max-ref-age-ms=9, and what its branches and tags say)"
    )
    found = own_policy(metadata, [str(number) for number in range(1, 8)])
    assert f"policy {limits} would have expired 1, 2, 3, 4, 5 … (7 in all) when it was read." in found
    assert "=432000000, history.expire.min-snapshots-to-keep=1, and what" in own_policy(table({}, {}), [])
    assert "would have expired no snapshot when" in own_policy(table({}, {}), [])


def test_nothing_expires_in_a_table_whose_files_are_not_to_be_removed() -> None:
    line: dict[int, int | None] = {1: None, 2: 1}
    assert expired_now(table(line, {"main": {"snapshot-id": 2}}), NOW_MS) == {1}
    assert expired_now(table(line, {"main": {"snapshot-id": 2}}, {"gc.enabled": "False"}), NOW_MS) == set()


def test_a_tag_at_the_current_snapshot_is_known() -> None:
    refs = references(table({1: None}, {"main": {"snapshot-id": 1}, "tag": {"snapshot-id": 1}}), 2 * DAY_MS)
    assert [(ref.name, ref.protected_by) for ref in refs] == [("main", ("tag",))]


def test_snapshots_that_name_each_other_as_parents_are_in_the_order_all_the_same() -> None:
    loop = (Snapshot(1, 1, parent_snapshot_id=2), Snapshot(2, 2, parent_snapshot_id=1), Snapshot(3, 3))
    assert [one.snapshot_id for one in in_order(loop, 2)] == [3, 1, 2]
    assert [one.snapshot_id for one in in_order(loop, None)] == [3, 1, 2]
    twice = (Snapshot(1, 1), Snapshot(1, 1, parent_snapshot_id=2), Snapshot(2, 2, parent_snapshot_id=1))
    assert [one.snapshot_id for one in in_order(twice, None)] == [1, 2]


def test_a_property_that_is_no_number_is_one_sentence() -> None:
    with pytest.raises(IcebergError, match=r"max-snapshot-age-ms is '5d', but must be a number"):
        expired_now(table({1: None}, {}, {"history.expire.max-snapshot-age-ms": "5d"}), 10 * DAY_MS)


def test_tables_below_a_table_are_found_by_their_metadata() -> None:
    paths = [
        "/lake/t/metadata/v1.metadata.json",
        "/lake/t/data/a.parquet",
        "/lake/t/inner/metadata/v2.metadata.json",
        "/lake/t/inner/metadata/v3.metadata.json",
        "/lake/t/data/v1.metadata.json",
    ]
    assert tables_below("/lake/t", paths, ()) == ["/lake/t/inner"]
    assert tables_below("/lake/t", paths, paths[2:3]) == [], "with write.metadata.path it is the table's own"


def test_metadata_of_another_table_is_known_by_its_id(tmp_path: Path) -> None:
    contents = {
        "v1.metadata.json": b'{"format-version": 2, "table-uuid": "one"}',
        "v2.metadata.json": b'{"format-version": 2, "table-uuid" : "two"}',
        "v3.gz.metadata.json": gzip.compress(b'{"table-uuid":"three","x":"' + b"x" * 9_000 + b'"}', mtime=0),
        "v4.metadata.json": b'{"format-version": 1}',
        "v5.gz.metadata.json": b"\x1f\x8bno more",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    files = fs.LocalFileSystem()
    infos = files.get_file_info(fs.FileSelector(str(tmp_path)))
    found = {Path(path).name for path in metadata_of_others(files, infos, "one")}
    assert found == {"v2.metadata.json", "v3.gz.metadata.json"}
    assert {Path(path).name for path in metadata_of_others(files, infos, None)} == {*found, "v1.metadata.json"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"format-version": 2, "locat', "is cut short or no Iceberg metadata"),
        (gzip.compress(b'{"format-version": 2}', mtime=0)[:-9], "is cut short or no Iceberg metadata"),
        (b"[]", "is cut short or no Iceberg metadata"),
        (b"", "is cut short or no Iceberg metadata"),
        (b'{"format-version":' + b"[" * 100_000, "is cut short or no Iceberg metadata"),
        (b'{"format-version": 4}', "has format version 4, and this program knows 1 to 3"),
        (b'{"format-version": "two"}', "has format version two"),
        (b'{"format-version": 2}', "is no Iceberg metadata .*location"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(IcebergError, match=sentence) as caught:
        decode_metadata(content, "v3.metadata.json")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("v3.metadata.json")


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("v12.metadata.json", 12),
        ("v12.gz.metadata.json", 12),
        ("v12.metadata.json.gz", 12),
        ("00007-6f1e2a3c-0000-4000-8000-000000000000.metadata.json", 7),
        ("00007-6f1e2a3c-0000-4000-8000-000000000000.gz.metadata.json", 7),
        ("snap-1-1-a.avro", None),
        ("version-hint.text", None),
        (".v12.metadata.json.crc", None),
    ],
)
def test_a_metadata_file_is_known_by_its_name(name: str, version: int | None) -> None:
    assert version_of(f"/t/metadata/{name}") == version


def test_an_address_is_the_path_that_the_file_system_knows() -> None:
    assert plain_path("/lake/t") == plain_path("file:/lake/t") == plain_path("file:///lake/t") == "/lake/t"
    assert plain_path("s3://lake/t") == plain_path("s3a://lake/t") == "lake/t"
    assert plain_path("/lake/a:b:/c") == "/lake/a:b:/c"
    assert plain_path("file:///lake//warehouse//t") == plain_path("//lake//warehouse/t") == "/lake/warehouse/t"
    assert plain_path("s3://lake//warehouse//t") == "lake//warehouse//t", "a key of its own"


@pytest.fixture
def metadata_directory(tmp_path: Path) -> Callable[..., Path]:
    def make(*names: str, hint: str | None = None) -> Path:
        directory = tmp_path / "t" / "metadata"
        directory.mkdir(parents=True)
        for name in names:
            (directory / name).write_text("{}")
        if hint is not None:
            (directory / "version-hint.text").write_text(hint)
        return directory

    return make


def newest(directory: Path) -> tuple[str, bool]:
    found = find_table(str(directory.parent))
    return Path(found.metadata_file).name, found.is_certain


def test_the_hint_may_be_behind_but_not_over_a_gap(metadata_directory: Callable[..., Path]) -> None:
    directory = metadata_directory(*(f"v{number}.metadata.json" for number in (1, 2, 9, 10, 12)), hint="9")
    assert newest(directory) == ("v10.metadata.json", True)
    for useless in ("", "x", "8"):
        (directory / "version-hint.text").write_text(useless)
        assert newest(directory) == ("v12.metadata.json", False)


def test_without_a_hint_the_highest_version_is_taken_and_not_certain(metadata_directory: Callable[..., Path]) -> None:
    directory = metadata_directory("00002-b.metadata.json", "00010-a.gz.metadata.json", "snap-99.avro")
    assert newest(directory) == ("00010-a.gz.metadata.json", False)
    assert find_table(str(directory.parent)).rivals == ()
    (directory / "00010-b.metadata.json").write_text("{}")
    found = find_table(str(directory.parent))
    names = {Path(path).name for path in (found.metadata_file, *found.rivals)}
    assert names == {"00010-a.gz.metadata.json", "00010-b.metadata.json"}


def test_a_named_metadata_file_is_taken_as_it_is(metadata_directory: Callable[..., Path]) -> None:
    directory = metadata_directory("v1.metadata.json", "v2.metadata.json")
    found = find_table(str(directory / "v1.metadata.json"))
    assert (Path(found.metadata_file).name, Path(found.newest_file).name) == ("v1.metadata.json", "v2.metadata.json")
    assert found.is_certain


@pytest.mark.parametrize(
    ("location", "sentence"),
    [
        ("absent", "absent is missing: name a table's directory"),
        (".", "has no metadata/.*: name the directory of an Iceberg table"),
        ("lake:events", r"lake:events has no namespace: .* as in lake:db\.events"),
        ("abfs://lake@account/t", "abfs://lake@account/t is in a store that is not known here"),
    ],
)
def test_a_place_without_a_table_is_one_sentence(
    location: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(IcebergError, match=sentence) as caught:
        find_table(location)
    assert "\n" not in str(caught.value)


def test_a_catalog_names_the_metadata_of_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{tmp_path}/lake")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it has read the environment when it was imported
    with SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake") as catalog:
        catalog.create_namespace("db")
        made = catalog.create_table("db.table", Schema(NestedField(1, "id", LongType(), required=False)))
    found = find_table("lake:db.table")
    assert found.metadata_file == plain_path(made.metadata_location)
    assert found.is_certain
    metadata = decode_metadata(read_file(found.files, found.metadata_file), found.metadata_file)
    assert plain_path(metadata.location) == plain_path(made.location())
    with pytest.raises(IcebergError, match=r"The catalog lake has no db\.other .*: name a table as lake:db\.table"):
        find_table("lake:db.other")


def test_a_catalog_that_cannot_be_opened_is_a_sentence_with_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(IcebergError, match=r"set its address, as in PYICEBERG_CATALOG__NO_LAKE__URI=http://HOST:8181"):
        find_table("no-lake:db.table")

    def failing(_: str) -> None:
        raise OSError("no answer from http://user:secret@host/catalog")

    monkeypatch.setattr("pyiceberg.catalog.load_catalog", failing)
    with pytest.raises(IcebergError, match="no answer from http://host/catalog"):
        find_table("lake:db.table")


def test_without_pyiceberg_a_catalog_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    with pytest.raises(IcebergError, match=r"pip install 'deepclean\[iceberg\]'"):
        find_table("lake:db.table")

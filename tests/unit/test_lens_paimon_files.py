"""The files of a Paimon table: bytes that no writer has written, and names that lead elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.lens.paimon.metadata import PaimonError, SnapshotFile
from services.lens.paimon.references import Line, places_of
from streaming.lens.paimon import lists
from streaming.lens.paimon.avro_file import rows
from streaming.lens.paimon.directory import TableDirectory
from streaming.lens.table_files import TableNotes


def test_bytes_that_no_writer_has_written_are_an_error() -> None:
    """Rows without bytes, of which a block says that there are many, a schema of nothing, and a lying size."""

    def file(schema: bytes, codec: bytes, block: bytes) -> bytes:
        meta = b"\x04" + b"".join(
            bytes([2 * len(one)]) + one if len(one) < 64 else long(len(one)) + one
            for one in (b"avro.schema", schema, b"avro.codec", codec)
        )
        return b"Obj\x01" + meta + b"\0" + bytes(16) + block + bytes(16)

    def long(number: int) -> bytes:
        found, rest = bytearray(), number << 1
        while rest >= 0x80:
            found.append(rest & 0x7F | 0x80)
            rest >>= 7
        return bytes([*found, rest])

    empty = b'{"type":"record","name":"r","fields":[]}'
    for content in (
        file(empty, b"null", long(1 << 60) + long(0)),
        file(b'{"type":"record","name":"r","fields":[{"name":"a","type":"no"}]}', b"null", long(1) + long(0)),
        file(b'{"type":"record","fields":[]}', b"null", long(1) + long(0)),
        file(b"[" * 50_000, b"null", b""),
        file(empty, b"snappy", long(1) + long(10) + b"\xff" * 4 + b"\x7f" + bytes(5)),
        file(empty, b"zstandard", long(1) + long(3) + b"abc"),
        file(b'"int"', b"null", long(1) + long(1) + b"\2"),
        file(empty, b"snappy", long(1) + long(24) + b"\xff" * 20 + bytes(4)),
    ):
        with pytest.raises(PaimonError, match="it is no whole Avro file"):
            rows(content, ("a",))


def test_a_name_that_leads_out_of_the_table_is_not_followed(tmp_path: Path) -> None:
    table = tmp_path / "t"
    (table / "manifest").mkdir(parents=True)
    (table / "manifest" / "m").write_bytes(b"inside")
    (tmp_path / "secret").write_bytes(b"outside")
    directory = TableDirectory(str(table))
    names = ("manifest/m", "manifest/../../secret", "manifest/nothing", "manifest/a\0b", "/secret", "manifest/")
    assert dict(directory.contents(names)) == {**dict.fromkeys(names), "manifest/m": b"inside"}
    assert [directory.size_bytes(name) for name in names] == [6, None, None, None, None, None]
    with pytest.raises(PaimonError, match="manifest cannot be read"):
        dict(directory.contents(["manifest"]))
    with pytest.raises(PaimonError, match="cannot be listed"):
        TableDirectory(str(tmp_path / "nowhere"))


def test_files_that_were_written_since_the_listing_are_looked_for_in_some_directories_alone(tmp_path: Path) -> None:
    for name in ("a", "bucket-0/a", "bucket-0/inner/a", "bucket-1/a"):
        (tmp_path / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / name).write_bytes(b"1")
    directory = TableDirectory(str(tmp_path / "t"))
    assert len(directory.files) == 4
    for name in ("b", "bucket-0/b", "bucket-0/inner/b", "bucket-1/b"):
        (tmp_path / "t" / name).write_bytes(b"12")
    (tmp_path / "c").write_bytes(b"outside")

    def found(*directories: str) -> list[tuple[str, int]]:
        return [(row["path"], row["found_bytes"]) for row in directory.written_since(directories).to_pylist()]

    assert found("", "bucket-0") == [("b", 2), ("bucket-0/b", 2)]
    assert found("bucket-0/inner", "nowhere", "..", "/", "bucket-1/..") == [("bucket-0/inner/b", 2)]
    assert found() == []


def test_a_list_that_may_name_files_makes_orphans_unknown_and_one_of_changelogs_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t"
    (table / "manifest").mkdir(parents=True)
    for name in ("base-1", "delta-1", "base-2", "delta-2"):
        (table / "manifest" / name).write_bytes(b"")
    monkeypatch.setattr(lists, "rows", lambda *_: [])
    snapshots = {
        f"snapshot/snapshot-{number}": SnapshotFile(
            3, number, f"base-{number}", f"delta-{number}", number, "APPEND", changelog_manifest_list=f"log-{number}"
        )
        for number in (1, 2)
    }
    places = places_of(Line("main", snapshots), [])
    notes = TableNotes()
    lists.manifest_lists(TableDirectory(str(table)), places, notes)
    assert notes.losses == []
    assert [note.partition(" of ")[0] for note in notes.notes] == [
        "The manifest list manifest/log-1",
        "The manifest list manifest/log-2",
    ]
    (table / "manifest" / "delta-1").unlink()
    lists.manifest_lists(TableDirectory(str(table)), places, notes)
    assert "manifest/delta-1 of 1 cannot be read: it is missing" in notes.losses[0]
    assert notes.marking()[0] == notes.losses[0]

    monkeypatch.setattr(lists, "rows", lambda *_: [{"other": 1}])
    other = TableNotes()
    lists.manifest_lists(TableDirectory(str(table)), places, other)
    assert "it has other columns than this program knows" in other.losses[-1]

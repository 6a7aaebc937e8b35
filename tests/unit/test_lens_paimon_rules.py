"""The pure rules of the lens on Paimon: who holds what, in which order, and where the files of a partition are."""

from __future__ import annotations

import struct

import pytest

from services.lens.paimon.holdings import ManifestRow, events_of, manifest_uses, unprotected
from services.lens.paimon.metadata import Column, PaimonError, SchemaFile, SnapshotFile, decoded
from services.lens.paimon.partitions import bucket_directory
from services.lens.paimon.references import Line, places_of


def snapshot(number: int, base: str = "") -> SnapshotFile:
    return SnapshotFile(3, number, base or f"base-{number}", f"delta-{number}", number * 1_000, "APPEND")


def line(branch: str, numbers: list[int], **others: object) -> Line:
    return Line(branch, {f"snapshot/snapshot-{n}": snapshot(n) for n in numbers}, **others)  # type: ignore[arg-type]


def names(*lines: Line) -> list[str]:
    return [place.ref.name for place in places_of(lines[0], lines[1:])]


def test_tags_stand_behind_their_snapshots_and_main_comes_last() -> None:
    tags = {"tag/tag-early": snapshot(1), "tag/tag-7": snapshot(3)}
    assert names(line("main", [2, 3], tags=tags)) == ["early", "2", "3", "tag/7", "main"]


def test_a_branch_stands_behind_the_snapshot_from_which_it_was_created() -> None:
    main = line("main", [1, 2, 3], tags={"tag/tag-t": snapshot(2)})
    branch = Line("b", {"x": snapshot(2), "y": snapshot(3, "own")})
    places = places_of(main, [branch])
    assert [place.ref.name for place in places] == ["1", "2", "t", "b/2", "b/3", "3", "main"]
    assert places[2].ref.protected_by == ("t", "b"), "without the tag Paimon removes what the branch holds"
    assert names(line("main", [1, 2]), Line("b", {"y": snapshot(1, "own")})) == ["b/1", "1", "2", "main"]


def test_consumers_protect_what_they_have_not_read() -> None:
    places = places_of(line("main", [1, 2, 3], consumers={"c": 2}), [])
    assert [place.ref.protected_by for place in places] == [(), ("c",), ("main", "c"), ()]


def test_changelogs_that_outlive_their_snapshots_stand_first() -> None:
    main = line("main", [2, 3], changelogs={"changelog/changelog-1": snapshot(1)}, is_changelog_decoupled=True)
    assert names(main) == ["1/changelog", "2/changelog", "3/changelog", "2", "3", "main"]


def test_a_manifest_is_used_by_all_whose_lists_name_it() -> None:
    places = places_of(line("main", [1, 2, 3]), [])
    row = ManifestRow("m", 10, 1)
    uses = manifest_uses(places, {"delta-1": [row], "base-2": [row], "base-3": []})
    assert uses["m"].data == {0, 1}
    assert uses["m"].holders == ((0, 1),)
    assert events_of({0, 1, 3}) == [(0, 1), (2, -1), (3, 1), (4, -1)]


def test_what_only_a_branch_would_keep_is_not_safe_from_expiry_in_main() -> None:
    branch = Line("b", {"x": snapshot(1)})
    places = places_of(line("main", [1, 2]), [branch])
    assert [place.ref.name for place in places] == ["1", "b/1", "2", "main"]
    assert unprotected(places, {((0, 1),): 5, ((0, 0),): 7, ((0, 3),): 9}) == {"main": 5}
    tagged = places_of(line("main", [1, 2], tags={"tag/tag-t": snapshot(1)}), [branch])
    assert unprotected(tagged, {((0, 2),): 5}) == {}


def partition(*fields: bytes, nulls: int = 0) -> bytes:
    return struct.pack(">i", len(fields)) + bytes([0, nulls]) + bytes(6) + b"".join(fields)


def text(value: str) -> bytes:
    return value.encode().ljust(7, b"\0") + bytes([0x80 | len(value)])


@pytest.mark.parametrize(
    ("kind", "field", "directory"),
    [
        ("STRING", text("a/b"), "p=a%2Fb/bucket-0"),
        ("INT NOT NULL", struct.pack("<iI", -3, 0), "p=-3/bucket-0"),
        ("BIGINT", struct.pack("<q", 2**40), f"p={2**40}/bucket-0"),
        ("BOOLEAN", bytes([1] + [0] * 7), "p=true/bucket-0"),
        ("DATE", struct.pack("<iI", 20_000, 0), "p=20000/bucket-0"),
        ("DECIMAL(10, 2)", struct.pack("<q", -5), "p=-0.05/bucket-0"),
        ("TIMESTAMP(3)", struct.pack("<q", 1_500), "p=1970-01-01T00%3A00%3A01.500/bucket-0"),
    ],
)
def test_a_partition_has_the_directory_that_paimon_gives_it(kind: str, field: bytes, directory: str) -> None:
    schema = SchemaFile((Column("p", kind),), ("p",))
    assert bucket_directory(schema, partition(field), 0) == directory
    assert bucket_directory(schema, partition(bytes(8), nulls=1), -2) == "p=__DEFAULT_PARTITION__/bucket-postpone"


def test_dates_have_their_names_where_a_table_says_so() -> None:
    schema = SchemaFile((Column("p", "DATE"),), ("p",), {"partition.legacy-name": "false"})
    assert bucket_directory(schema, partition(struct.pack("<iI", 20_000, 0)), 1) == "p=2024-10-04/bucket-1"


def test_a_type_that_is_not_known_is_one_sentence() -> None:
    with pytest.raises(PaimonError, match="partitioned by p of type DOUBLE"):
        bucket_directory(SchemaFile((Column("p", "DOUBLE"),), ("p",)), partition(bytes(8)), 0)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("INT", b"\0\0\0\1"),
        ("INT", partition(bytes(8))[:-1]),
        ("STRING", partition((9).to_bytes(4, "little") + (16).to_bytes(4, "little"))),
        ("TIMESTAMP(6)", partition(bytes(4) + (16).to_bytes(4, "little"))),
        ("BIGINT", b""),
        ("STRING", partition(b"\xff\xfe" + bytes(5) + b"\x82")),
        ("TIMESTAMP(3)", partition((1 << 62).to_bytes(8, "little"))),
    ],
)
def test_a_damaged_partition_is_one_sentence(kind: str, content: bytes) -> None:
    with pytest.raises(PaimonError, match="does not fit the table's partition keys, p"):
        bucket_directory(SchemaFile((Column("p", kind),), ("p",)), content, 0)
    with pytest.raises(PaimonError, match="does not fit the table's partition keys, q"):
        bucket_directory(SchemaFile((Column("p", kind),), ("q",)), content, 0)


def test_changelogs_outlive_snapshots_if_one_of_their_limits_is_the_larger_one() -> None:
    assert not SchemaFile((), options={"snapshot.time-retained": "2 d"}).is_changelog_decoupled
    assert SchemaFile((), options={"changelog.time-retained": "2 hours"}).is_changelog_decoupled
    assert SchemaFile((), options={"changelog.num-retained.min": "11"}).is_changelog_decoupled
    with pytest.raises(PaimonError, match=r"snapshot.time-retained .* is 'soon'"):
        SchemaFile((), options={"snapshot.time-retained": "soon"}).retention()


def test_the_own_policy_names_its_limits_and_the_options_that_apply_it() -> None:
    schema = SchemaFile((), options={"snapshot.time-retained": "90 min", "snapshot.num-retained.min": "3"})
    assert schema.own_policy() == (
        "The table's own policy (snapshot.num-retained.min=3, snapshot.num-retained.max=2147483647, "
        "snapshot.time-retained=5400000, snapshot.expire.limit=50) is not applied. To apply it, use "
        "--num-retained-min 3 --num-retained-max 0 --time-retained 5400s --expire-limit 50."
    )


def test_a_truncated_file_is_named() -> None:
    with pytest.raises(PaimonError, match="snapshot-3 cannot be read"):
        decoded(b'{"version": 3, "id": ', SnapshotFile, "snapshot/snapshot-3")

"""The model by hand: what each operation does, and with which code it is refused."""

import pytest
from msgspec.structs import replace

from schemas.records import BucketLayout
from services.workloads.judge.model_bucket import OperationRefusedError
from services.workloads.judge.namespace_model import NamespaceModel, is_valid_snapshot_name
from services.workloads.workload import (
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteBucket,
    DeleteDirectory,
    DeleteKey,
    DeleteKeys,
    DeleteSnapshot,
    ExpireSnapshots,
    MakeDirectory,
    MoveConsumer,
    Operation,
    PutKey,
    RenameDirectory,
    RenameKey,
    RenameSnapshot,
    RollBack,
    TagSnapshot,
    UndeleteKey,
)
from tests.model_lines import observe, operation_lines, reclaimed_versions

FILE_SYSTEM, FLAT = ("v", "files"), ("v", "flat")


def put(key: str, size_bytes: int = 1, place: tuple[str, str] = FILE_SYSTEM) -> PutKey:
    return PutKey(*place, key, size_bytes, f"tag of {key}")


def play(*operations: Operation) -> NamespaceModel:
    model = NamespaceModel()
    start: list[Operation] = [
        CreateVolume("v"),
        CreateBucket(*FILE_SYSTEM, BucketLayout.FILE_SYSTEM_OPTIMIZED),
        CreateBucket(*FLAT, BucketLayout.LEGACY),
    ]
    for number, operation in enumerate([*start, *operations]):
        model.apply(number, operation)
    return model


def paths(model: NamespaceModel, place: tuple[str, str] = FILE_SYSTEM) -> dict[str, int]:
    return {path: version.number for path, version in model.active(*place).keys.items()}


def test_snapshots_are_full_copies() -> None:
    model = play(
        put("d/a", 10),  # 3
        put("b", 20),  # 4
        CreateSnapshot(*FILE_SYSTEM, "s1"),
        RenameDirectory(*FILE_SYSTEM, "d", "e"),
        put("b", 30),  # 7
        CreateSnapshot(*FILE_SYSTEM, "s2"),
        DeleteDirectory(*FILE_SYSTEM, "e"),
        RenameSnapshot(*FILE_SYSTEM, "s1", "t1"),
        put("zero", 0),
        DeleteKey(*FILE_SYSTEM, "zero"),
    )
    snapshots = model.snapshots(*FILE_SYSTEM)
    assert list(snapshots) == ["t1", "s2"]
    assert {path: v.number for path, v in snapshots["t1"].keys.items()} == {"d/a": 3, "b": 4}
    assert {path: v.number for path, v in snapshots["s2"].keys.items()} == {"e/a": 3, "b": 7}
    assert (snapshots["t1"].directories, snapshots["s2"].directories) == (("d",), ("e",))
    assert model.exclusive_bytes(*FILE_SYSTEM) == {"t1": 20, "s2": 0}
    assert model.held_versions() == {3, 4, 7}
    assert reclaimed_versions(model) == []
    model.apply(13, DeleteSnapshot(*FILE_SYSTEM, "t1"))
    assert [version.number for version in reclaimed_versions(model)] == [4]
    assert model.exclusive_bytes(*FILE_SYSTEM) == {"s2": 10}


def test_a_flat_bucket_has_no_directories() -> None:
    model = play(put("a/b", place=FLAT), put("a", place=FLAT), put("a//", place=FLAT))
    assert paths(model, FLAT) == {"a/b": 3, "a": 4, "a//": 5}
    model.apply(6, RenameKey(*FLAT, "a/b", "nowhere/b"))
    assert paths(model, FLAT) == {"nowhere/b": 3, "a": 4, "a//": 5}


def test_renames_onto_directories_move_into_them() -> None:
    model = play(put("f"), put("d/g"), put("e/h"), RenameKey(*FILE_SYSTEM, "f", "d"))
    model.apply(7, RenameDirectory(*FILE_SYSTEM, "d", "e"))
    assert paths(model) == {"e/d/f": 3, "e/d/g": 4, "e/h": 5}


def test_harmless_repeats() -> None:
    model = play(put("d/f"), MakeDirectory(*FILE_SYSTEM, "d"), RenameKey(*FILE_SYSTEM, "d/f", "d/f"))
    model.apply(6, MakeDirectory(*FILE_SYSTEM, "x/y/z"))
    model.apply(7, DeleteKey(*FILE_SYSTEM, "x/y/z"))
    assert model.active(*FILE_SYSTEM).directories == ("d", "x", "x/y")


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (CreateVolume("v"), "VOLUME_ALREADY_EXISTS"),
        (CreateBucket("w", "b", BucketLayout.LEGACY), "VOLUME_NOT_FOUND"),
        (CreateBucket(*FLAT, BucketLayout.LEGACY), "BUCKET_ALREADY_EXISTS"),
        (put("k", place=("w", "b")), "VOLUME_NOT_FOUND"),
        (CreateSnapshot("v", "b", "s9"), "BUCKET_NOT_FOUND"),
        (put("d"), "NOT_A_FILE"),
        (put("new/../x/f/g"), None),
        (put("f/g"), "NOT_A_FILE"),
        (put("a//b"), "INVALID_KEY_NAME"),
        (put(""), "INVALID_KEY_NAME"),
        (DeleteKey(*FILE_SYSTEM, "no"), "KEY_NOT_FOUND"),
        (DeleteKey(*FILE_SYSTEM, "f/g"), "KEY_NOT_FOUND"),
        (DeleteKey(*FILE_SYSTEM, "d"), "DIRECTORY_NOT_EMPTY"),
        (DeleteDirectory(*FILE_SYSTEM, "no"), "KEY_NOT_FOUND"),
        (MakeDirectory(*FILE_SYSTEM, "f"), "FILE_ALREADY_EXISTS"),
        (MakeDirectory(*FILE_SYSTEM, "f/x"), "FILE_ALREADY_EXISTS"),
        (RenameKey(*FILE_SYSTEM, "no", "x"), "KEY_NOT_FOUND"),
        (RenameKey(*FILE_SYSTEM, "f", "d/e"), "KEY_ALREADY_EXISTS"),
        (RenameKey(*FILE_SYSTEM, "f", "no/x"), "KEY_RENAME_ERROR"),
        (RenameKey(*FILE_SYSTEM, "d/e", "f/x"), "KEY_RENAME_ERROR"),
        (RenameDirectory(*FILE_SYSTEM, "d", "d/x"), "KEY_RENAME_ERROR"),
        (RenameDirectory(*FILE_SYSTEM, "d", "d"), "KEY_ALREADY_EXISTS"),
        (RenameDirectory(*FILE_SYSTEM, "d", "dd"), None),
        (MakeDirectory(*FLAT, "d"), "NOT_SUPPORTED_OPERATION"),
        (CreateSnapshot(*FILE_SYSTEM, "s1"), "FILE_ALREADY_EXISTS"),
        (CreateSnapshot(*FILE_SYSTEM, "S2"), "INVALID_SNAPSHOT_ERROR"),
        (DeleteSnapshot(*FILE_SYSTEM, "s2"), "FILE_NOT_FOUND"),
        (RenameSnapshot(*FILE_SYSTEM, "s2", "s3"), "FILE_NOT_FOUND"),
        (RenameSnapshot(*FILE_SYSTEM, "s1", "s1"), "FILE_ALREADY_EXISTS"),
    ],
)
def test_refusals_change_nothing(operation: Operation, code: str | None) -> None:
    model = play(put("f"), put("d/e"), CreateSnapshot(*FILE_SYSTEM, "s1"))
    before = observe(model, 0, "")
    if code is None:
        model.apply(99, operation)
        assert observe(model, 0, "") != before
        return
    with pytest.raises(OperationRefusedError) as caught:
        model.apply(99, operation)
    assert caught.value.code == code
    assert observe(model, 0, "") == before
    assert 99 not in model.versions


def test_snapshot_names() -> None:
    for good in ("s1", "c000120-1a2b3c4d", "v1.2.3", "1.2.3", "a--b", "x" * 63):
        assert is_valid_snapshot_name(good), good
    for bad in ("", "-a", "a-", ".a", "a.", "a..b", "a.-b", "a-.b", "A", "a_b", "ä", "123", "1.2.3.4", "x" * 64, "a\n"):
        assert not is_valid_snapshot_name(bad), bad


def test_what_died_last_comes_back() -> None:
    model = play(put("k"), put("k"), DeleteKey(*FILE_SYSTEM, "k"), UndeleteKey(*FILE_SYSTEM, "k"))
    assert paths(model) == {"k": 4}


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ([UndeleteKey(*FLAT, "k")], "TOO_LATE"),
        ([put("k", 0, FLAT), DeleteKey(*FLAT, "k"), UndeleteKey(*FLAT, "k")], "TOO_LATE"),
        ([put("k", 1, FLAT), DeleteKey(*FLAT, "k"), put("k", 1, FLAT), UndeleteKey(*FLAT, "k")], "KEY_ALREADY_EXISTS"),
        ([put("k"), DeleteKeys(*FILE_SYSTEM, ("k",)), put("k"), UndeleteKey(*FILE_SYSTEM, "k")], "FILE_ALREADY_EXISTS"),
        ([put("k"), DeleteKey(*FILE_SYSTEM, "k"), put("k/l"), UndeleteKey(*FILE_SYSTEM, "k")], "NOT_A_FILE"),
        (
            [
                put("k"),
                CreateSnapshot(*FILE_SYSTEM, "s1"),
                DeleteKey(*FILE_SYSTEM, "k"),
                CreateSnapshot(*FILE_SYSTEM, "s2"),
                UndeleteKey(*FILE_SYSTEM, "k"),
            ],
            "SNAPSHOT_IN_BETWEEN",
        ),
        (
            [
                put("k"),
                CreateSnapshot(*FILE_SYSTEM, "s1"),
                put("k"),
                DeleteKey(*FILE_SYSTEM, "k"),
                RollBack(*FILE_SYSTEM, "s1"),
                put("k"),
                UndeleteKey(*FILE_SYSTEM, "k"),
            ],
            "HELD_BY_SNAPSHOT",
        ),
    ],
)
def test_what_cannot_come_back(operations: list[Operation], code: str) -> None:
    with pytest.raises(OperationRefusedError) as refusal:
        play(*operations)
    assert refusal.value.code == code


def test_a_bulk_delete_leaves_what_it_cannot_delete() -> None:
    model = play(put("a"), put("d/b"))
    answer = model.apply(9, DeleteKeys(*FILE_SYSTEM, ("a", "none", "d")))
    assert answer == {"left": [["none", "KEY_NOT_FOUND"], ["d", "DIRECTORY_NOT_EMPTY"]]}
    assert paths(model) == {"d/b": 4}


def test_a_bucket_is_deleted_when_nothing_is_in_it() -> None:
    model = play(put("k"), CreateSnapshot(*FILE_SYSTEM, "s1"))
    for code, operation in (
        ("BUCKET_NOT_EMPTY", DeleteKey(*FILE_SYSTEM, "k")),
        ("CONTAINS_SNAPSHOT", DeleteSnapshot(*FILE_SYSTEM, "s1")),
    ):
        assert operation_lines(model, 9, DeleteBucket(*FILE_SYSTEM)) == [{"op": 9, "error": code}]
        model.apply(10, operation)
    assert operation_lines(model, 11, DeleteBucket(*FILE_SYSTEM)) == []
    assert FILE_SYSTEM not in model._buckets


def test_expiry_goes_from_the_oldest_on_and_passes_over_tags() -> None:
    takes: list[Operation] = [CreateSnapshot(*FLAT, f"s{number}", number * 1_000) for number in range(1, 7)]
    held: list[Operation] = [TagSnapshot(*FLAT, "s2", "tag"), MoveConsumer(*FLAT, "reader", "s4")]
    model = play(*takes, *held)
    rules = ExpireSnapshots(*FLAT, num_retained_min=1, time_retained_ms=0, now_ms=10_000)
    assert operation_lines(model, 20, DeleteSnapshot(*FLAT, "s2")) == [{"op": 20, "error": "TAGGED_SNAPSHOT"}]
    assert model.apply(21, rules) == {"expired": ["s1", "s3"]}
    model.apply(22, MoveConsumer(*FLAT, "reader", None))
    assert model.apply(23, replace(rules, now_ms=5_000)) == {"expired": []}
    assert model.apply(24, replace(rules, num_retained_min=5)) == {"expired": []}
    assert model.apply(25, rules) == {"expired": ["s4", "s5"]}
    assert list(model.snapshots(*FLAT)) == ["s2", "s6"]

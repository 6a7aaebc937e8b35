"""Old backups go when newer ones replace them: the newest whole copies of each shard stay, whatever else is there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from schemas.records import KeyRow, ShardState
from schemas.stored_rows import row_codec
from services.cli.main import app
from services.metadata.state.tables import TRANSACTION_INFO_KEY
from services.plane.machine.errors import StackError
from services.plane.machine.processes import identify
from services.plane.stack.plane_file import PlaneFile, PlaneState
from services.plane.upkeep import backups
from services.plane.upkeep.backups import find_backup, unfinished_name
from services.plane.upkeep.old_backups import (
    KeptBackup,
    deletable_backups,
    delete_backups,
    kept_backups,
    replaced_backups,
)
from services.plane.upkeep.shard_databases import new_database
from services.runtime.copies.manifests import (
    MANIFEST,
    Backup,
    InputPosition,
    PlacedBackup,
    ServiceCopy,
    write_manifest,
)
from services.runtime.copies.restores import place_copy
from services.storage import rocks_backups
from services.storage.linked_files import exclusive_bytes
from services.storage.rocks_backups import TABLE_END_BYTES
from services.storage.store import StoreError
from tests.unit.test_backups import inodes_of, made_backup, tables_of

Copies = dict[tuple[str, int], tuple[bool, dict[str, tuple[str, int]]]]
"""Of each shard of each service in a backup: whether its copy is whole; of each topic that it has read, which log this
was, and how far."""
PLACES = [("metadata", 0), ("metadata", 1), ("snapshots", 0)]


def kept(histories: Sequence[Copies]) -> list[KeptBackup]:
    found = []
    for age, copies in enumerate(histories):
        of_shards = tuple(
            ServiceCopy(*place, tuple(InputPosition(topic, *read) for topic, read in topics.items()), 1)
            for place, (_, topics) in copies.items()
        )
        placed = PlacedBackup(Path(f"backup-{age:03}"), Backup(f"backup-{age:03}", age, 2, of_shards))
        damaged = {place: "it lacks a part" for place, (is_whole, _) in copies.items() if not is_whole}
        found.append(KeptBackup(placed, damaged))
    return found


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(PLACES),
            st.tuples(
                st.sampled_from([True, True, False]),
                st.dictionaries(
                    st.sampled_from(["commands", "replies"]),
                    st.tuples(st.sampled_from(["one", "one", "other"]), st.integers(0, 2)),
                ),
            ),
        ),
        max_size=8,
    ),
    st.integers(min_value=1, max_value=3),
)
def test_what_goes_has_newer_whole_copies_that_read_as_far_and_all_such_go(histories: list[Copies], keep: int) -> None:
    replaced = {one.placed.backup.made_at_ms for one in replaced_backups(kept(histories), keep)}

    def is_as_far(older: dict[str, tuple[str, int]], newer: dict[str, tuple[str, int]]) -> bool:
        return all(
            topic in newer and newer[topic][0] == log and newer[topic][1] >= offset
            for topic, (log, offset) in older.items()
        )

    for age, copies in enumerate(histories):
        newer = [
            sum(
                place in other and other[place][0] and is_as_far(topics, other[place][1])
                for other in histories[age + 1 :]
            )
            for place, (_, topics) in copies.items()
        ]
        assert (age in replaced) == (bool(newer) and min(newer) >= keep)
    for place in PLACES:
        newest = [age for age, copies in enumerate(histories) if place in copies and copies[place][0]][-keep:]
        assert not replaced & set(newest), "the newest whole copies of each shard stay"


WHOLE = (True, {"commands": ("one", 1)})


def test_only_what_is_replaced_can_be_named() -> None:
    metadata: Copies = {("metadata", 0): WHOLE}
    snapshots: Copies = {("snapshots", 0): WHOLE}
    found = kept([metadata, snapshots, metadata, metadata])
    assert [one.name for one in deletable_backups(found, 1)] == ["backup-000", "backup-002"]
    assert [one.name for one in deletable_backups(found, 1, ["backup-002"])] == ["backup-002"]
    with pytest.raises(StackError, match="backup-001 is kept: of some shard in it there are fewer than 1 newer whole"):
        deletable_backups(found, 1, ["backup-000", "backup-001"])
    with pytest.raises(StackError, match="no complete backup backup-009"):
        deletable_backups(found, 1, ["backup-009"])


def run(*arguments: str) -> str:
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def names_in(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def test_the_command_lists_them_and_deletes_those_that_newer_ones_replace(tmp_path: Path) -> None:
    home = tmp_path / "home"
    place = backups.backups_directory(home)
    at_home = ("--home", str(home), "backups")
    assert json.loads(run(*at_home, "list", "--json")) == {"directory": str(place), "backups": []}
    assert "Nothing to delete" in run(*at_home, "delete")
    assert CliRunner().invoke(app, [*at_home, "list", "--from", str(tmp_path / "unmounted")]).exit_code != 0
    for age, name in enumerate("abcd", start=1):
        made_backup(home, place, name, age)
    manifest = place / "c" / MANIFEST
    content = json.loads(manifest.read_bytes())
    content["copies"][0]["checkpoints"] = 99
    manifest.write_text(json.dumps(content))
    listed = json.loads(run(*at_home, "list", "--json"))["backups"]
    reason = "a snapshot checkpoint is missing in the backup"
    assert [(one["name"], one["damaged"]) for one in listed] == [
        ("a", []),
        ("b", []),
        ("c", [{"service": "metadata", "shard": 0, "reason": reason}]),
        ("d", []),
    ]
    assert listed[0]["exclusive_bytes"] == exclusive_bytes([place / "a"]) > 0
    table = run(*at_home, "list")
    assert f"metadata 0 is damaged: {reason}" in table
    assert "whole, without snapshots 0; key_deletion 0" in table
    assert "Would delete a (1 backup" in run(*at_home, "delete", "--keep", "2", "--dry-run")
    assert names_in(place) == [*"abcd"]
    assert CliRunner().invoke(app, [*at_home, "delete", "--keep", "2"]).exit_code != 0, "nobody has confirmed it"
    assert names_in(place) == [*"abcd"]
    assert "Deleted a (1 backup" in run(*at_home, "delete", "--keep", "2", "--yes")
    assert names_in(place) == [*"bcd"], "the damaged one is no copy of two"
    freed_bytes = exclusive_bytes([place / "b", place / "c"])
    deleted = json.loads(run(*at_home, "delete", "--keep", "1", "--yes", "--json"))
    assert [one["name"] for one in deleted["deleted"]] == ["b", "c"]
    assert deleted["freed_bytes"] == freed_bytes
    assert names_in(place) == ["d"]


def test_another_name_of_a_backup_replaces_nothing_and_stays(tmp_path: Path) -> None:
    """A link to it, and a copy of it that is not finished yet."""
    home, place = tmp_path / "home", tmp_path / "kept"
    made_backup(home, place, "one", 1)
    (place / "latest").symlink_to("one")
    (place / "copied").mkdir()
    shutil.copy(place / "one" / MANIFEST, place / "copied")
    assert deletable_backups(kept_backups(place), 1) == []
    assert {one.placed.directory.name for one in kept_backups(place) if not one.is_counted} == {"latest", "copied"}
    assert find_backup(place).directory == find_backup(place, "one").directory == place / "one"
    made_backup(home, place, "two", 2)
    with pytest.raises(StackError, match="latest is a link to backup one, or was renamed"):
        deletable_backups(kept_backups(place), 1, ["latest"])
    run("--home", str(home), "backups", "delete", "--from", str(place), "--keep", "1", "--yes")
    assert names_in(place) == ["copied", "latest", "two"]
    (place / "latest").unlink()
    shutil.rmtree(place / "copied")
    (place / "two").rename(place / "before-the-upgrade")
    listed = json.loads(run("--home", str(home), "backups", "list", "--from", str(place), "--json"))["backups"]
    assert [(Path(one["path"]).name, one["damaged"]) for one in listed] == [("before-the-upgrade", [])]


def test_what_is_needed_by_the_time_of_the_deletion_stays(tmp_path: Path) -> None:
    home, place = tmp_path / "home", tmp_path / "kept"
    made_backup(home, place, "one", 1)
    made_backup(home, place, "two", 2)
    (chosen,) = deletable_backups(kept_backups(place), 1)
    shutil.rmtree(place / "two")
    with pytest.raises(StackError, match="one is kept"):
        delete_backups(home, place, 1, [chosen.name, "gone"])
    delete_backups(home, place, 1, ["gone"])  # by another host
    assert names_in(place) == ["one"]
    with pytest.raises(StackError, match="is no home of a plane"):
        delete_backups(tmp_path / "nowhere", place, 1, [])


def test_a_deletion_that_is_cut_off_leaves_nothing_that_looks_like_a_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, place = tmp_path / "home", tmp_path / "kept"
    made_backup(home, place, "one", 1)
    two = made_backup(home, place, "two", 2)

    def cut_off(_: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", cut_off)
        with pytest.raises(StackError, match="Input/output error"):
            delete_backups(home, place, 1, ["one"])
    assert [one.placed.backup for one in kept_backups(place)] == [two]
    assert len(names_in(place)) == 2
    backups.remove_unfinished_backups(tmp_path / "another", place)
    assert names_in(place) == [unfinished_name(home, "one"), "two"], "another host leaves it to this one"
    assert "Nothing to delete" in run("--home", str(home), "backups", "delete", "--from", str(place), "--yes")
    assert names_in(place) == ["two"]


def test_a_restore_from_one_that_is_being_deleted_ends_without_a_database(tmp_path: Path) -> None:
    home, place = tmp_path / "home", tmp_path / "kept"
    one = made_backup(home, place, "one", 1)
    made_backup(home, place, "two", 2)
    copied = 0

    def amid_the_copying() -> None:
        nonlocal copied
        copied += 1
        if copied == 2:
            delete_backups(home, place, 1, ["one"])

    target = tmp_path / "restored" / "metadata" / "0"
    with pytest.raises(FileNotFoundError):
        place_copy(PlacedBackup(place / "one", one), one.copies[0], target, amid_the_copying)
    assert copied >= 2
    assert list(target.parent.iterdir()) == []


def test_a_copy_shares_files_with_the_newest_one_unless_that_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, made = tmp_path / "kept", tmp_path / "made"
    encode, random = row_codec(KeyRow).encode, Random(1)
    rows = {
        b"/vol/bucket/%05d" % number: encode(KeyRow(number, 1, 1, None, 7, random.randbytes(20).hex(), 1, 0, "", 0, 0))
        for number in range(5_000)
    }
    state = row_codec(ShardState).encode(ShardState(7, 1, 0, 0, 0, ""))
    with closing(new_database(tmp_path / "shard", "metadata")) as store:
        store.write({"transactionInfoTable": {TRANSACTION_INFO_KEY: state}, "keyTable": rows})
        store.back_up_to(tmp_path / "linked")
    shutil.copytree(tmp_path / "linked", made)
    for age, name in enumerate(["older", "newest"], start=1):
        shutil.copytree(made, place / name / "metadata" / "0")
        write_manifest(place / name, Backup(name, age, 1, (ServiceCopy("metadata", 0, (), 1),)))
    newest = backups._newest_copies(place)["metadata", 0]
    assert newest == place / "newest" / "metadata" / "0"
    link = rocks_backups._link
    monkeypatch.setattr(
        rocks_backups, "_link", lambda file, target: not file.is_relative_to(made) and link(file, target)
    )

    monkeypatch.setattr(backups, "copy_of_running", lambda *_: nullcontext(made))
    plane = PlaneFile(PlaneState.RUNNING, str(tmp_path), 1, identify(os.getpid()))
    said: list[str] = []

    def shared_by(name: str) -> set[int]:
        making = backups._Making(plane, place / name, name, {("metadata", 0): newest}, True, said.append)
        copy = making.copy("metadata", 0)
        assert copy.table_files == len(tables_of(place / name / "metadata" / "0" / "db"))
        return inodes_of(newest) & inodes_of(place / name)

    assert shared_by("third") == inodes_of(newest)
    assert said == []
    (largest,) = [file for file in tables_of(newest) if file.stat().st_size > 3 * TABLE_END_BYTES]
    before, content = largest.stat(), largest.read_bytes()
    largest.write_bytes(bytes(TABLE_END_BYTES) + content[TABLE_END_BYTES:])
    os.utime(largest, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert shared_by("fourth") == set()
    assert said == [
        f"{newest} is damaged, so nothing is shared with it: move this backup away before you delete older ones."
    ]
    largest.write_bytes(content)
    (made / "db" / largest.name).write_bytes(bytes(len(content)))
    with pytest.raises(StoreError):
        shared_by("fifth")
    assert len(said) == 1, "the database itself is damaged"


def test_a_copy_that_lacks_a_table_file_is_damaged(tmp_path: Path) -> None:
    made_backup(tmp_path / "home", tmp_path / "kept", "one", 1)
    place = tmp_path / "kept" / "one"
    tables = len(tables_of(place / "metadata" / "0" / "db"))
    write_manifest(place, Backup("one", 1, 1, (ServiceCopy("metadata", 0, (), 1, checkpoints=1, table_files=tables),)))
    assert kept_backups(tmp_path / "kept")[0].damaged == {}
    (checkpoint,) = (place / "metadata" / "0" / "checkpoints").iterdir()
    (checkpoint / "CURRENT").rename(checkpoint / "gone")
    assert "checkpoint is missing" in kept_backups(tmp_path / "kept")[0].damaged["metadata", 0]
    (checkpoint / "gone").rename(checkpoint / "CURRENT")
    tables_of(place / "metadata" / "0" / "db")[0].unlink()
    assert "table file is missing" in kept_backups(tmp_path / "kept")[0].damaged["metadata", 0]

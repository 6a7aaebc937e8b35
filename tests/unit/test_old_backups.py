"""Old backups go when newer ones replace them: the newest whole copies of each shard stay, whatever else is there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from services.cli.main import app
from services.plane.machine.errors import StackError
from services.plane.upkeep import backups
from services.plane.upkeep.old_backups import (
    KeptBackup,
    deletable_backups,
    delete_backups,
    kept_backups,
    replaced_backups,
)
from services.runtime.copies.manifests import MANIFEST, Backup, PlacedBackup, ServiceCopy
from services.runtime.copies.restores import place_copy
from tests.unit.test_backups import made_backup

Copies = dict[tuple[str, int], bool]
"""Whether the copy of each shard of each service in a backup is whole."""
PLACES = [("metadata", 0), ("metadata", 1), ("snapshots", 0)]


def kept(histories: Sequence[Copies]) -> list[KeptBackup]:
    return [
        KeptBackup(
            Backup(f"backup-{age:03}", age, 2, tuple(ServiceCopy(*place, (), 1) for place in copies)),
            tuple((*place, "it lacks a part") for place, is_whole in copies.items() if not is_whole),
        )
        for age, copies in enumerate(histories)
    ]


@given(
    st.lists(st.dictionaries(st.sampled_from(PLACES), st.booleans(), min_size=1), max_size=8),
    st.integers(min_value=1, max_value=3),
)
def test_what_goes_has_newer_whole_copies_of_all_that_it_has_and_all_such_go(
    histories: list[Copies], keep: int
) -> None:
    removed = {one.backup.made_at_ms for one in replaced_backups(kept(histories), keep)}
    for age, copies in enumerate(histories):
        newer = {place: sum(1 for other in histories[age + 1 :] if other.get(place)) for place in copies}
        assert (age in removed) == (min(newer.values()) >= keep)
    for place in PLACES:
        whole = [age for age, copies in enumerate(histories) if copies.get(place)]
        assert not removed & set(whole[-keep:]), "the newest whole copies of each shard stay"


def test_only_what_is_replaced_can_be_named() -> None:
    found = kept([{("metadata", 0): True}, {("snapshots", 0): True}, {("metadata", 0): True}, {("metadata", 0): True}])
    assert [one.backup.name for one in deletable_backups(found, 1)] == ["backup-000", "backup-002"]
    assert [one.backup.name for one in deletable_backups(found, 1, ["backup-002"])] == ["backup-002"]
    with pytest.raises(StackError, match="backup-001 is kept: a shard in it has fewer than 1 newer whole copies"):
        deletable_backups(found, 1, ["backup-000", "backup-001"])
    with pytest.raises(StackError, match="no complete backup backup-009"):
        deletable_backups(found, 1, ["backup-009"])


def run(*arguments: str) -> str:
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_the_command_lists_them_and_deletes_those_that_newer_ones_replace(tmp_path: Path) -> None:
    home = tmp_path / "home"
    place = backups.backups_directory(home)
    at_home = ("--home", str(home), "backups")
    assert json.loads(run(*at_home, "list", "--json")) == []
    assert "Nothing to delete" in run(*at_home, "delete")
    names = ["a", "b", "c", "d"]
    for age, name in enumerate(names, start=1):
        made_backup(home, place, name, age)
    manifest = place / "c" / MANIFEST
    content = json.loads(manifest.read_bytes())
    content["copies"][0]["checkpoints"] = 99
    manifest.write_text(json.dumps(content))
    listed = json.loads(run(*at_home, "list", "--json"))
    reason = "a snapshot checkpoint is missing in the backup"
    assert [(one["name"], one["damaged"]) for one in listed] == [
        ("a", []),
        ("b", []),
        ("c", [{"service": "metadata", "shard": 0, "reason": reason}]),
        ("d", []),
    ]
    table = run(*at_home, "list")
    assert f"metadata 0 is damaged: {reason}" in table
    assert "whole, without snapshots 0; key_deletion 0" in table
    assert "Would delete a (1 backup" in run(*at_home, "delete", "--keep", "2", "--dry-run")
    assert [path.name for path in sorted(place.iterdir())] == names
    assert CliRunner().invoke(app, [*at_home, "delete", "--keep", "2"]).exit_code != 0, "nobody has confirmed it"
    assert [path.name for path in sorted(place.iterdir())] == names
    assert "Deleted a (1 backup" in run(*at_home, "delete", "--keep", "2", "--yes")
    assert [path.name for path in sorted(place.iterdir())] == ["b", "c", "d"], "the damaged one is no copy of two"
    removed = json.loads(run(*at_home, "delete", "--keep", "1", "--yes", "--json"))["deleted"]
    assert [one["name"] for one in removed] == ["b", "c"]
    assert [path.name for path in sorted(place.iterdir())] == ["d"]


def test_a_removal_that_is_cut_off_leaves_nothing_that_looks_like_a_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, place = tmp_path / "home", tmp_path / "kept"
    one = made_backup(home, place, "one", 1)
    two = made_backup(home, place, "two", 2)
    home.mkdir(exist_ok=True)

    def cut_off(_: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", cut_off)
        with pytest.raises(StackError, match="Input/output error"):
            delete_backups(home, place, [KeptBackup(one)])
    assert [found.backup for found in kept_backups(place)] == [two]
    assert len(list(place.iterdir())) == 2
    backups._remove_what_was_cut_off(home, 1, place)
    assert [path.name for path in place.iterdir()] == ["two"]


def test_a_restore_from_one_that_is_being_removed_ends_without_a_database(tmp_path: Path) -> None:
    home, place = tmp_path / "home", tmp_path / "kept"
    one = made_backup(home, place, "one", 1)
    copied = 0

    def amid_the_copying() -> None:
        nonlocal copied
        copied += 1
        if copied == 2:
            delete_backups(home, place, [KeptBackup(one)])

    target = tmp_path / "restored" / "metadata" / "0"
    with pytest.raises(FileNotFoundError):
        place_copy(PlacedBackup(place / "one", one), one.copies[0], target, amid_the_copying)
    assert copied >= 2
    assert list(target.parent.iterdir()) == []

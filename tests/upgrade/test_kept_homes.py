"""Homes that earlier releases have written open in this version, show the same, and carry on."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path

import pytest

from schemas.feature_level import FEATURE_LEVEL
from schemas.records import (
    CollectionState,
    DeleteDirectory,
    DeleteKeys,
    DeleteSnapshot,
    DeleteTag,
    SetCollection,
    Settle,
)
from services.client.kafka_plane import KafkaPlane
from services.plane.stack.plane_file import running_plane
from services.plane.stack.stack import Stack
from services.plane.upkeep.backups import backups_directory, find_backup, restore_backup
from services.plane.upkeep.upgrades import finish_upgrade, upgrade_status
from tests.integration.test_stack import execute, request
from tests.upgrade.kept_home import CLAIMED, FLAT, PAUSED, TREE, VERSIONS, unpack, unpack_program
from tests.upgrade.observed import differences, digest_of_stopped, observed
from tests.upgrade.test_rolling_upgrade import one_round
from tests.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_home_shows_the_same_and_carries_on(version: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    expected = unpack(version, home)
    assert digest_of_stopped(home) == expected["digest"]
    with Stack(home) as stack, stack.client() as plane:
        eventually(lambda: plane.metadata(0).space(*CLAIMED).freed_bytes == 500)
        found = observed(plane)
        del found["buckets"]["/".join(CLAIMED)]
        assert differences(expected["observed"], found) == []
        one_round(plane, "carries-on")
        make_final(home)
        free_all(plane)


def make_final(home: Path) -> None:
    """Raise the shard from the level of the release to that of this version."""
    running = running_plane(home)
    status = upgrade_status(running)
    assert (status.unknown, status.shards_below) == ((), (0,))
    finish_upgrade(running, status)
    final = upgrade_status(running)
    assert (final.shard_levels, final.shards_below) == ({0: FEATURE_LEVEL}, ())


def free_all(plane: KafkaPlane) -> None:
    """Delete all that the home has, and see each byte freed."""
    request(plane, 0, DeleteTag(*TREE, "first", "audit"))
    execute(plane, 0, SetCollection(*PAUSED, CollectionState.RUNNING, "no longer"))
    execute(plane, 0, *(DeleteDirectory(*TREE, path) for path in ("2026", "moved")))
    for place in (FLAT, PAUSED):
        keys = tuple(entry.path for entry in plane.metadata(0).entries(*place) if not entry.is_directory)
        execute(plane, 0, DeleteKeys(*place, keys))
    for place in (TREE, FLAT, PAUSED):
        for one in plane.snapshots(0).snapshots(*place):
            request(plane, 0, DeleteSnapshot(*place, one.name))
    request(plane, 0, Settle("all"))
    for place in (TREE, FLAT, PAUSED):
        space = plane.metadata(0).space(*place)
        assert (space.live_bytes, space.held_bytes, space.pending_bytes, space.claimed_bytes) == (0, 0, 0, 0)
    assert plane.scm(0).totals().inventory_bytes == 0


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
def test_a_backup_is_restored_and_catches_up(version: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    expected = unpack(version, home)
    backups, services = backups_directory(home), ("metadata", "snapshots")
    for service in services:
        shutil.rmtree(home / "data" / service)
    restore_backup(home, find_backup(backups), services)
    with Stack(home) as stack, stack.client() as plane:
        eventually(lambda: plane.metadata(0).space(*CLAIMED).freed_bytes == 500)
        found = observed(plane)
        del found["buckets"]["/".join(CLAIMED)]
        assert differences(expected["observed"], found) == []


def test_what_differs_is_found_at_any_depth() -> None:
    expected = {"a": [{"b": 1, "c": "x"}], "d": {}}
    assert differences(expected, {"a": [{"b": 1, "c": "x", "later": 0}], "d": {}}) == []
    assert differences(expected, {"a": [{"b": 2, "c": "x"}], "d": {}}) == ["/a/0/b: 1 became 2"]
    assert differences(expected, {"a": [{"b": 1}]}) == ["/d is missing", "/a/0/c is missing"]
    assert differences(expected, {"a": [], "d": {}}) == ["/a: [{'b': 1, 'c': 'x'}] became []"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_of_a_release_are_frozen(version: str, tmp_path: Path) -> None:
    folder = unpack_program(version, tmp_path / "program") / "schemas" / "released"
    released = set((folder / "index.txt").read_text("ascii").splitlines())
    present = set(resources.files("schemas").joinpath("released", "index.txt").read_text("ascii").splitlines())
    assert released <= present, "write the next version of a schema (python -m tests.schema_releases), and change none"

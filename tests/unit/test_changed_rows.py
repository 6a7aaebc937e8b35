"""Changes that no diff can ask for are removed, however long that takes; those that came meanwhile stay."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from schemas.records import DeleteKey, DropSnapshot
from services.domain.snapshot_diff import DiffEntry
from services.domain.table_keys import changed_key
from services.metadata.diffs.differences import compare_all, compare_changes, opened_states
from services.metadata.recovery.digest import digest_shard
from services.metadata.service import MetadataService
from services.metadata.state import changed_rows
from services.metadata.state.changed_rows import unneeded_of
from services.metadata.state.tables import CHANGED_TABLE
from services.runtime.loop.runner import Runner
from services.storage.memory import MemoryStore
from tests.shard_copies import rebuilt_digest
from tests.unit.test_explanations import Shard as ExplainedShard

AT_ONCE = 3
KEYS = 10 * AT_ONCE


class Shard(ExplainedShard):
    """A shard that removes a few unneeded changes after each unit of work."""

    def start(self) -> None:
        """Start the service on the database that is there."""
        service = MetadataService()
        after_write = partial(service.remove_unneeded, self.store)
        self.runner = Runner(service, 0, self.store, self.log, self.clock, after_write=after_write)

    def drop(self, name: str) -> None:
        self.internal(DropSnapshot(name))

    def work_elsewhere(self, units: int) -> None:
        """Units of work that have nothing to do with the bucket whose changes are removed."""
        for number in range(units):
            self.put(f"else{number}", 1, "flat")

    def left(self, bucket: str) -> list[bytes]:
        """Keys of a bucket's changes that are there."""
        bucket_id = self.bucket(bucket).object_id
        return [key for key, _ in self.store.scan(CHANGED_TABLE.name, b"/%d/" % bucket_id, b"/%d0" % bucket_id)]

    def diff(self, one: str, other: str = "", bucket: str = "tree") -> list[DiffEntry]:
        """How two states differ, by what changed; a reading of everything says the same."""
        with opened_states(self.store, "vol", bucket, one, other) as states:
            found = compare_changes(states.before, states.after, states.changes())
            assert found == compare_all(states.before, states.after)
        return found

    def check_digest(self) -> None:
        """The log says the same."""
        assert rebuilt_digest(self.log, 100).differences(digest_shard(self.store)) == []


@pytest.fixture
def shard(monkeypatch: pytest.MonkeyPatch) -> Shard:
    """A shard whose bucket ``tree`` had one snapshot, and so many changes since that removing them takes a while."""
    monkeypatch.setattr(changed_rows, "TRIMMED_AT_ONCE", AT_ONCE)
    shard = Shard()
    shard.capture("one")
    for number in range(KEYS):
        shard.put(f"k{number}", 1)
    shard.drop("one")
    assert shard.left("tree")
    return shard


def test_what_changes_after_a_snapshot_stays_while_older_changes_are_removed(shard: Shard) -> None:
    shard.capture("two")
    for number in range(20):
        shard.put(f"new{number}", 1)
    shard.work_elsewhere(2 * KEYS)
    assert len(shard.diff("two")) == 20
    assert len(shard.left("tree")) == 20
    shard.check_digest()


def test_a_restart_amid_the_removal_goes_on_with_it_and_keeps_the_same(shard: Shard) -> None:
    shard.start()
    shard.capture("two")
    shard.put("new", 1)
    assert len(shard.left("tree")) > 1
    shard.start()
    shard.work_elsewhere(2 * KEYS)
    assert [entry.path for entry in shard.diff("two")] == ["new"]
    assert len(shard.left("tree")) == 1
    shard.check_digest()


def test_each_drop_moves_the_end_of_what_is_removed(shard: Shard) -> None:
    shard.capture("two")
    for number in range(KEYS):
        shard.put(f"k{number}", 1)
    shard.capture("three")
    shard.put("new", 1)
    shard.drop("two")
    assert [entry.path for entry in shard.diff("three")] == ["new"]
    shard.drop("three")
    shard.work_elsewhere(KEYS)
    assert shard.left("tree") == []
    shard.check_digest()


def test_a_path_is_explained_by_changes_that_stay(shard: Shard) -> None:
    """A key without bytes leaves no row when it is deleted: that a snapshot showed it only changedTable can tell."""
    shard.put("empty", 0)
    shard.capture("two")
    shard.do(DeleteKey("vol", "tree", "empty"))
    shard.capture("three")
    shard.work_elsewhere(2 * KEYS)
    assert [held for *_, held in shard.seen("empty")] == [["two"]]


def test_one_range_is_kept_of_a_bucket_however_many_snapshots_are_dropped(shard: Shard) -> None:
    service = shard.runner.service
    assert isinstance(service, MetadataService)
    for number in range(KEYS // AT_ONCE // 4):
        shard.capture(f"more{number}")
        shard.drop(f"more{number}")
        assert len(service.unneeded_changes) == 1
    shard.work_elsewhere(KEYS)
    assert len(service.unneeded_changes) == 0


def test_a_removal_does_not_step_over_what_was_removed_before(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A removed row is not seen by a scan, and takes its time all the same."""
    scan, begun = MemoryStore.scan, list[bytes]()

    def watched(store: MemoryStore, family: str, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        if family == CHANGED_TABLE.name:
            begun.append(start)
        return scan(store, family, start, end)

    shard.capture("two")
    shard.work_elsewhere(2 * KEYS)
    monkeypatch.setattr(MemoryStore, "scan", watched)
    removed = b""
    for number in range(3):
        for key in range(2 * AT_ONCE):
            shard.put(f"k{key}", 1)
        shard.capture(f"more{number}")
        newest = max(shard.left("tree"))
        begun.clear()
        shard.drop("two" if number == 0 else f"more{number - 1}")
        shard.work_elsewhere(KEYS)
        assert min(begun) >= removed, f"a scan begins before {removed!r}, up to where all is removed"
        removed = newest
    assert shard.left("tree") == []


@pytest.mark.parametrize(
    ("oldest_live", "ever", "first_needed"), [(None, 0, 1), (1, 1, 1), (None, 1, 2), (2, 3, 2), (1, 2, 1), (None, 3, 4)]
)
def test_changes_before_the_oldest_live_snapshot_or_the_next_one_serve_nobody(
    oldest_live: int | None, ever: int, first_needed: int
) -> None:
    assert unneeded_of(7, oldest_live, ever) == (b"/7/", changed_key(7, first_needed))

"""When a clock that was ahead is set back, no wait has more left than its longest setting; moments stay."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from schemas.block_store import Heartbeat
from schemas.records import (
    BucketCollection,
    ClaimRows,
    CollectionChanged,
    CollectionState,
    DeleteBlocks,
    ExpandDirectory,
    MetadataProgress,
    RemovalOutcome,
    RetentionPolicy,
    RowsFinished,
)
from schemas.topics import METADATA_PROGRESS
from services.directory_deletion.service import DirectoryDeletionService
from services.key_deletion.metrics import KeyDeletionMetrics
from services.key_deletion.pace import Pace, ThrottledBy
from services.key_deletion.service import KeyDeletionService
from services.key_deletion.settings import KeyDeletionSettings
from services.mock_scm.node_registry import NodeRegistry
from services.runtime.parts.due import DueQueue
from tests.unit import test_directory_deletion as trees
from tests.unit import test_key_deletion as keys
from tests.unit import test_undo_window as windows
from tests.unit import test_write_expiry as writes
from tests.unit.service_harness import Harness, Sent, bodies
from tests.unit.snapshots_harness import Harness as SnapshotsHarness
from tests.unit.test_snapshots_retention import MINUTE_MS, create, set_policy, wait

DAY_MS = 86_400_000
WINDOW_MS = windows.WINDOW_MS


@pytest.fixture(params=[False, True], ids=["running", "restarted"])
def is_restarted(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def set_back(harness: Harness, *, is_restarted: bool) -> list[Sent]:
    """A day back. The service sees it, running or as it starts again."""
    harness.give()
    if is_restarted:
        harness.restart()
    return harness.wait(-DAY_MS)


def told(state: CollectionState, txn: int, before_txn: int) -> Sent:
    """metadata tells the collection state of the bucket."""
    change = CollectionChanged((BucketCollection(trees.BUCKET, state),), txn, before_txn)
    return METADATA_PROGRESS, MetadataProgress(txn, change)


class TestQueues:
    def test_a_wait_that_is_too_long_is_timed_again_and_the_rest_stays(self) -> None:
        queue: DueQueue[int] = DueQueue(longest_ms=10)
        queue.set(1, 1_005)
        assert queue.to_be_timed(1_000) == []
        queue.set(2, 3)
        queue.add(3)
        assert queue.to_be_timed(0) == [3, 1]
        assert queue.pop_due(3) == 2
        assert queue.pop_due(1_005) is None

    def test_so_is_one_that_is_set_later(self) -> None:
        queue: DueQueue[int] = DueQueue(longest_ms=10)
        assert queue.to_be_timed(100) == []
        queue.set(1, 110)
        queue.set(2, 111)
        assert queue.to_be_timed(100) == [2]
        assert queue.pop_due(110) == 1

    def test_a_moment_that_is_no_wait_is_kept(self) -> None:
        queue: DueQueue[int] = DueQueue()
        queue.set(1, 1_005)
        assert [queue.to_be_timed(now_ms) for now_ms in (1_000, 500)] == [[], []]
        assert queue.pop_due(1_005) == 1


class TestKeyDeletion:
    @pytest.fixture
    def harness(self) -> Harness:
        metrics = KeyDeletionMetrics(CollectorRegistry())
        return Harness(lambda: KeyDeletionService(keys.SETTINGS, metrics))

    def test_a_claim_without_an_answer_is_asked_again(self, harness: Harness, *, is_restarted: bool) -> None:
        (claim,) = bodies(harness.give(keys.purge(keys.row(1))), ClaimRows)
        set_back(harness, is_restarted=is_restarted)
        assert bodies(harness.wait(keys.SETTINGS.answer_timeout_ms), ClaimRows) == [claim]

    def test_failed_blocks_are_deleted_again(self, harness: Harness, *, is_restarted: bool) -> None:
        (claim,) = bodies(harness.give(keys.purge(keys.row(1))), ClaimRows)
        (command,) = bodies(harness.give(keys.claimed(claim)), DeleteBlocks)
        harness.give(keys.deleted(command, 0))
        set_back(harness, is_restarted=is_restarted)
        assert bodies(harness.wait(keys.SETTINGS.longest_retry_ms), DeleteBlocks)

    def test_a_sweep_without_an_answer_goes_back(self, harness: Harness, *, is_restarted: bool) -> None:
        (page,) = keys.pages(harness.give(keys.capture(1, 500, 1)))
        assert not set_back(harness, is_restarted=is_restarted)
        (again,) = keys.pages(harness.wait(keys.SETTINGS.answer_timeout_ms))
        assert (again.sweep_id, again.page) == (page.sweep_id, page.page + 1)

    def test_a_range_that_had_something_is_swept_after_a_pause(self, harness: Harness, *, is_restarted: bool) -> None:
        (page,) = keys.pages(harness.give(keys.capture(1, 500, 1)))
        harness.give(keys.sent_page(page, 1), keys.result(page, 1, found=1))
        assert not set_back(harness, is_restarted=is_restarted)
        assert not harness.wait(keys.SETTINGS.longest_sweep_again_ms - 1)
        assert keys.pages(harness.wait(1))

    def test_everything_is_swept_now_and_then(self, harness: Harness, *, is_restarted: bool) -> None:
        set_back(harness, is_restarted=is_restarted)
        assert keys.pages(harness.wait(keys.SETTINGS.safety_sweep_interval_ms))

    def test_an_undo_window_ends_when_it_was_to(self, *, is_restarted: bool) -> None:
        """A clock that is behind for a while would end a window early that it has timed again."""
        harness = windows.keys()
        harness.give(keys.purge(keys.row(1)))
        assert not bodies(set_back(harness, is_restarted=is_restarted), ClaimRows)
        assert not bodies(harness.wait(DAY_MS + WINDOW_MS - 1), ClaimRows)
        (claim,) = bodies(harness.wait(1), ClaimRows)
        assert keys.named(claim) == keys.rows(1)

    def test_old_writes_are_closed(self, *, is_restarted: bool) -> None:
        harness = Harness(lambda: KeyDeletionService(writes.SETTINGS))
        harness.give(writes.progress(RowsFinished(1)))
        set_back(harness, is_restarted=is_restarted)
        assert writes.pages(harness.wait(writes.SETTINGS.write_expiry_interval_ms))

    def test_a_rate_holds_claims_back_as_long_as_before(self) -> None:
        pace = Pace(KeyDeletionSettings(max_rows_per_second=100))
        pace.started(50, DAY_MS)
        assert pace.throttled_by(DAY_MS + 100) is ThrottledBy.RATE
        assert pace.throttled_by(100) is ThrottledBy.RATE
        assert pace.throttled_by(499) is ThrottledBy.RATE
        assert pace.throttled_by(500) is None


class TestDirectoryDeletion:
    @pytest.fixture
    def harness(self) -> Harness:
        return Harness(lambda: DirectoryDeletionService(trees.SETTINGS))

    def test_an_expansion_without_an_answer_is_asked_again(self, harness: Harness, *, is_restarted: bool) -> None:
        harness.give(trees.judged(trees.directory(trees.ROOT)))
        set_back(harness, is_restarted=is_restarted)
        assert bodies(harness.wait(trees.SETTINGS.answer_timeout_ms), ExpandDirectory)

    def test_a_blocked_directory_is_tried_again(self, harness: Harness, *, is_restarted: bool) -> None:
        trees.empty(harness, trees.ROOT)
        harness.give(trees.removed((trees.ROOT, 1, RemovalOutcome.HAS_CHILDREN)))
        set_back(harness, is_restarted=is_restarted)
        assert trees.removing(harness.wait(trees.SETTINGS.longest_blocked_ms)) == [trees.ROOT]

    def test_one_that_was_suspended_meanwhile_is_tried_again(self, harness: Harness) -> None:
        trees.empty(harness, trees.ROOT)
        harness.give(trees.removed((trees.ROOT, 1, RemovalOutcome.HAS_CHILDREN)))
        harness.give(told(trees.PAUSED, 50, 0))
        harness.wait(-DAY_MS)
        harness.give(told(trees.RUNNING, 60, 50))
        assert trees.removing(harness.wait(trees.SETTINGS.longest_blocked_ms)) == [trees.ROOT]

    def test_an_undo_window_ends_when_it_was_to(self, *, is_restarted: bool) -> None:
        harness = windows.trees()
        harness.give(trees.judged(trees.directory(trees.ROOT)))
        assert not set_back(harness, is_restarted=is_restarted)
        assert not harness.wait(DAY_MS + WINDOW_MS - 1)
        assert bodies(harness.wait(1), ExpandDirectory)


class TestRetention:
    def test_a_policy_runs_within_a_minute(self, *, is_restarted: bool) -> None:
        harness = SnapshotsHarness()
        create(harness, "snap-1", "snap-2", at_ms=harness.now_ms - 2 * DAY_MS)
        set_policy(harness, RetentionPolicy(num_retained_min=1, time_retained_ms=0))
        if is_restarted:
            harness.restart()
        wait(harness, -DAY_MS)
        assert harness.names() == ["snap-1", "snap-2"]
        wait(harness, MINUTE_MS)
        assert harness.names() == ["snap-2"]


def test_a_datanode_that_was_seen_tomorrow_is_not_alive_until_then() -> None:
    registry = NodeRegistry()
    registry.receive(Heartbeat("node-1", "", 1, 1, 1))
    registry.take(DAY_MS)
    registry.take(1_000)
    assert registry.nodes()["node-1"].seen_ms == 1_000

"""What was deleted waits for the end of its undo window: over restarts, by messages, and never for a settle."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry

from schemas.records import ClaimRows, ExpandDirectory
from services.directory_deletion.service import DirectoryDeletionService
from services.directory_deletion.settings import DirectoryDeletionSettings
from services.key_deletion.metrics import KeyDeletionMetrics
from services.key_deletion.service import KeyDeletionService
from services.key_deletion.settings import KeyDeletionSettings
from services.key_deletion.tables import WAITING_TABLE
from tests.unit.service_harness import Harness, bodies
from tests.unit.test_directory_deletion import CHILD, ROOT, expanded, judged
from tests.unit.test_directory_deletion import barrier as tree_barrier
from tests.unit.test_directory_deletion import directory as deleted_directory
from tests.unit.test_key_deletion import barrier, named, pass_barrier, purge, row

WINDOW_MS = 300_000


def keys(window_ms: int = WINDOW_MS, registry: CollectorRegistry | None = None) -> Harness:
    metrics = KeyDeletionMetrics(registry or CollectorRegistry())
    return Harness(lambda: KeyDeletionService(KeyDeletionSettings(undo_window_ms=window_ms), metrics))


def trees(window_ms: int = WINDOW_MS) -> Harness:
    return Harness(lambda: DirectoryDeletionService(DirectoryDeletionSettings(undo_window_ms=window_ms)))


class TestRows:
    def test_are_claimed_at_the_end_of_their_window_and_not_before(self) -> None:
        harness = keys()
        assert not harness.give(purge(row(1)))
        assert not harness.wait(WINDOW_MS - 1)
        (claim,) = bodies(harness.wait(1), ClaimRows)
        assert named(claim) == (row(1),)

    def test_without_a_window_are_claimed_at_once_and_written_once(self) -> None:
        harness = keys(0)
        assert bodies(harness.give(purge(row(1))), ClaimRows)
        assert not harness.rows(WAITING_TABLE)

    def test_do_not_begin_to_wait_again_after_a_restart(self) -> None:
        harness = keys()
        harness.give(purge(row(1)))
        harness.wait(WINDOW_MS - 1)
        harness.restart()
        assert not harness.give()
        assert bodies(harness.wait(1), ClaimRows)

    def test_wait_though_a_message_beside_them_is_dead_lettered(self) -> None:
        """What is in memory is then read anew, before the ends of the windows are set."""
        harness = keys()
        topic, good = purge(row(1))
        assert not harness.give((topic, good), (topic, replace(good, snapshots_before_death=())))
        assert len(harness.refused) == 1
        assert not harness.wait(WINDOW_MS - 1)
        assert bodies(harness.wait(1), ClaimRows)

    def test_wait_each_from_their_own_arrival(self) -> None:
        harness = keys()
        harness.give(purge(row(1, death=2_000)))
        harness.wait(1_000)
        harness.give(purge(row(2, death=2_001)))
        assert [named(claim) for claim in bodies(harness.wait(WINDOW_MS - 1_000), ClaimRows)] == [
            (row(1, death=2_000),)
        ]
        assert [named(claim) for claim in bodies(harness.wait(1_000), ClaimRows)] == [(row(2, death=2_001),)]

    def test_that_died_before_what_has_waited_do_not_wait_again(self) -> None:
        """As those that a sweep sends once more, or that a dropped snapshot had held."""
        harness = keys()
        harness.give(purge(row(1, death=2_000)))
        harness.wait(WINDOW_MS)
        harness.restart()
        assert bodies(harness.give(purge(row(2, death=2_000))), ClaimRows)
        assert not harness.give(purge(row(3, death=2_001)))

    def test_are_due_when_a_barrier_passes_and_count_as_work(self) -> None:
        harness = keys()
        harness.give(purge(row(1)))
        returned, sent = pass_barrier(harness)
        assert bodies(sent, ClaimRows)
        assert returned.work

    def test_wait_for_both_counterparts_of_a_barrier(self) -> None:
        harness = keys()
        harness.give(purge(row(1)))
        assert not harness.give(barrier("purges"))
        assert bodies(harness.give(barrier("sweeps")), ClaimRows)

    def test_that_died_behind_a_barrier_wait_on_wherever_it_meets_them(self) -> None:
        """One that was sent once more, as by a judge that begins a batch again, meets what came since."""
        harness = keys()
        harness.give(purge(row(1, death=2_000)))
        assert not harness.give(barrier("purges", passed_txn=2_000))
        harness.give(purge(row(2, death=2_001)))
        (claim,) = bodies(harness.give(barrier("sweeps", passed_txn=2_000)), ClaimRows)
        assert named(claim) == (row(1, death=2_000),)
        harness.restart()
        assert not bodies(
            harness.give(barrier("purges", passed_txn=1_999), barrier("sweeps", passed_txn=2_001)), ClaimRows
        )
        assert bodies(harness.wait(WINDOW_MS), ClaimRows)

    def test_that_died_before_a_barrier_and_come_behind_it_do_not_wait(self) -> None:
        harness = keys()
        harness.give(barrier("purges", passed_txn=2_000), barrier("sweeps", passed_txn=2_000))
        harness.restart()
        assert bodies(harness.give(purge(row(1, death=2_000))), ClaimRows)

    def test_are_counted_while_they_wait(self) -> None:
        registry = CollectorRegistry()
        harness = keys(registry=registry)

        def counted() -> float | None:
            return registry.get_sample_value("deepclean_key_deletion_purges_in_undo_window", {"shard": "0"})

        harness.give(purge(row(1)))
        assert counted() == 1
        harness.wait(WINDOW_MS)
        assert counted() == 0


class TestDirectories:
    def test_are_expanded_at_the_end_of_their_window(self) -> None:
        harness = trees()
        assert not harness.give(judged(deleted_directory(ROOT)))
        harness.restart()
        assert not harness.wait(WINDOW_MS - 1)
        assert bodies(harness.wait(1), ExpandDirectory)

    def test_below_one_that_has_waited_do_not_wait_again(self) -> None:
        harness = trees()
        harness.give(judged(deleted_directory(ROOT)))
        harness.wait(WINDOW_MS)
        harness.give(expanded(ROOT))
        harness.restart()
        assert bodies(harness.give(judged(deleted_directory(CHILD))), ExpandDirectory)

    def test_are_due_when_a_barrier_passes(self) -> None:
        harness = trees()
        harness.give(judged(deleted_directory(ROOT)))
        assert bodies(harness.give(tree_barrier()), ExpandDirectory)

    def test_that_died_behind_a_barrier_wait_on_though_it_meets_them(self) -> None:
        harness = trees()
        old, new = deleted_directory(ROOT), deleted_directory(CHILD)
        death = old.death
        later = replace(new, death=death + 1)
        harness.give(judged(old), judged(later))
        (expansion,) = bodies(harness.give(tree_barrier(passed_txn=death)), ExpandDirectory)
        assert expansion.object_id == ROOT
        assert [one.object_id for one in bodies(harness.wait(WINDOW_MS), ExpandDirectory)] == [CHILD]

    def test_that_come_with_a_barrier_are_due_too(self) -> None:
        harness = trees()
        assert bodies(harness.give(judged(deleted_directory(ROOT)), tree_barrier()), ExpandDirectory)

    def test_that_were_due_before_keep_their_place_when_a_barrier_passes(self) -> None:
        """Or those that sweeps send again and again would keep the last one waiting for ever."""
        settings = DirectoryDeletionSettings(undo_window_ms=WINDOW_MS, max_expansions_in_flight=1)
        harness = Harness(lambda: DirectoryDeletionService(settings))
        harness.give(judged(deleted_directory(ROOT, free=False)), tree_barrier())
        harness.give(judged(deleted_directory(CHILD, free=False)))
        harness.wait(10)
        for other in (1, 2, 3):  # their keys come first
            sent = harness.give(judged(deleted_directory(other, free=False)), tree_barrier())
            assert not bodies(sent, ExpandDirectory)
            harness.wait(10)
        (expansion,) = bodies(harness.give(expanded(ROOT)), ExpandDirectory)
        assert expansion.object_id == CHILD

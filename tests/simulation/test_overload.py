"""More is deleted than can be claimed, for ever, and snapshots come and go: what a drop frees is freed all the same.

One row at a time is claimed, in a task that takes some rounds, and each round deletes more. The bound follows from
``sweep_watch``: the sweep of the drop has a page for each row and two more that find nothing; each waits for a page of
each other place; each row of these pages waits for ``SWEEP_SHARE`` tasks.
"""

from __future__ import annotations

from collections.abc import Iterator

from schemas import records
from schemas.records import BucketLayout
from services.directory_deletion.settings import DirectoryDeletionSettings
from services.key_deletion.purges import SWEEP_SHARE
from services.key_deletion.settings import KeyDeletionSettings
from services.key_deletion.tables import WAITING_TABLE
from services.mock_scm.tables import INVENTORY_TABLE
from tests.simulation.checks import rows
from tests.simulation.faults import FaultMix
from tests.simulation.plane import Limits
from tests.simulation.simulator import Simulation

PLACES, HELD, DELETED_IN_A_ROUND = 2, 3, 3
ROUNDS_OF_A_TASK = 4
"""Claim, deletion, finish, and the start of the next one."""
PAGES = (HELD + 2) * PLACES
MAX_ROUNDS = PAGES * SWEEP_SHARE * ROUNDS_OF_A_TASK
LIMITS = Limits(
    KeyDeletionSettings(max_task_rows=1, max_tasks_in_flight=1, max_sweeps_in_flight=PLACES, max_sweep_page_rows=1),
    DirectoryDeletionSettings(),
    container_size_bytes=1 << 30,
    max_rollback_page_entries=1_000,
)


class _Overload:
    """A plane that never gets done."""

    def __init__(self) -> None:
        self.simulation = Simulation(1, mix=FaultMix(), limits=LIMITS)
        self.actor = self.simulation.shards[0].actor
        self._names = (f"k{number}" for number in range(10**9))
        self.actor.submit(records.CreateVolume("busy"))
        self.actor.submit(records.CreateBucket("busy", "bucket", BucketLayout.OBJECT_STORE))
        self._take_turns()

    def put(self, count: int) -> list[str]:
        """Put some keys."""
        names = [next(self._names) for _ in range(count)]
        for name in names:
            self.actor.submit(records.PutKey("busy", "bucket", name, 100))
        return names

    def delete(self, names: list[str]) -> None:
        """Delete keys."""
        self.actor.submit(records.DeleteKeys("busy", "bucket", tuple(names)))

    def play(self, rounds: int) -> Iterator[int]:
        """Put and delete, and let each service take a step; every few rounds a snapshot comes and another one goes."""
        for number in range(rounds):
            self.delete(self.put(DELETED_IN_A_ROUND))
            if number % 10 == 0:
                self.actor.request(records.CreateSnapshot("busy", "bucket", f"s{number}"))
            if number % 10 == 5:
                self.actor.request(records.DeleteSnapshot("busy", "bucket", f"s{number - 5}"))
            self._take_turns()
            yield number

    def _take_turns(self) -> None:
        for address in self.simulation.plane.addresses:
            self.simulation.scheduler.step(address)
        self.simulation.plane.clock.advance(100)

    def waiting(self) -> int:
        """Purges of deletions that have no room."""
        purges = rows(self.simulation.plane.tables("key_deletion", 0), WAITING_TABLE)
        return sum(not purge.is_sweep for purge in purges)

    def inventory(self) -> set[records.BlockRun]:
        """All blocks that there are."""
        return {row.blocks for row in rows(self.simulation.plane.tables("mock_scm", 0), INVENTORY_TABLE)}


def test_a_dropped_snapshot_frees_what_it_held_while_more_is_deleted_than_can_be_claimed() -> None:
    overload = _Overload()
    held = overload.put(HELD)
    for _ in range(10):  # the commands that begin a shard's log come before
        overload._take_turns()
    blocks = overload.inventory()
    assert len(blocks) == HELD
    overload.actor.request(records.CreateSnapshot("busy", "bucket", "first"))
    for _ in range(6):
        overload._take_turns()
    overload.delete(held)
    for _ in overload.play(30):
        pass
    assert overload.waiting() > 10, "no overload"
    assert blocks <= overload.inventory()
    overload.actor.request(records.DeleteSnapshot("busy", "bucket", "first"))
    rounds = next((number for number in overload.play(MAX_ROUNDS) if not blocks & overload.inventory()), None)
    assert rounds is not None, f"nothing is freed within {MAX_ROUNDS} rounds"
    assert overload.waiting() > 10, "no overload"

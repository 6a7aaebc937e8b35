"""Scripts of writing by steps: what a snapshot has seen of a key that grows, and what becomes of that."""

from __future__ import annotations

from schemas import records
from tests.simulation.scripts import BUCKET, Stage
from tests.simulation.simulator import Simulation

_BLOCK = 100


def _synced_around_a_snapshot(stage: Stage, *sizes: int) -> None:
    """A key is synced, shown by a snapshot, and synced again."""
    stage.submit(records.OpenKey(stage.volume, BUCKET, "key", 3 * _BLOCK, "tag", _BLOCK))
    stage.run()
    (session,) = stage.shard.model.writes.sessions
    for number, size_bytes in enumerate(sizes):
        stage.submit(records.SyncKey(stage.volume, BUCKET, "key", session, size_bytes))
        stage.run()
        if not number:
            stage.request(records.CreateSnapshot, "snap")
            stage.run()


def a_block_that_grows_after_a_snapshot(simulation: Simulation) -> None:
    """The key is deleted afterwards, and the snapshot stays."""
    stage = Stage(simulation)
    _synced_around_a_snapshot(stage, 10, 50)
    stage.delete("key")
    stage.run()


def a_rollback_of_a_key_that_has_grown(simulation: Simulation) -> None:
    """The bucket goes back to the snapshot that shows the beginning of the key."""
    stage = Stage(simulation)
    _synced_around_a_snapshot(stage, 10, 3 * _BLOCK)
    stage.request(records.RollBackBucket, "snap")
    stage.run()


def an_open_key_that_has_expired(simulation: Simulation) -> None:
    """It expires, and its client commits it all the same."""
    stage = Stage(simulation)
    stage.submit(records.OpenKey(stage.volume, BUCKET, "key", _BLOCK, "tag", _BLOCK))
    stage.run()
    (session,) = stage.shard.model.writes.sessions
    stage.shard.writer.close_everything()
    stage.run()
    stage.submit(records.CommitKey(stage.volume, BUCKET, "key", session, _BLOCK))
    stage.run()

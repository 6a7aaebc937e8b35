"""Scripts of buckets that keep versions: what chance seldom brings together."""

from __future__ import annotations

from schemas import records
from schemas.records import BucketVersioning
from tests.simulation.scripts import BUCKET, Stage
from tests.simulation.simulator import Simulation


def _stage(simulation: Simulation) -> Stage:
    """A bucket that keeps versions."""
    stage = Stage(simulation)
    _set(stage, BucketVersioning.ENABLED)
    return stage


def _set(stage: Stage, versioning: BucketVersioning) -> None:
    stage.submit(records.SetBucketVersioning(stage.volume, BUCKET, versioning))


def _delete_version(stage: Stage, birth: int) -> None:
    stage.submit(records.DeleteKeyVersion(stage.volume, BUCKET, "key", birth))
    stage.run()


def an_overwrite_while_suspended(simulation: Simulation) -> None:
    """A version that was written while versions were kept is overwritten after they were suspended."""
    stage = _stage(simulation)
    stage.put("key")
    _set(stage, BucketVersioning.SUSPENDED)
    stage.put("key")
    stage.run()


def a_deleted_current_version(simulation: Simulation) -> None:
    """A key with three versions loses the current one."""
    stage = _stage(simulation)
    stage.put("key", "key", "key")
    stage.run()
    _delete_version(stage, stage.shard.model.txn)


def a_renamed_key(simulation: Simulation) -> None:
    """A key with a noncurrent version is renamed."""
    stage = _stage(simulation)
    stage.put("key", "key")
    stage.submit(records.RenameKey(stage.volume, BUCKET, "key", "moved"))
    stage.run()


def a_rollback_to_an_empty_version(simulation: Simulation) -> None:
    """A snapshot lists a noncurrent version without bytes, which is deleted before the bucket goes back to it."""
    stage = _stage(simulation)
    stage.put("key", size_bytes=0)
    stage.run()
    birth = stage.shard.model.txn
    stage.put("key")
    stage.request(records.CreateSnapshot, "snap")
    stage.run()
    _delete_version(stage, birth)
    stage.request(records.RollBackBucket, "snap")
    stage.run()


def an_undelete_of_a_version_over_a_snapshot(simulation: Simulation) -> None:
    """A version that a snapshot lists is deleted, another snapshot is taken, and the version is to come back."""
    stage = _stage(simulation)
    stage.put("key")
    stage.run()
    birth = stage.shard.model.txn
    stage.put("key")
    stage.request(records.CreateSnapshot, "one")
    stage.run()
    _delete_version(stage, birth)
    stage.request(records.CreateSnapshot, "two")
    stage.run()
    (deleted,) = stage.shard.actor.list_deleted()
    stage.submit(deleted)
    stage.run()

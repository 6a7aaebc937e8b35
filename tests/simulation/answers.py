"""What clients were answered by snapshots, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from schemas import records
from schemas.records import SnapshotReply
from schemas.topics import BY_NAME
from tests.simulation.errors import DefectError, LivenessError
from tests.simulation.model import ShardModel
from tests.simulation.run_state import RunState, ShardRun


def check_answers(state: RunState, shard: ShardRun) -> None:
    """Every command and request has its answer, and every unreadable message was put aside by each of its readers."""
    for request in shard.actor.requests:
        if (request.client_id, request.number) not in shard.replies:
            raise LivenessError(f"shard {shard.model.shard}: no answer to {request}")
    if unanswered := shard.model.expected.keys() - shard.model.answered:
        raise LivenessError(f"shard {shard.model.shard}: metadata gave no answer to {sorted(unanswered)}")
    for topic, partition, offset in state.injected:
        if partition != shard.model.shard:
            continue
        value = state.plane.log.entries(topic, partition)[offset].value
        for reader in BY_NAME[topic].consumers:
            if (reader, partition, topic, value) in state.faults.holes:
                continue
            if reader != "clients" and (reader, topic, offset) not in shard.dead_letters:
                raise DefectError(f"{reader} has not put aside {topic} at {offset}")


def snapshot_names(state: RunState, shard: ShardRun) -> dict[str, tuple[str, str, str]]:
    """Volume, bucket and name by id of what clients made and did not delete, by the answers that they got.

    Where a bucket had a policy, nobody was told what expired by itself: metadata's list tells it.
    """
    names: dict[str, tuple[str, str, str]] = {}
    retaining: set[tuple[str, str]] = set()
    for request in shard.actor.requests:
        reply = shard.replies[request.client_id, request.number]
        body = request.body
        if reply.error:
            continue
        if isinstance(body, records.CreateSnapshot):
            names[reply.snapshot_id] = (body.volume, body.bucket, body.snapshot)
        elif isinstance(body, records.SetRetention):
            retaining.add((body.volume, body.bucket))
        elif isinstance(body, records.RenameSnapshot):
            names[reply.snapshot_id] = (body.volume, body.bucket, body.target)
        else:
            state.rollbacks += isinstance(body, records.RollBackBucket)
            for snapshot_id in _removed_with(body, reply, shard.model, names):
                names.pop(snapshot_id, None)
    live = {snapshot_id for incarnation in shard.model.live_buckets() for snapshot_id in incarnation.snapshots}
    return {
        snapshot_id: place for snapshot_id, place in names.items() if snapshot_id in live or place[:2] not in retaining
    }


def _removed_with(body: Any, reply: SnapshotReply, model: ShardModel, made: Iterable[str]) -> list[str]:
    """Ids of the snapshots that went with a request."""
    if isinstance(body, records.DeleteSnapshot):
        return [reply.snapshot_id]
    if isinstance(body, records.ExpireSnapshots) and reply.expired is not None:
        return list(reply.expired.snapshot_ids)
    if isinstance(body, records.RollBackBucket):
        incarnation, txn = model.snapshot_places[reply.snapshot_id]
        places = {snapshot_id: model.snapshot_places[snapshot_id] for snapshot_id in made}
        return [one for one, place in places.items() if place[0] is incarnation and place[1] > txn]
    return []

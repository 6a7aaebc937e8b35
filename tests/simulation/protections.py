"""What tags and consumers must have kept in one shard, read from what clients asked for and were answered.

Requests to snapshots are carried out in the order of their log, so the answers alone say which tag was there when a
snapshot was deleted or expired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from random import Random
from typing import Any, Protocol

from schemas import records
from schemas.records import RetentionPolicy, SnapshotInfo, SnapshotReply
from tests.simulation.errors import AnswerError, SafetyError
from tests.simulation.model import Incarnation, ShardModel

Bucket = tuple[str, str]


class Asked(Protocol):
    """A request as a client sent it."""

    @property
    def client_id(self) -> str:
        """Who asked."""
        ...

    @property
    def number(self) -> int:
        """The client's number."""
        ...

    @property
    def body(self) -> Any:
        """What for."""
        ...


@dataclass(slots=True)
class Protections:
    """Tags and consumers after some requests, by the names of their bucket and their own."""

    model: ShardModel
    tags: dict[Bucket, dict[str, str]] = field(default_factory=dict)
    """By tag the id of the snapshot that it holds."""
    consumers: dict[Bucket, dict[str, tuple[str, int]]] = field(default_factory=dict)
    """By consumer the id of the snapshot that it named, and the first txn that it has still to read."""

    made: dict[str, None] = field(default_factory=dict)
    """Ids of the snapshots that were made and not deleted, in this order."""

    @classmethod
    def after(
        cls, model: ShardModel, requests: Sequence[Asked], replies: Mapping[tuple[str, int], SnapshotReply]
    ) -> Protections:
        """Follow all requests; raises when an answer contradicts those before it."""
        protections = cls(model)
        for request in requests:
            protections._follow(request.body, replies[request.client_id, request.number])
        protections._check_tagged()
        return protections

    def _check_tagged(self) -> None:
        """What is tagged is there, whoever may have wanted it to expire."""
        for bucket, tags in self.tags.items():
            for tag, snapshot_id in tags.items():
                incarnation, _ = self.model.snapshot_places[snapshot_id]
                if snapshot_id not in incarnation.snapshots:
                    raise SafetyError(f"shard {self.model.shard}: {bucket} has tag {tag}, but not {snapshot_id}")

    def _follow(self, body: Any, reply: SnapshotReply) -> None:
        if reply.error == "TAGGED_SNAPSHOT" and not self.tags.get((body.volume, body.bucket)):
            raise AnswerError(f"shard {self.model.shard}: {body} was refused for a tag, but there is none")
        if not reply.error:
            self._follow_success(body, reply)

    def _follow_success(self, body: Any, reply: SnapshotReply) -> None:
        match body:
            case records.CreateTag():
                tags = self.tags.setdefault((body.volume, body.bucket), {})
                if body.tag in tags:
                    raise AnswerError(f"shard {self.model.shard}: {body} made a tag that is there already")
                tags[body.tag] = reply.snapshot_id
            case records.DeleteTag():
                if self.tags.get((body.volume, body.bucket), {}).pop(body.tag, None) != reply.snapshot_id:
                    raise AnswerError(f"shard {self.model.shard}: {body} deleted a tag that is not there: {reply}")
            case records.SetConsumer():
                _, txn = self.model.snapshot_places[reply.snapshot_id]
                consumers = self.consumers.setdefault((body.volume, body.bucket), {})
                consumers[body.consumer] = (reply.snapshot_id, txn + body.is_behind)
            case records.DeleteConsumer():
                del self.consumers[body.volume, body.bucket][body.consumer]
            case _:
                self._follow_snapshots(body, reply)

    def _follow_snapshots(self, body: Any, reply: SnapshotReply) -> None:
        match body:
            case records.CreateSnapshot():
                self.made[reply.snapshot_id] = None
            case records.DeleteSnapshot():
                self._check_removed((body.volume, body.bucket), reply.snapshot_id, body)
            case records.RollBackBucket():
                for snapshot_id in self.newer(reply.snapshot_id):
                    self._check_removed((body.volume, body.bucket), snapshot_id, body)
            case records.ExpireSnapshots():
                self._follow_expiry(body, reply)

    def _follow_expiry(self, body: records.ExpireSnapshots, reply: SnapshotReply) -> None:
        if reply.expired is None:
            raise AnswerError(f"shard {self.model.shard}: {body} is not said what expired: {reply}")
        bucket = (body.volume, body.bucket)
        for snapshot_id in reply.expired.snapshot_ids:
            self._check_removed(bucket, snapshot_id, body)
            incarnation, txn = self.model.snapshot_places[snapshot_id]
            for consumer, (place, next_txn) in self.consumers.get(bucket, {}).items():
                if self.model.snapshot_places[place][0] is incarnation and next_txn <= txn:
                    raise SafetyError(f"shard {self.model.shard}: {body} expired what {consumer} has still to read")

    def newer(self, snapshot_id: str) -> list[str]:
        """Snapshots of the same bucket that were taken later, and are known so far."""
        incarnation, txn = self.model.snapshot_places[snapshot_id]
        places = self.model.snapshot_places
        return [one for one in self.made if places[one][0] is incarnation and places[one][1] > txn]

    def _check_removed(self, bucket: Bucket, snapshot_id: str, body: Any) -> None:
        self.made.pop(snapshot_id, None)
        if snapshot_id in self.tags.get(bucket, {}).values():
            raise SafetyError(f"shard {self.model.shard}: {body} removed the tagged snapshot {snapshot_id}")

    # ---- the decision, worked out apart from the service

    def expected_expiry(
        self, incarnation: Incarnation, infos: Mapping[str, SnapshotInfo], policy: RetentionPolicy, now_ms: int
    ) -> tuple[str, ...]:
        """What expires: of the snapshots that the model holds to be live, all that nothing keeps.

        Each reason is asked for by itself, as the documentation puts it, and not by positions that bound one another.
        """
        bucket = (incarnation.volume, incarnation.name)
        live = list(incarnation.snapshots.values())
        newest_first = live[::-1]
        kept = {view.snapshot_id for view in newest_first[: policy.num_retained_min]}
        kept |= set(self.tags.get(bucket, {}).values())
        kept |= {view.snapshot_id for view in live[policy.expire_limit :]}
        for place, next_txn in self.consumers.get(bucket, {}).values():
            if self.model.snapshot_places[place][0] is incarnation:
                kept |= {view.snapshot_id for view in live if view.txn >= next_txn}
        # At every moment of the time retained its state can still be seen: by the newest one made before it.
        surplus = len(live) - policy.num_retained_max if policy.num_retained_max else 0
        for view, following in zip_longest(live, live[1:]):
            is_surplus = live.index(view) < surplus
            is_old = following and now_ms - infos[following.snapshot_id].creation_time_ms > policy.time_retained_ms
            if not is_surplus and not is_old:
                kept |= {one.snapshot_id for one in live if one.txn >= view.txn}
                break
        return tuple(view.snapshot_id for view in live if view.snapshot_id not in kept)


def some_policy(random: Random) -> RetentionPolicy:
    """Rules under which a few snapshots go."""
    minimum = random.choice((1, 1, 2, 3))
    return RetentionPolicy(
        num_retained_min=minimum,
        num_retained_max=random.choice((0, 0, minimum, minimum + 1)),
        time_retained_ms=random.choice((0, 1_000, 60_000, 600_000)),
        expire_limit=random.choice((1, 2, 50)),
        execution_mode=random.choice(list(records.ExecutionMode)),
    )

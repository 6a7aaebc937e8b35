"""Quotas as the model of a run knows them: what they count is looked up in what was ever written.

Bytes, as many as blocks take on disks, and names count from their writing until metadata has forgotten them. Blocks
that never belonged to a version or a present part count for nothing, a noncurrent version has no name, and a key has
one, however many blocks it has. Files without bytes below a deleted directory lose their names when that is expanded:
until then either number is right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from schemas import records
from services.domain.reclaimability import Txn
from services.workloads import workload
from services.workloads.judge.model_bucket import Bucket, Directory, OperationRefusedError, Version
from services.workloads.judge.namespace_model import NamespaceModel
from services.workloads.workload import NO_LIMIT

if TYPE_CHECKING:
    from tests.simulation.model import Incarnation, ShardModel
    from tests.simulation.told import Told


class Names(NamespaceModel):
    """A namespace whose quotas are asked by whoever changes it: it has no blocks of its own to count."""

    def _check_room(self, bucket: Bucket, size_bytes: int, names: int) -> None:
        pass


class Counted(NamedTuple):
    """What the quotas of a bucket count."""

    bytes: int
    least_names: int
    most_names: int


@dataclass(slots=True)
class Quotas:
    """The quotas of a shard."""

    model: ShardModel
    told: Told | None = None
    """What metadata has told; nothing is gone as long as there is none."""
    belonged: set[int] = field(default_factory=set)
    """Pieces that were once part of a version."""
    refused: int = 0
    """How often there was no room."""
    _repaired: dict[int, Txn] = field(default_factory=dict)
    """By the id of a bucket when its figures were corrected last."""
    _directories: dict[int, dict[int, Directory]] = field(default_factory=dict)
    """By the root of a bucket all that were ever made in it, by objectID."""
    _noncurrent: dict[int, set[int]] = field(default_factory=dict)
    """By the root of a bucket the versions that are noncurrent, or were when they died."""
    _present: dict[int, set[int]] = field(default_factory=dict)
    """The same of those that are noncurrent now."""
    _returns: int = 0

    # ---- following

    def directories_made(self, bucket: Bucket, made: Iterable[tuple[int, Directory]]) -> None:
        """The present command has made directories of these objectIDs."""
        self._directories.setdefault(id(bucket.root), {}).update(made)

    def gives_its_name(self, bucket: Bucket, number: int) -> None:
        """A version dies, and another one of its key takes its name."""
        self._noncurrent.setdefault(id(bucket.root), set()).add(number)

    def after_command(self, *, is_turned_back: bool) -> None:
        """Look which versions have become noncurrent, or current again; a rollback may have changed any."""
        has_returned = self.model.undeleted != self._returns or is_turned_back
        self._returns = self.model.undeleted
        for one in self.model.live_buckets():
            if not one.noncurrent and id(one.bucket.root) not in self._noncurrent:
                continue
            now = {number for numbers in one.noncurrent.values() for number in numbers}
            before = self._present.get(id(one.bucket.root), set())
            ever = self._noncurrent.setdefault(id(one.bucket.root), set())
            if before - now or (has_returned and ever - now):
                ever -= {version.number for version in one.bucket.view().keys.values()}
            ever |= now
            self._present[id(one.bucket.root)] = now

    # ---- counting

    def counted(self, incarnation: Incarnation) -> Counted:
        """What counts before the present command."""
        if self.told is not None:
            self.told.look()
        return Counted(self._bytes(incarnation), *self._names(incarnation))

    def _bytes(self, incarnation: Incarnation) -> int:
        counting = self.belonged | self.model.writes.in_parts_of(incarnation)
        pieces = {number for number in incarnation.pieces if number in counting and not self._is_freed(number)}
        return self.model.pieces.replicated_bytes_of(pieces)

    def _is_freed(self, number: int) -> bool:
        run = self.model.pieces.by_number[number].run
        return run is not None and self.told is not None and self._is_past(self.told.finished.get(run.first_local_id))

    def _is_past(self, txn: Txn | None) -> bool:
        return txn is not None and txn <= self.model.txn

    def _names(self, incarnation: Incarnation) -> tuple[int, int]:
        """The least and the most names that may count."""
        live = {version.number for version in incarnation.bucket.view().keys.values()}
        unnamed = live | self._noncurrent.get(id(incarnation.bucket.root), set())
        dead = [self.model.contents[number] for number in set(incarnation.versions) - unnamed]
        left = sum(1 for pieces in dead if pieces and not self._is_freed(pieces[0]))
        removed = self.told.removed if self.told is not None else {}
        made = self._directories.get(id(incarnation.bucket.root), {})
        there = [one for object_id, one in made.items() if not self._is_past(removed.get(object_id))]
        empty = {
            child.number
            for directory in there
            for child in directory.children.values()
            if isinstance(child, Version) and child.number not in unnamed and not self.model.contents[child.number]
        }
        least = len(live) + left + len(there)
        return least, least + len(empty)

    # ---- commands

    def check_room(self, incarnation: Incarnation, size_bytes: int, names: int) -> None:
        """Refuse the present command if there is no room for what it adds."""
        bucket = incarnation.bucket
        if bucket.quota_bytes == NO_LIMIT and bucket.quota_namespace == NO_LIMIT:
            return
        counted = self.counted(incarnation)
        is_over = self._is_over(bucket.quota_bytes, counted.bytes, counted.bytes, size_bytes)
        if is_over or self._is_over(bucket.quota_namespace, counted.least_names, counted.most_names, names):
            self.refused += 1
            raise OperationRefusedError("QUOTA_EXCEEDED", f"{counted}, and {size_bytes} bytes and {names} names more")

    def _is_over(self, quota: int, least: int, most: int, more: int) -> bool:
        if quota == NO_LIMIT or more <= 0 or most + more <= quota:
            return False
        return least + more > quota or self._is_refused_with("QUOTA_EXCEEDED")

    def _is_refused_with(self, code: str) -> bool:
        """Whether the plane has refused the present command so: what is told decides where both are right."""
        command = self.model.present
        answers = self.model.answers_to(command.client_id, command.number)
        if isinstance(command.body, records.PutKeys):
            done = next((one.committed.keys_put for one in answers if one.committed), None)
            told = dict(zip(done.refused, done.errors, strict=True)) if done else {}
            return told.get(self.model.present_place) == code
        return not any(one.txn == self.model.txn + 1 for one in answers) and any(one.error == code for one in answers)

    def set(self, body: records.SetQuota) -> None:
        """Set the quotas of a bucket or volume."""
        quotas = (body.quota_bytes, body.quota_namespace)
        if any(quota == 0 or quota < NO_LIMIT for quota in quotas):
            raise OperationRefusedError("QUOTA_ERROR", "a quota is at least 1")
        operation = workload.SetQuota(body.volume, body.bucket, *quotas)
        names = self.model.names
        if not body.bucket:
            names.apply(0, operation)
            return
        incarnation = self.model.found(body.volume, body.bucket)
        if incarnation.rollback is not None:
            raise OperationRefusedError("BUCKET_BUSY", body.bucket)
        if (incarnation.volume, incarnation.name) != (body.volume, body.bucket):
            raise OperationRefusedError("NOT_SUPPORTED_OPERATION", f"{body.bucket} is a link")
        counted = self.counted(incarnation)
        is_low = NO_LIMIT != body.quota_namespace < counted.most_names and (
            body.quota_namespace < counted.least_names or self._is_refused_with("QUOTA_ERROR")
        )
        if is_low:
            raise OperationRefusedError("QUOTA_ERROR", f"{counted} are used")
        others = [
            one.bucket for one in self.model.live_buckets() if one.volume == body.volume and one is not incarnation
        ]
        names._volumes.set_of_bucket(operation, body.volume, incarnation.bucket, others, (counted.bytes, 0))

    def repair(self, body: records.RepairQuota) -> None:
        """Correct by nothing what is said to be used: it is right already. By less than nothing it would be wrong."""
        if all(one.made_id != body.bucket_id for one in self.model.live_buckets()):
            raise OperationRefusedError("BUCKET_NOT_FOUND", str(body.bucket_id))
        if not self._repaired.get(body.bucket_id, 0) <= body.audited_txn <= self.model.txn or body.used_bytes < 0:
            raise OperationRefusedError("INVALID_REQUEST", str(body))
        self._repaired[body.bucket_id] = self.model.txn + 1

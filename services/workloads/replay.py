"""Execute a workload on a plane and yield its output lines.

The lines are those of the workload format: one for each refused operation, each observation and each answer that the
format defines. Operations on keys, directories, buckets and volumes are sent without waiting for the answers of the
earlier ones. All other operations wait for the answers of all operations before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from schemas import records
from schemas.records import BlockRun, BucketVersioning, Settle
from services.client.errors import PlaneError
from services.client.plane import NamespaceCommand, Plane, SnapshotRequest
from services.client.tasks.diffs import diff
from services.client.tasks.links import bucket_of_link
from services.client.tasks.snapshot_ids import ACTIVE, EXPIRED, live_snapshot_id
from services.client.tasks.space_view import BucketView, held_by_path, held_by_snapshot
from services.client.tasks.undelete import undelete_path
from services.client.tasks.volume_shards import VolumeShards
from services.domain.snapshot_diff import DiffEntry, DiffKind
from services.workloads import workload
from services.workloads.block_groups import PutVersion, block_groups
from services.workloads.held_collection import HeldCollection
from services.workloads.names import Place, logical_snapshots, physical_name, physical_names, snapshot_name
from services.workloads.observing import Line, observe_bucket, observe_link, observe_suspended, observe_used
from services.workloads.step_writer import RefusedError, StepOperation, StepWriter

MAX_OUTSTANDING = 10_000
NOT_FOUND = "FILE_NOT_FOUND"
_ABSENT, _NEVER = -1, 2**63 - 1
"""Generations of a condition: there must be no such key, and one that no key ever has."""
InSteps = StepOperation | workload.ExpireOpenKeys | workload.ExpireUploads
SpaceOperation = workload.WhatIf | workload.Plan | workload.Explain
_PASSIVE = (*(workload.WhatIf, workload.Plan, workload.Explain), *(workload.Diff, workload.Settle, workload.Observe))
"""Operations that change nothing that a quota counts, but what a settle frees."""


@dataclass(slots=True)
class _Sent:
    """A sent operation whose answer was not read yet."""

    operation_number: int
    shard: int
    number: int
    operation: workload.Operation


@dataclass(slots=True)
class Replay:
    """One run of a workload on a plane."""

    plane: Plane
    on_progress: Callable[[int], None] = lambda _count: None
    is_wide: bool = False
    """Whether observations also show what is being written, and the used figures of buckets."""
    first_shard: int = 0
    """Shard of the first volume. The following volumes take the following shards, round robin."""
    is_placing: bool = False
    """Whether the name of a new volume belongs to its shard from now on, as on a plane that other clients use, too."""
    versions: list[PutVersion] = field(default_factory=list)
    refusals: int = 0
    shards: dict[str, int] = field(default_factory=dict)
    """Shard of each volume."""
    _buckets: dict[Place, None] = field(default_factory=dict)
    _links: dict[Place, Place] = field(default_factory=dict)
    """By the volume and bucket of each link those to which it leads."""
    _beside: dict[str, str] = field(default_factory=dict)
    """Of each volume with links the first one of those that must be in one shard."""
    _sent: list[_Sent] = field(default_factory=list)
    _settles: int = 0
    _has_replication: bool = False
    """Whether observations also show what snapshots take on disks."""
    _generations: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """Generation of each version by volume, bucket and tag."""
    _steps: StepWriter = field(init=False)
    _collection: HeldCollection = field(init=False)
    _name: str = field(default_factory=lambda: uuid4().hex)
    """Part of this run's settle ids, so that a late answer to another run's settle is not taken for this run's."""

    def __post_init__(self) -> None:
        self._steps = StepWriter(self.plane, _names, self._place)
        self._collection = HeldCollection(self.plane)

    def run(self, operations: Iterable[tuple[int, workload.Operation]]) -> Iterator[Line]:
        """Execute operations in order. Yield a line for each refusal, observation and answer, in the same order."""
        operations = list(operations)
        self.prepare(operations)
        try:
            for number, operation in operations:
                yield from self.execute(number, operation)
            yield from self.collect()
        finally:
            self._collection.resume()

    def prepare(self, operations: Sequence[tuple[int, workload.Operation]]) -> None:
        """Note what must be known of a whole workload before its first operation is executed."""
        self.is_wide |= workload.has_wide_observations(operations)
        self._has_replication |= workload.has_replication(operations)
        self._collection.is_needed = workload.has_quotas(operations)
        self._beside = workload.volumes_of_one_shard(operations)

    def execute(self, number: int, operation: workload.Operation) -> Iterator[Line]:
        """Execute one operation. Yield its lines and those of earlier operations whose answers were collected."""
        if isinstance(operation, workload.PutKey) and operation.if_generation:
            yield from self.collect()  # the answer to an earlier operation has the generation
        if not isinstance(operation, _PASSIVE):
            self._collection.pause()
        command = self._namespace_command(operation)
        if command is not None:
            shard = self._shard(operation)
            sent_number = self.plane.submit(shard, command)
            if isinstance(operation, workload.CreateBucket):
                self._collection.hold(shard, _names(operation))
            self._sent.append(_Sent(number, shard, sent_number, operation))
            has_settings = isinstance(operation, workload.CreateBucket) and operation.has_settings
            if len(self._sent) >= MAX_OUTSTANDING or has_settings:
                yield from self.collect()
            return
        yield from self.collect()
        yield from self._alone(number, operation)
        self.on_progress(1)

    def _alone(self, number: int, operation: workload.Operation) -> Iterator[Line]:
        """Execute an operation after the answers to all before it. Yield its lines."""
        if isinstance(operation, workload.Settle):
            self.settle()
        elif isinstance(operation, workload.Observe):
            yield self.observe(number, operation.label)
        elif isinstance(operation, SpaceOperation):
            yield {"op": number, **self._space_line(operation)}
        elif isinstance(operation, workload.Diff):
            yield self._diff(number, operation)
        elif isinstance(operation, workload.UndeleteKey):
            yield from self._undelete(number, operation)
        elif isinstance(operation, workload.DeleteVersion):
            yield from self._delete_version(number, operation)
        elif isinstance(operation, InSteps):
            yield from self._in_steps(number, operation)
        else:
            yield from self._requested(number, operation)

    def _requested(self, number: int, operation: workload.Operation) -> Iterator[Line]:
        """Execute an operation on snapshots."""
        shard, names = self._shard(operation), self._snapshot_names(operation)
        reply = self.plane.request(shard, _REQUESTS[type(operation)](operation, names))
        if reply.error:
            self.refusals += 1
            yield {"op": number, "error": reply.error}
        elif reply.expired is not None:
            yield {"op": number, "expired": logical_snapshots(reply.expired.snapshots)}

    def _undelete(self, number: int, operation: workload.UndeleteKey) -> Iterator[Line]:
        try:
            path = operation.key
            undelete_path(self.plane, self._shard(operation), _names(operation), path, path)
        except PlaneError as error:
            self.refusals += 1
            yield {"op": number, "error": error.code}

    def _delete_version(self, number: int, operation: workload.DeleteVersion) -> Iterator[Line]:
        shard, names = self._shard(operation), _names(operation)
        try:
            found = self.plane.metadata(shard).versions(*names, operation.key)
        except PlaneError as error:
            self.refusals += 1
            yield {"op": number, "error": error.code}
            return
        version = next((one.version for one in found if one.tag == operation.tag), 0)
        command = records.DeleteKeyVersion(*names, operation.key, version)
        reply = self.plane.answer(shard, self.plane.submit(shard, command))
        if reply.error:
            self.refusals += 1
            yield {"op": number, "error": reply.error}

    def _namespace_command(self, operation: workload.Operation) -> NamespaceCommand | None:
        """Return the command of an operation that is sent without waiting; None for the others."""
        if isinstance(operation, workload.PutKey) and (operation.if_absent or operation.if_generation):
            tagged = (*self._place(operation), operation.if_generation)
            expected = _ABSENT if operation.if_absent else self._generations.get(tagged, _NEVER)
            written = (*_names(operation), operation.key, operation.size_bytes)
            return records.PutKeyIf(*written, expected, operation.tag, workload.BLOCK_BYTES)
        if isinstance(operation, workload.PutKey) and self.is_wide:
            written = (*_names(operation), operation.key, operation.size_bytes)
            return records.PutKey(*written, operation.tag, workload.BLOCK_BYTES)
        make_command = _COMMANDS.get(type(operation))
        return None if make_command is None else make_command(operation)

    def _in_steps(self, number: int, operation: InSteps) -> Iterator[Line]:
        """Carry out an operation that writes a key in steps."""
        try:
            if isinstance(operation, StepOperation):
                if written := self._steps.carry_out(number, self._shard(operation), operation):
                    self._generations[*self._place(operation), written.tag] = written.generation
                return
            is_uploads = isinstance(operation, workload.ExpireUploads)
            expire = self._steps.expire_uploads if is_uploads else self._steps.expire_open_keys
            for volume, bucket in self._buckets:
                expire(self.shards[volume], physical_names(volume, bucket))
        except RefusedError as refusal:
            self.refusals += 1
            yield {"op": number, "error": refusal.code}

    def _space_line(self, operation: SpaceOperation) -> Line:
        """Return the exact answer to a space query, or its error code if the plane refuses.

        While a deleted directory waits for its expansion the plane's answer is not exact: the plane is then settled and
        asked again.
        """
        view = BucketView(self.plane, self._shard(operation), *self._snapshot_names(operation))
        try:
            line, is_exact = _space_answer(view, operation)
            if not is_exact:
                self.settle()
                line, _ = _space_answer(view, operation)
        except PlaneError as error:
            self.refusals += 1
            return {"error": error.code}
        return line

    def _shard(self, operation: Any) -> int:
        """Return the shard of an operation's volume; a new volume gets the next shard, round robin, or that of the
        volumes to which links lead from it.
        """
        volume: str = operation.volume
        if volume not in self.shards:
            of_groups = {self._beside.get(one, one): shard for one, shard in self.shards.items()}
            following = (self.first_shard + len(of_groups)) % self.plane.shards
            chosen = of_groups.get(self._beside.get(volume, volume), following)
            self.shards[volume] = self._placed(volume, chosen) if self.is_placing else chosen
        return self.shards[volume]

    def _placed(self, volume: str, chosen: int) -> int:
        """Return the shard that has a volume, or else the shard to which its name belongs from now on."""
        try:
            return VolumeShards(self.plane).shard_of(volume)
        except PlaneError:
            return self.plane.place_volume(volume, chosen)

    def collect(self) -> Iterator[Line]:
        """Wait for the answers of all sent operations. Yield a line for each refusal."""
        sent, self._sent = self._sent, []
        for command in sent:
            reply = self.plane.answer(command.shard, command.number)
            if reply.error:
                self.refusals += 1
                yield {"op": command.operation_number, "error": reply.error}
            else:
                self._note(command, reply)
                yield from _left_line(command, reply)
            self.on_progress(1)

    def _note(self, sent: _Sent, reply: records.MetadataReply) -> None:
        operation = sent.operation
        if isinstance(operation, workload.PutKey):
            blocks, place = reply.committed.blocks if reply.committed else None, self._place(operation)
            self.versions.append(PutVersion(sent.operation_number, *place, operation.tag, operation.size_bytes, blocks))
            self._generations[*place, operation.tag] = reply.txn
        elif isinstance(operation, workload.CreateBucket):
            self._buckets[operation.volume, operation.bucket] = None
            for command in _settings_of(operation):
                self.plane.answer(sent.shard, self.plane.submit(sent.shard, command))
        elif isinstance(operation, workload.CreateLink):
            self._links[operation.volume, operation.bucket] = (operation.link_volume, operation.link_bucket)
        elif isinstance(operation, workload.DeleteBucket):
            deleted_from = self._links if (operation.volume, operation.bucket) in self._links else self._buckets
            del deleted_from[operation.volume, operation.bucket]

    def _place(self, operation: Any) -> Place:
        """Return the volume and bucket of an operation, which may name them by a link. The plane refuses a loop."""
        place: Place = (operation.volume, operation.bucket)
        followed = set[Place]()
        while place in self._links and place not in followed:
            followed.add(place)
            place = self._links[place]
        return place

    def _snapshot_names(self, operation: Any) -> Place:
        """Return the names on the plane of the bucket whose snapshots an operation is about, found over its links."""
        names = _names(operation)
        if (operation.volume, operation.bucket) not in self._links:
            return names
        return bucket_of_link(self.plane, self._shard(operation), *names)

    def settle(self) -> int:
        """Wait until the plane has no more work to do. Return the number of rounds, the most of any shard."""
        self._collection.resume()
        self._settles += 1
        return max(
            self.plane.request(shard, Settle(f"settle-{self._name}-{self._settles}-shard-{shard}")).rounds
            for shard in range(self.plane.shards)
        )

    def _diff(self, number: int, operation: workload.Diff) -> Line:
        """Return a line with the diff of two states, or with the error code if the plane refuses."""
        shard, names = self._shard(operation), self._snapshot_names(operation)
        try:
            ids = [
                live_snapshot_id(self.plane, shard, *names, ACTIVE if one == ACTIVE else snapshot_name(one))
                for one in (operation.from_snapshot, operation.to_snapshot)
            ]
            entries = diff(self.plane.metadata(shard), *names, from_snapshot_id=ids[0], to_snapshot_id=ids[1])
        except PlaneError as error:
            self.refusals += 1
            # Whether a deleted snapshot is already dropped depends on timing, and lines must not: report both alike.
            return {"op": number, "error": NOT_FOUND if error.code == EXPIRED else error.code}
        return {"op": number, "diff": [_diff_line(entry) for entry in entries]}

    def existing_versions(self) -> list[bool]:
        """Return for each version of ``versions`` whether its blocks are still in the store."""
        versions = [(version.volume, version.blocks) for version in self.versions]
        return self._exist(versions)

    def _exist(self, of_volumes: Sequence[tuple[str, BlockRun | None]]) -> list[bool]:
        """Return for each run of blocks, with its volume, whether it is in the store."""
        existing = [False] * len(of_volumes)
        for shard in range(self.plane.shards):
            runs = {
                index: blocks
                for index, (volume, blocks) in enumerate(of_volumes)
                if blocks is not None and self.shards[volume] == shard
            }
            for index, is_there in zip(runs, self.plane.scm(shard).exist(list(runs.values())), strict=True):
                existing[index] = is_there
        return existing

    def observe(self, number: int, label: str) -> Line:
        """Return the observation line: the visible state of every bucket."""
        groups = block_groups(self.versions, self._steps.written, self._exist)
        buckets = {}
        for volume, bucket in sorted(self._buckets):
            place = (self.plane, self.shards[volume], volume, bucket)
            observation = observe_bucket(*place, has_replication=self._has_replication)
            observation["unreclaimed_bytes"] = sum(
                group.existing_bytes for group in groups if (group.volume, group.bucket) == (volume, bucket)
            )
            if self.is_wide:
                observation |= self._steps.observe(self.shards[volume], physical_names(volume, bucket))
                observation |= observe_used(*place)
            buckets[f"{volume}/{bucket}"] = observation | observe_suspended(*place)
        reclaimed = [group.label for group in groups if group.is_reclaimed]
        links = {
            "/".join(link): observe_link(self.plane, self.shards[link[0]], link, leads_to)
            for link, leads_to in sorted(self._links.items())
        }
        shown = {"links": links} if links else {}
        return {"op": number, "label": label, "buckets": buckets, "reclaimed": reclaimed, **shown}


def _left_line(command: _Sent, reply: records.MetadataReply) -> Iterator[Line]:
    """Yield a line with the keys that a bulk delete could not delete, in the order of its keys, if there are any."""
    operation = command.operation
    if not isinstance(operation, workload.DeleteKeys) or reply.committed is None or reply.committed.keys is None:
        return
    codes = dict.fromkeys(reply.committed.keys.not_found, "KEY_NOT_FOUND")
    codes |= dict.fromkeys(reply.committed.keys.not_empty, "DIRECTORY_NOT_EMPTY")
    if codes:
        yield {"op": command.operation_number, "left": [[operation.keys[one], codes[one]] for one in sorted(codes)]}


def _space_answer(view: BucketView, operation: SpaceOperation) -> tuple[Line, bool]:
    """Return the plane's answer to a space query, and whether it is exact."""
    snapshots = view.snapshots()
    match operation:
        case workload.WhatIf():
            freed = view.what_if(snapshots, map(snapshot_name, operation.snapshots))
            return {"freed_bytes": freed.freed_bytes, "freed_versions": freed.freed_versions}, freed.is_exact
        case workload.Plan():
            plan = view.plan(snapshots, operation.free_bytes)
            names = logical_snapshots(snapshots.names_of(plan.snapshot_ids))
            return {"snapshots": names, "freed_bytes": plan.freed_bytes}, plan.is_exact
    if operation.snapshot:
        (snapshot_id,) = snapshots.ids_of([snapshot_name(operation.snapshot)])
        spaces = view.spaces()
        held = held_by_snapshot(snapshots, spaces, snapshot_id)
        is_exact = all(space.is_referenced_exact and space.is_exclusive_exact for space in spaces.snapshots)
    else:
        explanation = view.path(operation.path)
        held = held_by_path(snapshots, explanation)
        # A snapshot that is being deleted still counts towards the bytes below a directory.
        is_exact = explanation.is_exact and not (explanation.directories and snapshots.leaving_ids)
    return {"held_by": logical_snapshots(info.name for info in held.holders), "bytes": held.bytes}, is_exact


def _diff_line(entry: DiffEntry) -> list[str]:
    if entry.kind is DiffKind.RENAMED:
        return [entry.kind.value, entry.old_path, entry.path]
    return [entry.kind.value, entry.path]


def _settings_of(operation: workload.CreateBucket) -> Iterator[NamespaceCommand]:
    """Yield the commands that set what a new bucket has beside its layout."""
    if operation.versioning:
        yield records.SetBucketVersioning(*_names(operation), BucketVersioning.ENABLED)
    if operation.replication is not None:
        yield records.SetBucketReplication(*_names(operation), operation.replication)


def _names(operation: Any) -> Place:
    return physical_names(operation.volume, operation.bucket)


_COMMANDS: Mapping[type[Any], Callable[[Any], NamespaceCommand]] = {
    workload.CreateVolume: lambda op: records.CreateVolume(physical_name("volume", op.volume)),
    workload.CreateBucket: lambda op: records.CreateBucket(*_names(op), op.layout),
    workload.DeleteBucket: lambda op: records.DeleteBucket(*_names(op)),
    workload.CreateLink: lambda op: records.CreateBucketLink(
        *_names(op), *physical_names(op.link_volume, op.link_bucket)
    ),
    workload.SetQuota: lambda op: records.SetQuota(
        physical_name("volume", op.volume),
        physical_name("bucket", op.bucket) if op.bucket else "",
        op.quota_bytes,
        op.quota_namespace,
    ),
    workload.PutKey: lambda op: records.PutKey(*_names(op), op.key, op.size_bytes, op.tag),
    workload.SetVersioning: lambda op: records.SetBucketVersioning(
        *_names(op), BucketVersioning.ENABLED if op.is_enabled else BucketVersioning.SUSPENDED
    ),
    workload.DeleteKey: lambda op: records.DeleteKey(*_names(op), op.key),
    workload.DeleteKeys: lambda op: records.DeleteKeys(*_names(op), op.keys),
    workload.RenameKey: lambda op: records.RenameKey(*_names(op), op.from_key, op.to_key),
    workload.RenameDirectory: lambda op: records.RenameDirectory(*_names(op), op.from_directory, op.to_directory),
    workload.MakeDirectory: lambda op: records.MakeDirectory(*_names(op), op.directory),
    workload.DeleteDirectory: lambda op: records.DeleteDirectory(*_names(op), op.directory),
}
"""The command of each operation on the namespace."""
_REQUESTS: Mapping[type[Any], Callable[[Any, Place], SnapshotRequest]] = {
    workload.CreateSnapshot: lambda op, names: records.CreateSnapshot(
        *names, snapshot_name(op.snapshot), _given(op.at_ms)
    ),
    workload.DeleteSnapshot: lambda op, names: records.DeleteSnapshot(*names, snapshot_name(op.snapshot)),
    workload.RenameSnapshot: lambda op, names: records.RenameSnapshot(
        *names, snapshot_name(op.from_snapshot), snapshot_name(op.to_snapshot)
    ),
    workload.TagSnapshot: lambda op, names: records.CreateTag(*names, snapshot_name(op.snapshot), op.tag),
    workload.UntagSnapshot: lambda op, names: records.DeleteTag(*names, snapshot_name(op.snapshot), op.tag),
    workload.MoveConsumer: lambda op, names: (
        records.DeleteConsumer(*names, op.consumer)
        if op.next_snapshot is None
        else records.SetConsumer(*names, op.consumer, snapshot_name(op.next_snapshot))
    ),
    workload.RollBack: lambda op, names: records.RollBackBucket(*names, snapshot_name(op.snapshot)),
    workload.ExpireSnapshots: lambda op, names: records.ExpireSnapshots(*names, _policy(op), _given(op.now_ms)),
}
"""The request of each operation on snapshots, with the names of their bucket."""


def _given(time_ms: int | None) -> int:
    return -1 if time_ms is None else time_ms


def _policy(operation: workload.ExpireSnapshots) -> records.RetentionPolicy:
    """Return the policy of one request. Rules that the operation leaves out take the defaults of a policy."""
    rules = ("num_retained_min", "num_retained_max", "time_retained_ms", "expire_limit")
    given = {rule: figure for rule in rules if (figure := getattr(operation, rule)) is not None}
    return records.RetentionPolicy(**given)

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
from schemas.answers import ListedEntry
from schemas.records import BlockRun, BucketLayout, BucketRow, BucketVersioning, Settle, SnapshotInfo
from services.client.errors import PlaneError
from services.client.plane import NamespaceCommand, Plane, SnapshotRequest
from services.client.tasks.diffs import diff
from services.client.tasks.snapshot_ids import ACTIVE, EXPIRED, live_snapshot_id
from services.client.tasks.space_view import BucketView, held_by_path, held_by_snapshot
from services.client.tasks.undelete import undelete_path
from services.domain.snapshot_diff import DiffEntry, DiffKind
from services.workloads import workload
from services.workloads.block_groups import PutVersion, block_groups
from services.workloads.step_writer import RefusedError, StepOperation, StepWriter

MIN_NAME_LENGTH = 3
MAX_OUTSTANDING = 10_000
NOT_FOUND = "FILE_NOT_FOUND"
Line = dict[str, Any]
_ABSENT, _NEVER = -1, 2**63 - 1
"""Generations of a condition: there must be no such key, and one that no key ever has."""
InSteps = StepOperation | workload.ExpireOpenKeys | workload.ExpireUploads
SpaceOperation = workload.WhatIf | workload.Plan | workload.Explain


def physical_name(kind: str, name: str) -> str:
    """Return a name that the plane accepts: workloads may use names that are too short for Ozone's rule."""
    return name if len(name) >= MIN_NAME_LENGTH else f"{kind}-{name}"


def logical_name(kind: str, name: str) -> str:
    """Return the workload's name for a name on the plane; the reverse of ``physical_name``."""
    short = name.removeprefix(f"{kind}-")
    return short if len(short) < MIN_NAME_LENGTH else name


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
    shows_steps: bool = False
    """Whether observations also show what is being written, and the used figures of buckets."""
    first_shard: int = 0
    """Shard of the first volume. The following volumes take the following shards, round robin."""
    versions: list[PutVersion] = field(default_factory=list)
    refusals: int = 0
    shards: dict[str, int] = field(default_factory=dict)
    """Shard of each volume."""
    _buckets: dict[tuple[str, str], None] = field(default_factory=dict)
    _sent: list[_Sent] = field(default_factory=list)
    _settles: int = 0
    _generations: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """Generation of each version by volume, bucket and tag."""
    _steps: StepWriter = field(init=False)
    _name: str = field(default_factory=lambda: uuid4().hex)
    """Part of this run's settle ids, so that a late answer to another run's settle is not taken for this run's."""

    def __post_init__(self) -> None:
        self._steps = StepWriter(self.plane, _names)

    def run(self, operations: Iterable[tuple[int, workload.Operation]]) -> Iterator[Line]:
        """Execute operations in order. Yield a line for each refusal, observation and answer, in the same order."""
        operations = list(operations)
        self.shows_steps |= workload.writes_in_steps(operations)
        for number, operation in operations:
            yield from self.execute(number, operation)
        yield from self.collect()

    def execute(self, number: int, operation: workload.Operation) -> Iterator[Line]:
        """Execute one operation. Yield its lines and those of earlier operations whose answers were collected."""
        if isinstance(operation, workload.PutKey) and operation.if_generation:
            yield from self.collect()  # the answer to an earlier operation has the generation
        command = self._namespace_command(operation)
        if command is not None:
            shard = self._shard(operation)
            sent_number = self.plane.submit(shard, command)
            self._sent.append(_Sent(number, shard, sent_number, operation))
            keeps_versions = isinstance(operation, workload.CreateBucket) and operation.versioning
            if len(self._sent) >= MAX_OUTSTANDING or keeps_versions:
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
        reply = self.plane.request(self._shard(operation), _REQUESTS[type(operation)](operation))
        if reply.error:
            self.refusals += 1
            yield {"op": number, "error": reply.error}
        elif reply.expired is not None:
            yield {"op": number, "expired": _logical_snapshots(reply.expired.snapshots)}

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
            tagged = (operation.volume, operation.bucket, operation.if_generation)
            expected = _ABSENT if operation.if_absent else self._generations.get(tagged, _NEVER)
            return records.PutKeyIf(*_names(operation), operation.key, operation.size_bytes, expected, operation.tag)
        make_command = _COMMANDS.get(type(operation))
        return None if make_command is None else make_command(operation)

    def _in_steps(self, number: int, operation: InSteps) -> Iterator[Line]:
        """Carry out an operation that writes a key in steps."""
        try:
            if isinstance(operation, StepOperation):
                if written := self._steps.carry_out(number, self._shard(operation), operation):
                    self._generations[operation.volume, operation.bucket, written.tag] = written.generation
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
        view = BucketView(self.plane, self._shard(operation), *_names(operation))
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
        """Return the shard of an operation's volume; a new volume gets the next shard, round robin."""
        following = (self.first_shard + len(self.shards)) % self.plane.shards
        return self.shards.setdefault(operation.volume, following)

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
            blocks = reply.committed.blocks if reply.committed else None
            self.versions.append(
                PutVersion(
                    *(sent.operation_number, operation.volume, operation.bucket),
                    *(operation.tag, operation.size_bytes, blocks),
                )
            )
            self._generations[operation.volume, operation.bucket, operation.tag] = reply.txn
        elif isinstance(operation, workload.CreateBucket):
            self._buckets[operation.volume, operation.bucket] = None
            if operation.versioning:
                command = records.SetBucketVersioning(*_names(operation), BucketVersioning.ENABLED)
                self.plane.answer(sent.shard, self.plane.submit(sent.shard, command))
        elif isinstance(operation, workload.DeleteBucket):
            del self._buckets[operation.volume, operation.bucket]

    def settle(self) -> int:
        """Wait until the plane has no more work to do. Return the number of rounds, the most of any shard."""
        self._settles += 1
        return max(
            self.plane.request(shard, Settle(f"settle-{self._name}-{self._settles}-shard-{shard}")).rounds
            for shard in range(self.plane.shards)
        )

    def _diff(self, number: int, operation: workload.Diff) -> Line:
        """Return a line with the diff of two states, or with the error code if the plane refuses."""
        shard, names = self._shard(operation), _names(operation)
        try:
            ids = [
                live_snapshot_id(self.plane, shard, *names, ACTIVE if one == ACTIVE else _snapshot(one))
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
            observation = observe_bucket(self.plane, self.shards[volume], volume, bucket)
            observation["unreclaimed_bytes"] = sum(
                group.existing_bytes for group in groups if (group.volume, group.bucket) == (volume, bucket)
            )
            if self.shows_steps:
                observation |= self._steps.observe(self.shards[volume], physical_names(volume, bucket))
                observation |= self._used(volume, bucket)
            buckets[f"{volume}/{bucket}"] = observation | self._suspended(volume, bucket)
        reclaimed = [group.label for group in groups if group.is_reclaimed]
        return {"op": number, "label": label, "buckets": buckets, "reclaimed": reclaimed}

    def _used(self, volume: str, bucket: str) -> Line:
        """Return the used figures of a bucket."""
        row = self.plane.metadata(self.shards[volume]).bucket(*physical_names(volume, bucket))
        return {
            "used_bytes": row.used_bytes,
            "used_namespace": row.used_namespace,
            "snapshot_used_bytes": row.snapshot_used_bytes,
        }

    def _suspended(self, volume: str, bucket: str) -> Line:
        """Return the amounts of a bucket that wait because its claims are suspended; {} while collection is active."""
        names = physical_names(volume, bucket)
        lines = self.plane.metadata(self.shards[volume]).collection(*names)
        line = next((one for one in lines if one.bucket and not one.is_deleted), lines[0])
        if line.effective_state is records.CollectionState.RUNNING:
            return {}
        waiting = {
            "by": line.effective_state.lower(),
            "bytes": line.pending_bytes,
            "versions": line.pending_versions,
            "unexpanded_directories": line.unexpanded_directories,
        }
        return {"suspended": waiting}


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
            freed = view.what_if(snapshots, map(_snapshot, operation.snapshots))
            return {"freed_bytes": freed.freed_bytes, "freed_versions": freed.freed_versions}, freed.is_exact
        case workload.Plan():
            plan = view.plan(snapshots, operation.free_bytes)
            names = _logical_snapshots(snapshots.names_of(plan.snapshot_ids))
            return {"snapshots": names, "freed_bytes": plan.freed_bytes}, plan.is_exact
    if operation.snapshot:
        (snapshot_id,) = snapshots.ids_of([_snapshot(operation.snapshot)])
        spaces = view.spaces()
        held = held_by_snapshot(snapshots, spaces, snapshot_id)
        is_exact = all(space.is_referenced_exact and space.is_exclusive_exact for space in spaces.snapshots)
    else:
        explanation = view.path(operation.path)
        held = held_by_path(snapshots, explanation)
        # A snapshot that is being deleted still counts towards the bytes below a directory.
        is_exact = explanation.is_exact and not (explanation.directories and snapshots.leaving_ids)
    return {"held_by": _logical_snapshots(info.name for info in held.holders), "bytes": held.bytes}, is_exact


def _diff_line(entry: DiffEntry) -> list[str]:
    if entry.kind is DiffKind.RENAMED:
        return [entry.kind.value, entry.old_path, entry.path]
    return [entry.kind.value, entry.path]


def observe_bucket(plane: Plane, shard: int, volume: str, bucket: str) -> Line:
    """Return the layout, the chain, the snapshots and the listings of one bucket."""
    volume_name, bucket_name = physical_names(volume, bucket)
    reads = plane.metadata(shard)
    row: BucketRow = reads.bucket(volume_name, bucket_name)
    snapshots = plane.snapshots(shard).snapshots(volume_name, bucket_name)
    names = {snapshot.snapshot_id: logical_name("snap", snapshot.name) for snapshot in snapshots}
    listings = {"active": list_everything(plane, shard, volume_name, bucket_name)}
    for snapshot in snapshots:
        entries = list_everything(plane, shard, volume_name, bucket_name, snapshot.snapshot_id)
        listings[names[snapshot.snapshot_id]] = entries
    is_tree = row.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED
    return {
        "layout": workload.LAYOUT_NAMES[row.layout],
        "chain": list(names.values()),
        "snapshots": {names[snapshot.snapshot_id]: _observe_snapshot(snapshot, names) for snapshot in snapshots},
        "listing": {
            store: {
                entry.path: {"tag": entry.tag, "bytes": entry.size_bytes} for entry in entries if not entry.is_directory
            }
            for store, entries in listings.items()
        },
        "directories": {
            store: sorted(entry.path for entry in entries if entry.is_directory)
            for store, entries in listings.items()
            if is_tree
        },
    }


def _observe_snapshot(snapshot: SnapshotInfo, names: dict[str, str]) -> Line:
    return {
        "previous": names.get(snapshot.path_previous_snapshot_id),
        "exclusive_bytes": snapshot.exclusive_bytes + snapshot.exclusive_delta_bytes,
        "referenced_bytes": snapshot.referenced_bytes,
        "deep_cleaned_keys": snapshot.has_deep_cleaned_keys,
        "deep_cleaned_directories": snapshot.has_deep_cleaned_directories,
    }


def list_everything(plane: Plane, shard: int, volume: str, bucket: str, snapshot_id: str = "") -> list[ListedEntry]:
    """Return all keys and directories of a bucket or of one of its snapshots."""
    return plane.metadata(shard).entries(volume, bucket, snapshot_id=snapshot_id)


def physical_names(volume: str, bucket: str) -> tuple[str, str]:
    """Return the names of a bucket of a workload on the plane."""
    return physical_name("volume", volume), physical_name("bucket", bucket)


def _names(operation: Any) -> tuple[str, str]:
    return physical_names(operation.volume, operation.bucket)


def _snapshot(name: str) -> str:
    return physical_name("snap", name)


def _logical_snapshots(names: Iterable[str]) -> list[str]:
    return [logical_name("snap", name) for name in names]


_COMMANDS: Mapping[type[Any], Callable[[Any], NamespaceCommand]] = {
    workload.CreateVolume: lambda op: records.CreateVolume(physical_name("volume", op.volume)),
    workload.CreateBucket: lambda op: records.CreateBucket(*_names(op), op.layout),
    workload.DeleteBucket: lambda op: records.DeleteBucket(*_names(op)),
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
_REQUESTS: Mapping[type[Any], Callable[[Any], SnapshotRequest]] = {
    workload.CreateSnapshot: lambda op: records.CreateSnapshot(*_names(op), _snapshot(op.snapshot), _given(op.at_ms)),
    workload.DeleteSnapshot: lambda op: records.DeleteSnapshot(*_names(op), _snapshot(op.snapshot)),
    workload.RenameSnapshot: lambda op: records.RenameSnapshot(
        *_names(op), _snapshot(op.from_snapshot), _snapshot(op.to_snapshot)
    ),
    workload.TagSnapshot: lambda op: records.CreateTag(*_names(op), _snapshot(op.snapshot), op.tag),
    workload.UntagSnapshot: lambda op: records.DeleteTag(*_names(op), _snapshot(op.snapshot), op.tag),
    workload.MoveConsumer: lambda op: (
        records.DeleteConsumer(*_names(op), op.consumer)
        if op.next_snapshot is None
        else records.SetConsumer(*_names(op), op.consumer, _snapshot(op.next_snapshot))
    ),
    workload.RollBack: lambda op: records.RollBackBucket(*_names(op), _snapshot(op.snapshot)),
    workload.ExpireSnapshots: lambda op: records.ExpireSnapshots(*_names(op), _policy(op), _given(op.now_ms)),
}
"""The request of each operation on snapshots."""


def _given(time_ms: int | None) -> int:
    return -1 if time_ms is None else time_ms


def _policy(operation: workload.ExpireSnapshots) -> records.RetentionPolicy:
    """Return the policy of one request. Rules that the operation leaves out take the defaults of a policy."""
    rules = ("num_retained_min", "num_retained_max", "time_retained_ms", "expire_limit")
    given = {rule: figure for rule in rules if (figure := getattr(operation, rule)) is not None}
    return records.RetentionPolicy(**given)

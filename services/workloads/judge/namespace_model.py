"""A brute-force model of the plane's namespace: nested dicts, with a full copy for every snapshot.

The model has no lifetimes, chains or garbage tables, so that it can check the plane's use of all three.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import msgspec

from schemas.records import Replication
from services.workloads.judge.model_bucket import (
    Block,
    Bucket,
    Creation,
    Directory,
    Existing,
    OperationRefusedError,
    Version,
    View,
)
from services.workloads.judge.quotas_model import DISKS, Place, VolumeQuota, VolumeQuotas, whole_blocks
from services.workloads.judge.steps_model import StepOperation, StepsModel
from services.workloads.workload import (
    NO_LIMIT,
    CreateBucket,
    CreateLink,
    CreateSnapshot,
    CreateVolume,
    DeleteBucket,
    DeleteDirectory,
    DeleteKey,
    DeleteKeys,
    DeleteSnapshot,
    DeleteVersion,
    ExpireOpenKeys,
    ExpireSnapshots,
    ExpireUploads,
    Explain,
    InBucket,
    MakeDirectory,
    MoveConsumer,
    Observe,
    Operation,
    Plan,
    PutKey,
    RenameDirectory,
    RenameKey,
    RenameSnapshot,
    RollBack,
    SetQuota,
    Settle,
    SetVersioning,
    TagSnapshot,
    UndeleteKey,
    UntagSnapshot,
    WhatIf,
)

MOST_KEYS_AT_ONCE: Final = 1_000
_SNAPSHOT_NAME: Final = re.compile(r"[0-9a-z]+(?:(?:\.|-+)[0-9a-z]+)*")


def is_valid_snapshot_name(name: str) -> bool:
    """Return whether the plane accepts a snapshot name: at most 63 of [0-9a-z.-], alphanumeric at both ends.

    A number or an IP address is not a name. There is no minimum length: Ozone's rule requires three characters, but
    its recorded cases use two.
    """
    if len(name) > 63 or _SNAPSHOT_NAME.fullmatch(name) is None:
        return False
    return not (name.isdigit() or re.fullmatch(r"[0-9]+(?:\.[0-9]+){3}", name))


class NamespaceModel:
    """Applies operations and returns the listing of every view and the versions that must exist.

    A deleted snapshot's name is free at once. A plane may refuse the name until the snapshot is dropped, so a workload
    settles before it uses the name again. The model has no claims: a workload that undeletes keys pauses garbage
    collection before it deletes them. The model has no clock: a workload that expires snapshots gives all times.
    """

    def __init__(self, *, has_quotas: bool = False) -> None:
        """``has_quotas``: what is deleted is counted until the next settle, since quotas count it."""
        self._volumes = VolumeQuotas()
        self._buckets: dict[Place, Bucket] = {}
        self._links: dict[Place, Place] = {}
        self._versions: dict[int, Version] = {}
        self._has_quotas = has_quotas
        self.steps = StepsModel(self._versions, self._check_room)

    # ---- changes

    def apply(self, number: int, operation: Operation) -> dict[str, object]:
        """Apply an operation and return its answer, {} if it has none.

        Raises:
            OperationRefusedError: the plane must refuse the operation; nothing was changed.
        """
        match operation:
            case CreateVolume(volume):
                if volume in self._volumes.volumes:
                    raise OperationRefusedError("VOLUME_ALREADY_EXISTS", volume)
                self._volumes.volumes[volume] = VolumeQuota()
            case CreateBucket() | CreateLink() | DeleteBucket():
                self._change_names(operation)
            case SetQuota():
                self._set_quota(operation)
            case ExpireOpenKeys() | ExpireUploads():
                self.steps.expire(operation)
            case Settle():
                for bucket in self._buckets.values():
                    bucket.uncollected = Existing()
            case Observe() | WhatIf() | Plan() | Explain():
                pass  # they change nothing
            case InBucket(volume, bucket_name):
                return self._apply_at(self._lead_to(volume, bucket_name), number, operation)
        return {}

    def _apply_at(self, place: Place, number: int, operation: InBucket) -> dict[str, object]:
        """Apply an operation to the bucket of a place, which it may have named by a link."""
        bucket = self._buckets[place]
        if self._has_quotas:
            bucket.uncollected |= self._existing(bucket, with_parts=False)
        operation = msgspec.structs.replace(operation, volume=place[0], bucket=place[1])
        if not isinstance(operation, StepOperation):
            return self._apply_in_bucket(bucket, number, operation)
        self.steps.apply(bucket, number, operation)
        return {}

    def _apply_in_bucket(self, bucket: Bucket, number: int, operation: Operation) -> dict[str, object]:
        match operation:
            case CreateSnapshot() | DeleteSnapshot() | RenameSnapshot():
                self._change_snapshots(bucket, number, operation)
            case TagSnapshot() | UntagSnapshot() | MoveConsumer():
                _change_holds(bucket, operation)
            case ExpireSnapshots():
                return {"expired": _expire(bucket, operation)}
            case RollBack():
                bucket.roll_back(number, operation.snapshot)
            case PutKey():
                self._put(bucket, number, operation)
            case DeleteKeys():
                return self._delete_keys(bucket, number, operation)
            case UndeleteKey() | SetVersioning() | DeleteVersion():
                _change_versions(bucket, number, operation)
            case DeleteKey() | RenameKey():
                self._change_key(bucket, number, operation)
            case RenameDirectory() | MakeDirectory() | DeleteDirectory():
                self._change_directory(bucket, number, operation)
            case _:
                raise TypeError(f"the model knows namespaces and snapshots alone, not {operation}")
        return {}

    # ---- names, links and quotas

    def _change_names(self, operation: CreateBucket | CreateLink | DeleteBucket) -> None:
        place = (operation.volume, operation.bucket)
        if isinstance(operation, DeleteBucket):
            if self._links.pop(place, None) is None:
                self._delete_bucket(*place)
            return
        self._require_volume(operation.volume)
        if place in self._buckets or place in self._links:
            raise OperationRefusedError("BUCKET_ALREADY_EXISTS", "/".join(place))
        is_link, names = isinstance(operation, CreateLink), self._names_in(operation.volume)
        self._volumes.check_new_bucket(operation.volume, names, is_link=is_link)
        if isinstance(operation, CreateLink):
            self._links[place] = (operation.link_volume, operation.link_bucket)
        else:
            disks = DISKS[operation.replication or Replication.RATIS_ONE]
            self._buckets[place] = Bucket(operation.layout, keeps_versions=operation.versioning or None, disks=disks)

    def _names_in(self, volume: str) -> int:
        return sum(one == volume for one, _ in [*self._buckets, *self._links])

    def _delete_bucket(self, volume: str, name: str) -> None:
        bucket = self._bucket(volume, name)
        if bucket.root.children:
            raise OperationRefusedError("BUCKET_NOT_EMPTY", name)
        if bucket.snapshots:
            raise OperationRefusedError("CONTAINS_SNAPSHOT", name)
        del self._buckets[volume, name]

    def _require_volume(self, volume: str) -> None:
        if volume not in self._volumes.volumes:
            raise OperationRefusedError("VOLUME_NOT_FOUND", volume)

    def _lead_to(self, volume: str, bucket: str) -> Place:
        """Return the volume and name of a bucket, found over links."""
        place, followed = (volume, bucket), set[Place]()
        while place in self._links:
            if place in followed:
                raise OperationRefusedError("DETECTED_LOOP_IN_BUCKET_LINKS", "/".join(place))
            followed.add(place)
            place = self._links[place]
        if place not in self._buckets:
            self._require_volume(volume)
            raise OperationRefusedError("BUCKET_NOT_FOUND", f"{volume}/{bucket}")
        return place

    def _bucket(self, volume: str, bucket: str) -> Bucket:
        return self._buckets[self._lead_to(volume, bucket)]

    def _set_quota(self, command: SetQuota) -> None:
        self._require_volume(command.volume)
        if not command.bucket:
            of_volume = [one for (volume, _), one in self._buckets.items() if volume == command.volume]
            self._volumes.set_of_volume(command, of_volume, self._names_in(command.volume))
            return
        volume, name = self._lead_to(command.volume, command.bucket)
        if (volume, name) != (command.volume, command.bucket):
            raise OperationRefusedError("NOT_SUPPORTED_OPERATION", f"{command.volume}/{command.bucket} is a link")
        others = [one for place, one in self._buckets.items() if place[0] == volume and place[1] != name]
        bucket = self._buckets[volume, name]
        self._volumes.set_of_bucket(command, volume, bucket, others, self._counted(bucket))

    def _existing(self, bucket: Bucket, *, with_parts: bool) -> Existing:
        """Return what the views of a bucket have, and its uploads. Parts that are given up count no more."""
        views = list(self._views(bucket))
        blocks = frozenset(_blocks(self.steps.parts(bucket) if with_parts else ()))
        blocks |= frozenset(_blocks(version for view in views for version in view.versions()))
        numbers = {(version.number, version.incarnation) for view in views for version in view.keys.values()}
        directories = {one for view in views for one in view.directory_ids}
        return Existing(blocks, frozenset(numbers | directories))

    def _counted(self, bucket: Bucket) -> tuple[int, int]:
        """Return the bytes and names that the quotas of a bucket count."""
        counted = self._existing(bucket, with_parts=True) | bucket.uncollected
        return bucket.disks * self._stored(counted.blocks), len(counted.names)

    def _check_room(self, bucket: Bucket, size_bytes: int, names: int) -> None:
        """Refuse bytes and names for which the quotas of a bucket have no room."""
        if bucket.quota_bytes == NO_LIMIT and bucket.quota_namespace == NO_LIMIT:
            return
        used_bytes, used_names = self._counted(bucket)
        for quota, used, more in (
            (bucket.quota_bytes, used_bytes, bucket.disks * size_bytes),
            (bucket.quota_namespace, used_names, names),
        ):
            if more > 0 and NO_LIMIT != quota < used + more:
                raise OperationRefusedError("QUOTA_EXCEEDED", f"{used} are used of {quota}, and {more} needed")

    # ---- keys and directories

    def _put(self, bucket: Bucket, number: int, put: PutKey) -> None:
        if number in self._versions:
            raise ValueError(f"operation number {number} was used by another put; number operations uniquely")
        parts = bucket.parts(put.key)
        live = bucket.find(parts)
        if isinstance(live, Directory):
            raise OperationRefusedError("NOT_A_FILE", put.key)
        bucket.require_directories(parts[:-1], code="NOT_A_FILE")
        self.steps.check_condition(put, live)
        self._check_room(bucket, whole_blocks(put.size_bytes), 1 + bucket.missing_directories(parts[:-1]))
        parent = bucket.make_directories(parts[:-1], code="NOT_A_FILE")
        version = Version(number, put.volume, put.bucket, put.key, put.tag, put.size_bytes, generation=number)
        older, is_versioned = bucket.replaced(number, put.key), bool(bucket.keeps_versions)
        parent.children[parts[-1]] = replace(version, older=older, is_versioned=is_versioned)
        self.steps.note_version(version)

    def _delete_keys(self, bucket: Bucket, number: int, operation: DeleteKeys) -> dict[str, object]:
        if not 1 <= len(operation.keys) <= MOST_KEYS_AT_ONCE:
            raise OperationRefusedError("INVALID_REQUEST", f"{len(operation.keys)} keys")
        left = []
        for key in operation.keys:
            try:
                self._change_key(bucket, number, DeleteKey(operation.volume, operation.bucket, key))
            except OperationRefusedError as refusal:
                left.append([key, refusal.code])
        return {"left": left} if left else {}

    def _change_key(self, bucket: Bucket, number: int, operation: DeleteKey | RenameKey) -> None:
        if isinstance(operation, RenameKey):
            _rename(bucket, number, operation.from_key, operation.to_key)
            return
        parts = bucket.parts(operation.key)
        entry = bucket.find(parts)
        if isinstance(entry, Directory) and entry.children:
            raise OperationRefusedError("DIRECTORY_NOT_EMPTY", operation.key)
        bucket.note_death(number, operation.key, is_overwritten=False)
        _remove(bucket, parts)

    def _change_directory(
        self, bucket: Bucket, number: int, operation: RenameDirectory | MakeDirectory | DeleteDirectory
    ) -> None:
        if not bucket.has_directories:
            raise OperationRefusedError("NOT_SUPPORTED_OPERATION", f"{bucket.layout} bucket")
        match operation:
            case RenameDirectory():
                _rename(bucket, number, operation.from_directory, operation.to_directory)
            case MakeDirectory():
                parts = bucket.parts(operation.directory)
                bucket.require_directories(parts, code="FILE_ALREADY_EXISTS")
                self._check_room(bucket, 0, bucket.missing_directories(parts))
                bucket.make_directories(parts, code="FILE_ALREADY_EXISTS")
            case DeleteDirectory():
                _remove(bucket, bucket.parts(operation.directory))

    def _change_snapshots(
        self, bucket: Bucket, number: int, operation: CreateSnapshot | DeleteSnapshot | RenameSnapshot
    ) -> None:
        match operation:
            case CreateSnapshot(snapshot=name, at_ms=at_ms):
                _check_new_snapshot_name(bucket, name)
                view = bucket.view()
                referenced_bytes = self._stored(_blocks(view.versions()))
                bucket.snapshots[name] = view
                bucket.creations[name] = Creation(number, at_ms, referenced_bytes)
            case DeleteSnapshot(snapshot=name):
                bucket.require_snapshot(name)
                bucket.forget_snapshot(name)
            case RenameSnapshot(from_snapshot=old, to_snapshot=new):
                _check_new_snapshot_name(bucket, new)
                bucket.require_snapshot(old)
                bucket.snapshots = {new if name == old else name: view for name, view in bucket.snapshots.items()}
                bucket.creations[new] = bucket.creations.pop(old)
                bucket.tags = {tag: new if name == old else name for tag, name in bucket.tags.items()}

    # ---- queries

    @property
    def versions(self) -> Mapping[int, Version]:
        """Every version ever put, by the number of its put and in that order."""
        return self._versions

    def active(self, volume: str, bucket: str) -> View:
        """Return the view of a bucket's active namespace."""
        return self._bucket(volume, bucket).view()

    def snapshots(self, volume: str, bucket: str) -> Mapping[str, View]:
        """Return the view of each live snapshot of a bucket, oldest first."""
        return self._bucket(volume, bucket).snapshots

    def _views(self, bucket: Bucket) -> Iterator[View]:
        yield bucket.view()
        yield from bucket.snapshots.values()

    def held_versions(self) -> frozenset[int]:
        """Return the numbers of all versions that an active namespace or a live snapshot lists."""
        return frozenset(
            version.number
            for bucket in self._buckets.values()
            for view in self._views(bucket)
            for version in view.versions()
        )

    def referenced_bytes(self, volume: str, bucket: str) -> dict[str, int]:
        """Return for each live snapshot the bytes of the blocks that it shows, as they were at its creation."""
        return {name: one.referenced_bytes for name, one in self._bucket(volume, bucket).creations.items()}

    def exclusive_bytes(self, volume: str, bucket: str) -> dict[str, int]:
        """Return for each live snapshot the bytes of the blocks that no other view shows."""
        of_bucket = self._bucket(volume, bucket)
        holders = Counter(block for view in self._views(of_bucket) for block in _blocks(view.versions()))
        return {
            name: self._stored(block for block in _blocks(view.versions()) if holders[block] == 1)
            for name, view in of_bucket.snapshots.items()
        }

    def _stored(self, blocks: Iterable[Block]) -> int:
        return sum(map(self.steps.length, blocks))

    def _held_blocks(self, bucket: Bucket) -> frozenset[Block]:
        """Return the blocks that a view of a bucket or a part of an upload shows."""
        shown = (version for view in self._views(bucket) for version in view.versions())
        return frozenset(_blocks(shown)) | frozenset(_blocks(self.steps.parts(bucket)))

    def stored_bytes(self, volume: str, bucket: str) -> int:
        """Return the bytes of all blocks of a bucket that are not freed, on a settled plane."""
        return self._stored(self._held_blocks(self._bucket(volume, bucket)))

    def used(self, volume: str, bucket: str) -> dict[str, int]:
        """Return the used figures of a bucket, on a settled plane."""
        of_bucket = self._bucket(volume, bucket)
        view, parts = of_bucket.view(), list(self.steps.parts(of_bucket))
        present = frozenset(_blocks([*view.versions(), *parts]))
        return {
            "used_bytes": of_bucket.disks * self._stored(present),
            "used_namespace": len(view.keys) + len(view.directories),
            "snapshot_used_bytes": of_bucket.disks * self._stored(self._held_blocks(of_bucket) - present),
        }

    def replicated(self, volume: str, bucket: str) -> dict[str, object]:
        """Return what the blocks that each snapshot references, and those that it alone shows, take on disks."""
        disks = self._bucket(volume, bucket).disks
        exclusive, referenced = self.exclusive_bytes(volume, bucket), self.referenced_bytes(volume, bucket)
        return {
            "replicated": {
                name: {"exclusive_bytes": disks * exclusive[name], "referenced_bytes": disks * referenced[name]}
                for name in referenced
            }
        }

    def reclaimed(self) -> list[str]:
        """Return the labels of all blocks that a settled plane has freed, in the order of their first writing."""
        held = frozenset[Block]().union(*map(self._held_blocks, self._buckets.values()))
        return self.steps.reclaimed(held)

    def observe_links(self) -> dict[str, object]:
        """Return what a client sees through each link, or the code of the refusal."""
        return {"/".join(link): self._observe_link(link) for link in sorted(self._links)}

    def _observe_link(self, link: Place) -> dict[str, object]:
        shown: dict[str, object] = {"link": "/".join(self._links[link])}
        try:
            bucket = self._bucket(*link)
        except OperationRefusedError as refusal:
            return {**shown, "error": refusal.code}
        sizes = {
            name: {path: version.size_bytes for path, version in view.keys.items()}
            for name, view in {"": bucket.view(), **bucket.snapshots}.items()
        }
        return {**shown, "listing": sizes.pop(""), "snapshots": sorted(sizes), "in_snapshots": sizes}

    def observe_steps(self, volume: str, bucket: str) -> dict[str, object]:
        """Return the open keys and uploads of a bucket as an observation shows them."""
        return self.steps.observe(self._bucket(volume, bucket))


def _blocks(versions: Iterable[Version]) -> Iterator[Block]:
    for version in versions:
        yield from version.blocks


def _check_new_snapshot_name(bucket: Bucket, name: str) -> None:
    if not is_valid_snapshot_name(name):
        raise OperationRefusedError("INVALID_SNAPSHOT_ERROR", repr(name))
    if name in bucket.snapshots:
        raise OperationRefusedError("FILE_ALREADY_EXISTS", name)


def _change_holds(bucket: Bucket, operation: TagSnapshot | UntagSnapshot | MoveConsumer) -> None:
    match operation:
        case TagSnapshot(snapshot=name, tag=tag):
            bucket.require_snapshot(name)
            if tag in bucket.tags:
                raise OperationRefusedError("FILE_ALREADY_EXISTS", tag)
            bucket.tags[tag] = name
        case UntagSnapshot(snapshot=name, tag=tag):
            if bucket.tags.get(tag) != name:
                raise OperationRefusedError("FILE_NOT_FOUND", tag)
            del bucket.tags[tag]
        case MoveConsumer(consumer=consumer, next_snapshot=None):
            if consumer not in bucket.consumers:
                raise OperationRefusedError("FILE_NOT_FOUND", consumer)
            del bucket.consumers[consumer]
        case MoveConsumer(consumer=consumer, next_snapshot=str(name)):
            bucket.require_snapshot(name)
            bucket.consumers[consumer] = bucket.creations[name].number


def _expire(bucket: Bucket, rules: ExpireSnapshots) -> list[str]:
    """Delete the snapshots that expire by these rules, oldest first, and return their names.

    The first snapshot that must stay ends the run. Only a tagged snapshot is skipped instead.
    """
    least, most = _or(rules.num_retained_min, 10), rules.num_retained_max or 0
    retained_ms, limit = _or(rules.time_retained_ms, 3_600_000), _or(rules.expire_limit, 50)
    if least < 1 or limit < 1 or 0 < most < least:
        raise OperationRefusedError("INVALID_REQUEST", str(rules))
    if rules.now_ms is None:
        raise TypeError("the model has no clock: say at which moment snapshots expire")
    chain, expired = list(bucket.snapshots), []
    unread = min(bucket.consumers.values(), default=None)
    for position, name in enumerate(chain[: max(0, len(chain) - least)][:limit]):
        if unread is not None and bucket.creations[name].number >= unread:
            break
        may_stay = not most or len(chain) - position <= most
        following_ms = bucket.creations[chain[position + 1]].at_ms
        if following_ms is None:
            raise TypeError("the model has no clock: say when each snapshot was taken")
        if may_stay and rules.now_ms - following_ms <= retained_ms:
            break
        if name not in bucket.tags.values():
            expired.append(name)
    for name in expired:
        bucket.forget_snapshot(name)
    return expired


def _or(given: int | None, otherwise: int) -> int:
    return otherwise if given is None else given


def _undelete(bucket: Bucket, number: int, path: str) -> None:
    """Restore the version that died last at a path.

    Refused if a snapshot holds the version and, since the death, a snapshot was created or the bucket was rolled back;
    also if a snapshot holds the version and the death was an overwrite.
    """
    living = {version.number for version in bucket.view().versions()}
    deaths = [death for death in bucket.deaths.get(path, []) if death.version.number not in living]
    if not deaths:
        raise OperationRefusedError("TOO_LATE", path)
    death = deaths[-1]
    is_snapshot_since = any(creations.number > death.number for creations in bucket.creations.values())
    blocks = set(death.version.blocks)
    is_held = any(not blocks.isdisjoint(one.blocks) for view in bucket.snapshots.values() for one in view.versions())
    if is_held and is_snapshot_since:
        raise OperationRefusedError("SNAPSHOT_IN_BETWEEN", path)
    may_object_be_live = death.is_overwritten or death.number < bucket.rolled_back
    if is_held and may_object_be_live:
        raise OperationRefusedError("HELD_BY_SNAPSHOT", path)
    parts = bucket.parts(path)
    found = bucket.find(parts)
    if isinstance(found, Directory):
        raise OperationRefusedError("NOT_A_FILE", path)
    if found is not None:
        raise OperationRefusedError("FILE_ALREADY_EXISTS" if bucket.has_directories else "KEY_ALREADY_EXISTS", path)
    is_new = is_snapshot_since or may_object_be_live
    version = replace(death.version, incarnation=number if is_new else death.version.incarnation, generation=number)
    version = replace(version, older=() if is_new else version.older)
    bucket.make_directories(parts[:-1], code="NOT_A_FILE").children[parts[-1]] = version
    bucket.deaths[path].remove(death)


def _change_versions(bucket: Bucket, number: int, operation: UndeleteKey | SetVersioning | DeleteVersion) -> None:
    match operation:
        case UndeleteKey(key=key):
            _undelete(bucket, number, key)
        case SetVersioning(is_enabled=is_enabled):
            bucket.keeps_versions = is_enabled
        case DeleteVersion():
            _delete_version(bucket, number, operation)


def _delete_version(bucket: Bucket, number: int, operation: DeleteVersion) -> None:
    """Delete the version with a label. In place of the current one the newest of the others becomes current."""
    parts = bucket.parts(operation.key)
    parent, live = bucket.directory_above(parts), bucket.find(parts)
    versions = [*live.older, live] if isinstance(live, Version) else []
    left = [one for one in versions if one.tag != operation.tag]
    if parent is None or len(left) == len(versions):
        raise OperationRefusedError("KEY_NOT_FOUND", operation.key)
    if not left:
        bucket.note_death(number, operation.key, is_overwritten=False)
        _remove(bucket, parts)
        return
    is_promoted = left[-1] is not versions[-1]
    current = replace(left[-1], generation=number) if is_promoted else left[-1]
    parent.children[parts[-1]] = replace(current, older=tuple(left[:-1]))


def _remove(bucket: Bucket, parts: list[str]) -> None:
    parent = bucket.directory_above(parts)
    if parent is None or parts[-1] not in parent.children:
        raise OperationRefusedError("KEY_NOT_FOUND", "/".join(parts))
    del parent.children[parts[-1]]


def _rename(bucket: Bucket, number: int, from_path: str, to_path: str) -> None:
    """Move a file or a directory. If the target is an existing directory, move into it."""
    from_parts, to_parts = bucket.parts(from_path), bucket.parts(to_path)
    entry = bucket.find(from_parts)
    if not bucket.has_directories and bucket.find(to_parts) is not None:
        raise OperationRefusedError("KEY_ALREADY_EXISTS", to_path)
    if entry is None:
        raise OperationRefusedError("KEY_NOT_FOUND", from_path)
    if isinstance(entry, Directory) and to_parts != from_parts and to_parts[: len(from_parts)] == from_parts:
        raise OperationRefusedError("KEY_RENAME_ERROR", f"{to_path} lies below {from_path}")
    target = bucket.find(to_parts)
    if target is entry and isinstance(entry, Version) and bucket.has_directories:
        return  # renaming a file to its own path does nothing
    if isinstance(target, Directory) and target is not entry:
        to_parts = [*to_parts, from_parts[-1]]
        target = bucket.find(to_parts)
    if target is not None:
        raise OperationRefusedError("KEY_ALREADY_EXISTS", "/".join(to_parts))
    parent = bucket.directory_above(to_parts)
    if parent is None:
        raise OperationRefusedError("KEY_RENAME_ERROR", f"the parent of {to_path} is not a directory")
    _remove(bucket, from_parts)
    parent.children[to_parts[-1]] = replace(entry, generation=number) if isinstance(entry, Version) else entry

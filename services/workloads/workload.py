"""The workload format: a client's operations on a plane, one JSON object per line.

A line's number, counted from 0, is the operation's number; errors, observations and versions refer to this number.
Times and durations are seconds in a line (``…_s``) and milliseconds in an operation.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import fields

from schemas.records import BucketLayout, Replication
from services.domain.errors import DeepcleanError

NO_LIMIT: Final = -1
"""A quota that limits nothing."""


class WorkloadError(DeepcleanError):
    """A line of a workload is not an operation; the message names the line and the correction."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"workload line {number} (counted from 0): {reason}")
        self.number = number
        self.reason = reason


class Operation(Struct, frozen=True):
    """An operation. A class's tag is the ``op`` of its lines; ``rename`` names the fields that a line calls otherwise.

    A field with a default may be absent from a line.
    """


class CreateVolume(Operation, frozen=True, tag="create_volume"):
    """Create a volume."""

    volume: str


class InBucket(Operation, frozen=True):
    """An operation on one bucket."""

    volume: str
    bucket: str


class CreateBucket(InBucket, frozen=True, tag="create_bucket"):
    """Create a bucket in a volume; with ``versioning`` one that keeps overwritten versions of keys.

    Without ``replication`` its blocks are kept as the plane's default says.
    """

    layout: BucketLayout
    versioning: bool = False
    replication: Replication | None = None

    @property
    def has_settings(self) -> bool:
        """Whether the bucket has settings that a plane gets by further commands."""
        return self.versioning or self.replication is not None


class SetVersioning(InBucket, frozen=True, tag="set_versioning", rename={"is_enabled": "enabled"}):
    """Keep versions that are overwritten from now on, or suspend this."""

    is_enabled: bool


class DeleteBucket(InBucket, frozen=True, tag="delete_bucket"):
    """Delete an empty bucket. Its name is free at once."""


class CreateLink(InBucket, frozen=True, tag="create_link"):
    """Create a bucket that is a link to another bucket. Operations on the link are those of the other bucket."""

    link_volume: str
    link_bucket: str


class SetQuota(
    Operation, frozen=True, tag="set_quota", rename={"quota_bytes": "bytes", "quota_namespace": "namespace"}
):
    """Set both quotas of a bucket, or of a volume if ``bucket`` is empty."""

    volume: str
    bucket: str = ""
    quota_bytes: int = NO_LIMIT
    quota_namespace: int = NO_LIMIT


class PutKey(InBucket, frozen=True, tag="put_key", rename={"size_bytes": "size"}):
    """Create or overwrite a key. ``tag`` is a label of this version, which listings return.

    With ``if_absent`` only if there is no such key; with ``if_generation`` only if the key still has the generation
    that the version with this tag got when it was written.
    """

    key: str
    size_bytes: int
    tag: str
    if_absent: bool = False
    if_generation: str = ""


class OpenKey(InBucket, frozen=True, tag="open_key", rename={"size_bytes": "size"}):
    """Open a key for writing, and write some bytes that nobody sees yet. ``handle`` names the open key from now on."""

    key: str
    size_bytes: int
    tag: str
    handle: str


class SyncKey(InBucket, frozen=True, tag="hsync", rename={"size_bytes": "size"}):
    """Write on until the open key has a size in all, and make that visible."""

    handle: str
    size_bytes: int


class CommitKey(InBucket, frozen=True, tag="commit_key", rename={"size_bytes": "size"}):
    """Write on until the open key has a size in all, make that visible, and close it."""

    handle: str
    size_bytes: int


class AbandonKey(InBucket, frozen=True, tag="abandon"):
    """Forget an open key without closing it: its client has gone away."""

    handle: str


class ExpireOpenKeys(Operation, frozen=True, tag="expire_open_keys"):
    """Close every open key that no client holds any more, in all buckets."""


class InitiateUpload(InBucket, frozen=True, tag="mpu_initiate"):
    """Begin an upload in parts. ``upload`` names it from now on."""

    key: str
    upload: str


class PutPart(InBucket, frozen=True, tag="mpu_part", rename={"part_number": "part", "size_bytes": "size"}):
    """Write a part of an upload, or replace the part of this number."""

    upload: str
    part_number: int
    size_bytes: int
    tag: str


class CompleteUpload(InBucket, frozen=True, tag="mpu_complete", rename={"part_numbers": "parts"}):
    """Join parts to the present version of the key. The other parts of the upload are dropped."""

    upload: str
    part_numbers: tuple[int, ...]
    tag: str


class AbortUpload(InBucket, frozen=True, tag="mpu_abort"):
    """End an upload, and drop its parts."""

    upload: str


class ExpireUploads(Operation, frozen=True, tag="expire_uploads"):
    """Abort every upload, in all buckets."""


class DeleteKey(InBucket, frozen=True, tag="delete_key"):
    """Delete a key."""

    key: str


class DeleteVersion(InBucket, frozen=True, tag="delete_version"):
    """Delete the version of a key that was written with ``tag``."""

    key: str
    tag: str


class DeleteKeys(InBucket, frozen=True, tag="delete_keys"):
    """Delete many keys with one command. A key that cannot be deleted does not stop the others."""

    keys: tuple[str, ...]


class UndeleteKey(InBucket, frozen=True, tag="undelete_key"):
    """Undelete the version that died last at a path, unless its row was claimed."""

    key: str


class RenameKey(InBucket, frozen=True, tag="rename_key", rename={"from_key": "from", "to_key": "to"}):
    """Rename a key."""

    from_key: str
    to_key: str


class RenameDirectory(InBucket, frozen=True, tag="rename_dir", rename={"from_directory": "from", "to_directory": "to"}):
    """Move a directory with all entries below it to another path."""

    from_directory: str
    to_directory: str


class MakeDirectory(InBucket, frozen=True, tag="mkdir", rename={"directory": "dir"}):
    """Create a directory and its missing parents."""

    directory: str


class DeleteDirectory(InBucket, frozen=True, tag="delete_dir", rename={"directory": "dir"}):
    """Delete a directory with all entries below it."""

    directory: str


class CreateSnapshot(InBucket, frozen=True, tag="create_snapshot", rename={"at_ms": "at_s"}):
    """Create a snapshot of a bucket. ``at_ms`` is the creation time for retention; None: the plane's clock."""

    snapshot: str
    at_ms: int | None = None


class DeleteSnapshot(InBucket, frozen=True, tag="delete_snapshot"):
    """Delete a snapshot of a bucket."""

    snapshot: str


class RenameSnapshot(
    InBucket, frozen=True, tag="rename_snapshot", rename={"from_snapshot": "from", "to_snapshot": "to"}
):
    """Rename a snapshot. Its place in the chain does not change."""

    from_snapshot: str
    to_snapshot: str


class TagSnapshot(InBucket, frozen=True, tag="tag"):
    """Protect a snapshot with a tag: a tagged snapshot does not expire and cannot be deleted."""

    snapshot: str
    tag: str


class UntagSnapshot(InBucket, frozen=True, tag="untag"):
    """Remove a tag from a snapshot."""

    snapshot: str
    tag: str


class MoveConsumer(InBucket, frozen=True, tag="consumer", rename={"next_snapshot": "next"}):
    """Set the snapshot that a consumer reads next; None removes the consumer."""

    consumer: str
    next_snapshot: str | None


class ExpireSnapshots(
    InBucket, frozen=True, tag="expire", rename={"time_retained_ms": "time_retained_s", "now_ms": "now_s"}
):
    """Expire snapshots by these rules at ``now_ms``. Missing rules take the defaults of a policy."""

    num_retained_min: int | None = None
    num_retained_max: int | None = None
    time_retained_ms: int | None = None
    expire_limit: int | None = None
    now_ms: int | None = None


class RollBack(InBucket, frozen=True, tag="rollback"):
    """Set the active namespace back to a snapshot. Newer snapshots are deleted."""

    snapshot: str


class WhatIf(InBucket, frozen=True, tag="what_if"):
    """Query the space that deleting these snapshots together would free."""

    snapshots: tuple[str, ...]


class Plan(InBucket, frozen=True, tag="plan"):
    """Query the smallest set of snapshots whose deletion frees at least ``free_bytes``."""

    free_bytes: int


class Explain(InBucket, frozen=True, tag="explain"):
    """Query the snapshots that hold the versions of a path, or of a snapshot. Exactly one of the two is given."""

    path: str = ""
    snapshot: str = ""


class Diff(InBucket, frozen=True, tag="diff", rename={"from_snapshot": "from", "to_snapshot": "to"}):
    """Query the difference of two states of a bucket. Each is a snapshot or ``active``, the active namespace."""

    from_snapshot: str
    to_snapshot: str


class Settle(Operation, frozen=True, tag="settle"):
    """Wait until the plane has no more work to do."""


class Observe(Operation, frozen=True, tag="observe"):
    """Write an observation of every bucket with this label."""

    label: str


_OPERATIONS: Final[tuple[type[Operation], ...]] = (
    CreateVolume,
    SetQuota,
    *InBucket.__subclasses__(),
    ExpireOpenKeys,
    ExpireUploads,
    Settle,
    Observe,
)
_CLASSES: Final = {str(one.__struct_config__.tag): one for one in _OPERATIONS}
_FIELDS: Final = {name: {field.encode_name: field for field in fields(one)} for name, one in _CLASSES.items()}
"""By op, the fields of a line by their names there."""
_ONE_OF: Final = {"explain": frozenset({"path", "snapshot"})}
"""Groups of fields. A line has exactly one field of its group."""
_NOT_BOTH: Final = frozenset({"if_absent", "if_generation"})
"""A line has at most one of these fields."""

BLOCK_BYTES: Final = 4_096
"""Size of a full block in a workload whose observations are wide."""
_WIDENING: Final = (
    *(CreateLink, SetQuota, SetVersioning),
    *(OpenKey, SyncKey, CommitKey, AbandonKey, ExpireOpenKeys),
    *(InitiateUpload, PutPart, CompleteUpload, AbortUpload, ExpireUploads),
)

_LAYOUTS: Final = {
    "OBS": BucketLayout.OBJECT_STORE,
    "FSO": BucketLayout.FILE_SYSTEM_OPTIMIZED,
    **{layout.value: layout for layout in BucketLayout},
}
LAYOUT_NAMES: Final = {
    BucketLayout.OBJECT_STORE: "OBS",
    BucketLayout.FILE_SYSTEM_OPTIMIZED: "FSO",
    BucketLayout.LEGACY: "LEGACY",
}
_REPLICATIONS: Final = {one.value: one for one in Replication}
_LARGEST_LONG: Final = 2**63 - 1
_COUNTS: Final = frozenset({"size", "part", "free_bytes", "num_retained_min", "num_retained_max", "expire_limit"})
_SECONDS: Final = frozenset({"at_s", "time_retained_s", "now_s"})
_LIMITS: Final = frozenset({"bytes", "namespace"})
_LISTS: Final = frozenset({"snapshots", "keys"})
_LISTS_OF_COUNTS: Final = frozenset({"parts"})
_FLAGS: Final = frozenset({"if_absent", "versioning", "enabled"})
_NULLABLE: Final = frozenset(
    {"next", "at_s", "num_retained_min", "num_retained_max", "time_retained_s", "expire_limit", "now_s"}
)
_MS_PER_SECOND: Final = 1_000
_MOST_SECONDS: Final = 2**50


def parse_line(line: str, number: int) -> Operation:
    """Return the operation of a line.

    Raises:
        WorkloadError: the line is not an operation.
    """
    try:
        given = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise WorkloadError(number, f"not JSON: {error}") from error
    if not isinstance(given, dict):
        raise WorkloadError(number, 'not a JSON object; write one operation as {"op": …} per line')
    name = given.pop("op", None)
    if not isinstance(name, str) or name not in _CLASSES:
        raise WorkloadError(number, f"unknown op {name!r}; known are {', '.join(_CLASSES)}")
    known, choices = _FIELDS[name], _ONE_OF.get(name, frozenset())
    missing = [field for field, info in known.items() if info.required and field not in given]
    if missing:
        raise WorkloadError(number, f"{name} lacks {', '.join(missing)}")
    if choices and len(choices & given.keys()) != 1:
        raise WorkloadError(number, f"{name} has exactly one of {', '.join(sorted(choices))}")
    if given.keys() >= _NOT_BOTH:
        raise WorkloadError(number, f"{name} has at most one of {', '.join(sorted(_NOT_BOTH))}")
    unknown = [field for field in given if field not in known]
    if unknown:
        raise WorkloadError(number, f"{name} has unknown fields {', '.join(map(repr, unknown))}; remove them")
    values = {info.name: _read_field(field, given[field], number) for field, info in known.items() if field in given}
    return _CLASSES[name](**values)


def _read_field(field: str, value: object, number: int) -> Any:
    if value is None and field in _NULLABLE:
        return None
    if field in _LIMITS:
        return NO_LIMIT if value in (None, NO_LIMIT) else _read_count(field, value, number)
    if field in _COUNTS:
        return _read_count(field, value, number)
    if field in _LISTS | _LISTS_OF_COUNTS:
        return _read_list(field, value, number)
    read = _read_seconds if field in _SECONDS else _read_flag if field in _FLAGS else _read_text
    return read(field, value, number)


def _read_flag(field: str, value: object, number: int) -> bool:
    if not isinstance(value, bool):
        raise WorkloadError(number, f"{field} must be true or false, not {value!r}")
    return value


def _read_list(field: str, value: object, number: int) -> tuple[Any, ...]:
    if not isinstance(value, list):
        what = "names" if field in _LISTS else "numbers"
        raise WorkloadError(number, f"{field} must be a list of {what}, not {value!r}")
    read = _read_text if field in _LISTS else _read_count
    return tuple(read(field.removesuffix("s"), one, number) for one in value)


def _read_count(field: str, value: object, number: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST_LONG:
        raise WorkloadError(number, f"{field} must be a whole number from 0 to 2^63 - 1, not {value!r}")
    return value


def _read_text(field: str, value: object, number: int) -> Any:
    if not isinstance(value, str):
        raise WorkloadError(number, f"{field} must be a string, not {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise WorkloadError(number, f"{field} holds half of a surrogate pair: not text") from error
    if field == "layout":
        if value not in _LAYOUTS:
            raise WorkloadError(number, f"unknown layout {value!r}; known are {', '.join(_LAYOUTS)}")
        return _LAYOUTS[value]
    if field == "replication":
        if value not in _REPLICATIONS:
            raise WorkloadError(number, f"unknown replication {value!r}; known are {', '.join(_REPLICATIONS)}")
        return _REPLICATIONS[value]
    return value


def _read_seconds(field: str, value: object, number: int) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _MOST_SECONDS:
        raise WorkloadError(number, f"{field} must be a number of seconds, 0 or more, not {value!r}")
    return round(value * _MS_PER_SECOND)


def read_operations(path: Path) -> Iterator[tuple[int, Operation]]:
    """Yield the operations of a file with their numbers. Blank lines are counted but yield nothing.

    Raises:
        WorkloadError: a line is not an operation.
    """
    with path.open("rb") as lines:
        for number, raw_line in enumerate(lines):
            if not raw_line.strip():
                continue
            try:
                line = raw_line.decode()
            except UnicodeDecodeError as error:
                raise WorkloadError(number, f"not UTF-8: {error}") from error
            yield number, parse_line(line, number)


def has_wide_observations(operations: Iterable[tuple[int, Operation]]) -> bool:
    """Return whether any operation writes a key in steps or on a condition, makes a link, or sets a quota, or any
    bucket keeps versions or has a replication of its own.

    Observations of such a workload also show what is being written, and the used figures of buckets; its keys have
    blocks of ``BLOCK_BYTES``.
    """
    return any(
        isinstance(operation, _WIDENING)
        or (isinstance(operation, CreateBucket) and operation.has_settings)
        or (isinstance(operation, PutKey) and (operation.if_absent or bool(operation.if_generation)))
        for _, operation in operations
    )


def has_replication(operations: Iterable[tuple[int, Operation]]) -> bool:
    """Return whether any bucket is created with a replication of its own."""
    return any(isinstance(operation, CreateBucket) and operation.replication is not None for _, operation in operations)


def has_quotas(operations: Iterable[tuple[int, Operation]]) -> bool:
    """Return whether any operation sets a quota of a bucket."""
    return any(isinstance(operation, SetQuota) and bool(operation.bucket) for _, operation in operations)


def volumes_of_one_shard(operations: Iterable[tuple[int, Operation]]) -> dict[str, str]:
    """Return for each volume that links lead from or to the first one of its group: links stay within a shard."""
    first: dict[str, str] = {}
    for _, operation in operations:
        if isinstance(operation, CreateLink):
            ends = [first.setdefault(volume, volume) for volume in (operation.volume, operation.link_volume)]
            first = {volume: ends[0] if one == ends[1] else one for volume, one in first.items()}
    return first


def to_json(operation: Operation) -> str:
    """Return the line of an operation, without the newline."""
    name = str(operation.__struct_config__.tag)
    shown: dict[str, object] = {"op": name}
    for field, info in _FIELDS[name].items():
        value = getattr(operation, info.name)
        if not info.required and value == info.default:
            continue
        if field in _SECONDS:
            value = value / _MS_PER_SECOND if value % _MS_PER_SECOND else value // _MS_PER_SECOND
        shown[field] = LAYOUT_NAMES[value] if isinstance(value, BucketLayout) else value
    return json.dumps(shown)

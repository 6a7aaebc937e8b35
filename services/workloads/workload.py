"""The workload format: a client's operations on a plane, one JSON object per line.

A line's number, counted from 0, is the operation's number; errors, observations and versions refer to this number.
Times and durations are seconds in a line (``…_s``) and milliseconds in an operation.
"""

import json
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Final

from schemas.records import BucketLayout
from services.domain.errors import DeepcleanError


class WorkloadError(DeepcleanError):
    """A line of a workload is not an operation; the message names the line and the correction."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"workload line {number} (counted from 0): {reason}")
        self.number = number
        self.reason = reason


@dataclass(frozen=True, slots=True)
class CreateVolume:
    """Create a volume."""

    volume: str


@dataclass(frozen=True, slots=True)
class CreateBucket:
    """Create a bucket in a volume."""

    volume: str
    bucket: str
    layout: BucketLayout


@dataclass(frozen=True, slots=True)
class DeleteBucket:
    """Delete an empty bucket. Its name is free at once."""

    volume: str
    bucket: str


@dataclass(frozen=True, slots=True)
class PutKey:
    """Create or overwrite a key. ``tag`` is a label of this version, which listings return."""

    volume: str
    bucket: str
    key: str
    size_bytes: int
    tag: str


@dataclass(frozen=True, slots=True)
class DeleteKey:
    """Delete a key."""

    volume: str
    bucket: str
    key: str


@dataclass(frozen=True, slots=True)
class DeleteKeys:
    """Delete many keys with one command. A key that cannot be deleted does not stop the others."""

    volume: str
    bucket: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UndeleteKey:
    """Undelete the version that died last at a path, unless its row was claimed."""

    volume: str
    bucket: str
    key: str


@dataclass(frozen=True, slots=True)
class RenameKey:
    """Rename a key."""

    volume: str
    bucket: str
    from_key: str
    to_key: str


@dataclass(frozen=True, slots=True)
class RenameDirectory:
    """Move a directory with all entries below it to another path."""

    volume: str
    bucket: str
    from_directory: str
    to_directory: str


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """Create a directory and its missing parents."""

    volume: str
    bucket: str
    directory: str


@dataclass(frozen=True, slots=True)
class DeleteDirectory:
    """Delete a directory with all entries below it."""

    volume: str
    bucket: str
    directory: str


@dataclass(frozen=True, slots=True)
class CreateSnapshot:
    """Create a snapshot of a bucket. ``at_ms`` is the creation time for retention; None: the plane's clock."""

    volume: str
    bucket: str
    snapshot: str
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteSnapshot:
    """Delete a snapshot of a bucket."""

    volume: str
    bucket: str
    snapshot: str


@dataclass(frozen=True, slots=True)
class RenameSnapshot:
    """Rename a snapshot. Its place in the chain does not change."""

    volume: str
    bucket: str
    from_snapshot: str
    to_snapshot: str


@dataclass(frozen=True, slots=True)
class TagSnapshot:
    """Protect a snapshot with a tag: a tagged snapshot does not expire and cannot be deleted."""

    volume: str
    bucket: str
    snapshot: str
    tag: str


@dataclass(frozen=True, slots=True)
class UntagSnapshot:
    """Remove a tag from a snapshot."""

    volume: str
    bucket: str
    snapshot: str
    tag: str


@dataclass(frozen=True, slots=True)
class MoveConsumer:
    """Set the snapshot that a consumer reads next; None removes the consumer."""

    volume: str
    bucket: str
    consumer: str
    next_snapshot: str | None


@dataclass(frozen=True, slots=True)
class ExpireSnapshots:
    """Expire snapshots by these rules at ``now_ms``. Missing rules take the defaults of a policy."""

    volume: str
    bucket: str
    num_retained_min: int | None = None
    num_retained_max: int | None = None
    time_retained_ms: int | None = None
    expire_limit: int | None = None
    now_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RollBack:
    """Set the active namespace back to a snapshot. Newer snapshots are deleted."""

    volume: str
    bucket: str
    snapshot: str


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Query the space that deleting these snapshots together would free."""

    volume: str
    bucket: str
    snapshots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """Query the smallest set of snapshots whose deletion frees at least ``free_bytes``."""

    volume: str
    bucket: str
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Explain:
    """Query the snapshots that hold the versions of a path, or of a snapshot. Exactly one of the two is given."""

    volume: str
    bucket: str
    path: str = ""
    snapshot: str = ""


@dataclass(frozen=True, slots=True)
class Diff:
    """Query the difference of two states of a bucket. Each is a snapshot or ``active``, the active namespace."""

    volume: str
    bucket: str
    from_snapshot: str
    to_snapshot: str


@dataclass(frozen=True, slots=True)
class Settle:
    """Wait until the plane has no more work to do."""


@dataclass(frozen=True, slots=True)
class Observe:
    """Write an observation of every bucket with this label."""

    label: str


Operation = (
    CreateVolume
    | CreateBucket
    | DeleteBucket
    | PutKey
    | DeleteKey
    | DeleteKeys
    | UndeleteKey
    | RenameKey
    | RenameDirectory
    | MakeDirectory
    | DeleteDirectory
    | CreateSnapshot
    | DeleteSnapshot
    | RenameSnapshot
    | TagSnapshot
    | UntagSnapshot
    | MoveConsumer
    | ExpireSnapshots
    | RollBack
    | WhatIf
    | Plan
    | Explain
    | Diff
    | Settle
    | Observe
)

_IN_BUCKET: Final = {"volume": "volume", "bucket": "bucket"}

# op → its class, and the attribute for each field of the JSON object. A field may be absent if the attribute has a
# default.
_SHAPES: Final[dict[str, tuple[type[Operation], dict[str, str]]]] = {
    "create_volume": (CreateVolume, {"volume": "volume"}),
    "create_bucket": (CreateBucket, {**_IN_BUCKET, "layout": "layout"}),
    "delete_bucket": (DeleteBucket, _IN_BUCKET),
    "put_key": (PutKey, {**_IN_BUCKET, "key": "key", "size": "size_bytes", "tag": "tag"}),
    "delete_key": (DeleteKey, {**_IN_BUCKET, "key": "key"}),
    "delete_keys": (DeleteKeys, {**_IN_BUCKET, "keys": "keys"}),
    "undelete_key": (UndeleteKey, {**_IN_BUCKET, "key": "key"}),
    "rename_key": (RenameKey, {**_IN_BUCKET, "from": "from_key", "to": "to_key"}),
    "rename_dir": (RenameDirectory, {**_IN_BUCKET, "from": "from_directory", "to": "to_directory"}),
    "mkdir": (MakeDirectory, {**_IN_BUCKET, "dir": "directory"}),
    "delete_dir": (DeleteDirectory, {**_IN_BUCKET, "dir": "directory"}),
    "create_snapshot": (CreateSnapshot, {**_IN_BUCKET, "snapshot": "snapshot", "at_s": "at_ms"}),
    "delete_snapshot": (DeleteSnapshot, {**_IN_BUCKET, "snapshot": "snapshot"}),
    "rename_snapshot": (RenameSnapshot, {**_IN_BUCKET, "from": "from_snapshot", "to": "to_snapshot"}),
    "tag": (TagSnapshot, {**_IN_BUCKET, "snapshot": "snapshot", "tag": "tag"}),
    "untag": (UntagSnapshot, {**_IN_BUCKET, "snapshot": "snapshot", "tag": "tag"}),
    "consumer": (MoveConsumer, {**_IN_BUCKET, "consumer": "consumer", "next": "next_snapshot"}),
    "expire": (
        ExpireSnapshots,
        {
            **_IN_BUCKET,
            "num_retained_min": "num_retained_min",
            "num_retained_max": "num_retained_max",
            "time_retained_s": "time_retained_ms",
            "expire_limit": "expire_limit",
            "now_s": "now_ms",
        },
    ),
    "rollback": (RollBack, {**_IN_BUCKET, "snapshot": "snapshot"}),
    "what_if": (WhatIf, {**_IN_BUCKET, "snapshots": "snapshots"}),
    "plan": (Plan, {**_IN_BUCKET, "free_bytes": "free_bytes"}),
    "explain": (Explain, {**_IN_BUCKET, "path": "path", "snapshot": "snapshot"}),
    "diff": (Diff, {**_IN_BUCKET, "from": "from_snapshot", "to": "to_snapshot"}),
    "settle": (Settle, {}),
    "observe": (Observe, {"label": "label"}),
}
_ONE_OF: Final = {"explain": frozenset({"path", "snapshot"})}
"""Groups of fields. A line has exactly one field of its group."""
_NAMES: Final = {shape[0]: name for name, shape in _SHAPES.items()}

_LAYOUTS: Final = {
    "OBS": BucketLayout.OBJECT_STORE,
    "FSO": BucketLayout.FILE_SYSTEM_OPTIMIZED,
    **{layout.value: layout for layout in BucketLayout},
}
_LAYOUT_NAMES: Final = {
    BucketLayout.OBJECT_STORE: "OBS",
    BucketLayout.FILE_SYSTEM_OPTIMIZED: "FSO",
    BucketLayout.LEGACY: "LEGACY",
}
_LARGEST_LONG: Final = 2**63 - 1
_COUNTS: Final = frozenset({"size", "free_bytes", "num_retained_min", "num_retained_max", "expire_limit"})
_SECONDS: Final = frozenset({"at_s", "time_retained_s", "now_s"})
_LISTS: Final = frozenset({"snapshots", "keys"})
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
    if not isinstance(name, str) or name not in _SHAPES:
        raise WorkloadError(number, f"unknown op {name!r}; known are {', '.join(_SHAPES)}")
    operation_type, attributes = _SHAPES[name]
    choices = _ONE_OF.get(name, frozenset())
    missing = [
        field
        for field in attributes
        if field not in given and field not in choices and not _may_be_left_out(operation_type, attributes[field])
    ]
    if missing:
        raise WorkloadError(number, f"{name} lacks {', '.join(missing)}")
    if choices and len(choices & given.keys()) != 1:
        raise WorkloadError(number, f"{name} has exactly one of {', '.join(sorted(choices))}")
    unknown = [field for field in given if field not in attributes]
    if unknown:
        raise WorkloadError(number, f"{name} has unknown fields {', '.join(map(repr, unknown))}; remove them")
    values = {
        attribute: _read_field(field, given[field], number) for field, attribute in attributes.items() if field in given
    }
    return operation_type(**values)


def _may_be_left_out(operation_type: type[Operation], attribute: str) -> bool:
    return any(field.name == attribute and field.default is not MISSING for field in fields(operation_type))


def _read_field(field: str, value: object, number: int) -> Any:
    if value is None and field in _NULLABLE:
        return None
    if field in _COUNTS:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST_LONG:
            raise WorkloadError(number, f"{field} must be a whole number from 0 to 2^63 - 1, not {value!r}")
        return value
    if field in _SECONDS:
        return _read_seconds(field, value, number)
    if field in _LISTS:
        if not isinstance(value, list):
            raise WorkloadError(number, f"{field} must be a list of names, not {value!r}")
        return tuple(_read_text(field.removesuffix("s"), name, number) for name in value)
    return _read_text(field, value, number)


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


def to_json(operation: Operation) -> str:
    """Return the line of an operation, without the newline."""
    name = _NAMES[type(operation)]
    shown: dict[str, object] = {"op": name}
    for field, attribute in _SHAPES[name][1].items():
        value = getattr(operation, attribute)
        if value == "" and field in _ONE_OF.get(name, frozenset()):
            continue
        if value is None and _may_be_left_out(type(operation), attribute):
            continue
        if field in _SECONDS:
            value = value / _MS_PER_SECOND if value % _MS_PER_SECOND else value // _MS_PER_SECOND
        shown[field] = _LAYOUT_NAMES[value] if isinstance(value, BucketLayout) else value
    return json.dumps(shown)

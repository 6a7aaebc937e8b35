"""Errors that the client library raises: a small tree, whose classes say what a caller can do about a refusal.

A refusal is made as ``PlaneError(code, message)`` and is of the class that ``CODES`` gives to its code, as ``OSError``
becomes ``FileNotFoundError`` by its errno. So whoever raises one names the code alone, and cannot choose a wrong class.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Self

from services.domain.errors import DeepcleanError


class PlaneError(DeepcleanError):
    """The plane refused a command or a read, and nothing was changed; ``code`` is Ozone's error code.

    A refusal is of one of the classes below this one. Of this class itself are refusals with a code that this version
    of the library does not know.
    """

    code: str
    message: str

    def __new__(cls, code: str, *_: Any, **__: Any) -> Self:
        """Make an error of the class of its code."""
        chosen = class_of(code) if cls is PlaneError else cls
        return super().__new__(chosen)  # type: ignore[return-value]  # a class below this one

    def __init__(self, code: str, message: str, next_snapshot: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.next_snapshot = next_snapshot
        """For an expired snapshot the one from which the client can resume: a name if the client asked by name, an id
        if it asked by id. Empty for other refusals, and when there is no later snapshot."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what the constructor takes: errors cross processes in programs that read in parallel."""
        return type(self), (self.code, self.message, self.next_snapshot)


class NotFoundError(PlaneError):
    """The named object does not exist: a volume, bucket, key, snapshot, tag, policy, upload, tenant or token."""


class SnapshotExpiredError(NotFoundError):
    """The snapshot existed, and has expired or was deleted; ``next_snapshot`` names the one to continue with."""


class AlreadyExistsError(PlaneError):
    """An object of this name exists already."""


class NotEmptyError(PlaneError):
    """The object still contains, or is still used by, others: delete these first."""


class BusyError(PlaneError):
    """Something else is under way. The same request may succeed later, unchanged."""


class ConflictError(PlaneError):
    """The object is not in a state that allows the command; repeating it does not help."""


class CannotUndeleteError(ConflictError):
    """The deleted object cannot be brought back in this way; the message says whether it can be in another one."""


class ProtectedError(ConflictError):
    """A tag protects the snapshot from deletion: delete the tag first."""


class QuotaError(PlaneError):
    """A quota leaves no room, or cannot be set. Deleted data counts until it is freed."""


class LimitError(PlaneError):
    """A limit of the plane or of the shard is reached."""


class NotAllowedError(PlaneError):
    """The client has no right to this, or its signature or token is missing, wrong or expired."""


class InvalidRequestError(PlaneError):
    """A name or a value breaks a rule: change the request. The message names the rule."""


class NotSupportedError(InvalidRequestError):
    """The operation does not exist here: on this bucket layout, on a link, without datanodes, or it is off."""


class MissingBytesError(PlaneError):
    """The bytes of a block cannot be read from any datanode, or not be written to enough of them."""


class PlaneFailureError(PlaneError):
    """The plane itself has a problem; the message says what an operator has to do."""


class PlaneTimeoutError(DeepcleanError):
    """No answer arrived in time: the plane is down or far behind (see ``deepclean status``)."""


class UnreachableError(DeepcleanError):
    """A service or the broker does not answer, or another program answers in its place."""


class AnswerExpiredError(DeepcleanError):
    """An answer was already fetched, or was not fetched in time."""


class NotDeliveredError(UnreachableError):
    """The broker did not confirm one request. Other requests of the client are not affected.

    ``may_be_applied``: whether the plane may have received the request nevertheless.
    """

    def __init__(self, message: str, *, may_be_applied: bool) -> None:
        super().__init__(message)
        self.may_be_applied = may_be_applied

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what the constructor takes, as a refusal does."""
        return partial(type(self), may_be_applied=self.may_be_applied), self.args


_BY_CLASS: Mapping[type[PlaneError], tuple[str, ...]] = {
    NotFoundError: (
        *("VOLUME_NOT_FOUND", "BUCKET_NOT_FOUND", "KEY_NOT_FOUND", "FILE_NOT_FOUND", "DIRECTORY_NOT_FOUND"),
        *("PREFIX_NOT_FOUND", "RETENTION_NOT_FOUND", "DEAD_LETTER_NOT_FOUND", "NO_SUCH_MULTIPART_UPLOAD_ERROR"),
        *("TENANT_NOT_FOUND", "ACCESS_ID_NOT_FOUND", "S3_SECRET_NOT_FOUND", "DIFF_NOT_FOUND"),
    ),
    SnapshotExpiredError: ("SNAPSHOT_EXPIRED",),
    AlreadyExistsError: (
        *("VOLUME_ALREADY_EXISTS", "BUCKET_ALREADY_EXISTS", "KEY_ALREADY_EXISTS", "FILE_ALREADY_EXISTS"),
        *("TENANT_ALREADY_EXISTS", "TENANT_USER_ACCESS_ID_ALREADY_EXISTS", "COPY_EXISTS"),
    ),
    NotEmptyError: (
        *("VOLUME_NOT_EMPTY", "BUCKET_NOT_EMPTY", "DIRECTORY_NOT_EMPTY", "TENANT_NOT_EMPTY", "CONTAINS_SNAPSHOT"),
        "VOLUME_IS_REFERENCED",
    ),
    BusyError: (
        *("BUCKET_BUSY", "SEARCH_IN_PROGRESS", "NOT_YET_APPLIED", "AUDITS_RUNNING", "TOO_MANY_COPIES"),
        *("DIFF_NOT_DONE", "SNAPSHOT_DIFF_REJECTED"),
    ),
    ConflictError: (
        *("KEY_ALREADY_CLOSED", "KEY_UNDER_LEASE_RECOVERY", "DEAD_LETTER_RESOLVED", "OLD_REQUEST"),
        *("SNAPSHOT_DIFF_CANCELLED",),
    ),
    CannotUndeleteError: ("TOO_LATE", "DIRECTORY_EXPANDED", "SNAPSHOT_IN_BETWEEN", "HELD_BY_SNAPSHOT"),
    ProtectedError: ("TAGGED_SNAPSHOT",),
    QuotaError: ("QUOTA_EXCEEDED", "QUOTA_ERROR"),
    LimitError: ("TOO_MANY_SNAPSHOTS", "LIMIT_EXCEEDED", "SHARD_FULL"),
    NotAllowedError: ("PERMISSION_DENIED", "UNAUTHORIZED", "INVALID_TOKEN", "TOKEN_EXPIRED", "INVALID_AUTH_METHOD"),
    InvalidRequestError: (
        *("INVALID_VOLUME_NAME", "INVALID_BUCKET_NAME", "INVALID_KEY_NAME", "INVALID_PATH", "INVALID_SNAPSHOT_ERROR"),
        *("INVALID_REQUEST", "INVALID_PART", "INVALID_PART_ORDER", "INVALID_TENANT_ID", "NOT_A_FILE"),
        *("KEY_RENAME_ERROR", "DETECTED_LOOP_IN_BUCKET_LINKS", "WRONG_SHARD"),
    ),
    NotSupportedError: ("NOT_SUPPORTED_OPERATION", "FEATURE_NOT_ENABLED"),
    MissingBytesError: (
        *("NO_SUCH_BLOCK", "NO_REPLICA_FOUND", "CHECKSUM_MISMATCH", "BLOCK_DELETED", "CLOSED_CONTAINER_IO"),
        *("CONTAINER_NOT_FOUND", "DISK_OUT_OF_SPACE", "UNAVAILABLE"),
    ),
    PlaneFailureError: ("INTERNAL_ERROR", "SNAPSHOT_DIFF_FAILED"),
}
CODES: Mapping[str, type[PlaneError]] = {code: cls for cls, codes in _BY_CLASS.items() for code in codes}
"""The class of each code."""
_BY_FORM: tuple[tuple[str, type[PlaneError]], ...] = (
    ("_NOT_FOUND", NotFoundError),
    ("_ALREADY_EXISTS", AlreadyExistsError),
    ("_NOT_EMPTY", NotEmptyError),
)
"""Classes of codes that only a newer plane has, by their ends."""


def class_of(code: str) -> type[PlaneError]:
    """Return the class of errors with a code; ``PlaneError`` for one that says nothing to this version."""
    if code in CODES:
        return CODES[code]
    if code.startswith("INVALID_"):
        return InvalidRequestError
    return next((cls for end, cls in _BY_FORM if code.endswith(end)), PlaneError)

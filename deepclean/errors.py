"""The errors of the library, as one tree below ``DeepcleanError``.

A refusal of the plane is a ``PlaneError`` of one of the classes below it; it has the plane's ``code`` and ``message``,
and nothing was changed. The other errors say that the plane could not be asked, or that its answer is not known.
"""

from __future__ import annotations

from deepclean.bulk_errors import BulkWriteError, KeyFailure
from services.client.errors import (
    AlreadyExistsError,
    AnswerExpiredError,
    BusyError,
    CannotUndeleteError,
    ConflictError,
    InvalidRequestError,
    LimitError,
    MissingBytesError,
    NotAllowedError,
    NotDeliveredError,
    NotEmptyError,
    NotFoundError,
    NotSupportedError,
    PlaneError,
    PlaneFailureError,
    PlaneTimeoutError,
    ProtectedError,
    QuotaError,
    SnapshotExpiredError,
    UnreachableError,
)
from services.domain.errors import DeepcleanError

__all__ = [
    "AlreadyExistsError",
    "AnswerExpiredError",
    "BulkWriteError",
    "BusyError",
    "CannotUndeleteError",
    "ConflictError",
    "DeepcleanError",
    "InvalidRequestError",
    "KeyFailure",
    "LimitError",
    "MissingBytesError",
    "NotAllowedError",
    "NotDeliveredError",
    "NotEmptyError",
    "NotFoundError",
    "NotSupportedError",
    "PlaneError",
    "PlaneFailureError",
    "PlaneTimeoutError",
    "ProtectedError",
    "QuotaError",
    "SnapshotExpiredError",
    "UnreachableError",
]

"""What a bulk write tells of the keys that it did not write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.client.errors import NotDeliveredError, PlaneError
from services.domain.errors import DeepcleanError


@dataclass(frozen=True, slots=True)
class KeyFailure:
    """A key that a bulk write has not written, or not certainly."""

    key: str
    """Its path."""
    is_delete: bool
    """Whether it was to be deleted; otherwise it was to be put."""
    error: DeepcleanError
    """A ``PlaneError`` is a refusal, other errors say that no answer came, or that nothing was sent."""

    @property
    def is_refused(self) -> bool:
        """Whether the plane has refused the command, so that nothing was changed."""
        return isinstance(self.error, PlaneError)

    @property
    def may_be_written(self) -> bool:
        """Whether the command may be applied nevertheless: read the key before you send it again."""
        is_not_sent = isinstance(self.error, NotDeliveredError) and not self.error.may_be_applied
        return not self.is_refused and not is_not_sent


class BulkWriteError(DeepcleanError):
    """A bulk write has ended, and some keys were not written.

    Every key that was passed to the writer before the writer ended is written, unless it is in ``failures``. For a key
    in ``failures``, ``may_be_written`` says whether it may be written nevertheless. If the writer ended early, at the
    limit of failures or because the plane does not answer, ``failures`` also has the keys that were not sent yet.
    """

    def __init__(self, failures: Sequence[KeyFailure], written: int) -> None:
        first = failures[0]
        others = f" (and {len(failures) - 1:,} more)" if len(failures) > 1 else ""
        what = "deleted" if first.is_delete else "put"
        super().__init__(f"{first.key} was not {what}: {first.error}{others}; {written:,} were written")
        self.failures = tuple(failures)
        self.written = written
        """Number of keys that were put or deleted."""

    def __reduce__(self) -> tuple[type[BulkWriteError], tuple[tuple[KeyFailure, ...], int]]:
        return type(self), (self.failures, self.written)

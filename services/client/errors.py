"""Errors that a user of the client meets."""

from __future__ import annotations

from services.domain.errors import DeepcleanError


class PlaneError(DeepcleanError):
    """The plane has refused something; ``code`` is Ozone's.

    Of a snapshot that has gone (SNAPSHOT_EXPIRED) ``next_snapshot`` says where its reader can go on: by name if it
    asked by name, by id if it asked by id, empty when there is no later one.
    """

    def __init__(self, code: str, message: str, next_snapshot: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.next_snapshot = next_snapshot


class PlaneTimeoutError(DeepcleanError):
    """No answer has come in time: the plane is down, or very far behind (``deepclean status`` tells)."""


class UnreachableError(DeepcleanError):
    """A service or the broker does not answer, or what answers is something else."""


class AnswerExpiredError(DeepcleanError):
    """An answer was fetched before, or left lying for too long."""


class NotDeliveredError(UnreachableError):
    """The broker did not confirm one request. It fails alone: the client goes on.

    ``may_be_applied`` says whether the plane may have it all the same.
    """

    def __init__(self, message: str, *, may_be_applied: bool) -> None:
        super().__init__(message)
        self.may_be_applied = may_be_applied

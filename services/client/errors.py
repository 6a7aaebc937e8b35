"""Errors that the client library raises."""

from __future__ import annotations

from services.domain.errors import DeepcleanError


class PlaneError(DeepcleanError):
    """The plane refused a command or a read; ``code`` is Ozone's error code.

    For an expired snapshot (SNAPSHOT_EXPIRED) ``next_snapshot`` is the snapshot from which the client can resume: a
    name if the client asked by name, an id if it asked by id, empty when there is no later snapshot.
    """

    def __init__(self, code: str, message: str, next_snapshot: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.next_snapshot = next_snapshot


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

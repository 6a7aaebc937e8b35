"""Errors that a user of the client meets."""

from __future__ import annotations

from services.runtime.errors import DeepcleanError


class PlaneError(DeepcleanError):
    """The plane has refused something; ``code`` is Ozone's."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class PlaneTimeoutError(DeepcleanError):
    """No answer has come in time: the plane is down, or very far behind (``deepclean status`` tells)."""


class UnreachableError(DeepcleanError):
    """A service or the broker does not answer, or what answers is something else."""

"""How a command of the log ends that does nothing: refused, or a dead letter."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


class RefusedError(Exception):
    """The command does nothing and gets no txn."""


class DeadLetteredError(Exception):
    """The message is a dead letter."""


def require(is_so: bool) -> None:
    """Refuse the command unless the condition holds."""
    if not is_so:
        raise RefusedError


def required(found: T | None) -> T:
    """Return what a command needs. Refuse the command if it is missing."""
    if found is None:
        raise RefusedError
    return found

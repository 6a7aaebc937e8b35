"""Errors, sorted by what happens next: try again, put the message aside, or stop."""

from __future__ import annotations


class DeepcleanError(Exception):
    """Base of every error that is raised on purpose."""


class RetryableError(DeepcleanError):
    """The same input may succeed soon: the loop waits and tries again."""


class InvalidMessageError(DeepcleanError):
    """The same input will never succeed: it goes to the dead letters, and its blocks are kept."""


class InvariantError(DeepcleanError):
    """Our own state is wrong: the process stops, since going on could free live blocks."""


class StoreError(InvariantError):
    """The database cannot be read or written: nothing is applied until a person has mended the disk under it."""


class PositionError(InvariantError):
    """A stored position does not fit the topic: something was lost or made anew, and a person has to say which."""


class ChainBrokenError(InvariantError):
    """A marker of the snapshot chain is missing or cannot be read: nothing may be judged."""

    def __init__(self, shard: int, reason: str) -> None:
        super().__init__(
            f"shard {shard}: the snapshot chain cannot be followed ({reason}); nothing is judged until "
            f"gc.snapshot-chain is whole again: look at dead-letters, then restart this service"
        )

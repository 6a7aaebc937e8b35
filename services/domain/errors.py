"""Errors of services and Spark jobs, sorted by the reaction: retry, dead-letter the message, or stop the process."""

from __future__ import annotations


class DeepcleanError(Exception):
    """Base of every error that is raised on purpose."""


class RetryableError(DeepcleanError):
    """The same input may succeed soon: a service retries, a Spark job exits to be started again, a command says so.

    The message tells what happened, and not that it is tried again, because that is up to who catches it.
    """


class StartAgainError(RetryableError):
    """Only a new start of the shard may succeed: it is not known what its last messages have become."""


class PrematureError(DeepcleanError):
    """A deleted entry was sent at a chain version that the judging view has not reached yet."""


class InvalidMessageError(DeepcleanError):
    """The same input will never succeed: it is dead-lettered, and its blocks are kept."""


class HalfAppliedError(DeepcleanError):
    """A message failed when a part of it was applied: only with its whole unit of work can that be undone."""


class InvariantError(DeepcleanError):
    """The service's own state is wrong: the process stops, because continuing could free live blocks."""


class FencedError(InvariantError):
    """Another process publishes for this shard since: this one can publish nothing more, and has to end."""


class TopicMissingError(InvariantError):
    """A broker does not know a topic or a partition; shortly after it was created, others may."""


class PositionError(InvariantError):
    """A topic is missing or recreated, or ends before the stored position: an operator has to decide what to do."""


class OutdatedError(PositionError):
    """The log does not reach back to a database, or has given up a unit of work of it: a later backup is needed."""


class ChainBrokenError(InvariantError):
    """A marker of the snapshot chain is missing or cannot be read: nothing may be judged."""

    def __init__(self, shard: int, reason: str) -> None:
        super().__init__(
            f"shard {shard}: the snapshot chain cannot be followed ({reason}); nothing is judged until "
            f"gc.snapshot-chain is whole again: restore the topic from a copy, then start this service again"
        )


TROUBLE_OF_THE_MACHINE = (InvariantError, RetryableError, OSError, MemoryError)
"""Errors that the message does not cause: the same message may be applied later or on another machine, so it is never
dead-lettered."""

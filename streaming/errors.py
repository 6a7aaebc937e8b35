"""Errors of the Spark jobs, sorted by what happens next: stop for a person, or start again.

This package may not import the services' runtime, so these stand beside its errors: ``StopError`` is for whoever
runs a job what ``InvariantError`` is for the loop, ``TryAgainError`` what ``RetryableError`` is.
"""

from __future__ import annotations


class StreamingError(Exception):
    """Base of every error that a job raises on purpose; the message is one sentence for a person."""


class StopError(StreamingError):
    """Going on could free live blocks, or can never work: a person has to look."""


class TryAgainError(StreamingError):
    """Nothing was lost; started again, the job does the same batch once more."""


class TopicError(StopError):
    """A topic is missing, is not the one that the checkpoint has read, or has lost what was read."""


class PrematureError(TryAgainError):
    """An entry knows of more chain than the view that should judge it."""

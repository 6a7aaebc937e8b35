"""The steps of a task."""

from __future__ import annotations

from enum import StrEnum


class TaskState(StrEnum):
    """The step of a task. Each step is described by the event that ends it."""

    CLAIMING = "CLAIMING"
    """metadata's answer to its claim."""
    DELETING = "DELETING"
    """SCM's answer to its deletion."""
    FAILED = "FAILED"
    """The end of its back-off, after SCM failed its groups."""
    FINISHING = "FINISHING"
    """metadata's answer that the rows are removed."""

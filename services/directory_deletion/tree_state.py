"""The steps of a deleted directory."""

from __future__ import annotations

from enum import StrEnum


class TreeState(StrEnum):
    """The step of a deleted directory. Each step is described by the event that ends it."""

    WAITING = "WAITING"
    """Room to be expanded."""
    EXPANDING = "EXPANDING"
    """metadata's answer to a page of its expansion."""
    EXPANDED = "EXPANDED"
    """The chain version that its verdict needs, and room for the removal of its row."""
    REMOVING = "REMOVING"
    """metadata's answer to the removal of its row."""
    BLOCKED = "BLOCKED"
    """The removal of a child's row."""
    SUSPENDED = "SUSPENDED"
    """A change of the collection state that metadata knows and this service does not; or a retry after a pause."""

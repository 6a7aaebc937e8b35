"""The steps of a deleted directory."""

from __future__ import annotations

from enum import StrEnum


class TreeState(StrEnum):
    """What a deleted directory waits for."""

    WAITING = "WAITING"
    """Room to be expanded."""
    EXPANDING = "EXPANDING"
    """metadata's answer to a page of its expansion."""
    EXPANDED = "EXPANDED"
    """The chain version that its verdict needs, and room to be purged."""
    REMOVING = "REMOVING"
    """metadata's answer to the purge of its row."""
    BLOCKED = "BLOCKED"
    """The end of a child's row."""
    SUSPENDED = "SUSPENDED"
    """The collector, of which metadata knows more than is known here; it is asked again after a pause."""

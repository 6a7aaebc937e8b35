"""Rows that directory_deletion keeps."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TreeRow:
    """treeTable: a deleted directory in progress."""

    bucket_id: int
    """objectID of the bucket."""
    object_id: int
    """objectID of the directory."""
    birth: int
    """txn that made it."""
    death: int
    """txn that deleted it."""
    snapshots_before_death: int
    """The index into the chain view."""
    chain_version: int
    """Chain version that the verdict needs."""
    is_reclaimable: bool
    """The verdict."""
    state: str
    """WAITING (for room), EXPANDING, EXPANDED, REMOVING or BLOCKED (by a child row)."""
    attempt: int
    """Tries of the present step, from 1."""
    due_ms: int
    """When to try again unless an answer comes; 0 until the end of the unit of work sets it, 1 when it need not
    wait.
    """

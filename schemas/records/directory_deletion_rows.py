"""Rows in the tables of directory_deletion."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from schemas.frozen import record


@record
class TreeRow:
    """treeTable: a deleted directory in progress."""

    bucket_id: int
    """objectID of the bucket."""
    object_id: int
    """objectID of the directory."""
    birth: int
    """txn that created the directory."""
    death: int
    """txn that deleted the directory."""
    snapshots_before_death: int
    """Number of snapshots that the bucket had ever had at the death: the index into the chain view."""
    chain_version: int
    """Chain version that the verdict needs."""
    is_reclaimable: bool
    """The verdict."""
    state: str
    """WAITING (for the undo window or for room), EXPANDING, EXPANDED, REMOVING, BLOCKED (by a child row) or
    SUSPENDED (by the collection state that metadata knows).
    """
    attempt: int
    """Number of the try of the present step, from 1."""
    due_ms: int
    """Time of the next try if no answer arrives before; 0 until the end of the unit of work sets it; 1: at once."""

"""Rows that key_deletion keeps."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from dataclasses import dataclass

from schemas.records.chain import SnapshotChainRecord
from schemas.records.deletions import SweptParts
from schemas.records.progress import BucketCollection
from schemas.records.shared import BlockGroups, RowNames


@dataclass(frozen=True, slots=True)
class ChainRow:
    """chainTable: a marker of the chain, or the result of a part of it."""

    record: SnapshotChainRecord
    """The marker."""


@dataclass(frozen=True, slots=True)
class GarbageRangeRow:
    """garbageRangeTable: the garbage range of one live snapshot. It is clean when sweepTable has no sweep of it."""

    snapshot_id: str
    """Id of the snapshot."""
    bucket_id: int
    """objectID of the bucket."""
    reset_version: int
    """Chain version of the last change that concerns this range: the version that its flags are valid for."""
    attempt: int
    """Sweeps that have found something since the last change."""


@dataclass(frozen=True, slots=True)
class KnownCollectionsRow:
    """collectionTable of the services that follow metadata: the collection states that they know."""

    states: tuple[BucketCollection, ...]
    """Each bucket for which it does not simply run."""
    heard_txn: int
    """txn of the newest change received; an older one is a repeat."""
    complete_txn: int
    """Up to which txn no change was missed."""


@dataclass(frozen=True, slots=True)
class OpenSweepPage:
    """A page of a sweep of which not every row was judged yet."""

    page: int
    """Its number, from 1."""
    start_table: int
    """Where it starts: the sweep goes back to here when no answer comes."""
    start_key: bytes
    """First key of it in that table."""
    sent_txn: int
    """txn at which it was sent; 0 until metadata has answered, which only the newest page may wait for."""
    sent_rows: int
    """Rows that went out in it; 0 until metadata has answered."""
    judged: SweptParts
    """The messages of it that were judged, each once."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """taskTable: a batch of rows in progress."""

    state: str
    """CLAIMING, DELETING, FAILED (in back-off) or FINISHING."""
    attempt: int
    """Tries of the present step, from 1."""
    due_ms: int
    """When to try again unless an answer comes; 0 until the end of the unit of work sets it, 1 when it need not
    wait.
    """
    chain_version: int
    """Chain version with which it was judged."""
    rows: tuple[RowNames, ...]
    """The rows, while claiming and finishing."""
    groups: BlockGroups
    """The groups, while deleting."""
    first_judge_version: int = 0
    """The oldest chain version with which streaming judged any of them; 0 when it is not known."""


@dataclass(frozen=True, slots=True)
class WaitingPurge:
    """waitingTable: a purge request that this judge may not yet decide, or has no room for."""

    chain_version: int
    """Chain version that it needs."""
    rows: RowNames
    """The rows."""
    snapshots_before_death: tuple[int, ...]
    """For each row the index into the chain view."""
    due_ms: int = 0
    """When the undo window of its rows ends; 0 when that is not set, or they need not wait."""
    is_sweep: bool = False
    """Sent again by a sweep: it waits in a queue of its own."""


@dataclass(frozen=True, slots=True)
class SweepRow:
    """sweepTable: a sweep, queued or in progress."""

    sweep_id: int
    """Its number; 0 while it is queued."""
    snapshot_id: str
    """Snapshot whose garbage range it sweeps; empty for the active range of the bucket."""
    bucket_id: int
    """objectID of the bucket."""
    after_death: int
    """From the command."""
    until_death: int
    """From the command."""
    after_birth: int
    """From the command."""
    until_birth: int
    """From the command."""
    page: int
    """Newest page that was asked for, from 1; 0 before the first one."""
    next_table: int
    """Where the newest page starts; once metadata has answered, the next one."""
    next_key: bytes
    """Where the newest page starts; once metadata has answered, the next one."""
    open_pages: tuple[OpenSweepPage, ...]
    """Pages that are not judged to their end, oldest first."""
    reclaimable_rows: int
    """Found so far, over all pages."""
    unexpanded_directories: int
    """Found so far, over all pages."""
    turn: int
    """When it had its turn to ask for a page, in the order of turns; 0 while it is queued."""
    is_inherited: bool
    """Whether it came from the range of a dropped snapshot: no sweep of this range waits for it, and it for none."""
    pause_ms: int
    """How long after this unit of work it is due; -1 for no such time. With neither this nor due_ms a queued sweep
    is suspended until the collection state allows more.
    """
    due_ms: int
    """When it is to begin, or to ask again unless an answer comes; 0 for no such time."""
    times_late: int
    """How often its answers did not come in time: each time it waits twice as long for the next ones."""

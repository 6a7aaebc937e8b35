"""Rows in the tables of key_deletion."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from schemas.frozen import record
from schemas.records.chain import SnapshotChainRecord
from schemas.records.deletions import SweptParts
from schemas.records.progress import BucketCollection
from schemas.records.shared import BlockGroups, RowNames


@record
class ChainRow:
    """chainTable: a part of the chain as the service stores it."""

    record: SnapshotChainRecord
    """A marker, or a full chain with one bucket or with none."""


@record
class GarbageRangeRow:
    """garbageRangeTable: the garbage range of one live snapshot. The range is clean when sweepTable has no sweep of
    it.
    """

    snapshot_id: str
    """Id of the snapshot."""
    bucket_id: int
    """objectID of the bucket."""
    reset_version: int
    """Chain version of the last change that concerns this range; the clean flags are valid for this version."""
    attempt: int
    """Number of sweeps since the last change that found reclaimable rows or unexpanded directories."""


@record
class KnownCollectionsRow:
    """collectionTable of the services that follow metadata: the collection states that the service knows."""

    states: tuple[BucketCollection, ...]
    """States other than RUNNING, of buckets and of the shard."""
    heard_txn: int
    """txn of the newest change received; an older change is a duplicate."""
    complete_txn: int
    """txn up to which no change was missed."""


@record
class OpenSweepPage:
    """A page of a sweep with rows that are not judged yet."""

    page: int
    """Number of the page, from 1."""
    start_table: int
    """Table at which the page starts; the sweep returns to it when no answer arrives in time."""
    start_key: bytes
    """First key of the page in that table."""
    sent_txn: int
    """txn at which the page was sent; 0 until metadata has answered. Only the newest page may be unanswered."""
    sent_rows: int
    """Rows sent in the page; 0 until metadata has answered."""
    judged: SweptParts
    """Judged messages of the page, each once."""


@record
class TaskRow:
    """taskTable: a batch of rows in progress."""

    state: str
    """CLAIMING, DELETING, FAILED (in back-off) or FINISHING."""
    attempt: int
    """Number of the try of the present step, from 1."""
    due_ms: int
    """Time of the next try if no answer arrives before; 0 until the end of the unit of work sets it; 1: at once."""
    chain_version: int
    """Chain version with which key_deletion judged the rows."""
    rows: tuple[RowNames, ...]
    """The rows, while claiming and finishing."""
    groups: BlockGroups
    """The groups, while deleting."""
    first_judge_version: int = 0
    """Oldest chain version with which streaming judged one of the rows; 0 when it is not known."""
    reported_local_id: int = 0
    """From the answer to the claim: SCM deletes the groups once its inventory is complete up to it."""


@record
class WaitingPurge:
    """waitingTable: a purge request that waits for a chain version, for the undo window or for room."""

    chain_version: int
    """Chain version that the chain view must have reached."""
    rows: RowNames
    """The rows."""
    snapshots_before_death: tuple[int, ...]
    """For each row, the number of snapshots that its bucket had ever had at the death: the index into the chain
    view.
    """
    due_ms: int = 0
    """Time at which the undo window of the rows ends; 0 when it is not set or the rows need not wait."""
    is_sweep: bool = False
    """Whether a sweep sent the rows again; such requests wait in a queue of their own."""


@record
class WriteExpiryRow:
    """writeExpiryTable: the expiry of open keys and uploads in one shard."""

    due_ms: int
    """When the next pass begins; with a page in progress, when that page is asked for again."""
    table: int
    """Table of the page in progress, as in ExpireWrites; -1 when there is none."""
    start_key: bytes
    """First key of that page."""


@record
class SweepRow:
    """sweepTable: a sweep, queued or in progress."""

    sweep_id: int
    """Number of the sweep; 0 while it is queued."""
    snapshot_id: str
    """Snapshot whose garbage range is swept; empty: the range of the active namespace."""
    bucket_id: int
    """objectID of the bucket; 0: every bucket."""
    after_death: int
    """As in SweepPage."""
    until_death: int
    """As in SweepPage."""
    after_birth: int
    """As in SweepPage."""
    until_birth: int
    """As in SweepPage."""
    page: int
    """Number of the newest requested page, from 1; 0 before the first request."""
    next_table: int
    """Table at which the newest page starts; the next page's once metadata has answered."""
    next_key: bytes
    """Key at which the newest page starts; the next page's once metadata has answered."""
    open_pages: tuple[OpenSweepPage, ...]
    """Pages with rows that are not judged yet, oldest first."""
    reclaimable_rows: int
    """Reclaimable rows found so far, over all pages."""
    unexpanded_directories: int
    """Unexpanded directories found so far, over all pages."""
    turn: int
    """Place in the order in which sweeps request pages: the lowest is next. 0 while the sweep is queued."""
    is_inherited: bool
    """Whether the sweep came from the range of a dropped snapshot: it does not wait for other sweeps of this range,
    and they do not wait for it.
    """
    pause_ms: int
    """Time from the end of this unit of work until the sweep is due; -1: not set. A queued sweep with neither
    pause_ms nor due_ms is suspended until the collection state allows claims.
    """
    due_ms: int
    """Time at which the sweep begins, or requests a page again if no answer arrives before; 0: not set."""
    times_late: int
    """How often the answers were late; each time doubles the next waiting time, up to a limit."""

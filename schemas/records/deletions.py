"""Records between the judges: gc.deleted-entries, gc.purge-*, gc.sweep-results."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from schemas.frozen import record
from schemas.records.shared import Barrier, RowNames


@record
class DeletedEntries:
    """Rows that left the active namespace, or that a sweep sends again. Snapshots may still hold them: the rows are
    candidates for reclaiming. Topic gc.deleted-entries, written by metadata, read by streaming.
    """

    chain_version: int
    """The shard's chain version when this message was sent; a judge needs a chain view of at least this version."""
    rows: RowNames
    """The rows, all of one garbage table."""
    snapshots_before_death: tuple[int, ...]
    """For each row, the number of snapshots that its bucket had ever had at the death: the index into the chain
    view.
    """
    sweep_id: int = 0
    """Sweep that sends the rows again; 0 for rows of a deletion."""
    sweep_page: int = 0
    """Page of the sweep."""
    barrier: Barrier | None = None
    """When present, there are no rows, and the reader forwards the barrier behind the results of all messages before
    it.
    """
    sweep_txn: int = 0
    """txn at which the page was sent. Two requests for the same page have two txns; a repeated answer to one request
    has the same one.
    """
    sweep_part: int = 0
    """Number of this message within the page, from 0."""


@record
class JudgedDirectory:
    """A deleted directory and its verdict."""

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
    is_reclaimable: bool
    """Whether no live snapshot holds the directory. Decides only when the row is removed: the directory is expanded
    in any case.
    """


@record
class PurgeKeys:
    """A purge request: rows of deletedTable or snapshotRenamedTable that no snapshot holds. Topic gc.purge-keys,
    written by streaming, read by key_deletion.
    """

    chain_version: int
    """Chain version of the chain view that judged; the next judge waits until its own view has reached it."""
    rows: RowNames
    """The rows."""
    snapshots_before_death: tuple[int, ...]
    """For each row, the number of snapshots that its bucket had ever had at the death: the index into the chain
    view.
    """
    barrier: Barrier | None = None
    """When present, the reader forwards the barrier behind the results of all messages before it."""
    is_sweep: bool = False
    """Whether a sweep sent the rows again."""


@record
class SweptParts:
    """Messages of a sweep's page, in columns: all three lists have the same length. The txn and the number identify
    a message permanently, however often it is sent or judged.
    """

    txns: tuple[int, ...]
    """For each message, the txn at which it was sent."""
    numbers: tuple[int, ...]
    """For each message, its number within the page, from 0."""
    rows: tuple[int, ...]
    """For each message, its number of rows."""


@record
class DirectoryVerdict:
    """Deleted directories with their verdicts, to be expanded. Topic gc.purge-directories, written by streaming,
    read by directory_deletion.
    """

    chain_version: int
    """Chain version of the chain view that judged; the next judge waits until its own view has reached it."""
    directories: tuple[JudgedDirectory, ...]
    """The directories."""
    barrier: Barrier | None = None
    """When present, the reader forwards the barrier behind the results of all messages before it."""


@record
class SweepResult:
    """Verdicts on one part of a sweep's page. Topic gc.sweep-results, written by streaming, read by key_deletion."""

    sweep_id: int
    """The sweep."""
    sweep_page: int
    """Page of the sweep."""
    first_offset: int
    """Always 0 and never read: parts names the judged messages."""
    judged_rows: int
    """Always 0 and never read: parts names the judged messages."""
    reclaimable_rows: int
    """Judged rows of deletedTable and snapshotRenamedTable that no snapshot holds."""
    reclaimable_directories: int
    """Judged rows of deletedDirectoryTable that no snapshot holds."""
    chain_version: int
    """Chain version of the chain view that judged."""
    barrier: Barrier | None = None
    """When present, the reader forwards the barrier behind the results of all messages before it."""
    parts: SweptParts | None = None
    """Judged messages of the page, each once."""

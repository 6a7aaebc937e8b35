"""Records on a deletion's way through the judges: gc.deleted-entries, gc.purge-*, gc.sweep-results."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from dataclasses import dataclass

from schemas.records.shared import Barrier, RowNames


@dataclass(frozen=True, slots=True)
class DeletedEntries:
    """What left the active namespace, or what a sweep looks at again. Snapshots may still hold it: candidates for
    reclaiming, not an order. Topic gc.deleted-entries, written by metadata, read by streaming.
    """

    chain_version: int
    """The shard's chain version when this was sent; no judge may know less."""
    rows: RowNames
    """The rows, all of one garbage table."""
    snapshots_before_death: tuple[int, ...]
    """Of each row how many snapshots its bucket had ever had at the death: the index into the chain view."""
    sweep_id: int = 0
    """Sweep that sent these again; 0 when the deletions themselves did."""
    sweep_page: int = 0
    """Page of that sweep."""
    barrier: Barrier | None = None
    """When present, there are no rows: pass this on behind all before it."""
    sweep_txn: int = 0
    """txn at which that page was sent. A page that is requested twice is sent at two txns; an answer that metadata
    repeats has the same one.
    """
    sweep_part: int = 0
    """Which message of that page this is, from 0."""


@dataclass(frozen=True, slots=True)
class JudgedDirectory:
    """A deleted directory and its verdict."""

    bucket_id: int
    """objectID of the bucket."""
    object_id: int
    """objectID of the directory."""
    birth: int
    """txn that made the directory."""
    death: int
    """txn that deleted it."""
    snapshots_before_death: int
    """The index into the chain view."""
    is_reclaimable: bool
    """Whether no live snapshot holds the directory: decides only when its emptied row goes."""


@dataclass(frozen=True, slots=True)
class PurgeKeys:
    """A purge request: rows of deletedTable or snapshotRenamedTable that no snapshot holds. Topic gc.purge-keys,
    written by streaming, read by key_deletion.
    """

    chain_version: int
    """Chain version of the view that judged; the next judge waits until it has it."""
    rows: RowNames
    """The rows."""
    snapshots_before_death: tuple[int, ...]
    """For each row the index into the chain view."""
    barrier: Barrier | None = None
    """When present, pass this on behind all before it."""
    is_sweep: bool = False
    """Sent again by a sweep rather than by the deletions themselves."""


@dataclass(frozen=True, slots=True)
class SweptParts:
    """Messages of a sweep's page, by columns. A txn and a number name a message for ever, however often it is sent
    or judged.
    """

    txns: tuple[int, ...]
    """Of each the txn at which it was sent."""
    numbers: tuple[int, ...]
    """Of each which message of the page it is, from 0."""
    rows: tuple[int, ...]
    """Of each how many rows it has."""


@dataclass(frozen=True, slots=True)
class DirectoryVerdict:
    """Deleted directories with their verdicts: each is to be expanded. Topic gc.purge-directories, written by
    streaming, read by directory_deletion.
    """

    chain_version: int
    """Chain version of the view that judged; the next judge waits until it has it."""
    directories: tuple[JudgedDirectory, ...]
    """The directories."""
    barrier: Barrier | None = None
    """When present, pass this on behind all before it."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Verdicts over a part of a sweep's page. Topic gc.sweep-results, written by streaming, read by key_deletion."""

    sweep_id: int
    """The sweep."""
    sweep_page: int
    """Its page."""
    first_offset: int
    """0 by now, and read by nobody: parts names what was judged."""
    judged_rows: int
    """0 by now, and read by nobody: parts names what was judged."""
    reclaimable_rows: int
    """Those of deletedTable and snapshotRenamedTable that nobody holds."""
    reclaimable_directories: int
    """Those of deletedDirectoryTable that nobody holds."""
    chain_version: int
    """Chain version of the view that judged."""
    barrier: Barrier | None = None
    """When present, pass this on behind all before it."""
    parts: SweptParts | None = None
    """Which messages of the page were judged, each once."""

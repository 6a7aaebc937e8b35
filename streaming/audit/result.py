"""Builds the report of an audit: the sums of all parts, differences between metadata's figures and the recount, and the
findings with their paths.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from schemas.audit_report import (
    NO_ROWS,
    NOTHING,
    AuditReport,
    BucketAudit,
    FigureDifference,
    Finding,
    FindingKind,
    UsedFigures,
    Verdicts,
)
from schemas.records import DeletedDirectoryRow, SpaceCellValue
from streaming.audit.blocks import BucketTally, Holders, RawFinding, Tally, Version, cell_of, look_up
from streaming.audit.facts import deleted_directories, directories_of
from streaming.audit.reach import ACTIVE, PRESENT, UNEXPANDED, DirectoryFact, path_in, reach_of, snapshots_of, state_bit
from streaming.audit.shard import AuditedBucket, AuditedShard
from streaming.audit.states import StateGroup

MAX_EXAMPLES = 100
"""Most examples of each kind except orphans: a repair needs all orphans."""
MAX_DIFFERENCES = 100
NEVER = 1 << 62
"""A txn above every real one."""
Figure = tuple[str, int, int]
"""A figure's name, its value in metadata's copy, and the recounted value."""


@dataclass(slots=True)
class Trees:
    """The directories of all buckets that are trees, by bucket id."""

    facts: defaultdict[int, list[DirectoryFact]] = field(default_factory=lambda: defaultdict(list))
    deleted: defaultdict[int, list[DeletedDirectoryRow]] = field(default_factory=lambda: defaultdict(list))
    reach: dict[int, dict[int, int]] = field(default_factory=dict)


def trees_of(shard: AuditedShard, groups: Mapping[int, Sequence[StateGroup]]) -> Trees:
    """Read the directories of all trees; return them with the states that reach each directory.

    ``groups`` are the states of each bucket.
    """
    trees = Trees()
    for bucket_id, bucket in shard.buckets.items():
        if bucket.is_tree:
            trees.facts[bucket_id] = list(directories_of(shard, bucket, groups[bucket_id]))
            deleted = trees.deleted[bucket_id] = deleted_directories(shard, bucket)
            waiting = [row.directory.object_id for row in deleted if not row.is_expanded]
            trees.reach[bucket_id] = reach_of(bucket_id, trees.facts[bucket_id], waiting)
    return trees


def report_of(shard: AuditedShard, trees: Trees, tally: Tally) -> AuditReport:
    """Return the report of a shard."""
    buckets = []
    differences: list[FigureDifference] = []
    for bucket_id, bucket in shard.buckets.items():
        sums, deleted = tally.buckets[bucket_id], trees.deleted[bucket_id]
        holders = [snapshots_of(trees.reach[bucket_id].get(row.directory.object_id, 0)) for row in deleted]
        verdicts = (look_up(some, row.death, bucket.snapshot_txns) for some, row in zip(holders, deleted, strict=True))
        recounted = _recounted(sums, trees.facts[bucket_id], deleted)
        buckets.append(_bucket_audit(bucket, sums, sum(verdicts, NO_ROWS), recounted))
        if not bucket.is_rolling_back:  # else its figures change
            directories = Counter(cell_of(some, bucket) for some in holders)
            oldest_waiting = min((row.death for row in deleted if not row.is_expanded), default=NEVER)
            differences += _different(bucket.name, _kept_and_recounted(bucket, sums, directories))
            if not bucket.is_deleted:
                differences += _different(bucket.name, _used(bucket.used, recounted))
            differences += _different(bucket.name, _referenced(bucket, sums, oldest_waiting))
    if not shard.copies.bucket:
        figure = ("bytes in the block store", shard.inventory_bytes, tally.inventory_after.bytes)
        differences += _different("", [figure])
    return AuditReport(
        shard=shard.copies.shard,
        txn=shard.txn,
        chain_version=shard.chain_version,
        snapshots=sum(len(bucket.snapshots) for bucket in shard.buckets.values()),
        buckets=tuple(buckets),
        inventory=tally.inventory,
        too_young=tally.too_young,
        findings={kind: tally.findings[kind] for kind in FindingKind if kind in tally.findings},
        examples=tuple(_examples(shard, trees, tally.raw)),
        differences=tuple(differences[:MAX_DIFFERENCES]),
        difference_count=len(differences),
    )


def _recounted(
    sums: BucketTally, directories: Sequence[DirectoryFact], deleted: Sequence[DeletedDirectoryRow]
) -> UsedFigures:
    """Return the used figures of a bucket as its row should state them."""
    live, dead = sums.live + sums.unexpanded + sums.stray, sums.held + sums.pending + sums.claimed
    live_directories = sum(1 for one in directories if one.mask & ACTIVE)
    names, dead_names = sums.live_keys + live_directories, dead.versions + len(deleted)
    return UsedFigures(
        *(live.bytes, names, dead.bytes, dead_names),
        *(sums.uploads.bytes, sums.spare.bytes, sums.block_rows),
        *(live.redundancy_bytes, dead.redundancy_bytes),
        *(sums.uploads.redundancy_bytes, sums.spare.redundancy_bytes),
    )


def _used(kept: UsedFigures, recounted: UsedFigures) -> Iterator[Figure]:
    yield "used bytes", kept.bytes, recounted.bytes
    yield "used namespace", kept.namespace, recounted.namespace
    yield "used bytes of deleted versions", kept.snapshot_bytes, recounted.snapshot_bytes
    yield "used namespace of deleted keys and directories", kept.snapshot_namespace, recounted.snapshot_namespace
    yield "bytes of uploads", kept.upload_bytes, recounted.upload_bytes
    yield "bytes that never belonged to a version", kept.spare_bytes, recounted.spare_bytes
    yield "rows of blocks", kept.block_rows, recounted.block_rows
    yield "redundancy of used bytes", kept.redundancy_bytes, recounted.redundancy_bytes
    deleted = kept.snapshot_redundancy_bytes, recounted.snapshot_redundancy_bytes
    yield "redundancy of bytes of deleted versions", *deleted
    yield "redundancy of bytes of uploads", kept.upload_redundancy_bytes, recounted.upload_redundancy_bytes
    spare = kept.spare_redundancy_bytes, recounted.spare_redundancy_bytes
    yield "redundancy of bytes that never belonged to a version", *spare


def _bucket_audit(
    bucket: AuditedBucket, sums: BucketTally, directories: Verdicts, recounted: UsedFigures
) -> BucketAudit:
    alone = (amount for (first, last), amount in sums.cells.items() if first and first == last)
    return BucketAudit(
        bucket_id=bucket.bucket_id,
        bucket=bucket.name,
        is_rolling_back=bucket.is_rolling_back,
        live=sums.live,
        unexpanded=sums.unexpanded,
        held=sums.held,
        pending=sums.pending,
        claimed=sums.claimed,
        exclusive=sum(alone, NOTHING),
        keys=sums.keys,
        directories=directories,
        used=bucket.used,
        recounted=recounted,
        is_deleted=bucket.is_deleted,
    )


def _different(bucket: str, figures: Iterable[Figure]) -> list[FigureDifference]:
    return [FigureDifference(bucket, name, kept, counted) for name, kept, counted in figures if kept != counted]


def _kept_and_recounted(
    bucket: AuditedBucket, sums: BucketTally, directories: Mapping[Holders, int]
) -> Iterator[Figure]:
    cells = {(cell.first_holder, cell.last_holder): cell for cell in bucket.cells}
    for first, last in sorted(cells.keys() | sums.cells.keys() | directories.keys()):
        cell = cells.get((first, last), SpaceCellValue(first, last, 0, 0, 0, 0, 0))
        amount = sums.cells[first, last]
        holders = f"held by {first} to {last}" if first else "held by nobody"
        yield f"bytes {holders}", cell.bytes, amount.bytes
        yield f"redundancy of bytes {holders}", cell.redundancy_bytes, amount.redundancy_bytes
        yield f"versions {holders}", cell.versions, amount.versions
        yield f"deleted directories {holders}", cell.directory_rows, directories.get((first, last), 0)
    yield "claimed bytes", bucket.claimed_bytes, sums.claimed.bytes
    yield "redundancy of claimed bytes", bucket.claimed_redundancy_bytes, sums.claimed.redundancy_bytes
    yield "claimed versions", bucket.claimed_versions, sums.claimed.versions


def _referenced(bucket: AuditedBucket, sums: BucketTally, oldest_waiting: int) -> Iterator[Figure]:
    """Yield the bytes that each snapshot refers to, and those by which its blocks have grown since.

    A snapshot is skipped if a directory that died before it waits for expansion: the expansion corrects the figure.
    """
    for place, kept in enumerate(bucket.snapshots):
        if kept.txn < oldest_waiting:
            shown = sum((amount for holders, amount in sums.shown.items() if holders >> place & 1), NOTHING)
            grown = sum((amount for holders, amount in sums.grown.items() if holders >> place & 1), NOTHING)
            refers, has_grown = (
                f"that snapshot {kept.snapshot_id} refers to",
                f"that have grown since snapshot {kept.snapshot_id}",
            )
            yield f"bytes {refers}", kept.referenced_bytes, shown.bytes
            yield f"redundancy of bytes {refers}", kept.referenced_redundancy_bytes, shown.redundancy_bytes
            yield f"bytes {has_grown}", kept.grown_bytes, grown.bytes
            yield f"redundancy of bytes {has_grown}", kept.grown_redundancy_bytes, grown.redundancy_bytes


def _examples(shard: AuditedShard, trees: Trees, raw: Sequence[RawFinding]) -> Iterator[Finding]:
    """Yield findings with names and paths, the worst kind first."""
    edges: dict[int, defaultdict[int, list[DirectoryFact]]] = {}
    rank = {kind: place for place, kind in enumerate(FindingKind)}
    kept = Counter[FindingKind]()
    for one in sorted(raw, key=lambda found: (rank[found.kind], found.version.run)):
        kept[one.kind] += 1
        if kept[one.kind] > MAX_EXAMPLES and one.kind is not FindingKind.ORPHANED:
            continue
        version = one.version
        bucket = shard.buckets.get(version.bucket_id)
        if bucket is not None and bucket.bucket_id not in edges:
            by_id = edges[bucket.bucket_id] = defaultdict(list)
            for fact in trees.facts[bucket.bucket_id]:
                by_id[fact.object_id].append(fact)
        path = "" if bucket is None else _path(bucket, version, edges[bucket.bucket_id])
        name = bucket.name if bucket else ""
        yield Finding(
            one.kind, one.reason, version.bucket_id, name, path, version.object_id, version.birth, *version.run
        )


def _path(bucket: AuditedBucket, version: Version, edges: Mapping[int, list[DirectoryFact]]) -> str:
    if not version.key:
        return ""
    if not bucket.is_tree:
        return version.key[len(bucket.keys[0]) :].decode(errors="replace")
    _, _, _, parent_id, name = version.key.split(b"/", 4)
    active = bool(version.mask & (ACTIVE | UNEXPANDED | PRESENT))
    snapshots = snapshots_of(version.mask)
    state = 0 if active or not snapshots else snapshots.bit_length()
    return path_in(state_bit(state), bucket.bucket_id, int(parent_id), name.decode(errors="replace"), edges)

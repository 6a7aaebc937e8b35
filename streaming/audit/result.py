"""Builds the report of an audit: the sums of all parts, differences between metadata's figures and the recount, and the
findings with their paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from schemas.audit_report import (
    NO_ROWS,
    NOTHING,
    AuditReport,
    BucketAudit,
    FigureDifference,
    Finding,
    FindingKind,
    Verdicts,
)
from streaming.audit.blocks import (
    AuditedAt,
    BucketFacts,
    BucketTally,
    Holders,
    RawFinding,
    Tally,
    directory_cell,
    judge_all,
    look_up,
)
from streaming.audit.facts import (
    DeletedDirectory,
    deleted_directories,
    directories_of,
    directory_tasks,
    fact_tasks,
    facts_of,
)
from streaming.audit.reach import (
    ACTIVE,
    PRESENT,
    UNEXPANDED,
    DirectoryFact,
    path_in,
    reach_of,
    snapshots_of,
    state_bit,
)
from streaming.audit.shard import AuditedBucket, AuditedCopies, AuditedShard, Opener, survey

MAX_EXAMPLES = 100
"""Most examples of each kind except orphans: a repair needs all orphans."""
MAX_DIFFERENCES = 100
NEVER = 1 << 62
"""A txn above every real one."""


@dataclass(slots=True)
class Trees:
    """The directories of all buckets that are trees, by bucket id."""

    facts: dict[int, list[DirectoryFact]] = field(default_factory=dict)
    deleted: dict[int, Sequence[DeletedDirectory]] = field(default_factory=dict)
    reach: dict[int, dict[int, int]] = field(default_factory=dict)


def trees_of(shard: AuditedShard, facts: Iterable[DirectoryFact], opener: Opener) -> Trees:
    """Return the directories of all trees, with the states that reach each directory."""
    trees = Trees()
    for fact in facts:
        trees.facts.setdefault(fact.bucket_id, []).append(fact)
    for bucket in shard.buckets.values():
        if bucket.is_tree:
            deleted = trees.deleted[bucket.bucket_id] = deleted_directories(shard, bucket, opener)
            waiting = [one.object_id for one in deleted if not one.is_expanded]
            trees.reach[bucket.bucket_id] = reach_of(bucket.bucket_id, trees.facts.get(bucket.bucket_id, ()), waiting)
    return trees


def audited_at(shard: AuditedShard) -> AuditedAt:
    """Return the facts of the shard that the rule needs."""
    buckets = {
        bucket_id: BucketFacts(bucket.snapshot_txns, bucket.is_rolling_back)
        for bucket_id, bucket in shard.buckets.items()
    }
    return AuditedAt(shard.txn, shard.mark_before, buckets)


def audit_here(copies: AuditedCopies, opener: Opener, parts: int = 1) -> AuditReport:
    """Run the whole audit in this process, without Spark, and return the report: for tests and for comparison."""
    shard = survey(copies, opener)
    directories = (fact for task in directory_tasks(shard) for fact in directories_of(shard, task, opener))
    trees = trees_of(shard, directories, opener)
    facts = (fact for task in fact_tasks(shard, opener, parts) for fact in facts_of(shard, task, trees.reach, opener))
    return report_of(shard, trees, judge_all(facts, audited_at(shard)))


def report_of(shard: AuditedShard, trees: Trees, tally: Tally) -> AuditReport:
    """Return the report of a shard."""
    buckets = []
    differences: list[FigureDifference] = []
    for bucket in shard.buckets.values():
        sums = tally.bucket(bucket.bucket_id)
        facts = BucketFacts(bucket.snapshot_txns, bucket.is_rolling_back)
        deleted = [
            (snapshots_of(trees.reach[bucket.bucket_id].get(one.object_id, 0)), one.death)
            for one in trees.deleted.get(bucket.bucket_id, ())
        ]
        verdicts = sum((look_up(holders, death, bucket.snapshot_txns) for holders, death in deleted), NO_ROWS)
        buckets.append(_bucket_audit(bucket, sums, verdicts))
        rows: dict[Holders, int] = {}
        for holders, _ in deleted:
            cell = directory_cell(holders, facts)
            rows[cell] = rows.get(cell, 0) + 1
        waiting = [one.death for one in trees.deleted.get(bucket.bucket_id, ()) if not one.is_expanded]
        differences += _differences(bucket, sums, rows)
        differences += _referenced_differences(bucket, sums, min(waiting, default=NEVER))
    if not shard.copies.bucket:
        differences += _inventory_differences(shard, tally)
    findings = {kind: tally.findings[kind] for kind in FindingKind if kind in tally.findings}
    return AuditReport(
        shard=shard.copies.shard,
        txn=shard.txn,
        chain_version=shard.chain_version,
        snapshots=sum(len(bucket.snapshot_ids) for bucket in shard.buckets.values()),
        buckets=tuple(buckets),
        inventory=tally.inventory,
        too_young=tally.too_young,
        findings=findings,
        examples=tuple(_examples(shard, trees, tally.raw)),
        differences=tuple(differences[:MAX_DIFFERENCES]),
        difference_count=len(differences),
    )


def _bucket_audit(bucket: AuditedBucket, sums: BucketTally, directories: Verdicts) -> BucketAudit:
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
    )


def _differences(
    bucket: AuditedBucket, sums: BucketTally, directories: dict[Holders, int]
) -> Iterator[FigureDifference]:
    """Yield metadata's figures that differ from the recount; none during a rollback, when the figures change."""
    if bucket.is_rolling_back:
        return
    kept = {(cell.first_holder, cell.last_holder): cell for cell in bucket.cells}
    for first, last in sorted(kept.keys() | sums.cells.keys() | directories.keys()):
        cell = kept.get((first, last))
        amount = sums.cells.get((first, last), NOTHING)
        holders = f"held by {first} to {last}" if first else "held by nobody"
        for figure, was, now in (
            ("bytes", cell.bytes if cell else 0, amount.bytes),
            ("versions", cell.versions if cell else 0, amount.versions),
            ("deleted directories", cell.directory_rows if cell else 0, directories.get((first, last), 0)),
        ):
            if was != now:
                yield FigureDifference(bucket.name, f"{figure} {holders}", was, now)
    figures = [
        ("claimed bytes", bucket.claimed_bytes, sums.claimed.bytes),
        ("claimed versions", bucket.claimed_versions, sums.claimed.versions),
    ]
    if not bucket.is_deleted:
        live = sums.live + sums.unexpanded + sums.stray
        figures.append(("live bytes", bucket.used_bytes, live.bytes))
    for figure, was, now in figures:
        if was != now:
            yield FigureDifference(bucket.name, figure, was, now)


def _referenced_differences(
    bucket: AuditedBucket, sums: BucketTally, oldest_waiting: int
) -> Iterator[FigureDifference]:
    """Yield differences in the bytes that snapshots refer to.

    A snapshot is skipped if a directory that died before it waits for expansion: the expansion corrects the figure.
    """
    if bucket.is_rolling_back:
        return
    for place, (snapshot_id, txn) in enumerate(zip(bucket.snapshot_ids, bucket.snapshot_txns, strict=True)):
        shown = sum(size_bytes for holders, size_bytes in sums.shown_bytes.items() if holders >> place & 1)
        if txn < oldest_waiting and shown != bucket.referenced_bytes[place]:
            figure = f"bytes that snapshot {snapshot_id} refers to"
            yield FigureDifference(bucket.name, figure, bucket.referenced_bytes[place], shown)


def _inventory_differences(shard: AuditedShard, tally: Tally) -> Iterator[FigureDifference]:
    counted = tally.inventory_after
    if shard.inventory_bytes != counted.bytes:
        yield FigureDifference("", "bytes in the block store", shard.inventory_bytes, counted.bytes)


def _examples(shard: AuditedShard, trees: Trees, raw: Sequence[RawFinding]) -> Iterator[Finding]:
    """Yield findings with names and paths, the worst kind first."""
    edges: dict[int, dict[int, list[DirectoryFact]]] = {}
    rank = {kind: place for place, kind in enumerate(FindingKind)}
    kept: dict[FindingKind, int] = {}
    for one in sorted(raw, key=lambda found: (rank[found.kind], found.run)):
        kept[one.kind] = kept.get(one.kind, 0) + 1
        if kept[one.kind] > MAX_EXAMPLES and one.kind is not FindingKind.ORPHANED:
            continue
        bucket = shard.buckets.get(one.bucket_id)
        if bucket is not None and bucket.bucket_id not in edges:
            by_id = edges[bucket.bucket_id] = {}
            for fact in trees.facts.get(bucket.bucket_id, ()):
                by_id.setdefault(fact.object_id, []).append(fact)
        path = "" if bucket is None else _path(bucket, one, edges[bucket.bucket_id])
        yield Finding(
            one.kind, one.reason, one.bucket_id, bucket.name if bucket else "", path, one.object_id, one.birth, *one.run
        )


def _path(bucket: AuditedBucket, finding: RawFinding, edges: dict[int, list[DirectoryFact]]) -> str:
    if not finding.key:
        return ""
    if not bucket.is_tree:
        return finding.key[len(bucket.keys[0]) :].decode(errors="replace")
    _, _, _, parent_id, name = finding.key.split(b"/", 4)
    active = bool(finding.mask & (ACTIVE | UNEXPANDED | PRESENT))
    snapshots = snapshots_of(finding.mask)
    state = 0 if active or not snapshots else snapshots.bit_length()
    return path_in(state_bit(state), bucket.bucket_id, int(parent_id), name.decode(errors="replace"), edges)

"""Requeue the orphaned blocks of an audit report at metadata, which has them judged and deleted like other rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.audit_report import NOTHING, Amount, AuditReport, Finding, FindingKind
from schemas.records import BlockRun, RequeueOrphans
from services.client.plane import Plane

MAX_RUNS_PER_COMMAND = 200
DEFAULT_REPAIR_ROWS = 5_000_000
"""Most versions that a search may read: about 20 seconds of the shard's writer, in pages between other commands."""
BUSY = "BUCKET_BUSY"
GOES_ON = "SEARCH_IN_PROGRESS"
"""Code for an unfinished search: no owner of the blocks was found yet. Sending the command again continues it."""
MAX_ATTEMPTS = 3


@dataclass(slots=True)
class Repair:
    """The result of requeuing a shard's orphans."""

    requeued: Amount = NOTHING
    kept: Amount = NOTHING
    reasons: list[str] = field(default_factory=list)
    """Reasons why orphans were kept."""


def requeue(plane: Plane, report: AuditReport, max_rows: int = DEFAULT_REPAIR_ROWS) -> Repair:
    """Requeue the orphans of a report and return the requeued and the kept ones.

    All orphans are kept if the report has losses, because then the plane or the audit is wrong. Orphans whose bucket
    is unknown to metadata, or that metadata refuses, are kept.
    """
    repair = Repair()
    orphans = [one for one in report.examples if one.kind is FindingKind.ORPHANED]
    if report.has_losses:
        _keep(repair, orphans, "nothing is freed while something is lost: find out why first")
        return repair
    of_bucket: dict[int, list[Finding]] = {}
    for one in orphans:
        of_bucket.setdefault(one.bucket_id if one.bucket else 0, []).append(one)
    _keep(repair, of_bucket.pop(0, ()), "metadata never had their bucket: find out who has written them")
    for bucket_id, findings in of_bucket.items():
        for start in range(0, len(findings), MAX_RUNS_PER_COMMAND):
            page = findings[start : start + MAX_RUNS_PER_COMMAND]
            reason = _send(plane, report, bucket_id, page, max_rows)
            if reason:
                _keep(repair, page, reason)
            else:
                repair.requeued += _amount(page)
    return repair


def _send(plane: Plane, report: AuditReport, bucket_id: int, page: list[Finding], max_rows: int) -> str:
    """Requeue a page of orphans. Return the reason why they are kept, or "" if they were requeued."""
    runs = tuple(
        BlockRun(one.container_id, one.first_local_id, one.block_count, one.block_size_bytes, one.size_bytes)
        for one in page
    )
    command = RequeueOrphans(bucket_id, report.txn, runs, max_rows)
    attempts = 0
    while True:
        reply = plane.answer(report.shard, plane.submit(report.shard, command))
        attempts += reply.error == BUSY  # a snapshot makes the bucket busy for one txn
        if reply.error != GOES_ON and (reply.error != BUSY or attempts == MAX_ATTEMPTS):
            break
    return f"{reply.error}: {reply.message}" if reply.error else ""


def _keep(repair: Repair, findings: Iterable[Finding], reason: str) -> None:
    kept = _amount(findings)
    if kept.versions:
        repair.kept += kept
        repair.reasons.append(reason)


def _amount(findings: Iterable[Finding]) -> Amount:
    return sum((Amount(1, one.size_bytes) for one in findings), NOTHING)

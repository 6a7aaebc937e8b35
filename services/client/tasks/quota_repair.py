"""Correct what buckets say is used by the recount of an audit, so that quotas are checked against what is there."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field

from schemas.audit_report import AuditReport, BucketAudit
from schemas.records import RepairQuota
from services.client.plane import Plane


@dataclass(slots=True)
class QuotaRepair:
    """The result of correcting the used figures of a shard's buckets."""

    repaired: list[str] = field(default_factory=list)
    """Buckets whose figures were corrected."""
    reasons: list[str] = field(default_factory=list)
    """Reasons why those of others were not."""


def repair_quotas(plane: Plane, report: AuditReport) -> QuotaRepair:
    """Correct the used figures of each bucket that an audit's recount does not confirm.

    Nothing is corrected if the report has losses, because then the plane or the audit is wrong.
    """
    repair = QuotaRepair()
    wrong = [one for one in report.buckets if one.is_used_wrong]
    if report.has_losses and wrong:
        repair.reasons.append("no figure is corrected while something is lost: find out why first")
        return repair
    for bucket in wrong:
        reply = plane.answer(report.shard, plane.submit(report.shard, _command(report, bucket)))
        if reply.error:
            repair.reasons.append(f"{bucket.bucket}: {reply.error}: {reply.message}")
        else:
            repair.repaired.append(bucket.bucket)
    return repair


def _command(report: AuditReport, bucket: BucketAudit) -> RepairQuota:
    pairs = zip(astuple(bucket.recounted), astuple(bucket.used), strict=True)
    return RepairQuota(bucket.bucket_id, report.txn, *(counted - stated for counted, stated in pairs))

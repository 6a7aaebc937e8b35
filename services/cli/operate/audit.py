"""``deepclean audit``: recount all blocks from metadata's tables and compare them with the block store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Annotated

import typer

from schemas.audit_report import LOSSES, Amount, AuditReport, BucketAudit, FindingKind
from services.cli.exit_status import ExitStatus
from services.cli.output import print_fields, print_json, print_table
from services.cli.progress import shown_progress
from services.cli.session import JsonOption, bucket_path, session_of
from services.cli.terminal import say
from services.client.kafka_plane import KafkaPlane
from services.client.tasks.orphans import DEFAULT_REPAIR_ROWS, Repair, requeue
from services.client.tasks.quota_repair import QuotaRepair, repair_quotas
from services.domain.words import counted
from services.plane.upkeep.audits import AuditError, Auditor, FinishedAudit
from services.wording.figures import bytes_text, time_text

MAX_SHOWN = 20
_MEANING = {
    FindingKind.DANGLING: "referenced and missing: lost",
    FindingKind.DAMAGED: "referenced, and different in the block store",
    FindingKind.CLAIMED_TOO_EARLY: "claimed although live or held",
    FindingKind.CONTRADICTION: "rows that contradict each other",
    FindingKind.FORGOTTEN: "held by a snapshot, and never freed after its deletion",
    FindingKind.STRAY: "rows that no path reaches",
    FindingKind.ORPHANED: "present, but neither referenced nor due for deletion",
}


def audit(
    context: typer.Context,
    shard: Annotated[list[int] | None, typer.Option(help="Audit this shard; may be repeated. By default all.")] = None,
    bucket: Annotated[
        str,
        typer.Option(
            metavar="VOLUME/BUCKET",
            help="Audit only this bucket: its rows and snapshots, and the blocks that the store lists under its id.",
        ),
    ] = "",
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Publish orphaned blocks to the judges and correct used bytes, unless a block is lost."
        ),
    ] = False,
    repair_rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"With --repair: maximum number of versions that metadata examines [{DEFAULT_REPAIR_ROWS:,}].",
        ),
    ] = None,
    heap: Annotated[str, typer.Option(help="Heap of Spark's driver.")] = "1g",
    as_json: JsonOption = False,
) -> None:
    """Recount live, held and deletable blocks from every table and checkpoint, and compare with the block store.

    Exit status: 0 nothing found; 1 the audit could not be made; 2 wrong options; 3 something is lost, or about to be;
    4 only leaks, or figures that a recount does not confirm. The status reports findings even if --repair has repaired
    them.
    """
    if repair and bucket:
        raise typer.BadParameter(
            "--repair needs an audit of the whole shard, since other buckets may reference a block: leave --bucket out",
            param_hint="--repair",
        )
    if repair_rows is not None and not repair:
        raise typer.BadParameter("nothing is repaired without --repair", param_hint="--repair-rows")
    if bucket and shard:
        raise typer.BadParameter("a bucket has its shard: leave --shard out", param_hint="--shard")
    with session_of(context) as session:
        plane = session.connected()
        if not isinstance(plane, KafkaPlane):
            raise AuditError("a plane in memory has no files to audit: start a plane (deepclean up)")
        name, shards = "", session.shards(shard)
        if bucket:
            volume, own_name = bucket_path(bucket)
            name, shards = f"{volume}/{own_name}", [session.volumes().shard_of(volume)]
        auditor = Auditor(plane.address, session.home, heap)
        finished = [_audited(auditor, one, name) for one in shards]
        repaired = (
            [requeue(plane, one.report, repair_rows or DEFAULT_REPAIR_ROWS) for one in finished] if repair else []
        )
        corrected = [repair_quotas(plane, one.report) for one in finished] if repair else []
        _show(finished, repaired, corrected, as_json=as_json)
    reports = [one.report for one in finished]
    if any(report.has_losses for report in reports):
        raise typer.Exit(ExitStatus.LOSS)
    if not all(report.is_clean for report in reports):
        raise typer.Exit(ExitStatus.DIFFERENCE)


def _audited(auditor: Auditor, shard: int, bucket: str) -> FinishedAudit:
    with shown_progress(f"shard {shard}") as progress:
        return auditor.audit(shard, bucket, progress)


def _show(
    finished: Sequence[FinishedAudit], repaired: Sequence[Repair], corrected: Sequence[QuotaRepair], *, as_json: bool
) -> None:
    results = zip_longest(finished, repaired, corrected)
    if as_json:
        print_json([asdict(one) | {"repair": repair, "quota_repair": quotas} for one, repair, quotas in results])
        return
    for one, repair, quotas in results:
        _print(one)
        if repair is not None:
            say(f"Published to the judges: {amount_text(repair.requeued)}; kept: {amount_text(repair.kept)}.")
            for reason in repair.reasons:
                say(f"  {reason}")
        if quotas is not None and (quotas.repaired or quotas.reasons):
            say(f"Used figures corrected: {', '.join(quotas.repaired) or 'none'}.")
            for reason in quotas.reasons:
                say(f"  {reason}")


def _print(finished: FinishedAudit) -> None:
    report = finished.report
    say(
        f"Shard {report.shard} as of txn {report.txn}, {time_text(finished.started_ms)}: "
        f"{counted(len(report.buckets), 'bucket')} and {counted(report.snapshots, 'live snapshot')}, "
        f"read in {finished.seconds:.1f} s.",
        "",
    )
    print_table(
        ["BUCKET", "LIVE", "HELD", "EXCLUSIVE", "PENDING", "CLAIMED", "UNEXPANDED", "ROWS: FREE / EXCLUSIVE / SHARED"],
        (_bucket_cells(bucket) for bucket in report.buckets),
        numbers=["LIVE", "HELD", "EXCLUSIVE", "PENDING", "CLAIMED", "UNEXPANDED"],
    )
    say("")
    print_fields(
        [
            ("in the block store", amount_text(report.inventory)),
            ("written or removed meanwhile, not judged", amount_text(report.too_young)),
            *((kind.value.lower().replace("_", " "), _found_text(report, kind)) for kind in FindingKind),
            ("figures not confirmed", f"{report.difference_count:,}"),
        ]
    )
    if report.examples:
        say("")
        print_table(
            ["FINDING", "BUCKET", "PATH", "OBJECT", "CONTAINER", "BLOCK", "BYTES", "WHY"],
            (
                (
                    *(one.kind.value, one.bucket or one.bucket_id, one.path, one.object_id or ""),
                    *(one.container_id, one.first_local_id, one.size_bytes, one.reason),
                )
                for one in report.examples[:MAX_SHOWN]
            ),
            numbers=["OBJECT", "CONTAINER", "BLOCK", "BYTES"],
        )
        if len(report.examples) > MAX_SHOWN:
            say(f"… {len(report.examples) - MAX_SHOWN:,} more with --json")
    if report.differences:
        say("")
        print_table(
            ["BUCKET", "FIGURE", "KEPT", "RECOUNTED"],
            ((one.bucket, one.figure, one.kept, one.recounted) for one in report.differences[:MAX_SHOWN]),
            numbers=["KEPT", "RECOUNTED"],
        )
    say("", verdict_text(report), "")


def _bucket_cells(bucket: BucketAudit) -> list[str]:
    keys = bucket.keys + bucket.directories
    amounts = (bucket.live, bucket.held, bucket.exclusive, bucket.pending, bucket.claimed, bucket.unexpanded)
    judged = f"{keys.reclaimable:,} / {keys.exclusive_to_previous:,} / {keys.shared:,}"
    name = f"{bucket.bucket} (rolling back)" if bucket.is_rolling_back else bucket.bucket
    return [name, *(f"{bytes_text(one.bytes)} in {one.versions:,}" for one in amounts), judged]


def amount_text(amount: Amount) -> str:
    """Return a number of versions and their bytes as text."""
    return f"{amount.versions:,} ({bytes_text(amount.bytes)})"


def _found_text(report: AuditReport, kind: FindingKind) -> str:
    found = report.findings.get(kind)
    return "none" if found is None else f"{amount_text(found)}, {_MEANING[kind]}"


def verdict_text(report: AuditReport) -> str:
    """Return the meaning of an audit's result and the operator's action, in one or two sentences."""
    if report.is_clean:
        return "Every referenced block is present, and every present block is referenced or due for deletion."
    if report.has_losses:
        kinds = ", ".join(kind.value for kind in LOSSES if kind in report.findings)
        return f"Needed blocks were freed, or will be freed ({kinds}): stop claims and find out why."
    return "No block is lost. Some blocks will not be freed automatically, or some figures are wrong."

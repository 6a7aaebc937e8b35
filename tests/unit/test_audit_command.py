"""What ``deepclean audit`` shows, and with which exit status it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import CliRunner

from schemas.audit_report import Amount, AuditReport, BucketAudit, FigureDifference, Finding, FindingKind, Verdicts
from services.cli.main import app
from services.cli.operate import audit as command
from services.cli.session import Session
from services.client.kafka_plane import KafkaPlane, PlaneAddress
from services.client.tasks.orphans import Repair
from services.plane.upkeep.audits import FinishedAudit, last_audits, write_last_audit

LOST = Finding(FindingKind.DANGLING, "not in the block store", 7, "vol/bucket", "a/b", 12, 5, 3, 5 << 16, 1, 10, 10)
ORPHAN = Finding(FindingKind.ORPHANED, "nothing refers to it", 7, "vol/bucket", "", 0, 0, 3, 9 << 16, 1, 10, 10)


def report(*found: Finding, differences: tuple[FigureDifference, ...] = ()) -> AuditReport:
    bucket = BucketAudit(7, "vol/bucket", False, live=Amount(3, 3_072), held=Amount(1, 512), keys=Verdicts(0, 1, 0))
    findings = {one.kind: Amount(1, one.size_bytes) for one in found}
    return AuditReport(
        0, 99, 4, 2, (bucket,), Amount(4, 3_584), Amount(1, 5), findings, found, differences, len(differences)
    )


@dataclass
class FakeAuditor:
    """Finds the same in every shard."""

    found: AuditReport
    asked: list[tuple[int, str]] = field(default_factory=list)

    def audit(self, shard: int, bucket: str, progress: Callable[[int, str], None]) -> FinishedAudit:
        self.asked.append((shard, bucket))
        progress(50, "reading")
        return FinishedAudit("id", 1_700_000_000_000, 1.5, self.found)


def run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: AuditReport, *options: str
) -> tuple[int, str, FakeAuditor]:
    nowhere = "http://127.0.0.1:1"
    auditor = FakeAuditor(found)
    monkeypatch.setattr(command, "Auditor", lambda *_: auditor)
    monkeypatch.setattr(command, "requeue", lambda *_: Repair(Amount(1, 10), Amount(2, 20), ["INVALID_REQUEST: why"]))
    session = Session(tmp_path, KafkaPlane(PlaneAddress("127.0.0.1:1", 2, nowhere, nowhere, nowhere)))
    ended = CliRunner().invoke(app, ["audit", *options], obj=session)
    return ended.exit_code, ended.output, auditor


DIFFERENCE = FigureDifference("vol/bucket", "bytes held by 1 to 2", 10, 11)


@pytest.mark.parametrize(
    ("found", "status", "words"),
    [
        (report(), 0, ["Every referenced block is present", "3.0 KiB in 3", "0 / 1 / 0", "not judged"]),
        (report(LOST), 3, ["DANGLING", "a/b", "stop claims", "1 (10 B), referenced and missing: lost"]),
        (report(LOST, ORPHAN), 3, ["ORPHANED", "DANGLING"]),
        (report(ORPHAN), 4, ["No block is lost", str(9 << 16)]),
        (report(differences=(DIFFERENCE,)), 4, ["bytes held by 1 to 2", "figures not confirmed", "No block is lost"]),
    ],
)
def test_the_status_says_how_bad_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: AuditReport, status: int, words: list[str]
) -> None:
    ended, output, auditor = run(monkeypatch, tmp_path, found)
    assert ended == status
    assert auditor.asked == [(0, ""), (1, "")]
    assert all(word in output for word in words), output
    assert "shard 0: reading (50 %)" in output


def test_an_audit_of_one_bucket_repairs_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status, output, _ = run(monkeypatch, tmp_path, report(ORPHAN), "--repair", "--bucket", "vol/bucket")
    assert status == 2
    assert "Published to the judges" not in output


def test_a_repair_says_what_was_kept_and_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status, output, _ = run(monkeypatch, tmp_path, report(ORPHAN), "--repair", "--shard", "1")
    assert status == 4
    assert "Published to the judges: 1 (10 B); kept: 2 (20 B).\n  INVALID_REQUEST: why" in output


def test_a_shard_that_is_not_there_is_a_wrong_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert run(monkeypatch, tmp_path, report(), "--shard", "2")[0] == 2
    assert run(monkeypatch, tmp_path, report(), "--bucket", "nothing")[0] == 2


def test_the_last_audit_is_kept_and_another_versions_is_left_out(tmp_path: Path) -> None:
    assert last_audits(tmp_path) == []
    finished = FinishedAudit("id", 1, 2.0, report(LOST, ORPHAN, differences=(DIFFERENCE,)))
    write_last_audit(tmp_path, finished)
    (tmp_path / "audits" / "1.json").write_text('{"audit_id": "other"}')
    assert last_audits(tmp_path) == [finished]

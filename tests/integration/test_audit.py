"""The audit on a real plane: its job on Spark, its copies over HTTP, its command, beside a writer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from schemas.records import DeleteKey, DeleteSnapshot, Settle
from services.cli.main import app
from services.client.kafka_plane import KafkaPlane
from services.plane.stack.stack import Stack
from services.plane.upkeep.audits import last_audits
from tests.audit_at_scale import BUCKET, PLANTED, SHARD, VOLUME, audit_beside_a_writer, check, execute

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.long]
KEYS = 3_000


@pytest.fixture
def stack(shared_stack: Stack) -> Stack:
    return shared_stack


def live_snapshots(plane: KafkaPlane) -> int:
    """Of the whole shard: other files' tests leave theirs."""
    metadata, snapshots = plane.metadata(SHARD), plane.snapshots(SHARD)
    places = [(volume.volume, row.bucket) for volume in metadata.volumes() for row in metadata.buckets(volume.volume)]
    return sum(len(list(snapshots.snapshots(*place))) for place in places)


def test_an_audit_beside_a_writer_finds_what_was_planted_and_nothing_else(stack: Stack) -> None:
    with stack.client() as plane:
        before = live_snapshots(plane)
    finished, planted, answered = audit_beside_a_writer(stack, KEYS, stack.home)
    check(finished, planted)
    assert answered > 0
    assert finished.report.snapshots >= before + 2
    assert [one.audit_id for one in last_audits(stack.home)] == [finished.audit_id]
    for name in ("metadata", "mock_scm"):
        assert not list((stack.home / "data" / name / "0" / "audits").iterdir())


def test_the_command_says_what_was_found_and_how_bad_it_is(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    home = ["--home", str(stack.home)]
    shown = CliRunner().invoke(app, [*home, "audit", "--shard", "0", "--repair", "--json"])
    assert shown.exit_code == 3, shown.output
    (finished,) = json.loads(shown.stdout)
    repair = finished["repair"]  # nothing is freed while something is lost
    assert (repair["requeued"]["versions"], repair["kept"]["versions"]) == (0, PLANTED)
    assert finished["report"]["findings"]["DANGLING"]["versions"] == PLANTED
    paths = {one["path"] for one in finished["report"]["examples"] if one["kind"] == "DANGLING"}
    assert paths == {f"planted/lost-{number}" for number in range(PLANTED)}
    refused = CliRunner().invoke(app, [*home, "audit", "--bucket", "scale/none"])
    assert refused.exit_code == 1
    assert "has no bucket scale/none" in refused.output
    assert Path(stack.home, "audits", "0.json").exists()
    status = CliRunner().invoke(app, [*home, "status", "--seconds", "0.1"])
    assert "10 dangling, 10 orphaned" in status.output


def test_a_repair_has_the_orphans_deleted_and_nothing_else(stack: Stack) -> None:
    """Once the losses are dealt with."""
    home = ["--home", str(stack.home)]
    with stack.client() as plane:
        execute(plane, *(DeleteKey(VOLUME, BUCKET, f"planted/lost-{number}") for number in range(PLANTED)))
        for snapshot in plane.snapshots(SHARD).snapshots(VOLUME, BUCKET):
            assert not plane.request(SHARD, DeleteSnapshot(VOLUME, BUCKET, snapshot.name)).error
        plane.request(SHARD, Settle("lost-keys-are-gone"))
        leaks = CliRunner().invoke(app, [*home, "audit", "--shard", "0", "--repair", "--json"])
        assert leaks.exit_code == 4, leaks.output
        assert json.loads(leaks.stdout)[0]["repair"]["requeued"]["versions"] == PLANTED
        plane.request(SHARD, Settle("orphans-are-gone"))
        stored = plane.scm(SHARD).totals().inventory_bytes
    clean = CliRunner().invoke(app, [*home, "audit", "--json"])
    assert clean.exit_code == 0, clean.output
    assert len(json.loads(clean.stdout)) == stack.shards
    assert json.loads(clean.stdout)[0]["report"]["inventory"]["bytes"] == stored

"""``deepclean export`` on a real plane: the wanted tables have what the plane says, and another engine reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable
from typer.testing import CliRunner

from schemas.records import BucketLayout, CreateBucket, CreateSnapshot, CreateVolume, DeleteKey, PutKey, Settle
from services.cli.main import app
from services.client.plane import accepted
from services.plane.stack.stack import Stack
from tests.audit_at_scale import execute

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.long]
VOLUME, BUCKET = "exported", "tables"
WANTED = ("ledger", "chain", "inventory")


def test_the_command_writes_the_tables_of_a_plane(shared_stack: Stack, tmp_path: Path) -> None:
    with shared_stack.client() as plane:
        execute(
            plane,
            *(CreateVolume(VOLUME), CreateBucket(VOLUME, BUCKET, BucketLayout.OBJECT_STORE)),
            PutKey(VOLUME, BUCKET, "held", 300),
        )
        accepted(plane.request(0, CreateSnapshot(VOLUME, BUCKET, "monday")))
        execute(
            plane,
            *(DeleteKey(VOLUME, BUCKET, "held"), PutKey(VOLUME, BUCKET, "freed", 70)),
            *(DeleteKey(VOLUME, BUCKET, "freed"), PutKey(VOLUME, BUCKET, "live", 5)),
        )
        accepted(plane.request(0, Settle("before the export")))
        bucket_id = plane.metadata(0).bucket(VOLUME, BUCKET).object_id
    words = ["--home", str(shared_stack.home), "export", str(tmp_path / "lake"), "--json"]
    result = CliRunner().invoke(app, [*words, *(word for name in WANTED for word in ("--table", name))])
    assert result.exit_code == 0, result.output
    written = json.loads(result.stdout)
    assert set(written["rows"]) == set(WANTED)
    assert (written["unreadable"], written["maintained"]) == (0, [])

    def rows(table: str) -> list[dict[str, object]]:
        opened = StaticTable.from_metadata(str(tmp_path / "lake" / "deepclean" / table))
        found: list[dict[str, object]] = (
            opened.scan(row_filter=f"bucket_id = {bucket_id} and shard = 0").to_arrow().to_pylist()
        )
        return found

    assert [row["size_bytes"] for row in rows("ledger")] == [70]
    assert {row["name"]: (row["stage"], row["size_bytes"]) for row in rows("inventory")} == {
        "held": ("HELD", 300),
        "live": ("LIVE", 5),
    }
    (snapshot,) = rows("chain")
    assert (snapshot["name"], snapshot["status"]) == ("monday", "ACTIVE")
    held = next(row for row in rows("inventory") if row["stage"] == "HELD")
    assert held["first_holder"] == held["last_holder"] == snapshot["create_txn"]
    assert not [*shared_stack.home.glob("data/metadata/*/audits/*")], "the copies are deleted"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--table", "ledgers"], "'ledgers' is no table: choose from ledger, chain"),
        (["--conf", "spark.jars"], "'spark.jars' is not NAME=VALUE"),
        (["--namespace", "a.b"], "'a.b' is not a name"),
    ],
)
def test_what_cannot_be_right_is_refused_before_spark_is_started(words: list[str], said: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--home", str(tmp_path), "export", str(tmp_path / "lake"), *words])
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())

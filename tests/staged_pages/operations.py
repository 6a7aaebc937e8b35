"""The states of the pages for operators: running a plane, the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from schemas.records import KeyRow, Settle
from services.client.plane import accepted
from services.plane.stack.plane_file import running_plane
from tests.stages import Stage, Staging
from tests.upgrade.kept_home import unpack
from tests.waiting import eventually

WITHOUT_WINDOWS = tuple(
    f"export DEEPCLEAN_{service}_UNDO_WINDOW_MS=0" for service in ("METADATA", "KEY_DELETION", "DIRECTORY_DELETION")
)
"""What is deleted is claimed at once."""
REPORTS = (
    "deepclean up",
    "deepclean volume create sales",
    "deepclean bucket create sales/reports",
    "deepclean key put sales/reports/2026/january --size 4096",
    "deepclean key put sales/reports/2026/february --size 2048",
)
RELEASE = "0.2.0"


def settle(stage: Stage) -> None:
    """Wait until shard 0 has nothing left to do."""
    with stage.client() as plane:
        accepted(plane.request(0, Settle(f"before {len(stage.ran)}")))


# Running a plane


@contextmanager
def a_flat_bucket(stage: Stage) -> Iterator[None]:
    """Whose keys are in keyTable; one of them is deleted, and held by a snapshot."""
    stage.stand_ins["/mnt/backups"] = str(stage.scratch / "mnt")
    stage.run(
        *WITHOUT_WINDOWS,
        *(f"{one} --layout OBJECT_STORE" if " bucket create " in one else one for one in REPORTS),
        "deepclean snapshot create sales/reports monday",
        "deepclean key delete sales/reports/2026/february",
    )
    yield


@contextmanager
def a_claimed_row(stage: Stage) -> Iterator[None]:
    """Its blocks are not deleted, since the block store fails meanwhile. A backup is on another disk."""
    elsewhere = stage.scratch / "elsewhere"
    stage.run(f"deepclean backup --to {elsewhere}")
    (backup,) = elsewhere.iterdir()
    stage.stand_ins["/mnt/backups/NAME"] = str(backup)
    switches = f"{running_plane(stage.home).processes['mock_scm'].url}/v1/switches"
    with httpx.Client(trust_env=False) as http:
        http.put(switches, json={"is_failing": True}).raise_for_status()
        stage.run("deepclean key put sales/reports/draft --size 1024", "deepclean key delete sales/reports/draft")
        eventually(lambda: stage.run("deepclean tables count reclaimTable") == "1 row\n")
        yield
        http.put(switches, json={}).raise_for_status()
    assert int(stage.ran["deepclean tables scan reclaimTable --json | jq .value.facts.claim_txn"].output) > 0
    in_snapshot, in_backup = (
        stage.ran[f"deepclean tables scan keyTable {where}"].output
        for where in ("--snapshot sales/reports/monday --keys-only", "--db /mnt/backups/NAME/metadata/0")
    )
    assert "2026/february" in in_snapshot
    assert "2026/january" in in_backup
    assert "2026/february" not in in_backup


@contextmanager
def the_home_of_a_release(stage: Stage) -> Iterator[None]:
    home = stage.scratch / "plane"
    unpack(RELEASE, home)
    stage.stand_ins["/srv/plane"] = str(home)
    stage.run(f"export DEEPCLEAN_HOME={home}")
    yield
    stage.run(f"export DEEPCLEAN_HOME={stage.home}")


@contextmanager
def seven_backups(stage: Stage) -> Iterator[None]:
    """And an eighth, by the first command of the page."""
    stage.run(*["deepclean backup --no-digest"] * 7)
    yield
    assert stage.ran["deepclean backups delete --keep 7"].output.strip().startswith("Deleted")


@contextmanager
def nothing_to_do(stage: Stage) -> Iterator[None]:
    settle(stage)
    yield
    assert " removed. From now on" in stage.ran["deepclean trim-log"].output


RUN = Staging(
    around=a_flat_bucket,
    blocks={
        "Looking into the tables": a_claimed_row,
        "Looking into the tables 2": the_home_of_a_release,
        "Backups": seven_backups,
        "Trimming the log": nothing_to_do,
    },
    answered={"deepclean shards add 4": "y\n", "deepclean backups delete --keep 7": "y\n", "deepclean trim-log": "y\n"},
)


# The ledger


@contextmanager
def a_version_is_freed(stage: Stage) -> Iterator[None]:
    stage.run(*WITHOUT_WINDOWS, *REPORTS)
    with stage.client() as plane:
        row = plane.metadata(0).stat("sales", "reports", "2026/january")
    assert isinstance(row, KeyRow)
    assert row.blocks
    stage.stand_ins |= {"1281": str(row.object_id), "1125899906908160": str(row.blocks.first_local_id)}
    stage.run("deepclean key delete sales/reports/2026/january")
    settle(stage)
    yield
    assert str(row.object_id) in stage.ran["deepclean ledger list sales/reports"].output
    by_object, by_block = (
        stage.ran[f"deepclean ledger show {of}"].output for of in ("1281", "1125899906908160 --block")
    )
    assert by_object == by_block
    assert str(row.object_id) in by_object
    assert stage.ran["deepclean ledger export exported"].output == "1 new row in exported/rows.\n"


LEDGER = Staging(around=a_version_is_freed)

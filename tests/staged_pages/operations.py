"""The states of the pages for operators: running a plane, recovering it, the ledger, upgrading."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from schemas.feature_level import FEATURE_LEVEL
from schemas.records import KeyRow, Settle
from services.client.plane import accepted
from services.plane.stack.plane_file import running_plane
from services.snapshots.state.tables import SNAPSHOT_INFO_TABLE, TABLES
from services.storage.tables import TableReader
from tests.changed_databases import changing
from tests.session_shell import write_deepclean
from tests.stages import Stage, Staging
from tests.upgrade.kept_home import unpack, unpack_program
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


# Recovery


@contextmanager
def two_reports(stage: Stage) -> Iterator[None]:
    stage.run(*REPORTS)
    yield


def keys(stage: Stage) -> str:
    return stage.run("deepclean key list sales/reports")


def nothing_is_lost(stage: Stage) -> None:
    stage.run("deepclean audit")


@contextmanager
def a_report_is_deleted(stage: Stage) -> Iterator[None]:
    stage.run("deepclean key delete sales/reports/2026/january")
    yield
    assert "january" in keys(stage)
    assert "No claims are suspended." in stage.run("deepclean gc status")


@contextmanager
def a_backup_is_older(stage: Stage) -> Iterator[None]:
    """The broken database has more than the newest backup."""
    stage.run("deepclean backup", "deepclean key put sales/reports/2026/march --size 1024")
    yield
    assert "march" in keys(stage)
    nothing_is_lost(stage)


@contextmanager
def the_changelog_cannot_be_used(stage: Stage) -> Iterator[None]:
    """The topic was deleted."""
    refused = stage.shell.run("deepclean up")
    assert refused.status == 1
    assert "topic snapshots.changelog was recreated" in refused.output + refused.errors
    yield


@contextmanager
def a_database_is_lost_again(stage: Stage) -> Iterator[None]:
    stage.run("rm -r lost")
    yield
    assert "march" in keys(stage)
    nothing_is_lost(stage)


@contextmanager
def the_broker_is_an_older_copy(stage: Stage) -> Iterator[None]:
    """Of its records; the plane does not start."""
    records, older = stage.home / "broker" / "records", stage.scratch / "older"
    stage.run(
        *("deepclean down", f"cp -a {records} {older}", "deepclean up"),
        *("deepclean key put sales/reports/2026/april --size 1024", "deepclean snapshot create sales/reports lost"),
        "deepclean down",
    )
    shutil.rmtree(records)
    older.rename(records)
    refused = stage.shell.run("deepclean up")
    assert refused.status == 1
    assert "the broker has lost its tail" in refused.output + refused.errors
    yield
    assert "LOST" in stage.ran["deepclean accept-lost-tail 0"].output
    stage.run("make status")
    assert "april" in keys(stage), "the database has what the log lost"
    nothing_is_lost(stage)


@contextmanager
def the_chain_was_corrupted(stage: Stage) -> Iterator[None]:
    """A row of snapshotInfoTable was missing, and is there again; claims are still stopped."""
    stage.run(*(f"deepclean snapshot create sales/reports {name}" for name in ("one", "two")))
    with changing(stage.home, "snapshots", TABLES) as store:
        key, row = next(
            (key, store.get(SNAPSHOT_INFO_TABLE.name, key))
            for key, row in TableReader(SNAPSHOT_INFO_TABLE, store).scan()
            if row.name == "one"
        )
        store.write({SNAPSHOT_INFO_TABLE.name: {key: None}})
    eventually(lambda: "Claims are stopped" in stage.run("deepclean gc status"))
    with changing(stage.home, "snapshots", TABLES) as store:
        store.write({SNAPSHOT_INFO_TABLE.name: {key: row}})
    eventually(lambda: stage.shell.run("deepclean snapshot create sales/reports three").status == 0)
    assert "Claims are stopped" in stage.run("deepclean gc status")
    yield
    assert "No claims are suspended." in stage.run("deepclean gc status")


RECOVER = Staging(
    around=two_reports,
    blocks={
        "Stop the damage": a_report_is_deleted,
        "Restore a backup": a_backup_is_older,
        "Restore a backup 4": the_changelog_cannot_be_used,
        "Rebuild metadata from the log": a_database_is_lost_again,
        "The broker lost its tail": the_broker_is_an_older_copy,
        "Resume claims": the_chain_was_corrupted,
    },
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


# Upgrading


@contextmanager
def a_plane_of_the_release(stage: Stage) -> Iterator[None]:
    """The checkout has the program of a release; a pull brings the present one."""
    program = stage.place / ".venv" / "bin" / "deepclean"
    present = program.rename(stage.scratch / "present")
    write_deepclean(program, unpack_program(RELEASE, stage.scratch / "release"), "services.cli.main")
    stage.stand_ins["git pull"] = f"mv {present} {program}"
    stage.run(*REPORTS)
    yield
    finished = stage.ran["deepclean upgrade finish"].output
    assert finished.endswith(f"Every shard has feature level {FEATURE_LEVEL}.\n"), finished
    assert "no upgrade to finish" not in finished
    assert "january" in keys(stage)


UPGRADING = Staging(around=a_plane_of_the_release, answered={"deepclean upgrade finish": "y\n"})

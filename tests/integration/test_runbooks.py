"""The runbooks of what stops or is damaged, tried: a fault is made on a real plane, its alert fires in a real
Prometheus, and what the alert's runbook says ends it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from schemas.codec import codec
from schemas.records import ClaimRows, DeletedEntries, MetadataCommand, PurgeKeys, PutKey, SpaceCellValue
from schemas.stored_rows import row_codec
from schemas.topics import DELETED_ENTRIES, METADATA_COMMANDS, PURGE_KEYS, SNAPSHOT_CHAIN
from services.log.reads import records_between
from services.metadata.service import MetadataService
from services.metadata.state.tables import SPACE_TABLE
from services.plane.stack.process_names import BROKER
from services.runtime.loop.runner import RUNTIME_TABLES
from services.snapshots.state.tables import SNAPSHOT_INFO_TABLE, TABLES
from services.storage.tables import TableReader
from tests.changed_databases import changing
from tests.metric_catalogue import ROOT
from tests.patient import Patient, admitted
from tests.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patient]:
    settings = {
        "DEEPCLEAN_SNAPSHOTS_RETENTION_RUN_MS": "1000",
        "DEEPCLEAN_KEY_DELETION_MAX_TASKS_IN_FLIGHT": "1",  # else a task that hangs leaves room for 63 others
    }
    with admitted(tmp_path_factory.mktemp("runbooks"), **settings) as patient:
        yield patient


# Each fault is made on a bucket of its own, so that one does not hide another.


def a_process_hangs(patient: Patient) -> None:
    patient.signal("key_deletion", signal.SIGSTOP)


def end_the_hanging_process(patient: Patient) -> None:
    silent = next(
        one for one in patient.line.json("status")["processes"] if not one["is_answering"] and one["name"] != BROKER
    )
    os.kill(silent["pid"], signal.SIGKILL)


def more_is_deleted_than_allowed(patient: Patient) -> None:
    patient.line.run("bucket", "create", "vol/limited")
    patient.line.run("breaker", "set", "vol/limited", "--share", "1")
    patient.delete_a_key("vol/limited")


def reset_the_breaker(patient: Patient) -> None:
    assert "vol/limited" in patient.line.run("breaker", "status")
    assert "key" in patient.line.run("deleted", "list", "vol/limited")
    patient.line.run("breaker", "reset", "vol/limited")


def a_pause_is_forgotten(patient: Patient) -> None:
    patient.line.run("bucket", "create", "vol/paused")
    patient.line.run("gc", "pause", "vol/paused", "--reason", "a disk is replaced")
    patient.delete_a_key("vol/paused")


def resume(patient: Patient) -> None:
    assert "a disk is replaced" in patient.line.run("gc", "status")
    patient.line.run("gc", "resume", "vol/paused")


def a_stranger_writes_to_a_topic(patient: Patient) -> None:
    patient.send(METADATA_COMMANDS, b"no Avro at all")


def drop_the_letter(patient: Patient) -> None:
    (letter,) = patient.line.json("dead-letters", "list")["letters"]
    name = f"{letter['shard']}:{letter['number']}"
    assert "DecodeError" in patient.line.run("dead-letters", "show", name)
    patient.line.run("dead-letters", "drop", name, "--reason", "written by a test", "--yes")


def the_block_store_confirms_nothing(patient: Patient) -> None:
    patient.switch({"is_failing": True})
    patient.line.run("bucket", "create", "vol/unconfirmed")
    patient.delete_a_key("vol/unconfirmed")


def repair_the_block_store(patient: Patient) -> None:
    assert patient.switches()["is_failing"]
    patient.switch({})


def the_block_store_hangs(patient: Patient) -> None:
    """The only task that there may be waits for it, and the next purge request for the end of that task."""
    patient.signal("mock_scm", signal.SIGSTOP)
    patient.line.run("bucket", "create", "vol/waiting")
    patient.delete_a_key("vol/waiting")
    eventually(lambda: patient.shows('deepclean_key_deletion_tasks{step="deleting"} > 0'))
    patient.delete_a_key("vol/waiting")


def a_policy_outlives_its_bucket(patient: Patient) -> None:
    patient.line.run("bucket", "create", "vol/short")
    # A snapshot is created when the next minute begins; it must not begin before the bucket is deleted.
    eventually(lambda: time.time() % 60 < 40)
    patient.line.run("retention", "set", "vol/short", "--snapshot-every", "1m", "--yes")
    patient.line.run("bucket", "delete", "vol/short")


def unset_the_policy(patient: Patient) -> None:
    assert "BUCKET_NOT_FOUND" in patient.line.run("retention", "show", "vol/short")
    patient.line.run("retention", "unset", "vol/short")


def the_broker_hangs(patient: Patient) -> None:
    """What a service writes by itself cannot be published then: at the latest an automatic snapshot."""
    patient.line.run("bucket", "create", "vol/kept")
    patient.line.run("retention", "set", "vol/kept", "--snapshot-every", "1m", "--yes")
    patient.signal(BROKER, signal.SIGSTOP)


def repair_the_broker(patient: Patient) -> None:
    eventually(lambda: "broker" in patient.readiness("snapshots").text)
    patient.signal(BROKER, signal.SIGCONT)
    patient.line.run("retention", "unset", "vol/kept")
    patient.delete_a_key("vol/kept")


def prometheus_has_another_job(patient: Patient) -> None:
    patient.watch("renamed")


def restore_the_job(patient: Patient) -> None:
    patient.watch()


def spark_hangs(patient: Patient) -> None:
    """Nobody judges then what only a dropped snapshot held: the next one does not become clean."""
    patient.line.run("bucket", "create", "vol/unjudged")
    patient.line.run("key", "put", "vol/unjudged/key", "--size", "1MiB")
    patient.line.run("snapshot", "create", "vol/unjudged", "one")
    patient.line.run("key", "delete", "vol/unjudged/key")
    patient.line.run("snapshot", "create", "vol/unjudged", "two")
    patient.signal_java("STOP")
    patient.line.run("snapshot", "delete", "vol/unjudged", "one", "--yes")


def kill_java(patient: Patient) -> None:
    assert "keys and directories" not in patient.line.run("snapshot", "list", "vol/unjudged"), "the column CLEAN"
    patient.signal_java("KILL")


def a_figure_is_damaged(patient: Patient) -> None:
    """A row of spaceTable counts nothing where a deletion waits, as after a fault of the disk."""
    patient.line.run("bucket", "create", "vol/damaged")
    patient.line.run("gc", "pause", "vol/damaged", "--reason", "the fault comes first")
    patient.delete_a_key("vol/damaged")
    with changing(patient.line.home, "metadata", (*MetadataService.tables, *RUNTIME_TABLES)) as store:
        rows = dict(TableReader(SPACE_TABLE, store).scan())
        pending = {key: replace(row, bytes=0, versions=0) for key, row in rows.items() if row.key_rows}
        store.write({SPACE_TABLE.name: {key: row_codec(SpaceCellValue).encode(row) for key, row in pending.items()}})
    eventually(lambda: patient.is_ready("metadata"))
    patient.line.run("gc", "resume", "vol/damaged")


def rebuild_metadata(patient: Patient) -> None:
    assert "vol/damaged" in patient.line.run("breaker", "status")
    patient.rebuild_metadata()


def a_snapshot_is_lost(patient: Patient) -> None:
    """A row of snapshotInfoTable is missing, as after a fault of the disk; the next row and metadata still name it."""
    patient.line.run("bucket", "create", "vol/chained")
    for name in ("one", "two"):
        patient.line.run("snapshot", "create", "vol/chained", name)
    with changing(patient.line.home, "snapshots", TABLES) as store:
        rows = dict(TableReader(SNAPSHOT_INFO_TABLE, store).scan())
        lost = next(key for key, row in rows.items() if (row.bucket, row.name) == ("chained", "one"))
        store.write({SNAPSHOT_INFO_TABLE.name: {lost: None}})


def recover_the_rows_from_the_changelog(patient: Patient) -> None:
    assert "unknown_here" in patient.line.run("logs", "snapshots", "--with", "snapshots differ from metadata's chain")
    patient.line.run("down")
    database = patient.line.home / "data" / "snapshots" / "0"
    database.rename(database.with_name("damaged"))
    patient.start_again()
    patient.line.run("gc", "resume", "--chain-is-mended", "--reason", "chain built again")
    assert "one" in patient.line.run("snapshot", "list", "vol/chained")


def a_stranger_orders_what_is_held(patient: Patient) -> None:
    """He has read of the deletion on its topic, and sends what the first judge sends, then what the second does."""
    patient.line.run("bucket", "create", "vol/held")
    patient.line.run("key", "put", "vol/held/key", "--size", "1MiB")
    patient.line.run("snapshot", "create", "vol/held", "one")
    first = patient.log().end_offset(DELETED_ENTRIES.name, 0)
    patient.line.run("key", "delete", "vol/held/key")
    eventually(lambda: bool(deleted_since(patient, first)))
    entry = deleted_since(patient, first)[-1]
    purge = PurgeKeys(entry.chain_version, entry.rows, entry.snapshots_before_death)
    patient.send(PURGE_KEYS, codec(PurgeKeys).encode_message(purge))
    claim = ClaimRows(1 << 62, entry.chain_version, (entry.rows,))
    command = MetadataCommand(0, "", 0, claim, "key_deletion", wants_reply=False)
    patient.send(METADATA_COMMANDS, codec(MetadataCommand).encode_message(command))


def deleted_since(patient: Patient, first: int) -> list[DeletedEntries]:
    """What deletions, and no sweeps, have sent from an offset on."""
    log, name = patient.log(), DELETED_ENTRIES.name
    records = records_between(log, name, 0, first, log.end_offset(name, 0))
    entries = [codec(DeletedEntries).decode_message(record.value) for record in records]
    return [entry for entry in entries if entry.rows.object_ids and not entry.sweep_id]


def stop_the_plane_and_report_it(patient: Patient) -> None:
    """By the logs the second judge has refused a row, and no judge has sent the refused claim."""
    assert patient.line.run("logs", "key_deletion", "--with", "let a held")
    assert not patient.line.run("logs", "key_deletion", "--with", "claim refused")
    assert not patient.line.run("logs", "directory_deletion", "--with", "purge refused")
    patient.line.run("down")
    patient.start_again()
    assert "key" in patient.line.run("deleted", "list", "vol/held")


def a_stranger_leaves_a_transaction_open(patient: Patient) -> None:
    """Readers stop before it. The broker ends it after a quarter of an hour, if nobody does."""
    patient.line.run("bucket", "create", "vol/stuck")
    producer = patient.producer(**{"transactional.id": "stranger", "transaction.timeout.ms": 900_000})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(METADATA_COMMANDS.name, b"never committed", partition=0)
    assert not producer.flush(30)
    put = MetadataCommand(0, "", 0, PutKey("vol", "stuck", "key", 1_000), wants_reply=False)
    patient.send(METADATA_COMMANDS, codec(MetadataCommand).encode_message(put))


def abort_the_transaction(patient: Patient) -> None:
    eventually(lambda: "metadata.commands" in patient.line.run("logs", "metadata", "--with", "an open transaction"))
    assert "transactionalId stranger " in (patient.line.home / "broker" / "broker.log").read_text("utf-8")
    runbook = (ROOT / "docs" / "operations" / "recover.md").read_text("utf-8")
    program = runbook.partition("## A transaction is left open\n")[2].partition("```python\n")[2].partition("```")[0]
    home = {"DEEPCLEAN_HOME": str(patient.line.home)}
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env={**os.environ, **home}, check=True, timeout=60)
    eventually(lambda: "key" in patient.line.run("key", "list", "vol/stuck"))


def the_oldest_marker_is_deleted(patient: Patient) -> None:
    """As by an operator with kafka-delete-records.sh. Spark reads the chain from its beginning when it starts."""
    patient.line.run("bucket", "create", "vol/cut")
    patient.line.run("key", "put", "vol/cut/key", "--size", "1MiB")
    for name in ("one", "two"):
        patient.line.run("snapshot", "create", "vol/cut", name)
    log, name = patient.log(), SNAPSHOT_CHAIN.name
    log.trim(name, 0, log.first_offset(name, 0) + 1)
    patient.signal_java("KILL")
    patient.line.run("key", "delete", "vol/cut/key")


def publish_a_full_chain(patient: Patient) -> None:
    assert "the snapshot chain cannot be followed" in patient.line.run("logs", "streaming", "--level", "error")
    patient.line.run("trim-log", "--full-chain", "--dry-run")


@pytest.mark.parametrize(
    ("alerts", "fault", "repair"),
    [
        ({"DeepcleanTargetDown"}, a_process_hangs, end_the_hanging_process),
        ({"DeepcleanBreakerTripped"}, more_is_deleted_than_allowed, reset_the_breaker),
        ({"DeepcleanCollectionSuspended"}, a_pause_is_forgotten, resume),
        ({"DeepcleanDeadLetters"}, a_stranger_writes_to_a_topic, drop_the_letter),
        (
            {"DeepcleanStoreConfirmsNothing", "DeepcleanNotFreed"},
            the_block_store_confirms_nothing,
            repair_the_block_store,
        ),
        ({"DeepcleanPurgesWait"}, the_block_store_hangs, end_the_hanging_process),
        ({"DeepcleanRetentionFails"}, a_policy_outlives_its_bucket, unset_the_policy),
        ({"DeepcleanOutboxStuck", "DeepcleanStepsFail"}, the_broker_hangs, repair_the_broker),
        ({"DeepcleanInputStuck"}, a_stranger_leaves_a_transaction_open, abort_the_transaction),
        ({"DeepcleanNotScraped"}, prometheus_has_another_job, restore_the_job),
        ({"DeepcleanJudgingStopped", "DeepcleanSnapshotsUnclean"}, spark_hangs, kill_java),
        ({"DeepcleanFiguresDisagree"}, a_figure_is_damaged, rebuild_metadata),
        (
            {"DeepcleanChainCorrupted", "DeepcleanChainDiffers"},
            a_snapshot_is_lost,
            recover_the_rows_from_the_changelog,
        ),
        (
            {"DeepcleanClaimRefused", "DeepcleanJudgesDisagree"},
            a_stranger_orders_what_is_held,
            stop_the_plane_and_report_it,
        ),
        # The last one: after it no service can read the chain from its beginning.
        ({"DeepcleanShardNotJudged"}, the_oldest_marker_is_deleted, publish_a_full_chain),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_a_fault_fires_its_alert_and_the_runbook_ends_it(
    patient: Patient, alerts: set[str], fault: Callable[[Patient], None], repair: Callable[[Patient], None]
) -> None:
    patient.try_runbook(alerts, fault, repair)

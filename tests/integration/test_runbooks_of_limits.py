"""The runbooks of what is late, fails too often or fills up, tried as those of ``test_runbooks.py``."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from schemas.codec import codec
from schemas.records import MetadataCommand, PutKey, PutKeys, ShardState
from schemas.stored_rows import row_codec
from schemas.topics import METADATA_COMMANDS
from services.cli.exit_status import ExitStatus
from services.domain.table_keys import LAST_TXN_WITH_BLOCKS
from services.metadata.service import MetadataService
from services.metadata.state.tables import TRANSACTION_INFO_KEY, TRANSACTION_INFO_TABLE
from services.plane.stack.plane_file import running_plane
from services.plane.stack.process_names import METADATA, STREAMING
from services.runtime.loop.runner import RUNTIME_TABLES
from services.storage.tables import TableReader
from tests.changed_databases import changing
from tests.metric_catalogue import ROOT
from tests.patient import Patient, admitted, repeated
from tests.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]
HANGING = "the-disk-hangs"
"""While there is a file of that name beside the plane's home, nothing of metadata gets onto its disk."""
SNAPSHOTS = [f"snapshot-{number}" for number in range(10)]
"""So many that the database merges the table files that are made with each."""
IDS_LEFT = 1_000_000


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patient]:
    directory = tmp_path_factory.mktemp("limits")
    with admitted(directory, **a_disk_that_can_hang(directory)) as patient:
        yield patient


def a_disk_that_can_hang(directory: Path) -> dict[str, str]:
    """The settings of a plane for ``HANGING``; none without a C compiler."""
    compiler, library = shutil.which("cc"), str(directory / "hanging_disk.so")
    if compiler is None:
        return {}
    source = str(ROOT / "tests" / "hanging_disk.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    database = directory / "home" / "data" / METADATA
    return {"LD_PRELOAD": library, "HANG_BELOW": str(database), "HANG_WHILE": str(directory / HANGING)}


def put(bucket: str, *keys: str) -> bytes:
    several = PutKeys("vol", bucket, keys, (1_000,) * len(keys))
    body = PutKey("vol", bucket, keys[0], 1_000) if len(keys) == 1 else several
    return codec(MetadataCommand).encode_message(MetadataCommand(0, "", 0, body, wants_reply=False))


def lag(patient: Patient, name: str) -> int:
    return int(next(one["lag_messages"] for one in patient.line.json("status")["processes"] if one["name"] == name))


# Each fault is made on a bucket of its own, so that one does not hide another.


def metadata_has_too_few_cores(patient: Patient) -> None:
    """It gets a tenth of one, and clients write more than that can apply."""
    patient.line.run("bucket", "create", "vol/busy")
    numbers, producer = itertools.count(), patient.producer()

    def write() -> None:
        for number in itertools.islice(numbers, 400):
            producer.produce(METADATA_COMMANDS.name, put("busy", f"key-{number}"), partition=0)
        producer.poll(0)

    patient.lasting.enter_context(repeated(write, 0.1))
    patient.lasting.enter_context(held_back(running_plane(patient.line.home).processes[METADATA].identity.pid, 0.1))


@contextmanager
def held_back(pid: int, share: float) -> Iterator[None]:
    """Let a process run for a share of the time, as a quota of processor time does."""

    def hold_back() -> None:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.1 * (1 - share))
        os.kill(pid, signal.SIGCONT)

    with repeated(hold_back, 0.1 * share):
        yield


def give_it_cores(patient: Patient) -> None:
    assert lag(patient, METADATA) > 1_000
    patient.lasting.close()
    eventually(lambda: lag(patient, METADATA) == 0)


def the_disk_hangs(patient: Patient) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler: apt-get install gcc")
    patient.line.run("bucket", "create", "vol/silent")
    (patient.directory / HANGING).touch()
    patient.send(METADATA_COMMANDS, put("silent", "key"))


def start_again_when_the_disk_works(patient: Patient) -> None:
    assert patient.answer(METADATA, "/healthz").is_success, "it answers, and fails after two minutes"
    patient.line.run("down")
    (patient.directory / HANGING).unlink()
    patient.start_again()


def snapshots_fill_the_disk(patient: Patient) -> None:
    """Each keeps table files that the database has merged since. The budget is a size that the disk can spare."""
    patient.line.run("bucket", "create", "vol/large")
    for name in SNAPSHOTS:
        for page in range(10):
            patient.send(METADATA_COMMANDS, put("large", *(f"{name}-{page}-{number}" for number in range(1_000))))
        patient.line.run("snapshot", "create", "vol/large", name)
    eventually(lambda: patient.value('deepclean_checkpoint_bytes{service="metadata"}') > 1e6)
    kept, database = (
        patient.value(f'deepclean_{what}_bytes{{service="metadata"}}') for what in ("checkpoint", "database")
    )
    # Other services have disks of their own.
    budget = f"{database + kept / 2:.0f}"
    patient.edit_rules(
        {"deepclean_database_bytes +": 'deepclean_database_bytes{service="metadata"} +', "200e9": budget}
    )


def delete_the_snapshots(patient: Patient) -> None:
    assert len(list((patient.line.home / "data" / "metadata" / "0" / "checkpoints").iterdir())) >= len(SNAPSHOTS)
    patient.line.run("snapshot", "delete", "vol/large", *SNAPSHOTS, "--yes")


def the_block_store_is_slow(patient: Patient) -> None:
    patient.edit_rules({'freed_seconds_bucket{le="1800.0"}': 'freed_seconds_bucket{le="5.0"}'})
    patient.line.run("bucket", "create", "vol/late")
    patient.switch({"delay_ms": 8_000})
    for _ in range(4):
        patient.delete_a_key("vol/late")


def make_it_faster(patient: Patient) -> None:
    patient.delete_a_key("vol/late")
    eventually(lambda: patient.shows("deepclean_key_deletion_unconfirmed_bytes > 0"))
    patient.switch({})


def spark_is_slow(patient: Patient) -> None:
    """Its Java process gets no processor time for a while."""
    patient.edit_rules({'verdict_seconds_bucket{le="300.0"}': 'verdict_seconds_bucket{le="5.0"}'})
    patient.line.run("bucket", "create", "vol/unjudged")
    patient.signal_java("STOP")
    for _ in range(4):
        patient.delete_a_key("vol/unjudged")
    time.sleep(5)
    patient.signal_java("CONT")


def wait_until_it_has_caught_up(patient: Patient) -> None:
    eventually(lambda: lag(patient, STREAMING) == 0)


def a_checkpoint_is_damaged(patient: Patient) -> None:
    """Not the files that it shares with the database: others are put in their place. Users read the snapshot."""
    patient.edit_rules({"increase3d > 5000": "increase3d > 200"})
    patient.line.run("bucket", "create", "vol/read")
    patient.line.run("key", "put", "vol/read/key", "--size", "1MiB")
    patient.line.run("snapshot", "create", "vol/read", "one")
    (snapshot,) = patient.line.json("snapshot", "list", "vol/read")
    checkpoint = patient.line.home / "data" / "metadata" / "0" / "checkpoints" / snapshot["snapshot_id"]
    eventually((checkpoint / "TRIMMED").exists)
    for file in checkpoint.glob("*.sst"):
        nothing = bytes(file.stat().st_size)
        file.unlink()
        file.write_bytes(nothing)
    url = f"{running_plane(patient.line.home).processes[METADATA].url}/v1/shards/0/entries"
    asked = {"volume": "vol", "bucket": "read", "snapshot_id": snapshot["snapshot_id"]}
    http = patient.lasting.enter_context(httpx.Client(trust_env=False))
    patient.lasting.enter_context(repeated(lambda: http.get(url, params=asked), 0.01))


def rebuild_the_damaged_database(patient: Patient) -> None:
    assert "it is damaged" in patient.line.run(
        "key", "list", "vol/read", "--snapshot", "one", status=ExitStatus.UNREACHABLE
    )
    patient.lasting.close()
    patient.rebuild_metadata()
    assert "key" in patient.line.run("key", "list", "vol/read", "--snapshot", "one")


def ids_run_out(patient: Patient) -> None:
    """As after a hundred billion commands."""
    patient.line.run("bucket", "create", "vol/full")
    with changing(patient.line.home, METADATA, (*MetadataService.tables, *RUNTIME_TABLES)) as store:
        state = TableReader(TRANSACTION_INFO_TABLE, store).get(TRANSACTION_INFO_KEY)
        assert state is not None
        used = LAST_TXN_WITH_BLOCKS - IDS_LEFT
        row = row_codec(ShardState).encode(replace(state, txn=used, skipped_txns=used))
        store.write({TRANSACTION_INFO_TABLE.name: {TRANSACTION_INFO_KEY: row}})
    eventually(lambda: patient.is_ready(METADATA))
    patient.send(METADATA_COMMANDS, *(put("full", f"key-{number}") for number in range(1_000)))


def add_a_shard(patient: Patient) -> None:
    (shard,) = patient.line.json("shards", "list")
    assert LAST_TXN_WITH_BLOCKS - IDS_LEFT < shard["txn"] < LAST_TXN_WITH_BLOCKS
    patient.line.run("shards", "add", "2", "--yes")
    patient.line.run("volume", "create", "further")
    patient.line.run("bucket", "create", "further/bucket")
    patient.line.run("key", "put", "further/bucket/key", "--size", "1MiB")


@pytest.mark.parametrize(
    ("alerts", "fault", "repair"),
    [
        ({"DeepcleanBacklogOld", "DeepcleanLagGrows"}, metadata_has_too_few_cores, give_it_cores),
        ({"DeepcleanDatabaseLarge"}, snapshots_fill_the_disk, delete_the_snapshots),
        ({"DeepcleanFreedLateFast", "DeepcleanFreedLateSlow"}, the_block_store_is_slow, make_it_faster),
        ({"DeepcleanVerdictsLateFast", "DeepcleanVerdictsLateSlow"}, spark_is_slow, wait_until_it_has_caught_up),
        ({"DeepcleanLoopSilent"}, the_disk_hangs, start_again_when_the_disk_works),
        (
            {"DeepcleanReadsFailFast", "DeepcleanReadsFailSlow"},
            a_checkpoint_is_damaged,
            rebuild_the_damaged_database,
        ),
        ({"DeepcleanShardFillsUp"}, ids_run_out, add_a_shard),  # the last one: its shard stays full
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_what_is_late_or_full_fires_its_alert_and_the_runbook_ends_it(
    patient: Patient, alerts: set[str], fault: Callable[[Patient], None], repair: Callable[[Patient], None]
) -> None:
    patient.try_runbook(alerts, fault, repair)

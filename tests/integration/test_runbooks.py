"""The runbooks, tried: a fault is made on a real plane, its alert fires in a real Prometheus, and what the alert's
runbook says ends it.

The alerts are those of ``deploy/prometheus/rules.yml``. The times of each are divided by one number, so that the
longest is some seconds, and with them what a counter may grow within such a time; what they compare is unchanged.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from confluent_kafka import Producer

from schemas.codec import codec
from schemas.records import ClaimRows, DeletedEntries, MetadataCommand, PurgeKeys, SpaceCellValue
from schemas.stored_rows import row_codec
from schemas.topics import DELETED_ENTRIES, METADATA_COMMANDS, PURGE_KEYS, SNAPSHOT_CHAIN, Topic
from services.log.kafka import KafkaLog
from services.log.reads import records_between
from services.metadata.service import MetadataService
from services.metadata.state.tables import SPACE_TABLE
from services.plane.stack.plane_file import running_plane
from services.plane.stack.process_names import BROKER, STREAMING
from services.plane.upkeep.found_owners import urls_of
from services.runtime.loop.runner import RUNTIME_TABLES
from services.snapshots.state.tables import SNAPSHOT_INFO_TABLE, TABLES
from services.storage.rocks import RocksStore
from services.storage.tables import TableDefinition, TableReader
from tests import prometheus
from tests.integration.test_dashboards import configuration, is_answering
from tests.metric_catalogue import ROOT
from tests.typed_commands import CommandLine
from tests.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]
LONGEST_SECONDS = 10.0
"""The longest time of a rule here: several scrapes of a second."""
PATIENCE_SECONDS = 180.0
_DURATION = re.compile(r"(?<=[\[ ])(\d+)(s|m|h|d)(?=[\])\s:]|$)")
_COMPARED = re.compile(r"(?<=_batch_timestamp_seconds > )\d+")
"""Seconds that a rule compares with, not a time of Prometheus."""
_GROWN = re.compile(r"(?<=_total\[)(\w+\]\) > )(\d+)")
"""What a counter may grow within a time."""
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def shortened(rule: dict[str, Any]) -> dict[str, Any]:
    """A rule with its times divided by one number, so that the longest is ``LONGEST_SECONDS``."""
    times = [int(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION.findall(rule["expr"])]
    lasts = [int(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION.findall(f" {rule.get('for', '0s')}")]
    compared = [int(seconds) for seconds in _COMPARED.findall(rule["expr"])]
    divisor = max(1.0, max([*times, *lasts, *compared, 0]) / LONGEST_SECONDS)

    def shorter(found: re.Match[str]) -> str:
        return f"{max(1_000, round(1_000 * int(found[1]) * _UNIT_SECONDS[found[2]] / divisor))}ms"

    expression = _COMPARED.sub(lambda found: str(max(1, round(int(found[0]) / divisor))), rule["expr"])
    expression = _GROWN.sub(lambda found: f"{found[1]}{int(found[2]) / divisor:g}", expression)
    changed = {**rule, "expr": _DURATION.sub(shorter, expression)}
    if "for" in rule:
        changed["for"] = _DURATION.sub(shorter, f" {rule['for']}").strip()
    return changed


def shortened_rules(file: Path) -> Path:
    """Write all rules, shortened."""
    rules = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules.yml").read_text("utf-8"))
    for group in rules["groups"]:
        group.pop("interval", None)
        group["rules"] = [shortened(rule) for rule in group["rules"]]
    file.write_text(yaml.safe_dump(rules), "utf-8")
    return file


def watching(directory: Path, home: Path, job: str = "deepclean") -> Path:
    """Write the configuration of a Prometheus that scrapes a plane each second, with shortened rules."""
    described = configuration(directory, urls_of(running_plane(home)))
    settings = yaml.safe_load(described.read_text("utf-8"))
    settings["rule_files"] = [str(shortened_rules(directory / "rules.yml"))]
    settings["scrape_configs"][0]["job_name"] = job
    described.write_text(yaml.safe_dump(settings), "utf-8")
    return described


@dataclass(frozen=True)
class Patient:
    """A plane on which faults are made, and the Prometheus that watches it."""

    line: CommandLine
    prometheus_url: str
    prometheus: subprocess.Popen[bytes]
    directory: Path

    def watch(self, job: str = "deepclean") -> None:
        """Have Prometheus scrape the processes that run now."""
        watching(self.directory, self.line.home, job)
        self.prometheus.send_signal(signal.SIGHUP)

    def switches(self) -> dict[str, Any]:
        return dict(self._asked("GET"))

    def switch(self, wanted: dict[str, Any]) -> None:
        self._asked("PUT", json=wanted)

    def _asked(self, method: str, **sent: Any) -> Any:
        url = f"{running_plane(self.line.home).processes['mock_scm'].url}/v1/switches"
        with httpx.Client(trust_env=False) as http:
            return http.request(method, url, **sent).raise_for_status().json()

    def signal(self, name: str, number: int) -> None:
        os.kill(running_plane(self.line.home).processes[name].identity.pid, number)

    def firing(self) -> set[str]:
        return {
            found["metric"]["alertname"]
            for found in prometheus.series(self.prometheus_url, 'ALERTS{alertstate="firing"}')
        }

    def shows(self, expression: str) -> bool:
        """Whether Prometheus returns something for an expression."""
        return bool(prometheus.series(self.prometheus_url, expression))

    def log(self) -> KafkaLog:
        """The plane's log, as anybody reaches it who reaches the broker of a plane that is not secure."""
        return KafkaLog(running_plane(self.line.home).bootstrap_servers, "stranger")

    def send(self, topic: Topic, message: bytes) -> None:
        producer = Producer({"bootstrap.servers": running_plane(self.line.home).bootstrap_servers})
        producer.produce(topic.name, message, partition=0)
        assert not producer.flush(30)

    def start_again(self) -> None:
        self.line.run("up", "--base-port", "0", "--no-page")
        self.watch()

    def delete_a_key(self, bucket: str) -> None:
        self.line.run("key", "put", f"{bucket}/key", "--size", "1MiB")
        self.line.run("key", "delete", f"{bucket}/key")


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patient]:
    prometheus.program("prometheus")  # before a plane is started in vain
    directory = tmp_path_factory.mktemp("runbooks")
    windows = {f"DEEPCLEAN_{name}_UNDO_WINDOW_MS": "0" for name in ("METADATA", "KEY_DELETION", "DIRECTORY_DELETION")}
    line = CommandLine(
        directory / "home",
        DEEPCLEAN_SNAPSHOTS_RETENTION_RUN_MS="1000",
        DEEPCLEAN_KEY_DELETION_MAX_TASKS_IN_FLIGHT="1",  # else a task that hangs leaves room for 63 others
        **windows,
    )
    with running(line):
        line.run("volume", "create", "vol")
        # Prometheus shows the last value of a job that it does not scrape any more for that long.
        forgetting = f"--query.lookback-delta={LONGEST_SECONDS:.0f}s"
        with prometheus.started(watching(directory, line.home), directory, forgetting) as (url, process):
            eventually(lambda: is_answering(url))
            yield Patient(line, url, process, directory)


@contextmanager
def running(line: CommandLine) -> Iterator[None]:
    try:
        line.run("up", "--base-port", "0", "--no-page")
        yield
    finally:
        job = running_plane(line.home).processes.get(STREAMING)
        if job is not None:  # a Java process that a failed test has stopped
            subprocess.run(["pkill", "-CONT", "-P", str(job.identity.pid), "java"], check=False)
        line.run("down")


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
    eventually(lambda: "see that it runs" in readiness(patient, "snapshots").text)
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
    signal_java(patient, "STOP")
    patient.line.run("snapshot", "delete", "vol/unjudged", "one", "--yes")


def kill_java(patient: Patient) -> None:
    assert "keys and directories" not in patient.line.run("snapshot", "list", "vol/unjudged"), "the column CLEAN"
    signal_java(patient, "KILL")


def signal_java(patient: Patient, name: str) -> None:
    """Signal the Java process of the Spark job, as the runbook does."""
    job = next(one for one in patient.line.json("status")["processes"] if one["name"] == STREAMING)
    subprocess.run(["pkill", f"-{name}", "-P", str(job["pid"]), "java"], check=True)


def a_figure_is_damaged(patient: Patient) -> None:
    """A row of spaceTable counts nothing where a deletion waits, as after a fault of the disk."""
    patient.line.run("bucket", "create", "vol/damaged")
    patient.line.run("gc", "pause", "vol/damaged", "--reason", "the fault comes first")
    patient.delete_a_key("vol/damaged")
    with changing(patient, "metadata", (*MetadataService.tables, *RUNTIME_TABLES)) as store:
        rows = dict(TableReader(SPACE_TABLE, store).scan())
        pending = {key: replace(row, bytes=0, versions=0) for key, row in rows.items() if row.key_rows}
        store.write({SPACE_TABLE.name: {key: row_codec(SpaceCellValue).encode(row) for key, row in pending.items()}})
    eventually(lambda: is_ready(patient, "metadata"))
    patient.line.run("gc", "resume", "vol/damaged")


def rebuild_metadata(patient: Patient) -> None:
    assert "vol/damaged" in patient.line.run("breaker", "status")
    patient.line.run("down")
    database = patient.line.home / "data" / "metadata" / "0"
    database.rename(database.with_name("damaged"))
    patient.line.run("rebuild", "0")
    patient.start_again()


def readiness(patient: Patient, service: str) -> httpx.Response:
    with httpx.Client(trust_env=False) as http:
        return http.get(f"{running_plane(patient.line.home).processes[service].url}/readyz")


def is_ready(patient: Patient, service: str) -> bool:
    try:
        return readiness(patient, service).is_success
    except httpx.HTTPError:
        return False


@contextmanager
def changing(patient: Patient, service: str, tables: Sequence[TableDefinition[Any]]) -> Iterator[RocksStore]:
    """Kill a service, and open its database; its supervisor starts it again only when the database is closed."""
    plane = running_plane(patient.line.home)
    try:
        os.kill(plane.supervisor.pid, signal.SIGSTOP)
        patient.signal(service, signal.SIGKILL)
        eventually(lambda: not plane.processes[service].identity.is_alive())
        with closing(RocksStore(patient.line.home / "data" / service / "0" / "db", tables)) as store:
            yield store
    finally:
        os.kill(plane.supervisor.pid, signal.SIGCONT)


def a_snapshot_is_lost(patient: Patient) -> None:
    """A row of snapshotInfoTable is missing, as after a fault of the disk; the next row and metadata still name it."""
    patient.line.run("bucket", "create", "vol/chained")
    for name in ("one", "two"):
        patient.line.run("snapshot", "create", "vol/chained", name)
    with changing(patient, "snapshots", TABLES) as store:
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


def the_oldest_marker_is_deleted(patient: Patient) -> None:
    """As by an operator with kafka-delete-records.sh. Spark reads the chain from its beginning when it starts."""
    patient.line.run("bucket", "create", "vol/cut")
    patient.line.run("key", "put", "vol/cut/key", "--size", "1MiB")
    for name in ("one", "two"):
        patient.line.run("snapshot", "create", "vol/cut", name)
    log, name = patient.log(), SNAPSHOT_CHAIN.name
    log.trim(name, 0, log.first_offset(name, 0) + 1)
    signal_java(patient, "KILL")
    patient.line.run("key", "delete", "vol/cut/key")


def publish_a_full_chain(patient: Patient) -> None:
    assert "the snapshot chain cannot be followed" in patient.line.run("logs", "streaming", "--level", "error")
    patient.line.run("trim-log", "--full-chain", "--dry-run")


def await_peace(patient: Patient, otherwise: str) -> None:
    """Return as soon as no alert fires; a failure names those that still do."""
    try:
        eventually(lambda: not patient.firing(), PATIENCE_SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{otherwise}: {', '.join(sorted(patient.firing()))}") from error


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
    await_peace(patient, "an alert fires before the fault")
    fault(patient)
    eventually(lambda: alerts <= patient.firing(), PATIENCE_SECONDS, f"no alert of {alerts}")
    repair(patient)
    await_peace(patient, "the runbook does not end it")

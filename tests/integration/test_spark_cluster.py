"""The reclaim job by spark-submit, on a standalone cluster of two workers and on this machine."""

from __future__ import annotations

import contextlib
import json
import subprocess
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from schemas.records import ChainCapture, ChainDrop, DeletedKind, RowName
from schemas.topics import DEAD_LETTERS
from services.domain.judging import LoggedEntry, judge_batch
from services.domain.row_columns import DeletedEntry, row_names
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.topics import create_plane_topics
from services.plane.machine.home import jars_directory
from services.plane.machine.ports import free_ports
from streaming.spark.session import SessionOptions, executor_java_options
from tests.integration.test_reclaim_job import Wire, rows
from tests.metric_catalogue import ROOT
from tests.spark_cluster import SPARK_HOME, environment_of, kill_group, spark_cluster
from tests.spark_session import SPARK_MARKS, java_for_spark
from tests.waiting import eventually

pytestmark = [*SPARK_MARKS, pytest.mark.broker, pytest.mark.timeout(400), pytest.mark.long]

PACKAGES = ("deepclean", "services", "streaming", "schemas")
BUCKET_ID = 256
CAPTURED = (100, 200, 300)
MESSAGES = 300
EXECUTOR_MEMORY = "768m"
USERS_OPTION = "-Dof.a.user=1"


@dataclass(slots=True)
class Submitting:
    """What spark-submit needs: the job as an archive, the broker, and the environment."""

    directory: Path
    wire: Wire
    environment: dict[str, str]

    @contextlib.contextmanager
    def submitted(self, master: str, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """The job by spark-submit, ready, with a checkpoint at an address of Hadoop's; killed at the end."""
        (port,), log = free_ports(1), self.directory / f"{name}.log"
        (self.directory / "events").mkdir(exist_ok=True)
        conf = {
            "spark.executor.memory": EXECUTOR_MEMORY,
            "spark.executor.extraJavaOptions": USERS_OPTION,
            "spark.hadoop.fs.viewfs.mounttable.store.link./up": self.directory.as_uri(),
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": (self.directory / "events").as_uri(),
            "spark.eventLog.compress": "false",
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
        }
        jars = ",".join(map(str, sorted((jars_directory() / "spark").glob("*.jar"))))
        command = [
            str(SPARK_HOME / "bin" / "spark-submit"),
            "--master",
            master,
            "--jars",
            jars,
            "--driver-memory",
            "512m",
        ]
        command += [option for one, value in conf.items() for option in ("--conf", f"{one}={value}")]
        command += ["--py-files", str(self.directory / "deepclean.zip"), str(ROOT / "streaming/submit/reclaim.py")]
        command += ["--bootstrap-servers", self.wire.bootstrap_servers, "--shards", "1", "--metrics-port", str(port)]
        command += ["--checkpoint", f"viewfs://store/up/{name}"]
        with (
            log.open("ab") as file,
            subprocess.Popen(
                command, env=self.environment, cwd=self.directory, stdout=file, stderr=file, start_new_session=True
            ) as process,
        ):
            try:
                eventually(lambda: is_ready(port) or process.poll() is not None, patience_seconds=120)
                assert process.poll() is None, log.read_text()[-3_000:]
                yield process
            finally:
                kill_group(process)

    def tasks_of_stages(self) -> list[int]:
        """The number of tasks of each stage of all applications, by their event logs."""
        files = [file for file in (self.directory / "events").rglob("*") if file.is_file()]
        events = (
            json.loads(line) for file in files for line in file.read_text().splitlines() if '"Stage Info"' in line
        )
        return [event["Stage Info"]["Number of Tasks"] for event in events if event["Event"].endswith("StageCompleted")]

    def commands_of_executors(self) -> list[str]:
        """The command line of each executor, which its worker writes before what the executor says."""
        said = [file.read_text() for file in self.directory.glob("worker-*/app-*/*/stderr")]
        return [line for text in said for line in text.splitlines() if line.startswith("Spark Executor Command:")]


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="module")
def submitting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Submitting]:
    directory = tmp_path_factory.mktemp("cluster")
    with zipfile.ZipFile(directory / "deepclean.zip", "w") as archive:
        for package in PACKAGES:
            for file in sorted((ROOT / package).rglob("*")):
                if file.is_file() and file.suffix not in (".pyc", ".so"):
                    archive.write(file, file.relative_to(ROOT))
    with EmbeddedBroker(directory / "broker") as broker, java_for_spark() as java:
        create_plane_topics(broker.bootstrap_servers, 1)
        yield Submitting(directory, Wire(broker.bootstrap_servers), environment_of(java))


def some_entries(random: Random, version: int, first_id: int, count: int) -> list[DeletedEntry]:
    entries = []
    for number in range(first_id, first_id + count):
        birth, death = sorted(random.sample([txn for txn in range(1, 400) if txn not in CAPTURED], 2))
        before = sum(txn < death for txn in CAPTURED)
        entries.append(DeletedEntry(BUCKET_ID, number, DeletedKind.KEY, birth, death, before, version))
    return entries


def reclaimable(wire: Wire, entries: list[DeletedEntry]) -> set[RowName]:
    judged = judge_batch([LoggedEntry(offset, entry) for offset, entry in enumerate(entries)], wire.views[0])
    return set(row_names(purge.rows for purge in judged.purge_keys))


def test_a_cluster_judges_as_one_machine_does_whatever_is_killed(submitting: Submitting, seed: int) -> None:
    """The driver, then a worker with its executor."""
    wire, random = submitting.wire, Random(seed)
    for number, txn in enumerate(CAPTURED, start=1):
        wire.mark(ChainCapture(BUCKET_ID, f"snapshot-{number}", number, txn))
    version = wire.mark(ChainDrop(BUCKET_ID, "snapshot-2", 200, 1))
    entries = some_entries(random, version, 1, 3 * MESSAGES)
    for first in range(0, len(entries), 3):
        wire.send_together(*entries[first : first + 3])
    with spark_cluster(submitting.directory, submitting.environment, workers=2) as cluster:
        with submitting.submitted(cluster.master, "cluster"):
            read = wire.settle()
        expected = reclaimable(wire, entries)
        assert 0 < len(expected) < len(entries)
        assert set(rows(read)) == expected
        assert read[DEAD_LETTERS] == []
        assert max(submitting.tasks_of_stages()) > 1, "one shard does not bound the tasks"
        commands = submitting.commands_of_executors()
        assert len(commands) >= len(cluster.workers)
        for command in commands:
            words = [word.strip('"') for word in command.split()]
            wanted = executor_java_options(
                SessionOptions(jars_directory()), {"spark.executor.memory": EXECUTOR_MEMORY}
            ).split()
            assert words[words.index(wanted[0]) :][: len(wanted) + 1] == [*wanted, USERS_OPTION], command
        later = some_entries(random, version, 10_001, 30)
        wire.send(*later)
        with submitting.submitted(cluster.master, "cluster"):
            again = set(rows(wire.settle()))
            assert reclaimable(wire, later) <= again <= expected | reclaimable(wire, later), "one batch is repeated"
            kill_group(cluster.workers[0])
            last = some_entries(random, version, 20_001, 30)
            wire.send(*last)
            assert set(rows(wire.settle())) == reclaimable(wire, last)
    with submitting.submitted("local[2]", "alone"):
        assert set(rows(wire.settle())) == reclaimable(wire, entries + later + last)

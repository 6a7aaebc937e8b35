"""A standalone Spark cluster on loopback, from PySpark's own jars: a master and workers, each a process group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from services.plane.machine.ports import free_ports
from tests.waiting import eventually

SPARK_HOME = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"
START_SECONDS = 240.0
"""It takes seconds, and more than a minute while chaos keeps the machine busy."""


@dataclass(slots=True)
class SparkCluster:
    """The address of a cluster, and its workers."""

    master: str
    start_worker: Callable[[int], subprocess.Popen[bytes]]
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def restart_worker(self, number: int) -> None:
        """Kill a worker with its executors, and start it again."""
        kill_group(self.workers[number])
        self.workers[number] = self.start_worker(number)


def environment_of(java: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process of the cluster, or of spark-submit."""
    return {**java, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable}


@contextlib.contextmanager
def spark_cluster(directory: Path, java: Mapping[str, str], workers: int) -> Iterator[SparkCluster]:
    """Start a master and workers of one core each, and end them at the end."""
    place = ["--host", LOOPBACK, "--webui-port", "0"]

    def start_worker(number: int) -> subprocess.Popen[bytes]:
        options = [*place, "--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"worker-{number}")]
        log = directory / f"worker-{number}.log"
        return _started("worker.Worker", [*options, cluster.master], log, java, "registered with master")

    (port,) = free_ports(1)
    cluster = SparkCluster(f"spark://{LOOPBACK}:{port}", start_worker)
    master = _started(
        "master.Master", [*place, "--port", str(port)], directory / "master.log", java, "New state: ALIVE"
    )
    try:
        for number in range(workers):
            cluster.workers.append(start_worker(number))
        yield cluster
    finally:
        for process in (*cluster.workers, master):
            kill_group(process)


def _started(name: str, options: list[str], log: Path, java: Mapping[str, str], said: str) -> subprocess.Popen[bytes]:
    """Start a process of the cluster, and wait until its log says that it serves."""
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *options]
    environment = {**environment_of(java), "SPARK_DAEMON_MEMORY": "256m"}
    with log.open("ab") as file:
        before = file.tell()
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True)
    try:
        eventually(
            lambda: said.encode() in log.read_bytes()[before:], START_SECONDS, f"{name} does not start: see {log}"
        )
    except BaseException:
        kill_group(process)
        raise
    return process


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it has started; do nothing if it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

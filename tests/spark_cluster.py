"""A standalone Spark cluster on loopback, from PySpark's own jars: a master and workers, each a process group."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from tests.waiting import eventually

SPARK_HOME = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"


@dataclass(slots=True)
class SparkCluster:
    """The address of a cluster, and its workers."""

    master: str
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)


def environment_of(java: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process of the cluster, or of spark-submit."""
    return {**java, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": LOOPBACK, "PYSPARK_PYTHON": sys.executable}


@contextlib.contextmanager
def spark_cluster(directory: Path, java: Mapping[str, str], workers: int) -> Iterator[SparkCluster]:
    """Start a master and workers of one core each, and end them at the end."""
    port = free_port()
    cluster = SparkCluster(f"spark://{LOOPBACK}:{port}")
    place = ["--host", LOOPBACK, "--webui-port", "0"]
    with contextlib.ExitStack() as opened:
        log = directory / "master.log"
        opened.enter_context(_running("master.Master", [*place, "--port", str(port)], log, java))
        eventually(lambda: "started at" in log.read_text() or "New state: ALIVE" in log.read_text())
        for number in range(workers):
            options = [*place, "--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"worker-{number}")]
            log = directory / f"worker-{number}.log"
            process = _running("worker.Worker", [*options, cluster.master], log, java)
            cluster.workers.append(opened.enter_context(process))
            eventually(lambda: "registered with master" in log.read_text())  # noqa: B023  awaited here
        yield cluster


@contextlib.contextmanager
def _running(name: str, options: list[str], log: Path, java: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *options]
    environment = {**environment_of(java), "SPARK_DAEMON_MEMORY": "256m"}
    with (
        log.open("wb") as file,
        subprocess.Popen(command, env=environment, stdout=file, stderr=file, start_new_session=True) as process,
    ):
        try:
            yield process
        finally:
            kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it has started; do nothing if it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listening:
        listening.bind((LOOPBACK, 0))
        return int(listening.getsockname()[1])

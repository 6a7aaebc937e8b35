"""Create archives of the classes that Kafka and Spark load, so that both start in about half the time.

    python -m services.plane.broker.class_archives DIR    creates DIR/kafka/classes.jsa and DIR/spark/classes.jsa

An archive is Java's application class-data sharing (AppCDS), recorded while a broker and a small streaming job run
once. Kafka and Spark also start without an archive, or with an archive of another Java, but more slowly.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Producer

from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.topics import create_topics
from services.plane.machine.errors import StackError
from services.plane.machine.java import JavaRuntime, find_java, spark_java_home

TOPIC = "classes"
MESSAGES = 10
STOP_SECONDS = 120.0
JOB_SECONDS = 400.0


def make_archives(directory: Path, java: JavaRuntime) -> None:
    """Create both archives for the jars in a directory. Raise StackError if the broker or the job did not run."""
    with tempfile.TemporaryDirectory(prefix="deepclean-classes-") as scratch:
        broker = EmbeddedBroker(
            Path(scratch) / "broker", jars=directory, java=java, stop_seconds=STOP_SECONDS, writes_class_archive=True
        )
        with broker:
            _fill(broker.bootstrap_servers)
            _run_job(directory, java, Path(scratch), broker.bootstrap_servers)


def _fill(bootstrap_servers: str) -> None:
    create_topics(bootstrap_servers, {TOPIC: {}}, 1)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "compression.type": "lz4"})
    for _ in range(MESSAGES):
        producer.produce(TOPIC, b"\x02\x02\x00")  # an Avro list of one number
    producer.flush()
    producer.close()


def _run_job(directory: Path, java: JavaRuntime, scratch: Path, bootstrap_servers: str) -> None:
    arguments = ("--jars-directory", directory / "spark", "--bootstrap-servers", bootstrap_servers, "--topic", TOPIC)
    run = subprocess.run(
        [sys.executable, "-m", "streaming.spark.class_archive", *map(str, arguments)],
        env={**os.environ, "JAVA_HOME": str(spark_java_home(java, scratch))},
        capture_output=True,
        text=True,
        timeout=JOB_SECONDS,
        check=False,
    )
    if run.returncode != 0:
        raise StackError(f"Spark did not run:\n{run.stderr}")


def main(arguments: list[str] | None = None) -> int:
    """Create the archives. A failure is printed, but the exit status is still 0: the archives are optional."""
    (directory,) = sys.argv[1:] if arguments is None else arguments
    try:
        make_archives(Path(directory).absolute(), find_java())
    except (StackError, subprocess.TimeoutExpired) as error:
        print(f"Kafka and Spark will start more slowly than they could: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

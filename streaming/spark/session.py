"""Starts the Spark session of a job: jars, heap and settings that keep a small batch fast on two cores."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from pyspark.sql import SparkSession

from services.domain.errors import InvariantError

LOOPBACK = "127.0.0.1"
CLASS_ARCHIVE = "classes.jsa"
"""In the directory of the jars: the classes of Spark, as Java maps them into memory, for a start in half the time."""
LONGEST_STRING_BYTES = 65_536
"""A string field that claims to be longer is broken bytes: without a bound, it would be given that much memory."""
LONGEST_LIST = 100_000
"""So is a list that claims more items: a message has a thousand rows. Room is made for them before they are read."""

_SETTINGS = {
    # One plan for every batch, compiled once; planning again after each stage costs more than it saves here.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ansi.enabled": "true",
    # The newer write path of the Kafka connector.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    # A map of hashed groups: a batch has a group for some thousand offsets, far more than the default allows.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    # Renames by a system call; the default asks a child process about every file.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
    ),
    # What a task has fetched beyond its part of a batch waits for one that reads on from there: a megabyte for each
    # part, five minutes by default. Of a large batch, which tasks read side by side, hardly anything is ever taken up,
    # and a job with a backlog filled its heap with it.
    "spark.kafka.consumer.fetchedData.cache.timeout": "5s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "1s",
    "spark.sql.streaming.pollingDelay": "100ms",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    # Nobody looks at these, and they cost memory and time.
    "spark.hadoop.fs.permissions.umask-mode": "077",  # Hadoop's file system does not ask for the process's own
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.maxPlanStringLength": "4096",
}


_HOT_ONLY = "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=20000 -XX:Tier4CompileThreshold=150000"
"""Ten times Java's own thresholds for its second, slow compiler. Planning a batch runs a thousand methods of which none
is hot, and compiling them all took more processor time than the batches of the first minutes. Loops are compiled as
soon as ever."""

_LONG_METHODS_TOO = "-XX:-DontCompileHugeMethods"
"""Java leaves methods of more than 8,000 bytes of code to its interpreter. What Spark makes of the columns that judge a
batch is one such method: left to the interpreter, it takes more than half of the job's processor time.
"""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What differs from one start of a job to the next."""

    jars_directory: Path
    master: str = "local[2]"
    heap: str = "1g"
    shuffle_partitions: int = 2
    name: str = "deepclean"
    login_file: Path | None = None
    """Where Java reads the name and password for the broker (JAAS); on a cluster, on every machine of it."""
    writes_class_archive: bool = False
    """Have the JVM leave the classes that it has loaded behind (``streaming.spark.class_archive``)."""

    @property
    def is_local(self) -> bool:
        """Whether all of Spark runs in one JVM, started by this process."""
        return self.master.startswith("local")


@contextlib.contextmanager
def spark_session(options: SessionOptions) -> Iterator[SparkSession]:
    """A session, stopped at the end. ``JAVA_HOME`` says which Java it runs on."""
    jars = sorted(options.jars_directory.glob("*.jar"))
    if not jars:
        raise InvariantError(f"{options.jars_directory} has no jars: run make setup, or name it with --jars-directory.")
    with tempfile.TemporaryDirectory(prefix="deepclean-spark-") as scratch:
        log_settings = Path(scratch) / "log4j2.properties"
        log_settings.write_text(resources.files("streaming").joinpath("log4j2.properties").read_text("utf-8"))
        if options.is_local:
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # tasks in Python need what this process has
        builder = SparkSession.builder.master(options.master).appName(options.name)
        for name, value in {**_SETTINGS, **_start_settings(options, jars, log_settings)}.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()


def _start_settings(options: SessionOptions, jars: list[Path], log_settings: Path) -> dict[str, str]:
    limits = (
        f"-Dorg.apache.avro.limits.string.maxLength={LONGEST_STRING_BYTES} "
        f"-Dorg.apache.avro.limits.collectionItems.maxLength={LONGEST_LIST}"
    )
    login = f" -Djava.security.auth.login.config={options.login_file}" if options.login_file else ""
    java_options = (
        f"-Dlog4j2.configurationFile={log_settings.as_uri()} {limits} {_LONG_METHODS_TOO} -XX:+UseParallelGC "
        f"-XX:NewRatio=1 {_HOT_ONLY}"
    )
    settings = {
        "spark.driver.memory": options.heap,
        "spark.driver.extraJavaOptions": java_options + login,
        "spark.sql.shuffle.partitions": str(options.shuffle_partitions),
    }
    if options.is_local:
        settings["spark.driver.extraJavaOptions"] += _classes(options)
        settings["spark.driver.extraClassPath"] = ":".join(map(str, jars))
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = LOOPBACK
    else:
        settings["spark.jars"] = ",".join(map(str, jars))
        settings["spark.executor.extraJavaOptions"] = f"{limits} {_LONG_METHODS_TOO}{login}"
    return settings


def _classes(options: SessionOptions) -> str:
    archive = options.jars_directory.absolute() / CLASS_ARCHIVE
    if options.writes_class_archive:
        return f' "-XX:ArchiveClassesAtExit={archive}"'
    if not archive.is_file():
        return ""
    return f' "-XX:SharedArchiveFile={archive}" -Xshare:auto -Xlog:cds=off -Xlog:class+path=off'

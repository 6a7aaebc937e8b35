"""Starts the Spark session of a job: jars, heap and settings that keep a small batch fast on two cores."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from services.domain.errors import InvariantError

LOOPBACK = "127.0.0.1"
_LOGIN = "java.security.auth.login.config"
CLASS_ARCHIVE = "classes.jsa"
"""Class archive in the directory of the jars. Java maps Spark's classes from it and starts in half the time."""
LONGEST_STRING_BYTES = 65_536
"""A longer string field means corrupt bytes. Without this bound, Avro allocates the claimed length."""
LONGEST_LIST = 100_000
"""A list with more items means corrupt bytes, because a message has at most 1,000 rows. Avro allocates a list before it
reads the items."""

_SETTINGS = {
    # One plan serves every batch and is compiled once; planning again after each stage costs more than it saves here.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ansi.enabled": "true",
    # The newer write path of the Kafka connector.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    # Keeps aggregation in a hash map: a batch has far more groups than the default allows before it sorts.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    # Spark caches records that a task has fetched beyond its part of a batch for a later task that continues there: a
    # megabyte for each part, five minutes by default. The parallel tasks of a large batch hardly ever use this cache,
    # and with the default it filled the heap of a job with a backlog.
    "spark.kafka.consumer.fetchedData.cache.timeout": "5s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "1s",
    "spark.sql.shuffle.partitions": "2",  # the reclaim job sets the number of cores
    "spark.sql.streaming.pollingDelay": "100ms",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.sql.streaming.stopTimeout": "300s",  # by default a query that does not end is waited for without end
    "spark.hadoop.fs.permissions.umask-mode": "077",  # Hadoop's file system ignores the umask of the process
    # The user interface is not used and costs memory and time.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "100",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.maxPlanStringLength": "4096",
}


_LOCAL_CHECKPOINT = {
    # Renames by a system call; the default starts a child process for every file.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
    )
}
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Environment variable that spark-submit sets for the program that it starts."""
LOCAL_MASTER = "local[2]"

_HOT_ONLY = "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=20000 -XX:Tier4CompileThreshold=150000"
"""Ten times Java's default thresholds for its second, slow compiler. Planning a batch runs a thousand methods, none of
them hot; compiling all of them took more processor time than the batches of the first minutes. The thresholds for loops
are unchanged."""

_PARALLEL = "-XX:+UseParallelGC -XX:NewRatio=1"
"""A batch makes much garbage and leaves nothing behind: a collector without threads beside the program does best."""
_LEAST_FOR_PARALLEL_MIB = 768
"""With this collector, Spark counts less of a heap as its own, and refuses to start with one of 512 MiB."""
_COLLECTOR = re.compile(r"-XX:[+-]Use\w+GC\b")
_EXECUTOR_MEMORY, _DEFAULT_MEMORY = "spark.executor.memory", "1g"
_MIB = {"b": 1 / 1024**2, "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0**2, "p": 1024.0**3}
_EXECUTOR_JAVA = "spark.executor.extraJavaOptions"
_JAVA_OPTIONS = (_EXECUTOR_JAVA, "spark.executor.defaultJavaOptions", "spark.executorEnv.JAVA_TOOL_OPTIONS")
"""Settings from which Java's options of an executor come."""

_LONG_METHODS_TOO = "-XX:-DontCompileHugeMethods"
"""By default, Java only interprets methods of more than 8,000 bytes of code. Spark generates one such method from the
columns that judge a batch: interpreted, it takes more than half of the job's processor time.
"""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options of a session that differ between jobs and starts."""

    jars_directory: Path
    master: str = ""
    """Spark's master; by default that of spark-submit, else ``LOCAL_MASTER``."""
    heap: str = "1g"
    name: str = "deepclean"
    login_file: Path | None = None
    """File with the user name and password for the broker (JAAS), read by Java; on a cluster, by every machine."""
    conf: tuple[str, ...] = ()
    """Further settings of Spark, each ``NAME=VALUE``; they go before ours and those of spark-submit."""
    has_local_checkpoint: bool = True
    """Streams keep their place in a directory of this machine."""
    writes_class_archive: bool = False
    """Write the loaded classes to a class archive when the JVM exits (``streaming.spark.class_archive``)."""

    @property
    def is_local(self) -> bool:
        """Return whether all of Spark runs in one JVM, started by this process."""
        return self.master.startswith("local")


def session_parser(module: str, description: str | None, jars_directory: Path | None = None) -> argparse.ArgumentParser:
    """Return a parser with the arguments of a session; ``jars_directory`` makes that argument optional."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument(
        "--jars-directory",
        type=Path,
        metavar="DIR",
        required=jars_directory is None,
        default=jars_directory,
        help="Spark's Kafka and Avro jars, which make setup fetches",
    )
    parser.add_argument("--master", default="", help=f"Spark's master (default: {LOCAL_MASTER})")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark; goes before ours"
    )
    parser.add_argument("--heap", default="1g", help="heap of Spark's driver (default: %(default)s)")
    return parser


@contextlib.contextmanager
def spark_session(options: SessionOptions) -> Iterator[SparkSession]:
    """Start a session and stop it on exit from the context. ``JAVA_HOME`` selects the Java installation.

    Raises:
        InvariantError: the directory has no jars.
    """
    with _submitted_session(options) if SUBMITTED in os.environ else _own_session(options) as session:
        yield session


@contextlib.contextmanager
def _submitted_session(options: SessionOptions) -> Iterator[SparkSession]:
    """Start a session in the JVM of spark-submit, whose settings go before ours; it has the jars already."""
    SparkContext._ensure_initialized()
    submitted = dict(SparkConf().getAll())
    settings = {**_SETTINGS, **_of_checkpoint(options), "spark.app.name": options.name, **submitted}
    settings[_EXECUTOR_JAVA] = executor_java_options(options, submitted)
    settings |= _given(options)
    jvm: Any = SparkContext._jvm
    for name, value in _properties(options).items():
        jvm.java.lang.System.setProperty(name, value)
    with _built(options.master or submitted.get("spark.master", LOCAL_MASTER), settings) as session:
        yield session


@contextlib.contextmanager
def _own_session(options: SessionOptions) -> Iterator[SparkSession]:
    """Start a session in a JVM of this process."""
    options = replace(options, master=options.master or LOCAL_MASTER)
    jars = sorted(options.jars_directory.glob("*.jar"))
    if not jars:
        raise InvariantError(f"{options.jars_directory} has no jars: run make setup, or name it with --jars-directory.")
    with tempfile.TemporaryDirectory(prefix="deepclean-spark-") as scratch:
        log_settings = Path(scratch) / "log4j2.properties"
        log_settings.write_text(resources.files("streaming").joinpath("log4j2.properties").read_text("utf-8"))
        if options.is_local:
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Python tasks need this interpreter's packages
        settings = {**_SETTINGS, **_of_checkpoint(options), **_start_settings(options, jars, log_settings)}
        settings |= {"spark.app.name": options.name, **_given(options)}
        with _built(options.master, settings) as session:
            yield session


@contextlib.contextmanager
def _built(master: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _given(options: SessionOptions) -> dict[str, str]:
    return dict([setting.split("=", 1) for setting in options.conf])


def _of_checkpoint(options: SessionOptions) -> dict[str, str]:
    return _LOCAL_CHECKPOINT if options.has_local_checkpoint else {}


def _start_settings(options: SessionOptions, jars: list[Path], log_settings: Path) -> dict[str, str]:
    settings = {
        "spark.driver.memory": options.heap,
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={log_settings.as_uri()} {_java_options(options)} {_PARALLEL}"
        ),
    }
    if options.is_local:
        settings["spark.driver.extraJavaOptions"] += _classes(options)
        settings["spark.driver.extraClassPath"] = ":".join(map(str, jars))
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = LOOPBACK
    else:
        settings["spark.jars"] = ",".join(map(str, jars))
        settings[_EXECUTOR_JAVA] = executor_java_options(options, {})
    return settings


def executor_java_options(options: SessionOptions, submitted: Mapping[str, str]) -> str:
    """Return Java's options of executors: ours, and those of spark-submit behind them, which count if both name one.

    Java refuses a second collector: ours is left out if any options of theirs name one, and if the heap is too small.
    """
    theirs = submitted.get(_EXECUTOR_JAVA, "")
    settings = {**submitted, **_given(options)}
    is_large = _mebibytes(settings.get(_EXECUTOR_MEMORY, _DEFAULT_MEMORY)) >= _LEAST_FOR_PARALLEL_MIB
    has_parallel = is_large and not any(_COLLECTOR.search(settings.get(name, "")) for name in _JAVA_OPTIONS)
    return " ".join(filter(None, (_java_options(options), _PARALLEL if has_parallel else "", theirs)))


def _mebibytes(memory: str) -> float:
    """Return an amount of memory as Spark writes it: a number and a unit, by default mebibytes. 0 if it is none."""
    found = re.fullmatch(r"(\d+)(?:([kmgtp])b?|(b))?", memory.strip().lower())
    return int(found[1]) * _MIB[found[2] or found[3] or "m"] if found else 0.0


def _java_options(options: SessionOptions) -> str:
    """Return Java's options of a driver that this process starts, and of executors."""
    properties = (f"-D{name}={value}" for name, value in _properties(options).items())
    return " ".join((*properties, _LONG_METHODS_TOO, _HOT_ONLY))


def _properties(options: SessionOptions) -> dict[str, str]:
    """Return the properties of each Java process that reads messages."""
    limits = {
        "org.apache.avro.limits.string.maxLength": str(LONGEST_STRING_BYTES),
        "org.apache.avro.limits.collectionItems.maxLength": str(LONGEST_LIST),
    }
    return limits | ({_LOGIN: str(options.login_file)} if options.login_file else {})


def _classes(options: SessionOptions) -> str:
    archive = options.jars_directory.absolute() / CLASS_ARCHIVE
    if options.writes_class_archive:
        return f' "-XX:ArchiveClassesAtExit={archive}"'
    if not archive.is_file():
        return ""
    return f' "-XX:SharedArchiveFile={archive}" -Xshare:auto -Xlog:cds=off -Xlog:class+path=off'

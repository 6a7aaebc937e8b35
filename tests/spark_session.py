"""A Spark session for tests, on whatever Java this machine has."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from services.plane.machine.home import jars_directory
from services.plane.machine.jars import ICEBERG
from services.plane.machine.java import find_java, spark_java_home
from streaming.spark.session import SessionOptions, spark_session

SPARK_MARKS = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),  # py4j leaves its connections to the end
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@contextlib.contextmanager
def java_for_spark() -> Iterator[dict[str, str]]:
    """The environment with a ``JAVA_HOME`` that runs Spark, set while this lasts.

    Iceberg's jar, if it is there, is behind all others on the class path: one JVM serves the tests of a process, and it
    takes no more jars once it runs.
    """
    with tempfile.TemporaryDirectory(prefix="deepclean-java-") as directory:
        home = spark_java_home(find_java(), Path(directory))
        behind = os.pathsep.join(map(str, (jars_directory() / ICEBERG).glob("*.jar")))
        with mock.patch.dict(os.environ, {"JAVA_HOME": str(home), "SPARK_DIST_CLASSPATH": behind}):
            yield dict(os.environ)


@contextlib.contextmanager
def started_session() -> Iterator[SparkSession]:
    """A session as the jobs have it. One process has one JVM: a later session gets the same one."""
    try:
        with java_for_spark(), spark_session(SessionOptions(jars_directory() / "spark")) as session:
            yield session
    finally:
        with warnings.catch_warnings():  # or whatever test runs when they are found would fail for them
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

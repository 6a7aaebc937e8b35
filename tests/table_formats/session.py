"""A Spark session with the program of a table format beside the lens: it makes the tables, and cleans them up."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from services.plane.machine.home import jars_directory
from services.plane.machine.jars import ICEBERG, TESTS, fetch_jars, locked_jars
from streaming.spark.session import SessionOptions, spark_session
from tests.spark_session import java_for_spark


@contextlib.contextmanager
def session_with(module: str) -> Iterator[SparkSession]:
    """Start a session in a process that has none yet: a JVM takes no more jars once it runs."""
    fetch_jars(jars_directory(), consumers=(ICEBERG, TESTS))
    with tempfile.TemporaryDirectory(prefix="deepclean-jars-") as directory:
        for jar in locked_jars():
            if jar.consumer == "spark" or jar.module == module:
                (Path(directory) / jar.file_name).symlink_to(jars_directory() / jar.consumer / jar.file_name)
        with java_for_spark(), spark_session(SessionOptions(Path(directory))) as session:
            yield session

"""A Spark session with the program of a table format beside the lens: it makes the tables, and cleans them up."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from services.plane.machine.home import jars_directory
from streaming.spark.session import SessionOptions, spark_session
from tests.spark_session import java_for_spark
from tests.table_formats.jars import fetched_jars


@contextlib.contextmanager
def session_with(consumer: str) -> Iterator[SparkSession]:
    """Start a session in a process that has none yet: a JVM takes no more jars once it runs."""
    with tempfile.TemporaryDirectory(prefix="deepclean-jars-") as directory:
        for jar in [*fetched_jars(consumer), *(jars_directory() / "spark").glob("*.jar")]:
            (Path(directory) / jar.name).symlink_to(jar.resolve())
        with java_for_spark(), spark_session(SessionOptions(Path(directory))) as session:
            yield session

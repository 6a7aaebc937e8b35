"""Runs one of the batch jobs of ``streaming`` as a child process, with the jars and the Java of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from services.domain.addresses import without_credentials
from services.domain.errors import DeepcleanError
from services.plane.machine.home import jars_directory
from services.plane.machine.java import find_java, spark_java_home
from services.runtime.process.child_job import ChildJobError, run_child_job

LOG_FILE = "spark.log"
_SPARK_DIRECTORIES = "SPARK_LOCAL_DIRS"


class SparkJobError(DeepcleanError):
    """A job has failed; the text is the sentence that it said, or its last output."""


def run_spark_job(
    module: str,
    arguments: Sequence[str],
    on_line: Callable[[Mapping[str, Any]], None],
    *,
    scratch: Path,
    java_directory: Path,
    heap: str,
    master: str = "local[2]",
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a job and wait for its end. ``on_line`` receives each JSON object that it prints.

    ``scratch`` receives its log and its temporary files; ``java_directory`` the stand-in of a Java that does not start
    Spark by itself.

    Raises:
        SparkJobError: the job failed.
    """
    java = {
        "JAVA_HOME": str(spark_java_home(find_java(), java_directory)),
        _SPARK_DIRECTORIES: os.environ.get(_SPARK_DIRECTORIES, str(scratch)),
    }
    options = ["--jars-directory", str(jars_directory() / "spark"), "--heap", heap, "--master", master]
    run_job(module, [*options, *arguments], on_line, scratch=scratch, environment={**java, **(environment or {})})


def run_job(
    module: str,
    arguments: Sequence[str],
    on_line: Callable[[Mapping[str, Any]], None],
    *,
    scratch: Path,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a job that needs no Spark, as ``run_spark_job`` does.

    A job that is killed leaves its temporary files, so they are in ``scratch``, which whoever calls this removes.

    Raises:
        SparkJobError: the job failed.
    """
    said = ""

    def listen(line: Mapping[str, Any]) -> None:
        nonlocal said
        said = str(line.get("error", said))
        on_line(line)

    command = [sys.executable, "-m", module, *arguments]
    try:
        variables = {**os.environ, "TMPDIR": str(scratch), **(environment or {})}
        run_child_job(command, scratch / LOG_FILE, listen, environment=variables)
    except ChildJobError as error:
        raise SparkJobError(without_credentials(said or f"the job {module} {error}")) from error

"""Runs a measurement that needs Spark in a separate process, so that its JVM ends with the process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from bench.conditions import Conditions
from services.plane.machine.errors import StackError
from services.plane.machine.home import jars_directory
from services.plane.machine.java import spark_java_home
from services.runtime.process.child_job import ChildJobError, run_child_job

LONGEST_SECONDS = 1_800.0


def run_spark(conditions: Conditions, job: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Run one of the measurements of ``spark_jobs`` and return its result."""
    directory = conditions.scratch("spark")
    arguments = {**options, "directory": str(directory), "jars_directory": str(jars_directory() / "spark")}
    measured: dict[str, Any] = {}
    try:
        run_child_job(
            [sys.executable, "-m", "bench.spark_jobs", job, json.dumps(arguments)],
            directory / "spark.log",
            measured.update,
            environment={**os.environ, "JAVA_HOME": str(spark_java_home(conditions.java(), directory))},
            timeout_seconds=LONGEST_SECONDS,
        )
    except ChildJobError as error:
        raise StackError(f"Spark could not measure {job}: it {error}") from error
    if not measured:
        raise StackError(f"Spark measured nothing of {job}: read {directory / 'spark.log'}")
    return measured

"""Runs a measurement that needs Spark in a process of its own, so that its JVM ends with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from bench.conditions import Conditions
from services.plane.machine.errors import StackError
from services.plane.machine.home import jars_directory
from services.plane.machine.java import spark_java_home

LONGEST_SECONDS = 1_800.0
LAST_CHARACTERS = 1_500


def run_spark(conditions: Conditions, job: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Run one of the measurements of ``spark_jobs``, and return what it has measured."""
    directory = conditions.scratch("spark")
    told = {**options, "directory": str(directory), "jars_directory": str(jars_directory() / "spark")}
    log_file = directory / "spark.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.spark_jobs", job, json.dumps(told)],
            env={**os.environ, "JAVA_HOME": str(spark_java_home(conditions.java(), directory))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            raise StackError(f"Spark did not finish within {LONGEST_SECONDS:g} seconds: measure less.") from None
        finally:
            with contextlib.suppress(ProcessLookupError):  # the JVM is in its group
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode != 0:
        said = log_file.read_text(errors="replace")[-LAST_CHARACTERS:]
        raise StackError(f"Spark could not measure {job} (status {process.returncode}); it said last:\n{said}")
    answer: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return answer

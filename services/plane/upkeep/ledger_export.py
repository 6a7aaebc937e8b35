"""Run the ledger's export job as a child process, which ends with this process."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.credentials import FILE_VARIABLE
from schemas.topics import CLIENTS
from services.domain.errors import DeepcleanError
from services.plane.machine.home import jars_directory
from services.plane.machine.java import find_java, spark_java_home
from services.plane.stack.secrets import plane_security
from services.runtime.process.child_job import ChildJobError, run_child_job


class ExportError(DeepcleanError):
    """The export did not reach the end of the ledger. The next run resumes where it ended."""


@dataclass(frozen=True, slots=True)
class ExportedLedger:
    """The numbers of exported rows and of unreadable messages, which are exported to files of their own."""

    rows: int
    unreadable: int


def export_ledger(bootstrap_servers: str, home: Path, directory: Path, heap: str = "1g") -> ExportedLedger:
    """Write the new rows of the ledger to Parquet files below a directory. Raise ExportError if the job failed."""
    command = [
        *(sys.executable, "-m", "streaming.ledger_export", "--jars-directory", str(jars_directory() / "spark")),
        *("--heap", heap, "--bootstrap-servers", bootstrap_servers, "--directory", str(directory.absolute())),
    ]
    environment = {**os.environ, "JAVA_HOME": str(spark_java_home(find_java(), home))}
    if security := plane_security(home):
        environment[FILE_VARIABLE] = str(security.credentials_file(CLIENTS))
    written: ExportedLedger | None = None

    def on_line(line: Mapping[str, Any]) -> None:
        nonlocal written
        if "exported" in line:
            written = ExportedLedger(int(line["exported"]), int(line["unreadable"]))

    with tempfile.TemporaryDirectory(prefix="deepclean-export-") as scratch:
        try:
            run_child_job(command, Path(scratch) / "spark.log", on_line, environment=environment)
        except ChildJobError as error:
            raise ExportError(f"the export job {error}") from error
    if written is None:
        raise ExportError("the export job did not say what it has written: this is a defect, report it")
    return written

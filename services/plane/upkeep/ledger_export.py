"""Run the ledger's export job as a child process, which ends with this process."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.credentials import FILE_VARIABLE
from schemas.topics import CLIENTS
from services.domain.errors import DeepcleanError
from services.plane.machine.spark_jobs import SparkJobError, run_spark_job
from services.plane.stack.secrets import plane_security


class ExportError(DeepcleanError):
    """The export did not reach the end of the ledger. The next run resumes where it ended."""


@dataclass(frozen=True, slots=True)
class ExportedLedger:
    """The numbers of exported rows and of unreadable messages, which are exported to files of their own."""

    rows: int
    unreadable: int


def export_ledger(bootstrap_servers: str, home: Path, directory: Path, heap: str = "1g") -> ExportedLedger:
    """Write the new rows of the ledger to Parquet files below a directory. Raise ExportError if the job failed."""
    security = plane_security(home)
    credentials = {FILE_VARIABLE: str(security.credentials_file(CLIENTS))} if security else {}
    written: ExportedLedger | None = None

    def on_line(line: Mapping[str, Any]) -> None:
        nonlocal written
        if "exported" in line:
            written = ExportedLedger(int(line["exported"]), int(line["unreadable"]))

    with tempfile.TemporaryDirectory(prefix="deepclean-export-") as scratch:
        try:
            run_spark_job(
                "streaming.ledger_export",
                ["--bootstrap-servers", bootstrap_servers, "--directory", str(directory.absolute())],
                on_line,
                scratch=Path(scratch),
                java_directory=home,
                heap=heap,
                environment=credentials,
            )
        except SparkJobError as error:
            raise ExportError(str(error)) from error
    if written is None:
        raise ExportError("the export job did not say what it has written: this is a defect, report it")
    return written

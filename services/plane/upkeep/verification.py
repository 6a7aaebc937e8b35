"""Verifies a large shard with the verify job, a child process that ends with this process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from schemas.access import ADMINISTRATOR
from schemas.credentials import FILE_VARIABLE
from services.plane.machine.spark_jobs import SparkJobError, run_spark_job
from services.plane.stack.secrets import plane_security
from services.verifier.report import VerifyReport
from services.verifier.run import VerifyError

_REPORT = TypeAdapter(VerifyReport)


def replay_by_parts(
    bootstrap_servers: str,
    home: Path,
    shard: int,
    scratch: Path | None = None,
    report_progress: Callable[[int, int], None] = lambda done, end: None,  # noqa: ARG005 commands replayed, total
    say_how: Callable[[str], None] = lambda text: None,  # noqa: ARG005
    master: str = "local[*]",
    heap: str = "1g",
) -> VerifyReport:
    """Replay a shard's log on Spark and compare the ledger with it, as ``services.verifier.run.replay_shard`` does.

    ``say_how`` is told the end of each round, and why a log does not divide and is replayed as one part.

    Raises:
        VerifyError: the job failed.
    """
    security = plane_security(home)
    credentials = {FILE_VARIABLE: str(security.credentials_file(ADMINISTRATOR))} if security else {}
    report: VerifyReport | None = None

    def on_line(line: Mapping[str, Any]) -> None:
        nonlocal report
        if "report" in line:
            report = _REPORT.validate_python(line["report"])
        elif "whole" in line:
            say_how(f"replayed as one part, as {line['whole']}")
        elif "round" in line:
            say_how(f"round {line['round']} ended, with {int(line['corrections']):,} commands to correct")
        elif "done" in line:
            report_progress(int(line["done"]), int(line["end"]))

    with tempfile.TemporaryDirectory(prefix="deepclean-verify-", dir=scratch) as directory:
        try:
            run_spark_job(
                "streaming.verify",
                ["--bootstrap-servers", bootstrap_servers, "--shard", str(shard), "--directory", directory],
                on_line,
                scratch=Path(directory),
                java_directory=home,
                heap=heap,
                master=master,
                environment=credentials,
            )
        except SparkJobError as error:
            raise VerifyError(str(error)) from error
    if report is None:
        raise VerifyError("the verify job did not print its report: this is a defect, report it")
    return report

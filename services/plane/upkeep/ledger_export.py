"""Runs the ledger's export job as a child: it ends with whoever has asked for it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from schemas.credentials import FILE_VARIABLE
from schemas.topics import CLIENTS
from services.domain.errors import DeepcleanError
from services.plane.machine.home import jars_directory
from services.plane.machine.java import find_java, spark_java_home
from services.plane.stack.secrets import plane_security

LAST_CHARACTERS = 1_000


class ExportError(DeepcleanError):
    """The ledger was not exported as far as it goes; the next run goes on."""


@dataclass(frozen=True, slots=True)
class ExportedLedger:
    """What was written: rows, and messages that could not be read and lie beside them."""

    rows: int
    unreadable: int


def export_ledger(bootstrap_servers: str, home: Path, directory: Path, heap: str = "1g") -> ExportedLedger:
    """Write what is new in the ledger into Parquet files below a directory.

    Raises:
        ExportError: the job failed; why, and what to do.
    """
    command = [
        *(
            sys.executable,
            "-m",
            "streaming.ledger_export",
            "--jars-directory",
            str(jars_directory() / "spark"),
        ),
        *("--heap", heap, "--bootstrap-servers", bootstrap_servers, "--directory", str(directory.absolute())),
    ]
    environment = {**os.environ, "JAVA_HOME": str(spark_java_home(find_java(), home))}
    if security := plane_security(home):
        environment[FILE_VARIABLE] = str(security.credentials_file(CLIENTS))
    written = ExportedLedger(0, 0)
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,  # ends with this process, and the job with it
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None  # noqa: S101  it was asked for
            for line in process.stdout:
                with contextlib.suppress(ValueError, KeyError, TypeError):  # libraries may print, too
                    told = json.loads(line)
                    written = ExportedLedger(int(told["exported"]), int(told["unreadable"]))
            status = process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.wait()
        if status != 0:
            log.seek(0)
            said = log.read().decode(errors="replace")[-LAST_CHARACTERS:].strip()
            raise ExportError(f"the export job ended with status {status}; it said last: {said or 'nothing'}")
    return written

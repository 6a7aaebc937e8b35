"""Runs a job, such as Spark's, in a process of its own, and receives its reports.

A job that watches its standard input ends with this process: the pipe is closed when either of them dies.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from services.domain.errors import DeepcleanError

LAST_CHARACTERS = 1_000


class ChildJobError(DeepcleanError):
    """A job has failed or was ended. The text has its status and its last output, and is to follow the job's name."""


def run_child_job(
    command: Sequence[str],
    log_file: Path,
    on_line: Callable[[Mapping[str, Any]], None],
    *,
    environment: Mapping[str, str] | None = None,
    started: Callable[[Callable[[], None]], None] = lambda _: None,
    timeout_seconds: float | None = None,
) -> None:
    """Run a job and wait for its end.

    ``on_line`` receives each JSON object that the job prints on a line of its own; other lines, which libraries print,
    are ignored. ``started`` receives a function that ends the job early. ``log_file`` receives the job's standard
    error.

    Raises:
        ChildJobError: its status was not 0, or it took longer than ``timeout_seconds``.
    """
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    limit = threading.Timer(timeout_seconds or threading.TIMEOUT_MAX, _end, [process])
    limit.daemon = True
    limit.start()
    try:
        started(lambda: _end(process))
        assert process.stdout is not None  # noqa: S101  it was asked for
        for line in process.stdout:
            said = _object(line)
            if said is not None:
                on_line(said)
        status = process.wait()
    finally:
        limit.cancel()
        _end(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()
    if status != 0:
        last = log_file.read_text(errors="replace")[-LAST_CHARACTERS:].strip()
        raise ChildJobError(f"ended with status {status}; it said last: {last or 'nothing'}")


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a job and its JVM, which is in the same process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)

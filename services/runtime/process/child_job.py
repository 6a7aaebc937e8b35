"""Runs a job in a process of its own, such as Spark's, and hears from it meanwhile.

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
    """A job has failed, or was ended: with which status, and what it said last; to be put behind the job's name."""


def run_child_job(
    command: Sequence[str],
    log_file: Path,
    on_line: Callable[[Mapping[str, Any]], None],
    *,
    environment: Mapping[str, str] | None = None,
    started: Callable[[Callable[[], None]], None] = lambda _: None,
    timeout_seconds: float | None = None,
) -> None:
    """Run a job to its end.

    ``on_line`` is given each JSON object that the job prints on a line of its own; other lines are a library's.
    ``started`` is given what ends the job early. What the job writes on its standard error is in ``log_file``
    afterwards.

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
    """End a job with its JVM, which is in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)

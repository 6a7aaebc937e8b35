"""Runs a job in a process of its own, such as Spark's, that ends with this one and tells what it does meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
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
    told: Callable[[Any], None],
    *,
    environment: Mapping[str, str] | None = None,
    started: Callable[[Callable[[], None]], None] = lambda _: None,
) -> None:
    """Run a job to its end; it can watch its standard input, which is closed when this process dies.

    ``told`` is given each line of JSON that the job prints; a ValueError, KeyError or TypeError of it counts as a line
    that some library has printed. ``started`` is given what ends the job early. What the job writes on its standard
    error is in ``log_file`` afterwards.

    Raises:
        ChildJobError: its status was not 0.
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
    try:
        started(lambda: _end(process))
        assert process.stdout is not None  # noqa: S101  it was asked for
        for line in process.stdout:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                told(json.loads(line))
        status = process.wait()
    finally:
        _end(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()
    if status != 0:
        said = log_file.read_text(errors="replace")[-LAST_CHARACTERS:].strip()
        raise ChildJobError(f"ended with status {status}; it said last: {said or 'nothing'}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a job with its JVM, which is in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)

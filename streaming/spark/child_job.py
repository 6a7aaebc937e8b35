"""A batch job as a child process: it prints its progress, and ends when its parent closes its standard input."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession

from schemas.credentials import CredentialsError
from services.domain.errors import DeepcleanError
from streaming.spark.session import SessionOptions, spark_session

STOPPED_STATUS = 1


@contextlib.contextmanager
def job_session(options: argparse.Namespace, name: str, login_file: Path | None = None) -> Iterator[SparkSession]:
    """Start the session of a job whose command line ``session_parser`` has parsed, and stop it on exit.

    The process ends early, with ``STOPPED_STATUS``: when its standard input ends; and as ``saying_errors`` says.
    """
    end_with_standard_input()
    session_options = SessionOptions(
        options.jars_directory,
        options.master,
        options.heap,
        name=name,
        login_file=login_file,
        conf=tuple(options.conf),
    )
    with saying_errors(), spark_session(session_options) as session:
        yield session


@contextlib.contextmanager
def saying_errors() -> Iterator[None]:
    """End the process with ``STOPPED_STATUS`` after an error that an operator has to fix, with one sentence on standard
    error, and as ``error`` of a JSON object on standard output.
    """
    try:
        yield
    except (DeepcleanError, CredentialsError) as error:
        print(error, file=sys.stderr)
        say(error=str(error))
        sys.exit(STOPPED_STATUS)


def say(**what: object) -> None:
    """Print the progress of the job, what it found, or its error, as one JSON object on one line."""
    print(json.dumps(what), flush=True)


def end_with_standard_input() -> None:
    """Start a thread that ends this process with ``STOPPED_STATUS`` as soon as its standard input ends."""
    threading.Thread(target=_wait_for_the_end, daemon=True).start()


def _wait_for_the_end() -> None:
    while os.read(0, 1):  # sys.stdin has a lock, which this thread would hold when the process exits
        pass
    os._exit(STOPPED_STATUS)

"""Has a diff made by the Spark job, in a process of its own that reads two checkpoints while they are kept for it here.

A checkpoint that somebody has open is not removed, whatever becomes of its snapshot; one of the present is taken for
the diff alone. What a crash leaves of that is removed at the next start, as every checkpoint without a snapshot is.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from schemas.answers import DiffJob
from schemas.records import BucketLayout
from services.domain.errors import DeepcleanError
from services.metadata.reads.queries import get_bucket, missing_snapshot
from services.storage.rocks import RocksStore
from services.storage.tables import TablesReader

LAST_CHARACTERS = 1_000


class SparkDiffError(DeepcleanError):
    """The Spark job ended without an answer."""


@contextmanager
def kept_for(job: DiffJob, store: RocksStore) -> Iterator[Mapping[str, Any]]:
    """What the job is told to compare; the checkpoints stay as long as this lasts.

    Raises:
        CommandError: SNAPSHOT_EXPIRED, for a snapshot whose checkpoint is gone.
    """
    with ExitStack() as kept:
        states = []
        for snapshot_id in (job.from_snapshot_id, job.to_snapshot_id):
            name = snapshot_id or f"diff-{job.job_id}"
            if not snapshot_id:
                store.checkpoint(name)
                kept.callback(store.remove_checkpoint, name)
            try:
                view = store.open_checkpoint(name)
            except KeyError:
                raise missing_snapshot(TablesReader(store), snapshot_id) from None
            kept.callback(view.close)
            states.append(view)
        row = get_bucket(TablesReader(states[0]), job.volume, job.bucket)
        yield {
            "checkpoints": [str(view.path) for view in states],
            "volume": row.volume,
            "bucket": row.bucket,
            "volume_id": row.volume_id,
            "bucket_id": row.object_id,
            "is_tree": row.layout is BucketLayout.FILE_SYSTEM_OPTIMIZED,
        }


def run_spark_diff(
    command: str,
    compared: Mapping[str, Any],
    output: Path,
    *,
    on_start: Callable[[Callable[[], None]], None],
    on_progress: Callable[[int], None],
) -> None:
    """Run the job to its end; ``on_start`` is given what ends it early, ``on_progress`` percents.

    Raises:
        SparkDiffError: it has failed, or was ended.
    """
    log_file = output.with_suffix(".log")
    options = json.dumps({"bucket": compared, "output": str(output)})
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [*shlex.split(command), options],
            stdin=subprocess.PIPE,  # ends with this process, and the job with it
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    try:
        on_start(lambda: _end(process))
        assert process.stdout is not None  # noqa: S101  it was asked for
        for line in process.stdout:
            with contextlib.suppress(ValueError, KeyError, TypeError):  # libraries may print, too
                on_progress(int(json.loads(line)["progress"]))
        status = process.wait()
    finally:
        _end(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.wait()
    said = log_file.read_text(errors="replace")[-LAST_CHARACTERS:]
    log_file.unlink()
    if status != 0:
        raise SparkDiffError(f"the Spark job ended with status {status}; it said last: {said.strip() or 'nothing'}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the job with its JVM, which is in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)

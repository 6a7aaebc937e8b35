"""Limits of metadata's diffs, and settings of listings and metrics. No command's outcome depends on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from services.domain.purge_hours import checked_hours


@dataclass(frozen=True, slots=True)
class MetadataSettings:
    """Limits of diffs for each shard, and settings of reads. Set by ``DEEPCLEAN_METADATA_<FIELD>``."""

    diff_threads: int = 1
    """Diffs of a shard that are computed at the same time. Each takes processor time from the shard's writer."""
    diff_queue: int = 10
    """Diffs of a shard that wait; one more is rejected. Ozone: 10."""
    diff_direct_rows: int = 200_000
    """Most rows that a diff reads in the process itself, about 50 µs each. Spark computes larger diffs, in a process of
    its own."""
    diff_spark_command: str = ""
    """Command that starts the Spark job for large diffs; its options are appended. `make up` sets it to
    `python -m streaming.diff --jars-directory DIR`. The job needs `JAVA_HOME`, a gigabyte of memory, and the snapshot
    checkpoints on its disk. Empty: every diff is computed in the process itself."""
    diff_kept_seconds: int = 7 * 24 * 3600
    """How long a diff can be read after it has ended. Ozone: 7 days."""
    diff_kept_count: int = 1_000
    """Ended diffs of a shard that are kept, rejected ones too; the oldest are removed first."""
    defragment_rows_per_second: int = 50_000
    """Most rows a second that are copied to rewrite snapshot checkpoints; each takes about 2 µs. 0: no
    checkpoint is rewritten."""
    rest_seconds: int = 60
    """How long a shard must not have been written to before its tables are compacted into few files; this uses a core
    for some seconds for each ten million rows. 0: they are compacted only as rows are written."""
    undo_window_ms: int = 0
    """The undo window of the deletion services, repeated here for `deepclean deleted list` and for
    deepclean_metadata_freed_seconds, which does not count the window."""
    purge_hours: Annotated[str, AfterValidator(checked_hours)] = ""
    """The hours of DEEPCLEAN_KEY_DELETION_PURGE_HOURS, repeated here for deepclean_metadata_freed_seconds, which leaves
    out all other hours. `make up` copies them."""

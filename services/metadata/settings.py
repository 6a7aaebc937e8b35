"""Limits of metadata's diffs, and what listings say. Nothing that a command does depends on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from services.domain.purge_hours import checked_hours


@dataclass(frozen=True, slots=True)
class MetadataSettings:
    """How much is spent on diffs, for each shard, and what reads tell. Set by ``DEEPCLEAN_METADATA_<FIELD>``."""

    diff_threads: int = 1
    """Diffs that are made at the same time. Each takes processor time from the shard's writer."""
    diff_queue: int = 10
    """Diffs that wait; one more is rejected. Ozone: 10."""
    diff_direct_rows: int = 200_000
    """Rows that such a thread looks at, some 50 µs each; a diff of more is made by Spark, in a process of its own."""
    diff_spark_command: str = ""
    """Starts the Spark job, its options appended; without one every diff is made by a thread."""
    diff_kept_seconds: int = 7 * 24 * 3600
    """How long a diff can be read after its end. Ozone: 7 days."""
    diff_kept_count: int = 1_000
    """How many that have ended are kept; the oldest go first, those that were rejected too."""
    undo_window_ms: int = 0
    """The undo window of the deletion services, repeated for the listing of what can be brought back, and because no
    version is late before it is over."""
    purge_hours: Annotated[str, AfterValidator(checked_hours)] = ""
    """The hours in which key_deletion claims, repeated because outside of them no version gets late."""

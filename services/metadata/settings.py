"""Limits of metadata's diffs. Nothing that a command does depends on them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MetadataSettings:
    """How much is spent on diffs, for each shard. Set by ``DEEPCLEAN_METADATA_<FIELD>``."""

    diff_threads: int = 1
    """Diffs that are made at the same time. Each takes processor time from the shard's writer."""
    diff_queue: int = 10
    """Diffs that wait; one more is rejected. Ozone: 10."""
    diff_kept_seconds: int = 7 * 24 * 3600
    """How long a diff can be read after its end. Ozone: 7 days."""

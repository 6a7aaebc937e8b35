"""Where in gc.deleted-entries the job may still read: at the end of its last finished batch, or before it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from schemas.topics import DELETED_ENTRIES
from services.domain.errors import InvariantError
from streaming.reclaiming.checkpoint import Checkpoint


def finished_ends(checkpoint: Checkpoint) -> dict[int, int]:
    """Return the offset behind the last finished batch, by shard, as Spark has written it; empty if none is finished.

    Raises:
        InvariantError: Spark's files cannot be read.
        RetryableError: a file system elsewhere does not answer.
    """
    try:
        batches = [int(name) for name in checkpoint.names("commits") if name.isdecimal()]
        if not batches:
            return {}
        text = checkpoint.read(f"offsets/{max(batches)}")
        if text is None:
            raise ValueError(f"offsets/{max(batches)} is missing")
        return ends_of(json.loads(text.splitlines()[-1]))
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise InvariantError(
            f"Spark's checkpoint {checkpoint} cannot be read ({error}): remove it, and every entry is judged again."
        ) from error


def ends_of(offsets: Mapping[str, Any]) -> dict[int, int]:
    """Return the offsets by shard, of Spark's own notation, parsed."""
    return {int(shard): offset for shard, offset in offsets[DELETED_ENTRIES.name].items()}


def first_needed(ends: Mapping[int, int], first_waiting: Mapping[int, int]) -> dict[int, int]:
    """Return the offset of the first message that the job may still read, by shard."""
    return {shard: min(end, first_waiting.get(shard, end)) for shard, end in ends.items()}

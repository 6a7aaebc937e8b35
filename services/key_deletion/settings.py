"""What may be set for key_deletion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from services.domain.purge_hours import checked_hours


@dataclass(frozen=True, slots=True)
class KeyDeletionSettings:
    """Limits of one key_deletion service."""

    max_task_rows: int = 1_000
    max_task_bytes: int = 1 << 20
    """Serialized bytes of a task's largest message, each row counted at the most that it can take."""
    max_tasks_in_flight: int = 64
    """Tasks that wait for an answer; what has no room waits in its table."""
    max_retries_in_flight: int = 16
    """How many of those may be groups that SCM failed before, so that they never keep new rows waiting."""
    first_retry_ms: int = 500
    """Back-off after the first failure; each failure doubles it."""
    longest_retry_ms: int = 60_000
    answer_timeout_ms: int = 600_000
    """When an answer is this late the question is asked again: a net, since no message is lost."""
    max_sweeps_in_flight: int = 8
    max_sweep_pages_in_flight: int = 24
    """Pages over all sweeps whose rows are not judged yet, while nothing waits to be claimed; one while something does.
    A page at a time would spend the time of a drop on waiting for the judges."""
    max_sweep_page_rows: int = 3_000
    """While metadata sends a page it does nothing else; and where the next one begins is known with its answer, so that
    smaller ones take longer together. Whole messages (``sent_entries.MAX_ROWS_PER_MESSAGE``) make whole tasks."""
    max_sweep_page_bytes: int = 1 << 20
    first_sweep_again_ms: int = 1_000
    """Pause before a store that was not clean is swept again; each sweep doubles it."""
    longest_sweep_again_ms: int = 60_000
    safety_sweep_interval_ms: int = 3_600_000
    """How often all garbage rows of the shard are swept, claimed ones with them."""
    undo_window_ms: int = 0
    """How long rows wait before they are claimed, so that they can be brought back; a settle ends it at once."""
    max_rows_per_second: int = 0
    """Rows that are claimed in a second at most, over minutes; 0 for no limit. A settle does not wait for it."""
    max_bytes_per_second: int = 0
    """Bytes that are claimed in a second at most, over minutes; 0 for no limit. A settle does not wait for it."""
    purge_hours: Annotated[str, AfterValidator(checked_hours)] = ""
    """Hours of the day, in UTC, in which rows are claimed, as in 22-6 or 12-13,22:30-5:15; empty for the whole day."""

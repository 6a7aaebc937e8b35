"""Settings of key_deletion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from services.domain.purge_hours import checked_hours


@dataclass(frozen=True, slots=True)
class KeyDeletionSettings:
    """Limits of one key_deletion service."""

    max_task_rows: int = 1_000
    """Rows of one task (a batch of rows that is judged, claimed and finished together)."""
    max_task_bytes: int = 1 << 20
    """Serialized bytes of the largest message of a task; each row counts with the most bytes that it can have."""
    max_tasks_in_flight: int = 64
    """Tasks that wait for an answer. Further rows wait in waitingTable."""
    max_retries_in_flight: int = 16
    """How many of those tasks may be retries of block groups that SCM failed to delete; the rest is for new rows."""
    first_retry_ms: int = 500
    """Pause before a failed block group is sent again; each failure doubles it."""
    longest_retry_ms: int = 60_000
    """Longest pause before such a retry."""
    answer_timeout_ms: int = 600_000
    """Time after which a request without an answer is sent again."""
    max_sweeps_in_flight: int = 8
    """Sweeps that run at the same time."""
    max_sweep_pages_in_flight: int = 24
    """Most pages, over all sweeps together, whose rows are not judged yet. While claims are throttled or no further
    task can start, the limit is one page; while rows that a sweep has found wait for a task, no page is requested. With
    one page at a time the sweep after a snapshot's deletion would mostly wait for the judges."""
    max_sweep_page_rows: int = 3_000
    """Rows of one page of a sweep. While metadata sends a page it does nothing else. Smaller pages make a sweep longer,
    since the next page can only be requested after the answer. Use a multiple of 1,000, the rows of one message."""
    max_sweep_page_bytes: int = 1 << 20
    """Serialized bytes of one page of a sweep."""
    first_sweep_again_ms: int = 1_000
    """Pause before the garbage range of a snapshot that was not clean is swept again; each sweep doubles it."""
    longest_sweep_again_ms: int = 60_000
    """Longest pause before such a sweep."""
    safety_sweep_interval_ms: int = 3_600_000
    """How often all garbage rows of the shard are swept, and the claimed rows with them."""
    write_expiry_interval_ms: int = 3_600_000
    """How often expired open keys and uploads are searched for."""
    open_key_expiry_ms: int = 7 * 86_400_000
    """Time since the last command of its writer after which an open key is closed (Ozone: 7 days)."""
    upload_expiry_ms: int = 30 * 86_400_000
    """Time since its beginning after which an upload in parts is aborted (Ozone: 30 days)."""
    max_expiry_page_rows: int = 1_000
    """Rows of one page of an expiry, at most 10,000: metadata uses no higher number."""
    undo_window_ms: int = 0
    """Undo window: how long rows wait before they are claimed. Until then they can be undeleted. A settle ends it."""
    max_rows_per_second: int = 0
    """Most rows that are claimed per second and shard, as an average: after a task of n rows the next one waits n /
    limit seconds. 0: unlimited. A settle ignores it."""
    max_bytes_per_second: int = 0
    """Most bytes that are claimed per second and shard, as an average: one claim is in progress at a time, and after a
    task of n bytes the next one waits n / limit seconds. 0: unlimited. A settle ignores it."""
    purge_hours: Annotated[str, AfterValidator(checked_hours)] = ""
    """Hours of the day, in UTC, in which rows are claimed, as in 22-6 or 12-13,22:30-5:15; empty: always."""

"""What may be set for directory_deletion."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DirectoryDeletionSettings:
    """Limits of one directory_deletion service."""

    max_page_entries: int = 500
    """Children that one page of an expansion moves."""
    max_page_bytes: int = 256 << 10
    max_expansions_in_flight: int = 1_000
    """Most directories were expanded with one above them and only have to be asked for, but each question stands behind
    the claims in metadata's log, about a second. Full pages are half a million files, six seconds for metadata, and
    a client's command may wait behind them.
    """
    max_removal_rows: int = 1_000
    """Rows of one command to purge."""
    max_removal_bytes: int = 1 << 20
    max_removing_rows: int = 32_000
    """Rows in flight over all commands to purge."""
    first_blocked_ms: int = 60_000
    """A directory with a child row left is tried when that child goes; and, as a net, after this pause, doubled."""
    longest_blocked_ms: int = 3_600_000
    answer_timeout_ms: int = 600_000
    """When an answer is this late the question is asked again: a net, since no message is lost."""
    undo_window_ms: int = 0
    """How long a deleted directory waits before it is expanded, so that it can be brought back as a whole."""

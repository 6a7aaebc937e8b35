"""Settings of directory_deletion."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DirectoryDeletionSettings:
    """Limits of one directory_deletion service."""

    max_page_entries: int = 500
    """Children that one page of an expansion moves."""
    max_page_bytes: int = 256 << 10
    """Serialized bytes of one page of an expansion."""
    max_expansions_in_flight: int = 1_000
    """Directories that are expanded at the same time. Each request waits about a second behind the claims in metadata's
    log. Full pages of 1,000 directories are half a million files: six seconds of work for metadata, for which a
    client's command may wait."""
    max_removal_rows: int = 1_000
    """Rows of one RemoveDirectories command."""
    max_removal_bytes: int = 1 << 20
    """Serialized bytes of one RemoveDirectories command."""
    max_removing_rows: int = 32_000
    """Rows in flight in all RemoveDirectories commands."""
    first_blocked_ms: int = 60_000
    """First pause before metadata is asked again to remove the row of a directory that still has a child row; each
    refusal doubles the pause. The removal of that child row ends it at once."""
    longest_blocked_ms: int = 3_600_000
    """Longest such pause."""
    answer_timeout_ms: int = 600_000
    """Time after which a request without an answer is sent again."""
    undo_window_ms: int = 0
    """Undo window: how long a deleted directory waits before its expansion. Until then undelete restores all of it."""

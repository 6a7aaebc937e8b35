"""The way of a deletion, station by station: how fast each one works, what waits there, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from services.domain.words import counted
from services.plane.upkeep.status import LAG_MESSAGES, LAG_SECONDS, MESSAGES_APPLIED, SILENT, Backlog, Reported
from services.wording.figures import amount_in_words, bytes_text


@dataclass(frozen=True, slots=True)
class Station:
    """One station of the way of a deletion."""

    name: str
    process: str
    does: str
    rate: str
    waits: str
    age_seconds: float
    """Age of the oldest message that the process has not applied; 0 if none waits."""
    is_answering: bool


def stations(reported: Mapping[str, Reported], waiting: Backlog) -> tuple[Station, ...]:
    """Return the stations in the order in which a deletion meets them."""
    key_deletion = reported.get("key_deletion", SILENT)
    scm = reported.get("mock_scm", SILENT)
    claimed = key_deletion.rate("deepclean_key_deletion_claim_rows_total", outcome="claimed")
    deleted = scm.rate("deepclean_mock_scm_groups_total", outcome="deleted")
    purges = key_deletion.total("deepclean_key_deletion_waiting_purges")
    return (
        _station(
            reported,
            "deleted",
            "metadata",
            "takes the object out of the namespace, and publishes its row",
            f"{reported.get('metadata', SILENT).rate(*MESSAGES_APPLIED):,.0f} messages/s",
            _messages(reported, "metadata"),
        ),
        _station(
            reported,
            "first judge",
            "streaming",
            "compares the row with the bucket's snapshots",
            f"{reported.get('streaming', SILENT).rate('deepclean_streaming_entries_judged_total'):,.0f} rows/s",
            _messages(reported, "streaming"),
        ),
        _station(
            reported,
            "directories",
            "directory_deletion",
            "expands deleted directories, page by page",
            f"{reported.get('directory_deletion', SILENT).rate('deepclean_directory_deletion_expansions_total'):,.0f} "
            f"pages/s",
            counted(waiting.directories_in_progress, "directory", "directories"),
        ),
        _station(
            reported,
            "second judge",
            "key_deletion",
            "judges the row again, once its undo window is over",
            f"{key_deletion.rate('deepclean_key_deletion_rows_judged_total'):,.0f} rows/s",
            f"{counted(purges, 'purge request')}, {waiting.purges_in_undo_window:,} more in the undo window, "
            f"{waiting.purges_throttled:,} throttled; {counted(waiting.garbage_ranges_to_sweep, 'sweep')}",
        ),
        _station(
            reported,
            "claim",
            "metadata",
            "decides for the last time: from here on nothing brings the row back",
            f"{claimed:,.0f} rows/s",
            amount_in_words(waiting.pending_bytes, waiting.pending_versions, waiting.pending_replicated_bytes),
        ),
        _station(
            reported,
            "freed",
            "mock_scm",
            "deletes the blocks, and confirms it",
            f"{deleted:,.0f} versions/s, {bytes_text(scm.rate('deepclean_mock_scm_deleted_bytes_total'))}/s",
            amount_in_words(waiting.claimed_bytes, waiting.claimed_versions, waiting.claimed_replicated_bytes),
        ),
    )


def _station(reported: Mapping[str, Reported], name: str, process: str, does: str, rate: str, waits: str) -> Station:
    own = reported.get(process, SILENT)
    return Station(name, process, does, rate, waits, own.largest(LAG_SECONDS), own.is_answering)


def _messages(reported: Mapping[str, Reported], process: str) -> str:
    return counted(reported.get(process, SILENT).total(*LAG_MESSAGES), "message")

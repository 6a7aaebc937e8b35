"""The metrics of key_deletion."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry

from schemas.records import CollectionState
from services.domain.reclaimability import Verdict
from services.key_deletion.tables import TaskState
from services.runtime.parts.collectors import counter, shard_gauge

UNJUDGEABLE = "unjudgeable"
_SUSPENDED = [state.value.lower() for state in CollectionState if state is not CollectionState.RUNNING]


class KeyDeletionMetrics:
    """Counters and gauges of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        count, gauge = partial(counter, registry), partial(shard_gauge, registry)
        self.rows_judged = count(
            "deepclean_key_deletion_rows_judged_total",
            "Rows judged a second time, by verdict; any but reclaimable is a defect of the first judge.",
            verdict=[*(verdict.value for verdict in Verdict), UNJUDGEABLE],
        )
        self.rows_claimed = count(
            "deepclean_key_deletion_claim_rows_total",
            "Rows of claims, by outcome.",
            outcome=["claimed", "removed", "missing", "refused", "suspended"],
        )
        self.rows_suspended = count(
            "deepclean_key_deletion_rows_suspended_total",
            "Rows not claimed because claims are suspended, by collection state; they are swept after the resume.",
            state=_SUSPENDED,
        )
        self.claims_refused = count(
            "deepclean_key_deletion_claims_refused_total",
            "Rows that metadata refused to claim because a snapshot holds them: must stay 0.",
        )
        self.groups = count(
            "deepclean_key_deletion_groups_total",
            "Block groups that SCM has answered for, by outcome.",
            outcome=["confirmed", "failed"],
        )
        self.confirmed_bytes = count(
            "deepclean_key_deletion_confirmed_bytes_total", "Bytes that SCM has confirmed deleted."
        )
        self.asked_again = count(
            "deepclean_key_deletion_asked_again_total",
            "Requests sent again because no answer arrived in time, by step.",
            step=[state.lower() for state in TaskState],
        )
        self.sweeps = count(
            "deepclean_key_deletion_sweeps_total",
            "Ends of sweeps by outcome, and, as timed_out, how often a sweep went back to a page without an answer.",
            outcome=["clean", "found", "timed_out"],
        )
        self.writes_expired = count(
            "deepclean_key_deletion_writes_expired_total",
            "Open keys that were closed after a time without commands, and old uploads that were aborted.",
            kind=["open_key", "upload"],
        )
        self.garbage_ranges_flagged = count(
            "deepclean_key_deletion_garbage_ranges_flagged_total", "Garbage ranges reported as deep clean."
        )
        self.tasks = gauge("deepclean_key_deletion_tasks", "Batches of rows in progress, by step.", "step")
        self.unconfirmed_bytes = gauge(
            "deepclean_key_deletion_unconfirmed_bytes", "Bytes that SCM was told to delete and has not yet confirmed."
        )
        self.waiting_purges = gauge(
            "deepclean_key_deletion_waiting_purges",
            "Purge requests that wait for a newer chain view, a free task or a claim's answer; not throttled ones.",
        )
        self.purges_in_undo_window = gauge(
            "deepclean_key_deletion_purges_in_undo_window",
            "Purge requests that wait only because their rows can still be undeleted.",
        )
        self.purges_throttled = gauge(
            "deepclean_key_deletion_purges_throttled",
            "Purge requests that wait for the hours or the rate of the settings, by reason.",
            "reason",
        )
        self.sweeps_open = gauge(
            "deepclean_key_deletion_sweeps_open",
            "Sweeps that are in progress or due; not those that are suspended.",
        )

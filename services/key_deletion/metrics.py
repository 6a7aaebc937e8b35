"""The metrics of key_deletion."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from schemas.records import CollectionState
from services.domain.reclaimability import Verdict
from services.key_deletion.task_state import TaskState

UNJUDGEABLE = "unjudgeable"
CLAIM_OUTCOMES = ("claimed", "removed", "missing", "refused", "suspended")
GROUP_OUTCOMES = ("confirmed", "failed")
SWEEP_OUTCOMES = ("clean", "found", "timed_out")


class KeyDeletionMetrics:
    """Counters and gauges of one process; gauges are per shard. A label's values are a closed set, never an id."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.rows_judged = Counter(
            "deepclean_key_deletion_rows_judged_total",
            "Rows judged a second time, by verdict; any but reclaimable is a defect of the first judge.",
            ["verdict"],
            registry=registry,
        )
        self.rows_claimed = Counter(
            "deepclean_key_deletion_claim_rows_total",
            "Rows of claims, by what became of them.",
            ["outcome"],
            registry=registry,
        )
        self.rows_suspended = Counter(
            "deepclean_key_deletion_rows_suspended_total",
            "Rows not claimed because claims are suspended, by collection state; they are swept after the resume.",
            ["state"],
            registry=registry,
        )
        self.claims_refused = Counter(
            "deepclean_key_deletion_claims_refused_total",
            "Rows that metadata would not claim because they are held: must stay 0.",
            registry=registry,
        )
        self.groups = Counter(
            "deepclean_key_deletion_groups_total",
            "Block groups that SCM has answered for, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self.confirmed_bytes = Counter(
            "deepclean_key_deletion_confirmed_bytes_total", "Bytes that SCM has confirmed deleted.", registry=registry
        )
        self.asked_again = Counter(
            "deepclean_key_deletion_asked_again_total",
            "Questions asked again because no answer came in time, by step.",
            ["step"],
            registry=registry,
        )
        self.sweeps = Counter(
            "deepclean_key_deletion_sweeps_total",
            "Sweeps that ended, by outcome; timed_out: went back to a page without an answer.",
            ["outcome"],
            registry=registry,
        )
        self.garbage_ranges_flagged = Counter(
            "deepclean_key_deletion_garbage_ranges_flagged_total",
            "Garbage ranges reported as deep clean.",
            registry=registry,
        )
        self.tasks = Gauge(
            "deepclean_key_deletion_tasks",
            "Batches of rows in progress, by step.",
            ["shard", "step"],
            registry=registry,
        )
        self.unconfirmed_bytes = Gauge(
            "deepclean_key_deletion_unconfirmed_bytes",
            "Bytes that SCM was told to delete and has not yet confirmed.",
            ["shard"],
            registry=registry,
        )
        self.waiting_purges = Gauge(
            "deepclean_key_deletion_waiting_purges",
            "Purge requests that wait for the chain or for room, and are not throttled.",
            ["shard"],
            registry=registry,
        )
        self.purges_in_undo_window = Gauge(
            "deepclean_key_deletion_purges_in_undo_window",
            "Purge requests whose rows can still be undeleted, and wait for that reason alone.",
            ["shard"],
            registry=registry,
        )
        self.purges_throttled = Gauge(
            "deepclean_key_deletion_purges_throttled",
            "Purge requests that wait for the hours or the rate of the settings, by reason.",
            ["shard", "reason"],
            registry=registry,
        )
        self.sweeps_open = Gauge(
            "deepclean_key_deletion_sweeps_open",
            "Sweeps that are in progress or due; not those that are suspended.",
            ["shard"],
            registry=registry,
        )
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        """Create every label, so that a value that was never reached reads 0 instead of being absent."""
        for verdict in (*(verdict.value for verdict in Verdict), UNJUDGEABLE):
            self.rows_judged.labels(verdict)
        for outcome in CLAIM_OUTCOMES:
            self.rows_claimed.labels(outcome)
        for suspended in CollectionState:
            if suspended is not CollectionState.RUNNING:
                self.rows_suspended.labels(suspended.value.lower())
        for outcome in GROUP_OUTCOMES:
            self.groups.labels(outcome)
        for outcome in SWEEP_OUTCOMES:
            self.sweeps.labels(outcome)
        for state in TaskState:
            self.asked_again.labels(state.value.lower())

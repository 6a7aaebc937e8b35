"""The metrics of directory_deletion."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from schemas.records import RemovalOutcome
from services.directory_deletion.tree_state import TreeState
from services.domain.reclaimability import Verdict

UNJUDGEABLE = "unjudgeable"


class DirectoryDeletionMetrics:
    """Counters and gauges of one process; gauges are per shard. A label's values are a closed set, never an id."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.rows_judged = Counter(
            "deepclean_directory_deletion_rows_judged_total",
            "Expanded directories judged again, by verdict; any but reclaimable is a defect of the first judge.",
            ["verdict"],
            registry=registry,
        )
        self.expansions = Counter(
            "deepclean_directory_deletion_expansions_total", "Directories expanded to the end.", registry=registry
        )
        self.moved_files = Counter(
            "deepclean_directory_deletion_moved_files_total", "Files moved by expansions.", registry=registry
        )
        self.moved_directories = Counter(
            "deepclean_directory_deletion_moved_directories_total",
            "Sub-directories moved by expansions.",
            registry=registry,
        )
        self.removals = Counter(
            "deepclean_directory_deletion_removals_total",
            "Removals of directory rows, by outcome.",
            ["outcome"],
            registry=registry,
        )
        self.removals_refused = Counter(
            "deepclean_directory_deletion_removals_refused_total",
            "Rows that metadata would not remove because they are held: must stay 0.",
            registry=registry,
        )
        self.asked_again = Counter(
            "deepclean_directory_deletion_asked_again_total",
            "Questions asked again because no answer came in time, by step.",
            ["step"],
            registry=registry,
        )
        self.directories = Gauge(
            "deepclean_directory_deletion_directories",
            "Deleted directories on their way, by step.",
            ["shard", "step"],
            registry=registry,
        )
        for verdict in (*(verdict.value for verdict in Verdict), UNJUDGEABLE):
            self.rows_judged.labels(verdict)
        for outcome in RemovalOutcome:
            self.removals.labels(outcome.value.lower())
        for state in TreeState:
            self.asked_again.labels(state.value.lower())

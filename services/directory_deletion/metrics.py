"""The metrics of directory_deletion."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry

from schemas.records import RemovalOutcome
from services.directory_deletion.tables import TreeState
from services.domain.reclaimability import Verdict
from services.runtime.parts.collectors import counter, shard_gauge

UNJUDGEABLE = "unjudgeable"


class DirectoryDeletionMetrics:
    """Counters and gauges of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        count = partial(counter, registry)
        self.rows_judged = count(
            "deepclean_directory_deletion_rows_judged_total",
            "Expanded directories judged again, by verdict; any but reclaimable is a defect of the first judge.",
            verdict=[*(verdict.value for verdict in Verdict), UNJUDGEABLE],
        )
        self.expansions = count("deepclean_directory_deletion_expansions_total", "Directories expanded to the end.")
        self.moved_files = count("deepclean_directory_deletion_moved_files_total", "Files moved by expansions.")
        self.moved_directories = count(
            "deepclean_directory_deletion_moved_directories_total", "Sub-directories moved by expansions."
        )
        self.removals = count(
            "deepclean_directory_deletion_removals_total",
            "Removals of directory rows, by outcome.",
            outcome=[outcome.value.lower() for outcome in RemovalOutcome],
        )
        self.removals_refused = count(
            "deepclean_directory_deletion_removals_refused_total",
            "Rows that metadata refused to remove because a snapshot holds them: must stay 0.",
        )
        self.asked_again = count(
            "deepclean_directory_deletion_asked_again_total",
            "Requests sent again because no answer arrived in time, by step.",
            step=[state.lower() for state in TreeState],
        )
        self.directories = shard_gauge(
            registry, "deepclean_directory_deletion_directories", "Deleted directories in progress, by step.", "step"
        )

"""The metrics of snapshots. A label's values are a closed set, never a name or an id."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge

from schemas import records

OPERATIONS: dict[type[object], str] = {
    records.CreateSnapshot: "create",
    records.DeleteSnapshot: "delete",
    records.RenameSnapshot: "rename",
    records.SetDeepClean: "set_deep_clean",
    records.Settle: "settle",
    records.SetRetention: "set_retention",
    records.UnsetRetention: "unset_retention",
    records.CreateTag: "create_tag",
    records.DeleteTag: "delete_tag",
    records.SetConsumer: "set_consumer",
    records.DeleteConsumer: "delete_consumer",
    records.ExpireSnapshots: "expire",
    records.RollBackBucket: "roll_back",
    records.SetSecret: "set_secret",
    records.ResolveDeadLetter: "resolve_dead_letter",
}
"""The label of each command."""
TRIGGERS = ("request", "create", "clock")
RUN_OUTCOMES = ("expired", "nothing", "failed")


class SnapshotsMetrics:
    """Counters and gauges of one process; gauges are per shard."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.commands = counter(
            "deepclean_snapshots_commands_total",
            "Commands that were carried out; a create counts when metadata has captured it.",
            ["operation"],
        )
        self.refusals = counter(
            "deepclean_snapshots_refusals_total", "Commands that were refused, here or by metadata.", ["operation"]
        )
        self.repeats = counter(
            "deepclean_snapshots_repeats_total", "Commands of clients that had been applied before and changed nothing."
        )
        self.removals = counter("deepclean_snapshots_removals_total", "Deleted snapshots whose row was removed.")
        self.undone_creates = counter(
            "deepclean_snapshots_undone_creates_total",
            "Captures that were dropped again because the create had ended with an error.",
        )
        self.stale_flags = counter(
            "deepclean_snapshots_stale_flags_total",
            "Clean flags that were ignored: they were computed at an older chain version than that of the last reset "
            "of the snapshot's flags. They are reset when one of the two preceding snapshots is dropped.",
        )
        self.settle_rounds = counter("deepclean_snapshots_settle_rounds_total", "Barriers that were sent.")
        self.expired = counter(
            "deepclean_snapshots_expired_total", "Snapshots that expired, by what started the run.", ["trigger"]
        )
        self.retention_runs = counter(
            "deepclean_snapshots_retention_runs_total",
            "Runs of retention, by outcome. A refused automatic snapshot counts as a failed run.",
            ["outcome"],
        )
        self.retention_policies = gauge(
            "deepclean_snapshots_retention_policies", "Buckets with a retention policy.", ["shard"]
        )
        self.retention_failing = gauge(
            "deepclean_snapshots_retention_failing", "Buckets whose last run of retention failed.", ["shard"]
        )
        self.tags = gauge("deepclean_snapshots_tags", "Tags that protect snapshots.", ["shard"])
        self.consumers = gauge(
            "deepclean_snapshots_consumers", "Consumers; their positions protect snapshots from expiry.", ["shard"]
        )
        self.snapshots = gauge("deepclean_snapshots_rows", "Rows of snapshotInfoTable.", ["shard", "state"])
        self.unclean = gauge(
            "deepclean_snapshots_unclean",
            "Snapshots that are not flagged deep clean, without deleted ones and without those of suspended buckets.",
            ["shard"],
        )
        self.chain_corrupted = gauge(
            "deepclean_snapshots_chain_corrupted",
            "1 while the snapshot chain of the shard is corrupted: no snapshot is created or deleted, and claims are "
            "stopped.",
            ["shard"],
        )
        self.chain_differences = gauge(
            "deepclean_snapshots_chain_differences",
            "Snapshots in which snapshotInfoTable and metadata's chain differ, compared once a minute.",
            ["shard", "difference"],
        )
        self.dead_letters_open = gauge(
            "deepclean_snapshots_dead_letters_open",
            "Unresolved dead letters, by the service that dead-lettered the message.",
            ["shard", "source"],
        )
        for operation in OPERATIONS.values():
            if operation != "set_secret":
                self.commands.labels(operation)
                self.refusals.labels(operation)
        for trigger in TRIGGERS:
            self.expired.labels(trigger)
        for outcome in RUN_OUTCOMES:
            self.retention_runs.labels(outcome)

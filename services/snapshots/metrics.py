"""The metrics of snapshots. A label's values are a closed set, never a name or an id."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

OPERATIONS = (
    "create",
    "delete",
    "rename",
    "set_deep_clean",
    "settle",
    "set_retention",
    "unset_retention",
    "create_tag",
    "delete_tag",
    "set_consumer",
    "delete_consumer",
    "expire",
    "roll_back",
    "resolve_dead_letter",
)
STATES = ("active", "deleted", "being_made")
TRIGGERS = ("request", "create", "clock")
RUN_OUTCOMES = ("expired", "nothing", "failed")


class SnapshotsMetrics:
    """Counters and gauges of one process; gauges are per shard."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.commands = Counter(
            "deepclean_snapshots_commands_total",
            "Commands that were carried out; a create counts when metadata has captured it.",
            ["operation"],
            registry=registry,
        )
        self.refusals = Counter(
            "deepclean_snapshots_refusals_total",
            "Commands that were refused, here or by metadata.",
            ["operation"],
            registry=registry,
        )
        self.repeats = Counter(
            "deepclean_snapshots_repeats_total",
            "Commands of clients that had been applied before and changed nothing.",
            registry=registry,
        )
        self.removals = Counter(
            "deepclean_snapshots_removals_total",
            "Deleted snapshots whose row was removed.",
            registry=registry,
        )
        self.undone_creates = Counter(
            "deepclean_snapshots_undone_creates_total",
            "Captures that were followed by a drop, since the create had ended with an error.",
            registry=registry,
        )
        self.stale_flags = Counter(
            "deepclean_snapshots_stale_flags_total",
            "Clean flags that were found before the last reset, and ignored.",
            registry=registry,
        )
        self.settle_rounds = Counter(
            "deepclean_snapshots_settle_rounds_total",
            "Barriers that were sent.",
            registry=registry,
        )
        self.expired = Counter(
            "deepclean_snapshots_expired_total",
            "Snapshots that expired, by what started the run.",
            ["trigger"],
            registry=registry,
        )
        self.retention_runs = Counter(
            "deepclean_snapshots_retention_runs_total",
            "Runs of retention, by what came of them; an automatic snapshot that is refused is one that failed.",
            ["outcome"],
            registry=registry,
        )
        self.retention_policies = Gauge(
            "deepclean_snapshots_retention_policies",
            "Buckets with a retention policy.",
            ["shard"],
            registry=registry,
        )
        self.retention_failing = Gauge(
            "deepclean_snapshots_retention_failing",
            "Buckets whose last run of retention failed.",
            ["shard"],
            registry=registry,
        )
        self.tags = Gauge("deepclean_snapshots_tags", "Tags that protect snapshots.", ["shard"], registry=registry)
        self.consumers = Gauge(
            "deepclean_snapshots_consumers",
            "Readers whose place keeps snapshots from expiring.",
            ["shard"],
            registry=registry,
        )
        self.snapshots = Gauge(
            "deepclean_snapshots_rows", "Rows of snapshotInfoTable.", ["shard", "state"], registry=registry
        )
        self.unclean = Gauge(
            "deepclean_snapshots_unclean",
            "Active snapshots that are not flagged deep clean.",
            ["shard"],
            registry=registry,
        )
        self.chain_corrupted = Gauge(
            "deepclean_snapshots_chain_corrupted",
            "1 while the chain of the shard is corrupted: no create, no delete, and claims were stopped.",
            ["shard"],
            registry=registry,
        )
        self.chain_differences = Gauge(
            "deepclean_snapshots_chain_differences",
            "Differences between snapshotInfoTable and metadata's chain; looked for at start and when settled.",
            ["shard", "difference"],
            registry=registry,
        )
        self.dead_letters_open = Gauge(
            "deepclean_snapshots_dead_letters_open",
            "Dead letters that nobody has dealt with, by the service that put the message aside.",
            ["shard", "source"],
            registry=registry,
        )
        for operation in OPERATIONS:
            self.commands.labels(operation)
            self.refusals.labels(operation)
        for trigger in TRIGGERS:
            self.expired.labels(trigger)
        for outcome in RUN_OUTCOMES:
            self.retention_runs.labels(outcome)

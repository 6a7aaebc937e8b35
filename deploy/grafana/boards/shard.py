"""All services of one shard."""

from __future__ import annotations

from deploy.grafana.board import Board, Panel, Row, half_and_most, quantile, rate

SHARDS = '{shard=~"$shard"}'
SHARD = Board(
    "deepclean-shard",
    "deepclean: one shard",
    "All services of the shards that are chosen above.",
    (
        Row(
            "Work",
            (
                Panel(
                    "Messages applied",
                    "By service.",
                    ((rate("deepclean_messages_applied_total", "service", SHARDS), "{{service}}"),),
                ),
                Panel(
                    "Time of a unit of work",
                    "99th percentile, from the first message until it is durable.",
                    ((quantile(0.99, "deepclean_batch_seconds", "service", SHARDS), "{{service}}"),),
                    unit="s",
                ),
                Panel(
                    "Age of the backlog",
                    "Age of the last applied message while further messages wait.",
                    ((f"max by (service, topic) (deepclean_input_lag_seconds{SHARDS})", "{{service}}: {{topic}}"),),
                    unit="s",
                ),
            ),
        ),
        Row(
            "Deletions",
            (
                Panel(
                    "Time until freed",
                    "From the moment when nothing holds a version any more.",
                    half_and_most("deepclean_metadata_freed_seconds", SHARDS),
                    unit="s",
                ),
                Panel(
                    "Batches by step",
                    "Batches of rows in key_deletion.",
                    ((f"sum by (step) (deepclean_key_deletion_tasks{SHARDS})", "{{step}}"),),
                    unit="none",
                ),
                Panel(
                    "Versions that nothing holds",
                    "Waiting for a claim, and claimed.",
                    (
                        (
                            'sum by (state) (deepclean_metadata_reclaimable_versions{state!="freed", shard=~"$shard"})',
                            "{{state}}",
                        ),
                    ),
                    unit="none",
                ),
            ),
        ),
        Row(
            "State",
            (
                Panel(
                    "Bytes by state",
                    "Of all versions.",
                    ((f"sum by (state) (deepclean_metadata_space_bytes{SHARDS})", "{{state}}"),),
                    unit="bytes",
                ),
                Panel(
                    "Databases and checkpoints",
                    "Size on disk.",
                    (
                        (f"sum by (service) (deepclean_database_bytes{SHARDS})", "{{service}}"),
                        (f"sum(deepclean_checkpoint_bytes{SHARDS})", "checkpoints"),
                    ),
                    unit="bytes",
                ),
                Panel(
                    "Cells and snapshots",
                    "Cells of the space matrices, and rows of snapshotInfoTable.",
                    (
                        (f"sum(deepclean_metadata_space_cells{SHARDS})", "cells"),
                        (f"sum(deepclean_snapshots_rows{SHARDS})", "snapshots"),
                    ),
                    unit="none",
                ),
                Panel(
                    "Commands left",
                    "Commands that can still give ids to new blocks. At 0 the shard refuses writes.",
                    ((f"min(deepclean_metadata_txns_with_blocks_left{SHARDS})", "commands"),),
                    unit="none",
                ),
                Panel(
                    "Standbys",
                    "Messages that each standby of the shard has not applied; none without standbys.",
                    ((f"max by (service) (deepclean_standby_lag_messages{SHARDS}) or vector(0)", "{{service}}"),),
                    unit="none",
                ),
                Panel(
                    "Chain version",
                    "Of the view of Spark. It grows with each snapshot that is captured or dropped.",
                    ((f"max by (shard) (deepclean_streaming_chain_version{SHARDS})", "shard {{shard}}"),),
                    unit="none",
                ),
            ),
        ),
    ),
    has_shards=True,
)

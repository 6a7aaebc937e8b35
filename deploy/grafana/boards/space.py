"""Snapshots and space."""

from __future__ import annotations

from deploy.grafana.board import Board, Panel, Row

SPACE = Board(
    "deepclean-space",
    "deepclean: snapshots and space",
    "Which state the bytes are in, how many snapshots there are, and what disks take. Who holds what: deepclean space.",
    (
        Row(
            "Bytes",
            (
                Panel(
                    "By state",
                    "Of all versions. held: by snapshots; pending: by nothing; claimed: on the way to the block store.",
                    (("sum by (state) (deepclean_metadata_space_bytes)", "{{state}}"),),
                    unit="bytes",
                ),
                Panel(
                    "On disks, by state",
                    "With all copies and parity.",
                    (("sum by (state) (deepclean_metadata_space_replicated_bytes)", "{{state}}"),),
                    unit="bytes",
                ),
                Panel(
                    "In the block store",
                    "Bytes of all blocks, by shard.",
                    (("sum by (shard) (deepclean_mock_scm_inventory_bytes)", "shard {{shard}}"),),
                    unit="bytes",
                ),
            ),
        ),
        Row(
            "Snapshots",
            (
                Panel(
                    "Snapshots",
                    "Rows of snapshotInfoTable by state.",
                    (("sum by (state) (deepclean_snapshots_rows)", "{{state}}"),),
                    unit="none",
                ),
                Panel(
                    "Commands",
                    "Carried out and refused, in an hour.",
                    (
                        ("sum by (operation) (increase(deepclean_snapshots_commands_total[1h]))", "{{operation}}"),
                        (
                            "sum by (operation) (increase(deepclean_snapshots_refusals_total[1h]))",
                            "{{operation}} refused",
                        ),
                    ),
                ),
                Panel(
                    "Retention",
                    "Snapshots that expired in an hour, by trigger, and buckets whose retention fails.",
                    (
                        (
                            "sum by (trigger) (increase(deepclean_snapshots_expired_total[1h]))",
                            "expired by {{trigger}}",
                        ),
                        ("sum(deepclean_snapshots_retention_failing)", "buckets that fail"),
                    ),
                ),
                Panel(
                    "What keeps snapshots",
                    "Policies, tags and consumers.",
                    (
                        ("sum(deepclean_snapshots_retention_policies)", "policies"),
                        ("sum(deepclean_snapshots_tags)", "tags"),
                        ("sum(deepclean_snapshots_consumers)", "consumers"),
                    ),
                    unit="none",
                ),
                Panel(
                    "Sweeps and clean flags",
                    "Garbage ranges being swept, and live snapshots that are not flagged deep clean.",
                    (
                        ("sum(deepclean_key_deletion_sweeps_open)", "sweeps open"),
                        ("sum(deepclean_snapshots_unclean)", "snapshots not clean"),
                        ("sum by (outcome) (increase(deepclean_key_deletion_sweeps_total[1h]))", "sweeps {{outcome}}"),
                    ),
                    unit="none",
                ),
                Panel(
                    "Diffs",
                    "Diffs that have ended in an hour, by status.",
                    (("sum by (status) (increase(deepclean_metadata_diffs_total[1h]))", "{{status}}"),),
                ),
            ),
        ),
        Row(
            "Disk of the services",
            (
                Panel(
                    "Databases",
                    "Size on disk, by service.",
                    (("sum by (service) (deepclean_database_bytes)", "{{service}}"),),
                    unit="bytes",
                ),
                Panel(
                    "Checkpoints",
                    "Disk space that only snapshot checkpoints use.",
                    (("sum by (service) (deepclean_checkpoint_bytes)", "{{service}}"),),
                    unit="bytes",
                ),
                Panel(
                    "Number of checkpoints",
                    "One for each live snapshot.",
                    (("sum by (service) (deepclean_checkpoints)", "{{service}}"),),
                    unit="none",
                ),
            ),
        ),
    ),
)

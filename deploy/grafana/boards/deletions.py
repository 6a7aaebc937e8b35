"""The way of a deletion: each station with its rate, and what waits there."""

from __future__ import annotations

from deploy.grafana.board import Board, Panel, Row, rate

DELETIONS = Board(
    "deepclean-deletions",
    "deepclean: the way of a deletion",
    "Each station with its rate and what waits there. One deletion is followed by: deepclean trace.",
    (
        Row(
            "Stations",
            (
                Panel(
                    "1. Judged by Spark",
                    "Deleted versions, directories and rename entries, including those of sweeps.",
                    ((rate("deepclean_streaming_entries_judged_total", "verdict"), "{{verdict}}"),),
                ),
                Panel(
                    "2. Judged by key_deletion",
                    "Any verdict but reclaimable is a defect of the first judge.",
                    ((rate("deepclean_key_deletion_rows_judged_total", "verdict"), "{{verdict}}"),),
                ),
                Panel(
                    "3. Rows of claims",
                    "Outcomes of rows that both judges found reclaimable. missing: another claim came first, which is "
                    "normal.",
                    ((rate("deepclean_key_deletion_claim_rows_total", "outcome"), "{{outcome}}"),),
                ),
                Panel(
                    "4. Block groups",
                    "Answers of the block store; failed ones are tried again.",
                    ((rate("deepclean_key_deletion_groups_total", "outcome"), "{{outcome}}"),),
                ),
                Panel(
                    "5. Bytes freed",
                    "Confirmed by the block store.",
                    ((rate("deepclean_key_deletion_confirmed_bytes_total"), "confirmed"),),
                    unit="Bps",
                ),
                Panel(
                    "Directories",
                    "Expanded, moved and removed.",
                    (
                        (rate("deepclean_directory_deletion_expansions_total"), "expanded"),
                        (rate("deepclean_directory_deletion_moved_files_total"), "files moved"),
                        (rate("deepclean_directory_deletion_moved_directories_total"), "directories moved"),
                        (
                            rate("deepclean_directory_deletion_removals_total", where='{outcome="removed"}'),
                            "removed",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "In progress",
            (
                Panel(
                    "What waits before a claim",
                    "Purge requests in their undo window, throttled by purge hours or a rate, and free to go.",
                    (
                        ("sum(deepclean_key_deletion_purges_in_undo_window)", "in the undo window"),
                        ("sum by (reason) (deepclean_key_deletion_purges_throttled)", "throttled: {{reason}}"),
                        ("sum(deepclean_key_deletion_waiting_purges)", "waiting"),
                    ),
                    unit="none",
                ),
                Panel(
                    "Batches by step",
                    "Batches of rows in key_deletion.",
                    (("sum by (step) (deepclean_key_deletion_tasks)", "{{step}}"),),
                    unit="none",
                ),
                Panel(
                    "Directories by step",
                    "Deleted directories in directory_deletion; blocked ones wait for a child.",
                    (("sum by (step) (deepclean_directory_deletion_directories)", "{{step}}"),),
                    unit="none",
                ),
                Panel(
                    "Sent, not confirmed",
                    "Bytes that the block store was told to delete and has not yet confirmed.",
                    (("sum by (shard) (deepclean_key_deletion_unconfirmed_bytes)", "shard {{shard}}"),),
                    unit="bytes",
                ),
                Panel(
                    "Versions that nothing holds",
                    "Waiting for a claim, and claimed.",
                    (
                        (
                            'sum by (state) (deepclean_metadata_reclaimable_versions{state!="freed"})',
                            "{{state}}",
                        ),
                    ),
                    unit="none",
                ),
                Panel(
                    "Requests sent again",
                    "Requests without an answer in time. Normally 0.",
                    (
                        (
                            "sum by (step) (increase(deepclean_key_deletion_asked_again_total[1h]))",
                            "key_deletion {{step}}",
                        ),
                        (
                            "sum by (step) (increase(deepclean_directory_deletion_asked_again_total[1h]))",
                            "directory_deletion {{step}}",
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "Held back",
            (
                Panel(
                    "Buckets suspended",
                    "Buckets, and a shard as one more, whose claims are paused, in shadow mode, tripped or stopped.",
                    (
                        (
                            'sum by (state) (deepclean_metadata_collection_states{state!="running"})',
                            "{{state}}",
                        ),
                    ),
                    unit="none",
                ),
                Panel(
                    "Bytes suspended",
                    "Bytes that no snapshot holds and whose claims are suspended, and those counted in shadow mode.",
                    (
                        ("sum(deepclean_metadata_suspended_bytes)", "suspended"),
                        ("sum(deepclean_metadata_shadow_bytes)", "counted in shadow mode"),
                    ),
                    unit="bytes",
                ),
                Panel(
                    "Breakers",
                    "Buckets whose breaker has tripped, by cause.",
                    (("sum by (cause) (deepclean_metadata_breaker_trips)", "{{cause}}"),),
                    unit="none",
                ),
            ),
        ),
        Row(
            "The block store",
            (
                Panel(
                    "What needs care",
                    "On a plane with datanodes. Deletions wait for datanodes that do not acknowledge them; parked ones "
                    "wait for an operator (deepclean blocks).",
                    (
                        ("sum(deepclean_mock_scm_under_replicated_containers)", "containers with too few copies"),
                        ("sum(deepclean_mock_scm_lost_containers)", "containers without a copy"),
                        ("sum(deepclean_mock_scm_damaged_blocks)", "damaged blocks"),
                        ("sum(deepclean_mock_scm_log_transactions)", "deletions to acknowledge"),
                        ("sum(deepclean_mock_scm_parked_transactions)", "deletions parked"),
                        ("sum(deepclean_datanode_failed_disks)", "failed disks"),
                    ),
                    unit="none",
                ),
                Panel(
                    "Datanodes: bytes per second",
                    "Bytes that clients write and read, and that deletions and the scrubber take up.",
                    (
                        (rate("deepclean_datanode_written_bytes_total"), "written"),
                        (rate("deepclean_datanode_read_bytes_total"), "read"),
                        (rate("deepclean_datanode_deleted_bytes_total"), "deleted"),
                        (rate("deepclean_datanode_scrubbed_bytes_total"), "scrubbed"),
                    ),
                    unit="Bps",
                ),
                Panel(
                    "Deletions that wait",
                    "Until their blocks are reported, or a delay is over.",
                    (("sum(deepclean_mock_scm_waiting_deletions)", "waiting"),),
                    unit="none",
                ),
            ),
        ),
    ),
)

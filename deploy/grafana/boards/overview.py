"""Is it safe, does it keep up, does it free, and where are the bytes?"""

from __future__ import annotations

from deploy.grafana.board import RATE, Board, Panel, Row, half_and_most, must_be_zero, quantile, rate

READS = '{route=~"/v1/shards/.*",route!~".*/(containers|copies)/.*"}'
SAFETY = Row(
    "Safety",
    (
        must_be_zero(
            "Claims refused",
            "Rows that metadata refused to claim although two judges found them reclaimable. Must be 0.",
            "sum(deepclean_metadata_refused_rows)",
            "refused",
        ),
        must_be_zero(
            "Judges disagree",
            "Rows that the second judge did not find reclaimable. Must be 0.",
            '(sum(max_over_time(deepclean_key_deletion_rows_judged_total{verdict!="reclaimable"}[1d])) or vector(0)) + '
            '(sum(max_over_time(deepclean_directory_deletion_rows_judged_total{verdict!="reclaimable"}[1d])) '
            "or vector(0))",
            "rows",
        ),
        must_be_zero(
            "Corrupted chains",
            "Shards whose snapshot chain is corrupted. Nothing is freed there.",
            "sum(deepclean_snapshots_chain_corrupted)",
            "shards",
        ),
        must_be_zero(
            "Chain differences",
            "Snapshots that only one of the services snapshots and metadata lists.",
            "sum(deepclean_snapshots_chain_differences)",
            "snapshots",
        ),
        must_be_zero(
            "Dead letters, open",
            "Unresolved dead letters; their blocks are kept.",
            "sum(deepclean_snapshots_dead_letters_open)",
            "letters",
        ),
        must_be_zero(
            "Processes down",
            "Targets that did not answer the last scrape.",
            'count(up{job=~"deepclean.*"} == 0) or vector(0)',
            "processes",
        ),
    ),
)
OBJECTIVES = Row(
    "Objectives",
    (
        Panel(
            "Freed late",
            "Share of versions that were freed more than 30 minutes after nothing held them any more. The objective is "
            "at most 1 % over 30 days.",
            (
                ("deepclean:freed_late:ratio_rate1h", "last hour"),
                ("deepclean:freed_late:ratio_rate3d", "last three days"),
            ),
            unit="percentunit",
        ),
        Panel(
            "Time until freed",
            "From the moment when nothing holds a version any more until the block store has confirmed its blocks.",
            half_and_most("deepclean_metadata_freed_seconds"),
            unit="s",
        ),
        Panel(
            "Judged late",
            "Share of deleted entries that were judged more than 5 minutes after they were written to "
            "gc.deleted-entries. The objective is at most 1 % over 30 days.",
            (
                ("deepclean:verdict_late:ratio_rate1h", "last hour"),
                ("deepclean:verdict_late:ratio_rate3d", "last three days"),
            ),
            unit="percentunit",
        ),
        Panel(
            "Age of the backlog",
            "Age of the last applied message while further messages wait.",
            (("max by (service, topic) (deepclean_input_lag_seconds)", "{{service}}: {{topic}}"),),
            unit="s",
        ),
        Panel(
            "Reads that fail",
            "Share of the requests about a shard that ended in an error of the server. The objective is at most 0.1 % "
            "over 30 days.",
            (
                ("deepclean:reads_failed:ratio_rate1h", "last hour"),
                ("deepclean:reads_failed:ratio_rate3d", "last three days"),
            ),
            unit="percentunit",
        ),
        Panel(
            "Time of reads",
            "99th percentile of the requests about a shard, by process. Some wait until a txn is applied.",
            ((quantile(0.99, "deepclean_http_request_seconds", "process", READS), "{{process}}"),),
            unit="s",
        ),
        Panel(
            "Reads",
            "Answered a second, by status.",
            ((rate("deepclean_http_request_seconds_count", "status", READS), "{{status}}"),),
        ),
    ),
)
OVERVIEW = Board(
    "deepclean",
    "deepclean: overview",
    "Is it safe, does it keep up, does it free, and where are the bytes?",
    (
        SAFETY,
        OBJECTIVES,
        Row(
            "Work",
            (
                Panel(
                    "Messages applied by service",
                    "Client commands are part of what metadata applies.",
                    ((rate("deepclean_messages_applied_total", "service"), "{{service}}"),),
                ),
                Panel(
                    "Bytes written and freed",
                    "As the block store reports them.",
                    (
                        (rate("deepclean_mock_scm_written_bytes_total"), "written"),
                        (rate("deepclean_mock_scm_deleted_bytes_total"), "freed"),
                    ),
                    unit="Bps",
                ),
                Panel(
                    "Where the bytes are",
                    "Of all versions, by where metadata has them; at rest they add up to what the block store has.",
                    (("sum by (state) (deepclean_metadata_space_bytes)", "{{state}}"),),
                    unit="bytes",
                ),
            ),
        ),
        Row(
            "Processes",
            (
                Panel(
                    "Memory",
                    "Resident memory of each process.",
                    (('process_resident_memory_bytes{job=~"deepclean.*"}', "{{process}}"),),
                    unit="bytes",
                ),
                Panel(
                    "Processor time",
                    "Cores that each process uses. The Spark job's are on the dashboard of Spark.",
                    ((f'rate(process_cpu_seconds_total{{job=~"deepclean.*"}}{RATE})', "{{process}}"),),
                ),
                Panel(
                    "Program",
                    "Processes by version and feature level: more than one line while an upgrade is in progress.",
                    (("count by (version, feature_level) (deepclean_build_info)", "{{version}}, {{feature_level}}"),),
                    unit="none",
                ),
            ),
        ),
    ),
)

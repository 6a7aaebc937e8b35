"""What the services read from Kafka and write to it."""

from __future__ import annotations

from deploy.grafana.board import RATE, Board, Panel, Row, quantile, rate

KAFKA = Board(
    "deepclean-kafka",
    "deepclean: Kafka",
    "What the services read from Kafka and write to it. The brokers' own figures come from their own exporters.",
    (
        Row(
            "Reading",
            (
                Panel(
                    "Messages waiting",
                    "Not applied yet, by reader and topic.",
                    (("sum by (service, topic) (deepclean_input_lag_messages)", "{{service}}: {{topic}}"),),
                    unit="none",
                ),
                Panel(
                    "Age of what waits",
                    "Age of the last applied message while others wait; 0 when none waits.",
                    (("max by (service, topic) (deepclean_input_lag_seconds)", "{{service}}: {{topic}}"),),
                    unit="s",
                ),
                Panel(
                    "Applied",
                    "By topic.",
                    ((rate("deepclean_messages_applied_total", "topic"), "{{topic}}"),),
                ),
                Panel(
                    "Written to each topic",
                    "How fast the topics that services read grow, in messages a second.",
                    (
                        (
                            f"sum by (topic) (max by (topic, shard) (rate(deepclean_input_end_offset{RATE})))",
                            "{{topic}}",
                        ),
                    ),
                ),
                Panel(
                    "Away from the log",
                    "From a poll that returned messages until the next one begins: one in a thousand takes longer.",
                    ((quantile(0.999, "deepclean_away_from_log_seconds", "service"), "{{service}}"),),
                    unit="s",
                ),
                Panel(
                    "Messages of a unit of work",
                    "Half of the units have more.",
                    ((quantile(0.5, "deepclean_batch_messages", "service"), "{{service}}"),),
                    unit="none",
                ),
            ),
        ),
        Row(
            "Writing",
            (
                Panel(
                    "Published",
                    "Messages that the brokers acknowledged.",
                    ((rate("deepclean_messages_published_total", "service"), "{{service}}"),),
                ),
                Panel(
                    "Outbox",
                    "Written and not acknowledged: more than a moment means that the brokers are in trouble.",
                    (("sum by (service) (deepclean_outbox_messages)", "{{service}}"),),
                    unit="none",
                ),
                Panel(
                    "Retried steps",
                    "Retryable failures per minute.",
                    (("sum by (service) (rate(deepclean_step_retries_total[$__rate_interval])) * 60", "{{service}}"),),
                ),
                Panel(
                    "Dead letters",
                    "Messages that could not be read or applied, in an hour, by service and topic.",
                    (
                        (
                            "sum by (service, topic) (increase(deepclean_dead_letters_total[1h])) > 0 or vector(0)",
                            "{{service}}: {{topic}}",
                        ),
                    ),
                    unit="none",
                ),
                Panel(
                    "Dead letters, open",
                    "Unresolved, by the service that could not read or apply the message.",
                    (("sum by (source) (deepclean_snapshots_dead_letters_open)", "{{source}}"),),
                    unit="none",
                ),
                Panel(
                    "Changelog",
                    "Messages from which the next start of a service reads its state.",
                    (("sum by (service) (max by (service, shard) (deepclean_changelog_offset))", "{{service}}"),),
                    unit="none",
                ),
            ),
        ),
    ),
)

"""The Spark job."""

from __future__ import annotations

from deploy.grafana.board import Board, Panel, Row, half_and_most, rate

SPARK = Board(
    "deepclean-spark",
    "deepclean: Spark",
    "The first judge, a Structured Streaming job: what it reads, how long its batches take, and what waits.",
    (
        Row(
            "Batches",
            (
                Panel(
                    "Entries judged",
                    "By verdict.",
                    ((rate("deepclean_streaming_entries_judged_total", "verdict"), "{{verdict}}"),),
                ),
                Panel(
                    "Time of a batch",
                    "From its start until its results are published.",
                    half_and_most("deepclean_streaming_batch_seconds"),
                    unit="s",
                ),
                Panel(
                    "Time until judged",
                    "From the time at which an entry was written to gc.deleted-entries until its verdict is published.",
                    half_and_most("deepclean_streaming_verdict_seconds"),
                    unit="s",
                ),
                Panel(
                    "Time by Spark's steps",
                    "Seconds of each second; addBatch is the judging, the others are Spark's own.",
                    ((rate("deepclean_streaming_query_seconds_total", "step"), "{{step}}"),),
                ),
                Panel(
                    "Batches and messages",
                    "As Spark's query reports them.",
                    (
                        (rate("deepclean_streaming_query_batches_total"), "batches"),
                        (rate("deepclean_streaming_query_messages_total"), "messages"),
                    ),
                ),
                Panel(
                    "Since the last batch",
                    "Grows while nothing is deleted, too.",
                    (("time() - max(deepclean_streaming_last_batch_timestamp_seconds)", "seconds"),),
                    unit="s",
                ),
                Panel(
                    "Barriers",
                    "Passed on: each settle sends one through all processes.",
                    ((rate("deepclean_streaming_barriers_total"), "barriers"),),
                ),
            ),
        ),
        Row(
            "What waits",
            (
                Panel(
                    "Messages behind",
                    "That the last batch left unread, in the shard with the most.",
                    (("max(deepclean_streaming_messages_behind)", "messages"),),
                    unit="none",
                ),
                Panel(
                    "Ahead of the chain, or passed over",
                    "They wait until the snapshot chain of their shard is known.",
                    (
                        ("sum(deepclean_streaming_premature_messages)", "ahead of the chain"),
                        ("sum(deepclean_streaming_passed_over_messages)", "passed over"),
                    ),
                    unit="none",
                ),
                Panel(
                    "Chain",
                    "Shards whose chain is broken, and dead letters of the job.",
                    (
                        ("sum(deepclean_streaming_chain_broken)", "broken"),
                        ("sum(increase(deepclean_streaming_dead_letters_total[1h]))", "dead letters, 1 h"),
                    ),
                    unit="none",
                ),
            ),
        ),
    ),
)

"""Measures how fast Spark judges entries."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from bench.alone import bench_broker
from bench.bulk import BulkProducer
from bench.conditions import Conditions
from bench.figures import Ceiling, Figure, Target
from bench.rule_cost import BUCKET_ID, TXNS_PER_SNAPSHOT, questions
from bench.spark_process import run_spark
from schemas.codec import codec
from schemas.records import ChainCapture, DeletedEntries, DeletedKind, SnapshotChainRecord
from schemas.topics import DELETED_ENTRIES, SNAPSHOT_CHAIN
from services.domain.row_columns import DeletedEntry, entries_by_columns
from services.metadata.state.sent_entries import MAX_ROWS_PER_MESSAGE
from services.plane.broker.embedded import EmbeddedBroker
from services.plane.broker.topics import TOPIC_SETTINGS, create_topics
from streaming.reclaiming.reclaim import MESSAGES_PER_BATCH

NAME = "verdicts"
ENTRY_TOPIC, COPY_TOPIC = "bench.entries", "bench.copy"
ENTRIES_PER_SECOND = 80_000
BATCHES, ROUNDS = 4, 3
SNAPSHOTS = 20
DISTINCT_ENTRIES = 10_000
RATE = Target(250_000)
HALF = Target(0.5, is_of_ratio=True)


def measure_verdicts(conditions: Conditions) -> Sequence[Figure]:
    """Verdicts a second of the Spark job on entries already in Kafka, beside a bare copy by Spark of the same entries.

    The real job reads gc.deleted-entries from its beginning, with a thousand entries to a message as metadata publishes
    them. It judges with a chain of 20 snapshots, which hold every second entry, and publishes the purge requests. The
    copy reads the same entries, one to a message, and forwards every message unchanged: the most that Spark can move.
    Both run in one session, in turns, after a warm-up round. Each is timed from the end of its first batch to the end
    of its last batch; the median of the rounds counts.
    """
    messages = min(MESSAGES_PER_BATCH, max(1, conditions.count(ENTRIES_PER_SECOND) // BATCHES // MAX_ROWS_PER_MESSAGE))
    per_batch = messages * MAX_ROWS_PER_MESSAGE
    entries = per_batch * max(BATCHES, conditions.count(ENTRIES_PER_SECOND) // per_batch)
    with bench_broker(conditions, NAME) as broker:
        conditions.say(f"{NAME}: writing {entries:,} deleted entries into Kafka")
        write_entries(broker, entries)
        conditions.say(f"{NAME}: judging and copying {entries:,} entries, {ROUNDS} times")
        options = {
            "bootstrap_servers": broker.bootstrap_servers,
            "entries": entries,
            "entries_per_batch": per_batch,
            "messages_per_batch": messages,
            "entry_topic": ENTRY_TOPIC,
            "rounds": ROUNDS,
            "copy_topic": COPY_TOPIC,
        }
        rates = run_spark(conditions, "verdicts", options)
    ceiling = Ceiling(median(rates["copied"]), "copy through Spark")
    details = {
        "entries": entries,
        "fastest_per_second": max(rates["judged"]),
        "slowest_per_second": min(rates["judged"]),
    }
    judged = median(rates["judged"])
    return [
        Figure(NAME, judged, "verdicts/s", RATE, ceiling, details),
        Figure(f"{NAME}/beside-a-copy", judged, "verdicts/s", HALF, ceiling),
    ]


def write_entries(broker: EmbeddedBroker, count: int) -> None:
    """Write a chain, and deleted entries as metadata packs them and one to a message, into the topics of one shard."""
    create_topics(broker.bootstrap_servers, dict.fromkeys((ENTRY_TOPIC, COPY_TOPIC), TOPIC_SETTINGS), 1)
    encode_marker, encode = codec(SnapshotChainRecord).encode_message, codec(DeletedEntries).encode_message
    markers = [
        SnapshotChainRecord(
            number, number - 1, ChainCapture(BUCKET_ID, f"snapshot-{number}", number, number * TXNS_PER_SNAPSHOT)
        )
        for number in range(1, SNAPSHOTS + 1)
    ]
    entries = [
        DeletedEntry(BUCKET_ID, number, DeletedKind.KEY, birth, death, before, SNAPSHOTS)
        for number, (birth, death, before) in enumerate(questions(SNAPSHOTS, DISTINCT_ENTRIES))
    ]
    starts = range(0, DISTINCT_ENTRIES, MAX_ROWS_PER_MESSAGE)
    packed = [encode(entries_by_columns(entries[start : start + MAX_ROWS_PER_MESSAGE])) for start in starts]
    single = [encode(entries_by_columns([entry])) for entry in entries]
    producer = BulkProducer(broker.bootstrap_servers)
    try:
        producer.send(SNAPSHOT_CHAIN.name, map(encode_marker, markers))
        for topic, bodies, messages in (
            (DELETED_ENTRIES.name, packed, count // MAX_ROWS_PER_MESSAGE),
            (ENTRY_TOPIC, single, count),
        ):
            producer.send(topic, (bodies[number % len(bodies)] for number in range(messages)))
    finally:
        producer.close()

"""How fast Spark judges."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from schemas.codec import codec
from schemas.records import ChainTake, DeletedEntry, DeletedKind, SnapshotChainRecord
from schemas.topics import DELETED_ENTRIES, SNAPSHOT_CHAIN
from services.plane.bench.alone import bench_broker
from services.plane.bench.bulk import BulkProducer
from services.plane.bench.conditions import Conditions
from services.plane.bench.figures import Ceiling, Figure, Target
from services.plane.bench.rule_cost import BUCKET_ID, TXNS_PER_SNAPSHOT, questions
from services.plane.bench.spark_process import run_spark
from services.plane.broker import EmbeddedBroker
from services.plane.broker_topics import create_topics
from services.plane.stack import TOPIC_SETTINGS

NAME = "verdicts"
COPY_TOPIC = "bench.copy"
ENTRIES_PER_SECOND = 80_000
MOST_ENTRIES_PER_BATCH = 200_000
BATCHES, ROUNDS = 4, 3
SNAPSHOTS = 20
DISTINCT_ENTRIES = 10_000
TARGET = Target(0.5, is_of_ratio=True)


def measure_verdicts(conditions: Conditions) -> Sequence[Figure]:
    """Verdicts a second of the Spark job on entries already in Kafka, beside a bare copy by Spark of the same entries.

    The real job reads gc.deleted-entries from its beginning, judges against a chain of 20 snapshots, of which every
    second entry is held, and publishes the purges; the copy has the same source and sends every message on as it is.
    Both run in one session, in turns, after a round that only warms up; each is timed from the end of its first batch
    to the end of its last, and the median of the rounds counts.
    """
    per_batch = min(MOST_ENTRIES_PER_BATCH, conditions.count(ENTRIES_PER_SECOND) // BATCHES)
    entries = per_batch * max(BATCHES, conditions.count(ENTRIES_PER_SECOND) // per_batch)
    with bench_broker(conditions, NAME) as broker:
        conditions.say(f"{NAME}: writing {entries:,} deleted entries into Kafka")
        _write(broker, entries)
        conditions.say(f"{NAME}: judging and copying {entries:,} entries, {ROUNDS} times")
        options = {
            "bootstrap_servers": broker.bootstrap_servers,
            "entries": entries,
            "entries_per_batch": per_batch,
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
    return [Figure(NAME, median(rates["judged"]), "verdicts/s", TARGET, ceiling, details)]


def _write(broker: EmbeddedBroker, count: int) -> None:
    create_topics(broker.bootstrap_servers, {COPY_TOPIC: TOPIC_SETTINGS}, 1)
    encode_marker, encode = codec(SnapshotChainRecord).encode, codec(DeletedEntry).encode
    markers = [
        SnapshotChainRecord(
            number, number - 1, ChainTake(BUCKET_ID, f"snapshot-{number}", number, number * TXNS_PER_SNAPSHOT)
        )
        for number in range(1, SNAPSHOTS + 1)
    ]
    distinct = [
        encode(DeletedEntry(BUCKET_ID, number, DeletedKind.KEY, birth, death, before, SNAPSHOTS))
        for number, (birth, death, before) in enumerate(questions(SNAPSHOTS, DISTINCT_ENTRIES))
    ]
    producer = BulkProducer(broker.bootstrap_servers)
    try:
        producer.send(SNAPSHOT_CHAIN.name, SnapshotChainRecord, map(encode_marker, markers))
        repeated = (distinct[number % DISTINCT_ENTRIES] for number in range(count))
        producer.send(DELETED_ENTRIES.name, DeletedEntry, repeated)
    finally:
        producer.close()

"""Rates of Kafka and RocksDB alone on this machine, from Python, with messages and rows of the plane's sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rocksdict import Rdict, WriteBatch, WriteOptions

from bench.alone import bench_broker
from bench.bulk import KEY_BYTES, VOLUME, CommandMaker, consume_rate, flat_name, flat_puts, produce_rate
from bench.conditions import Conditions
from bench.figures import Ceiling, Figure
from schemas.records import BlockRun, KeyRow
from schemas.stored_rows import row_codec
from schemas.topics import METADATA_COMMANDS
from services.domain.table_keys import flat_key, local_id
from services.storage.rocks_options import RocksOptions

NAME = "ceilings"
ROWS_PER_BATCH = 500
DISTINCT_MESSAGES = 10_000
MESSAGES_PER_SECOND, ROWS_PER_SECOND = 60_000, 100_000
MOST_SECONDS = 15.0
"""Longest measurement of a ceiling. All messages are in memory: half an hour would need twenty gigabytes."""
PRODUCE, CONSUME, PUTS = "kafka produce", "kafka consume", "rocksdb puts"


def measure_ceilings(conditions: Conditions) -> Sequence[Figure]:
    """Kafka and RocksDB alone: messages produced and consumed, rows put in synced batches of 500.

    One producer and one consumer with the services' settings (acks=all, idempotent, lz4), messages as long as the
    command of a put; rows as long as the row of a key, written through rocksdict with the services' options.
    """
    rates = _rates(conditions)
    units = {PRODUCE: "messages/s", CONSUME: "messages/s", PUTS: "rows/s"}
    return [Figure(f"{NAME}/{what.replace(' ', '-')}", rate, units[what]) for what, rate in rates.items()]


def slowest(conditions: Conditions) -> Ceiling:
    """Return the slowest of the three: a service that reads, writes and sends one of each cannot be faster."""
    rates = _rates(conditions)
    what = min(rates, key=lambda name: rates[name])
    return Ceiling(rates[what], what)


def _rates(conditions: Conditions) -> dict[str, float]:
    if not conditions.ceilings:
        with bench_broker(conditions, NAME) as broker:
            conditions.say(f"{NAME}: Kafka alone")
            distinct = list(CommandMaker().encoded(flat_puts("flat", DISTINCT_MESSAGES)))
            wanted = conditions.count(MESSAGES_PER_SECOND, most_seconds=MOST_SECONDS)
            bodies = (distinct * (wanted // DISTINCT_MESSAGES + 1))[:wanted]
            topic, servers = METADATA_COMMANDS.name, broker.bootstrap_servers
            conditions.ceilings[PRODUCE] = produce_rate(servers, topic, bodies)
            conditions.ceilings[CONSUME] = consume_rate(servers, topic, wanted)
        conditions.say(f"{NAME}: RocksDB alone")
        conditions.ceilings[PUTS] = put_rate(
            conditions.scratch("rocksdb"), conditions.count(ROWS_PER_SECOND, most_seconds=MOST_SECONDS)
        )
    return conditions.ceilings


def put_rate(directory: Path, count: int) -> float:
    """Return the rows a second that RocksDB writes in synced batches."""
    txn = 1 << 20
    blocks = BlockRun(1, local_id(0, txn, 0), 1, 1 << 28, KEY_BYTES)
    value = row_codec(KeyRow).encode(
        KeyRow(txn << 8, txn, KEY_BYTES, blocks, 0, flat_name(0), txn, 0, "", 1 << 40, 1 << 40)
    )
    keys = [flat_key(VOLUME, "flat", flat_name(number)) for number in range(count)]
    return _timed_puts(Rdict(str(directory), RocksOptions().database()), keys, value, time.perf_counter)


def _timed_puts(database: Rdict, keys: Sequence[bytes], value: bytes, clock: Callable[[], float]) -> float:
    options = WriteOptions()
    options.sync = True
    try:
        started = clock()
        for start in range(0, len(keys), ROWS_PER_BATCH):
            batch = WriteBatch(raw_mode=True)
            for key in keys[start : start + ROWS_PER_BATCH]:
                batch.put(key, value)
            database.write(batch, options)
        return len(keys) / (clock() - started)
    finally:
        database.close()

"""The tables that follow a topic: ``ledger`` and ``chain``. Each message counts once, whatever is repeated.

A run reads the messages from the position of the table to the end that the topic has when the run begins, in stretches.
The rows of a stretch are one commit, and the position is written after it. A process that is killed between the two
leaves a position that is behind the rows; the next run reads the stretch again, and that changes nothing:

- The ledger. The finish txns of a shard only rise, and the highest one of the table says which messages it has. A
  stretch replaces all rows above it, of which there are none unless another process has added them.
- The chain. Each message has the whole row of a snapshot, and the last message counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, expr, lit, struct, timestamp_millis, when
from pyspark.sql.functions import max as greatest_of

from schemas.access import group_prefix
from schemas.credentials import KafkaCredentials
from schemas.records import LedgerRows, SnapshotInfo
from schemas.topics import CLIENTS, SNAPSHOTS_INFO, Topic
from schemas.topics import LEDGER as LEDGER_TOPIC
from services.domain.errors import InvariantError
from services.log.kafka import KafkaLog
from services.log.schema_topic import SchemaTopic
from streaming.ledger_export.ledger_rows import new_rows, read_ledger_messages
from streaming.spark.read_messages import read_messages, require_schemas
from streaming.spark.written_messages import WrittenMessages
from streaming.tables.columns import CHAIN, LEDGER, UNREADABLE, TableColumns
from streaming.tables.lake import Lake, Position, of_shards

MAX_MESSAGES_PER_COMMIT = 5_000
"""Most messages of one shard in a commit. A message of the ledger has up to 1,000 rows, and mostly far fewer."""
Offsets = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Follower:
    """What a table makes of the messages of its topic."""

    table: TableColumns
    topic: Topic
    read: Callable[[DataFrame, WrittenMessages], DataFrame]
    write: Callable[[Lake, DataFrame, Offsets], int]
    """Writes the rows of a stretch of decoded messages; the offsets are those of its first messages."""


@dataclass(slots=True)
class Exported:
    """The number of rows and of unreadable messages that a run has written."""

    rows: int = 0
    unreadable: int = 0


class TopicReader:
    """Reads topics of a plane in stretches."""

    def __init__(
        self, lake: Lake, bootstrap_servers: str, shards: int, credentials: KafkaCredentials | None = None
    ) -> None:
        self._lake = lake
        self._log = KafkaLog(bootstrap_servers, group_prefix(CLIENTS) + "export", credentials=credentials)
        self._shards = range(shards)
        self._schemas = SchemaTopic(self._log)
        self._options = {
            **(credentials.spark_settings() if credentials else {}),
            "kafka.bootstrap.servers": bootstrap_servers,
            "groupIdPrefix": group_prefix(CLIENTS),
            "kafka.isolation.level": "read_committed",
            "failOnDataLoss": "true",
        }

    def export(
        self,
        follower: Follower,
        *,
        is_from_beginning: bool = False,
        max_messages: int = MAX_MESSAGES_PER_COMMIT,
    ) -> Exported:
        """Write what the table lacks. ``is_from_beginning``: read all messages again; none counts twice.

        Raises:
            InvariantError: the topic is another one, has lost messages, or has a message whose schema is not published.
            RetryableError: the broker did not answer, or another process has changed the table.
        """
        topic_id, topic = self._log.topic_ids([follower.topic.name])[follower.topic.name], follower.topic.name
        known = self._lake.position(follower.table)
        if known is not None and known.topic_id != topic_id:
            raise InvariantError(
                f"The table {follower.table.name} has messages of another {topic} than this plane's: export to another "
                f"address."
            )
        starts = {shard: self._log.first_offset(topic, shard) if is_from_beginning else 0 for shard in self._shards}
        if known is not None and not is_from_beginning:
            starts |= known.offsets
        ends = {shard: self._log.end_offset(topic, shard) for shard in self._shards}
        for shard in self._shards:
            self._require_messages(topic, shard, starts[shard], ends[shard])
        exported = Exported()
        for first, until in stretches(starts, ends, max_messages):
            self._export(follower, first, until, exported)
            starts |= until
            self._lake.set_position(follower.table, Position(topic_id, dict(starts)))
        return exported

    def _require_messages(self, topic: str, shard: int, start: int, end: int) -> None:
        if end < start:
            raise InvariantError(
                f"{topic} of shard {shard} ends at {end}, before {start}, where the table is: the broker has lost its "
                f"end. When the plane runs again, read all of it: deepclean export --from-beginning."
            )
        if start < end and self._log.first_offset(topic, shard) > start:
            raise InvariantError(
                f"Messages of {topic} of shard {shard} from {start} on were removed before they were exported: the "
                f"tables cannot become complete. Restore the topic, or export the rest with --from-beginning."
            )

    def _export(self, follower: Follower, first: Offsets, until: Offsets, exported: Exported) -> None:
        messages = WrittenMessages(LedgerRows if follower.topic is LEDGER_TOPIC else SnapshotInfo)
        self._schemas.read()  # a service has published each schema before its first message
        messages.learn_published()
        read = follower.read(self._messages(follower.topic.name, first, until), messages).persist()
        try:
            require_schemas(read, messages, follower.topic.name)
            exported.unreadable += self._write_unreadable(read, follower.topic.name, first)
            exported.rows += follower.write(self._lake, read.filter(col("error").isNull()), first)
        finally:
            read.unpersist()

    def _messages(self, topic: str, first: Offsets, until: Offsets) -> DataFrame:
        options = {
            "assign": {topic: list(first)},
            "startingOffsets": {topic: dict(first)},
            "endingOffsets": {topic: dict(until)},
        }
        reader = self._lake.session.read.format("kafka").options(**self._options)
        return reader.options(**{name: json.dumps(value) for name, value in options.items()}).load()

    def _write_unreadable(self, read: DataFrame, topic: str, first: Offsets) -> int:
        bad = read.filter(col("error").isNotNull()).withColumn("topic", lit(topic))
        if bad.isEmpty():
            return 0
        repeated = (col("topic") == topic) & of_shards({shard: col("offset") >= at for shard, at in first.items()})
        return self._lake.replace(UNREADABLE, bad, repeated, self._lake.state(UNREADABLE))


def stretches(starts: Offsets, ends: Offsets, most: int) -> Iterator[tuple[dict[int, int], dict[int, int]]]:
    """Yield the first offsets and the ends of each stretch, of the shards that have messages in it."""
    at = dict(starts)
    while left := [shard for shard, end in ends.items() if at[shard] < end]:
        until = {shard: min(at[shard] + most, ends[shard]) for shard in left}
        yield {shard: at[shard] for shard in left}, until
        at |= until


def _write_ledger(lake: Lake, read: DataFrame, first: Offsets) -> int:
    state = lake.state(LEDGER)
    marks = {shard: lake.highest(LEDGER, "finish_txn", shard) or 0 for shard in first}
    rows = new_rows(read, {str(shard): mark for shard, mark in marks.items()})
    if rows.isEmpty():
        return 0
    times = {name: timestamp_millis(f"{name}_ms") for name in ("claim_time", "finish_time")}
    above = of_shards({shard: col("finish_txn") > mark for shard, mark in marks.items()})
    return lake.replace(LEDGER, rows.withColumns(times), above, state)


def _write_chain(lake: Lake, read: DataFrame, first: Offsets) -> int:  # noqa: ARG001  the last message counts
    captured = read.filter("entry.create_txn > 0")  # before that, a snapshot is only wanted
    newest = captured.groupBy("shard", "entry.snapshot_id").agg(greatest_of(struct("offset", "entry")).alias("newest"))
    entry = newest.select("shard", "newest.entry.*")
    return lake.put(CHAIN, entry.withColumns(_of_snapshot()), "snapshot_id") if not entry.isEmpty() else 0


def _of_snapshot() -> dict[str, Any]:
    return {
        "drop_txn": when(col("is_removed"), col("last_txn")),
        "creation_time": timestamp_millis("creation_time_ms"),
        "deletion_time": when(col("deletion_time_ms") >= 0, timestamp_millis("deletion_time_ms")),
        "status": expr("if(is_removed, 'DROPPED', substring_index(status, '_', -1))"),
    }


FOLLOWERS = {
    LEDGER.name: Follower(LEDGER, LEDGER_TOPIC, read_ledger_messages, _write_ledger),
    CHAIN.name: Follower(CHAIN, SNAPSHOTS_INFO, read_messages, _write_chain),
}

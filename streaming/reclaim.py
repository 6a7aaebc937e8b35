"""The reclaim job: Structured Streaming over gc.deleted-entries, one Spark job for each batch.

A batch goes in these steps; a crash after any of them makes Spark repeat the batch from its checkpoint, which is
harmless, since every message names what it is about:

1. Spark fixes the batch's end offsets and writes them into its checkpoint.
2. The driver reads the snapshot chain up to its present end.
3. One Spark job decodes, judges and publishes, and counts what it did.
4. The driver publishes the batch's barriers, behind the acknowledgements of all of that.
5. Spark notes in its checkpoint that the batch is done.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from confluent_kafka import Producer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from schemas.access import STREAMING, group_prefix
from schemas.codec import FINGERPRINT_HEADER, codec
from schemas.credentials import KafkaCredentials
from schemas.records import PurgeDirectory, PurgeKeys, SweepResult
from schemas.topics import DELETED_ENTRIES, PURGE_DIRECTORIES, PURGE_KEYS, SWEEP_RESULTS
from services.domain.row_columns import NO_ROWS
from streaming.batch import BatchOutcome, PlacedBarrier, batch_outcome
from streaming.batch_plans import BatchPlans
from streaming.chain import ChainReader
from streaming.errors import PrematureError, StreamingError, TryAgainError
from streaming.inputs import made_anew
from streaming.metrics import ReclaimMetrics
from streaming.view_table import ViewTable

MESSAGES_PER_BATCH = 250
"""A message holds a thousand entries at most."""
FULL_BATCH_MESSAGES = 100
"""A batch starts at once when so many messages wait, and otherwise a while after the one before it."""
LONGEST_WAIT_MS = 800
"""A batch costs processor time however little it holds: under load fewer and fuller ones do more."""
MESSAGES_PER_TASK = 50
PUBLISH_SECONDS = 60.0
COMMIT_SECONDS = 5.0

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReclaimOptions:
    """What a run of the job is told."""

    bootstrap_servers: str
    shards: int
    checkpoint: Path
    max_messages_per_batch: int = MESSAGES_PER_BATCH
    full_batch_messages: int = FULL_BATCH_MESSAGES
    longest_wait_ms: int = LONGEST_WAIT_MS
    credentials: KafkaCredentials | None = None
    """Who the job is at the broker; the password reaches Spark by its login file, not by these options."""

    def broker_settings(self) -> dict[str, str]:
        """How Spark's source and sink reach the broker."""
        login = self.credentials.spark_settings() if self.credentials else {}
        return {**login, "kafka.bootstrap.servers": self.bootstrap_servers}


class BarrierSender:
    """Publishes barriers to the three topics behind which something may wait for them."""

    def __init__(self, bootstrap_servers: str, credentials: KafkaCredentials | None = None) -> None:
        login = credentials.client_settings() if credentials else {}
        self._producer = Producer(
            {**login, "bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "acks": "all", "linger.ms": 0}
        )

    def send(self, barriers: tuple[PlacedBarrier, ...], versions: list[int]) -> None:
        """Publish and await the acknowledgements."""
        failures: list[str] = []

        def delivered(error: Any, message: Any) -> None:  # noqa: ARG001 the client's signature
            if error is not None:
                failures.append(str(error))

        for placed in barriers:
            version = versions[placed.shard]
            for topic, record in (
                (PURGE_KEYS, PurgeKeys(version, NO_ROWS, (), placed.barrier)),
                (PURGE_DIRECTORIES, PurgeDirectory(version, (), placed.barrier)),
                (SWEEP_RESULTS, SweepResult(0, 0, 0, 0, 0, 0, version, placed.barrier)),
            ):
                encoder: Any = codec(topic.record)
                self._producer.produce(
                    topic.name,
                    encoder.encode(record),
                    partition=placed.shard,
                    headers=[(FINGERPRINT_HEADER, encoder.fingerprint)],
                    on_delivery=delivered,
                )
        waiting = self._producer.flush(PUBLISH_SECONDS)
        if waiting or failures:
            reason = failures[0] if failures else f"no answer within {PUBLISH_SECONDS:g} seconds"
            raise TryAgainError(f"Barriers could not be published ({reason}): see whether the broker runs.")

    def close(self) -> None:
        """Stop publishing."""
        self._producer.close()


class ReclaimJob:
    """One run of the job over a session. ``start`` returns at once, ``wait`` when the run is over."""

    def __init__(self, session: SparkSession, options: ReclaimOptions, metrics: ReclaimMetrics) -> None:
        self._session = session
        self._options = options
        self._metrics = metrics
        self._plans = BatchPlans()
        self._chain = ChainReader(options.bootstrap_servers, options.shards, options.credentials)
        self._view = ViewTable(session, self._chain.views)
        self._barriers = BarrierSender(options.bootstrap_servers, options.credentials)
        self._query: StreamingQuery | None = None
        self._failure: StreamingError | None = None
        self._is_stopping = False
        self._is_in_batch = False
        self._turn = threading.Condition()
        self._pause = threading.Event()

    def start(self) -> None:
        """Follow the chain to its present end, then start the query.

        Raises:
            ChainError: the chain cannot be followed.
            TryAgainError: the broker did not answer.
        """
        self._follow_chain()
        entries = self._session.readStream.format("kafka").options(**self._source_options()).load()
        writer = entries.writeStream.foreachBatch(self._run_batch).queryName("reclaim")
        writer = writer.option("checkpointLocation", str(self._options.checkpoint))
        self._query = writer.start()
        self._metrics.behind_by(self._messages_behind)

    def _source_options(self) -> dict[str, str]:
        return {
            **self._options.broker_settings(),
            "groupIdPrefix": group_prefix(STREAMING),
            "subscribe": DELETED_ENTRIES.name,
            "startingOffsets": "earliest",
            "failOnDataLoss": "true",
            "includeHeaders": "true",
            "maxOffsetsPerTrigger": str(self._options.max_messages_per_batch),
            "minOffsetsPerTrigger": str(min(self._options.full_batch_messages, self._options.max_messages_per_batch)),
            "maxTriggerDelay": f"{self._options.longest_wait_ms}ms",
            # A backlog is read by all cores, the little of every day by one task: each makes its code anew.
            "maxRecordsPerPartition": str(MESSAGES_PER_TASK),
            # A task asks for a partition's bounds on the connection on which its last fetch is still waiting.
            "kafka.fetch.max.wait.ms": "10",
        }

    def _sink_options(self) -> dict[str, str]:
        return {
            **self._options.broker_settings(),
            "kafka.acks": "all",
            "kafka.enable.idempotence": "true",
        }

    @property
    def is_active(self) -> bool:
        """Whether the query runs."""
        return self._query is not None and self._query.isActive

    def wait(self) -> None:
        """Wait until the run is over: because ``stop`` was called, or with the reason.

        Raises:
            StreamingError: why it ended.
        """
        query = self._started()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if self._failure is not None:
                raise self._failure from error
            if not self._is_stopping:
                raise self._translated(error) from error

    def stop(self) -> None:
        """Let the running batch end, then end the query."""
        query = self._started()
        with self._turn:
            self._is_stopping = True
            self._turn.wait_for(lambda: not self._is_in_batch)
        # Spark notes the batch's end right after. Nothing tells when, and a batch that is not noted is only repeated.
        deadline = time.monotonic() + COMMIT_SECONDS
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            self._pause.wait(0.02)
        query.stop()

    def close(self) -> None:
        """Let go of the broker; the session belongs to the caller."""
        self._chain.close()
        self._barriers.close()

    def _started(self) -> StreamingQuery:
        if self._query is None:
            raise RuntimeError("start() comes first")
        return self._query

    def _run_batch(self, batch: DataFrame, batch_id: int) -> None:
        with self._turn:
            if self._is_stopping:
                raise TryAgainError("The job is being stopped; this batch comes first at its next start.")
            self._is_in_batch = True
        try:
            self._judge(batch, batch_id)
        except StreamingError as error:
            self._failure = error
            raise
        finally:
            with self._turn:
                self._is_in_batch = False
                self._turn.notify_all()

    def _judge(self, batch: DataFrame, batch_id: int) -> None:
        started = time.perf_counter()
        view = self._follow_chain()
        planned = self._plans.over(batch, view, self._view.versions())
        planned.frame.write.format("kafka").mode("append").options(**self._sink_options()).save()
        outcome = batch_outcome(planned.observed())
        if outcome.premature:
            raise PrematureError(
                f"{outcome.premature} entries know of more of the snapshot chain than gc.snapshot-chain holds: see "
                f"whether that topic has lost its tail, then start streaming again."
            )
        self._barriers.send(outcome.barriers, [view.version for view in self._chain.views])
        self._report(batch_id, outcome, time.perf_counter() - started)

    def _follow_chain(self) -> DataFrame:
        view = self._view.frame(self._chain.advance())
        self._metrics.chain_followed(view.version for view in self._chain.views)
        return view

    def _report(self, batch_id: int, outcome: BatchOutcome, seconds: float) -> None:
        self._metrics.batch_judged(outcome, seconds)
        if outcome.dead_letters:
            logger.warning("entries put aside", batch=batch_id, count=outcome.dead_letters)
        logger.debug("batch judged", batch=batch_id, entries=outcome.entries, seconds=round(seconds, 3))

    def _messages_behind(self) -> int:
        progress = self._query.lastProgress if self._query is not None else None
        if progress is None:
            return 0
        behind = progress.sources[0].metrics.get("maxOffsetsBehindLatest", "0")
        return int(behind)

    def _translated(self, error: StreamingQueryException) -> StreamingError:
        """Spark's own error, as one sentence."""
        text = str(error)
        if re.search(_DATA_LOSS, text):
            return made_anew(DELETED_ENTRIES.name, self._options.checkpoint)
        first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
        cause = re.search(r"^Caused by: (.+)$", text, re.MULTILINE)
        reason = cause[1] if cause else first
        return TryAgainError(f"Spark gave up a batch ({reason[:300]}): see whether the broker runs, then start again.")


_DATA_LOSS = r"KAFKA_DATA_LOSS|failOnDataLoss|some data may have been missed|OffsetOutOfRange|UnknownTopicOrPartition"

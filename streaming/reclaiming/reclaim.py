"""The reclaim job: Structured Streaming over gc.deleted-entries, one Spark job for each batch.

A batch takes these steps. After a crash, Spark repeats the batch from its Spark checkpoint. Repetition is harmless,
because every message names the rows or the barrier that it concerns:

1. Spark writes the batch's end offsets into its Spark checkpoint.
2. The driver reads the snapshot chain to its present end, then judges the waiting messages that can be judged.
3. One Spark job decodes, judges and publishes; a second Spark job collects the results.
4. The driver saves the messages that cannot be judged yet: of shards whose chain is broken, or ahead of the chain.
5. The driver publishes the batch's barriers, after all of these messages are acknowledged or saved.
6. Spark records in its Spark checkpoint that the batch is done.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import or_

import structlog
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col
from pyspark.sql.streaming.query import StreamingQuery

from schemas.access import STREAMING, group_prefix
from schemas.credentials import KafkaCredentials
from schemas.topics import DEAD_LETTERS, DELETED_ENTRIES, PURGE_DIRECTORIES, PURGE_KEYS, SWEEP_RESULTS
from services.domain.errors import DeepcleanError, RetryableError
from services.log.added_shards import AddedShards
from services.log.kafka import KafkaLog
from services.log.patience import patiently
from services.log.schema_topic import follow_schemas
from streaming.reclaiming.barriers import BarrierSender
from streaming.reclaiming.batch_plans import BatchPlans
from streaming.reclaiming.chain import RETURN_SECONDS, ChainReader
from streaming.reclaiming.checkpoint import Checkpoint
from streaming.reclaiming.inputs import recreated
from streaming.reclaiming.metrics import ReclaimMetrics
from streaming.reclaiming.outcome import BatchOutcome, PrematureMessage, Stretch
from streaming.reclaiming.position import finished_ends
from streaming.reclaiming.prepared_plan import handed_in, use_here
from streaming.reclaiming.query_progress import ProgressListener
from streaming.reclaiming.view_table import VersionTable, ViewTable
from streaming.reclaiming.waiting import Waiting, saved
from streaming.reclaiming.written_ends import WrittenEnds

OUTPUTS = (PURGE_KEYS, PURGE_DIRECTORIES, SWEEP_RESULTS, DEAD_LETTERS)
MESSAGES_PER_BATCH = 1_000
"""Most messages of a batch. A message holds at most 1,000 entries. Twice as many (``PARTS_OF_A_BATCH``) fit into a heap
of a gigabyte, whatever their verdicts."""
FULL_BATCH_MESSAGES = 100
"""A batch starts at once when at least this many messages wait, otherwise after ``LONGEST_WAIT_MS``."""
LONGEST_WAIT_MS = 800
"""Longest time between two batches. Every batch has a fixed cost, so fewer and larger batches judge more per second."""
MESSAGES_PER_TASK = 50
PREMATURE_SECONDS = 60.0
"""How long a message waits for the chain to reach its chain version. metadata publishes nothing after a marker until
the marker is acknowledged. So a message is ahead of the chain only if gc.snapshot-chain has lost its tail, or if the
message is forged."""
PARTS_OF_A_BATCH = 2
"""Passed-over messages are judged in parts of this many full batches: faster than the stream adds new ones."""
WHAT_TO_DO = (
    "nothing of it is judged until gc.snapshot-chain is whole again: have the whole chain written (deepclean trim-log "
    "--full-chain --dry-run, which trims nothing); if services have stopped at the same message, mend the topic itself."
)
COMMIT_SECONDS = 5.0
QUERY_NAME = "reclaim"
RETRY_SECONDS = 0.5
"""Interval at which waiting messages are checked while no batch arrives."""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReclaimOptions:
    """Options of a run of the job."""

    bootstrap_servers: str
    shards: int
    checkpoint: Checkpoint
    max_messages_per_batch: int = MESSAGES_PER_BATCH
    full_batch_messages: int = FULL_BATCH_MESSAGES
    longest_wait_ms: int = LONGEST_WAIT_MS
    credentials: KafkaCredentials | None = None
    """The job's login at the broker. Spark gets the password from its login file, not from these options."""
    premature_seconds: float = PREMATURE_SECONDS

    def broker_settings(self) -> dict[str, str]:
        """Return the broker settings of Spark's source and sink."""
        login = self.credentials.spark_settings() if self.credentials else {}
        return {**login, "kafka.bootstrap.servers": self.bootstrap_servers}


class ReclaimJob:
    """One run of the job in a session. ``start`` returns after the query has started, ``wait`` when the run is over."""

    def __init__(self, session: SparkSession, options: ReclaimOptions, metrics: ReclaimMetrics) -> None:
        self._session = session
        self._options = options
        self._metrics = metrics
        self._plans = BatchPlans()
        self._waiting = Waiting()
        self._chain = ChainReader(options.bootstrap_servers, options.shards, options.credentials)
        self._view, self._view_versions = ViewTable(session), VersionTable(session)
        self._barriers = BarrierSender(options.bootstrap_servers, options.credentials)
        log = KafkaLog(options.bootstrap_servers, group_prefix(STREAMING), credentials=options.credentials)
        self._schemas = follow_schemas(log)
        self._plane_shards = options.shards
        self._added_shards = AddedShards(log, self._shards_are_added)
        self._written_ends = WrittenEnds(log, lambda: self._plane_shards, metrics.written_until)
        self._listener = ProgressListener(QUERY_NAME, metrics.query_progressed)
        self._query: StreamingQuery | None = None
        self._new_partitions: set[str] = set()
        self._failure: DeepcleanError | None = None
        self._troubles: dict[int, str] = {}
        self._is_stopping = False
        self._is_in_batch = False
        self._turn = threading.Condition()
        self._closing = threading.Event()
        self._retries = threading.Thread(target=self._look_again, name="waiting", daemon=True)

    def start(self) -> None:
        """Follow the chain to its present end, then start the query.

        Raises:
            InvariantError: the checkpoint cannot be read.
            RetryableError: the broker, or the file system of the checkpoint, did not answer.
        """
        self._waiting = saved(self._options.checkpoint)
        self._metrics.waiting(self._waiting, len(self._chain.chains))
        self._metrics.finished_until(finished_ends(self._options.checkpoint))
        self._schemas.require(OUTPUTS)
        self._follow_chain()
        self._session.streams.addListener(self._listener)
        self._query = self._new_query()
        self._retries.start()
        self._added_shards.start()
        self._written_ends.start()

    def _shards_are_added(self, shards: int) -> None:
        """Note the number of shards of the plane: before the next batch the chains of all of them are followed."""
        self._plane_shards = max(shards, self._plane_shards)

    def _new_query(self) -> StreamingQuery:
        entries = self._session.readStream.format("kafka").options(**self._stream_options()).load()
        writer = entries.writeStream.foreachBatch(self._run_batch).queryName(QUERY_NAME)
        return writer.option("checkpointLocation", str(self._options.checkpoint)).start()

    def _source_options(self) -> dict[str, str]:
        """Return the options of the stream and of later reads of waiting messages."""
        return {
            **self._options.broker_settings(),
            "groupIdPrefix": group_prefix(STREAMING),
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",  # services publish in transactions
            # All cores read a backlog, one task reads a small batch: every task generates its code again.
            "maxRecordsPerPartition": str(MESSAGES_PER_TASK),
            # A task's request for a partition's offsets waits behind its last fetch, on the same connection.
            "kafka.fetch.max.wait.ms": "10",
        }

    def _stream_options(self) -> dict[str, str]:
        return {
            **self._source_options(),
            "subscribe": DELETED_ENTRIES.name,
            "startingOffsets": "earliest",
            "failOnDataLoss": "true",
            "maxOffsetsPerTrigger": str(self._options.max_messages_per_batch),
            "minOffsetsPerTrigger": str(min(self._options.full_batch_messages, self._options.max_messages_per_batch)),
            "maxTriggerDelay": f"{self._options.longest_wait_ms}ms",
        }

    def _sink_options(self) -> dict[str, str]:
        return {
            **self._options.broker_settings(),
            "kafka.acks": "all",
            "kafka.enable.idempotence": "true",
        }

    @property
    def is_active(self) -> bool:
        """Return whether the query runs."""
        return self._query is not None and self._query.isActive

    def wait(self) -> None:
        """Wait until the run is over; return after ``stop``.

        Raises:
            DeepcleanError: the reason why the run failed.
        """
        is_over = False
        while not is_over:
            try:
                self._started().awaitTermination()
                is_over = True
            except StreamingQueryException as error:
                if self._failure is not None:
                    raise self._failure from error
                is_over = self._is_stopping
                if not is_over and not self._is_begun_again(str(error)):
                    raise self._translated(str(error)) from error
        if self._failure is not None:
            raise self._failure

    def _is_begun_again(self, text: str) -> bool:
        """Restart the query if an added partition has ended it; return whether it was restarted.

        Spark reports its progress in every known partition, and fails at a partition that no batch has included yet.
        The first batch of the restarted query includes it. There is one restart for each partition: a second failure
        there has another cause.
        """
        found = re.search(_NEW_PARTITION, text)
        if found is None or found[1] in self._new_partitions:
            return False
        self._new_partitions.add(found[1])
        with self._turn:
            if not self._is_stopping and self._failure is None:
                logger.info("a partition was added", topic=DELETED_ENTRIES.name, partition=int(found[1]))
                self._query = self._new_query()
        return True

    def stop(self) -> None:
        """Let the running batch end, then end the query."""
        with self._turn:
            self._is_stopping = True
            self._turn.wait_for(lambda: not self._is_in_batch)
            query = self._started()
        # Spark records the end of the batch soon afterwards, without a notification; an unrecorded batch is repeated.
        deadline = time.monotonic() + COMMIT_SECONDS
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(0.02)
        query.stop()

    def close(self) -> None:
        """Close the broker clients; the caller owns the session."""
        self._added_shards.stop()
        self._written_ends.stop()
        self._closing.set()
        self._session.streams.removeListener(self._listener)
        if self._retries.is_alive():
            self._retries.join()
        self._chain.close()
        self._barriers.close()

    def _started(self) -> StreamingQuery:
        if self._query is None:
            raise RuntimeError("start() comes first")
        return self._query

    @contextmanager
    def _my_turn(self) -> Iterator[None]:
        """Exclude other judging: only a batch of the stream or the thread for waiting messages judges at a time.

        Raises:
            RetryableError: the job is being stopped.
        """
        with self._turn:
            self._turn.wait_for(lambda: not self._is_in_batch)
            if self._is_stopping or self._failure is not None:
                raise RetryableError("The job is being stopped; this batch comes first at its next start.")
            self._is_in_batch = True
        try:
            yield
        except Exception as error:  # before the turn is given on: buckets may have changed unseen
            self._failure = error if isinstance(error, DeepcleanError) else self._translated(str(error))
            raise
        finally:
            with self._turn:
                self._is_in_batch = False
                self._turn.notify_all()

    def _run_batch(self, batch: DataFrame, batch_id: int) -> None:
        with self._my_turn():
            started = time.perf_counter()
            self._judge_what_waits()
            behind = set(self._waiting.passed_over)
            versions = {shard: version for shard, version in self._versions().items() if shard not in behind}
            outcome = self._judge(batch, versions)
            self._remember(outcome)
            self._report(batch_id, outcome, time.perf_counter() - started)

    def _look_again(self) -> None:
        """Judge waiting messages as soon as possible, also while no batch arrives."""
        use_here(self._session)
        while not self._closing.wait(RETRY_SECONDS):
            has_more_shards = self._plane_shards > len(self._chain.chains)
            if not (self._waiting or has_more_shards) or self._is_stopping:
                continue
            try:
                with self._my_turn():
                    self._judge_what_waits()
            except DeepcleanError:
                break
            except Exception as error:  # an error of Spark ends a batch of the stream, too
                self._failure = self._translated(str(error))
                break
        if self._failure is not None and not self._is_stopping:
            with self._turn:
                query = self._started()
            query.stop()

    def _judge_what_waits(self) -> None:
        """Follow the chain, then judge some of the passed-over messages and the premature messages that are due."""
        patiently(self._schemas.read, RETURN_SECONDS)  # each schema was published before the first message of it
        self._plans.learn_published()
        self._follow_chain()
        versions = self._versions()
        stretches = self._waiting.next_stretches(versions, PARTS_OF_A_BATCH * self._options.max_messages_per_batch)
        if stretches:
            self._catch_up(self._judge(handed_in(self._read(stretches)), versions))
            self._waiting.judged(stretches)
            self._save()
        due = self._waiting.due(versions, time.time(), self._options.premature_seconds)
        if due:
            stretches, due = _close_together(due, self._options.max_messages_per_batch)
            messages = handed_in(self._read(stretches).where(is_one_of(due)))
            self._catch_up(self._judge(messages, versions, is_patient=False))
            self._waiting.settled(due)
            self._save()

    def _catch_up(self, outcome: BatchOutcome) -> None:
        """Publish the barriers before the caller drops the judged messages: no Spark batch repeats these messages."""
        self._remember(outcome)
        self._metrics.caught_up(outcome)

    def _judge(self, batch: DataFrame, versions: Mapping[int, int], *, is_patient: bool = True) -> BatchOutcome:
        """Judge a batch, publish the messages, return the outcome; shards without a version are passed over."""
        of_shards = self._view_versions.frame(versions.get(shard) for shard in range(len(self._chain.chains)))
        is_patient = is_patient and not self._waiting.is_full
        view = self._view.joined(self._chain.views, set())
        with self._plans.over(batch, view, of_shards, is_patient=is_patient) as judged:
            judged.to_send.write.format("kafka").mode("append").options(**self._sink_options()).save()
            return judged.outcome()

    def _remember(self, outcome: BatchOutcome) -> None:
        """Save the unjudged messages, then publish the barriers; Spark's own position moves after both."""
        self._waiting.add(outcome.passed_over, outcome.premature, time.time())
        self._save()
        waiting = [self._waiting.count_of(shard) for shard in range(len(self._chain.chains))]
        self._barriers.send(outcome.barriers, [view.version for view in self._chain.views], waiting)

    def _save(self) -> None:
        self._waiting.save(self._options.checkpoint)
        self._metrics.waiting(self._waiting, len(self._chain.chains))

    def _read(self, stretches: Sequence[Stretch]) -> DataFrame:
        """Return messages of gc.deleted-entries, read again."""
        places = {
            "assign": {DELETED_ENTRIES.name: [one.shard for one in stretches]},
            "startingOffsets": {DELETED_ENTRIES.name: {str(one.shard): one.first for one in stretches}},
            "endingOffsets": {DELETED_ENTRIES.name: {str(one.shard): one.beyond for one in stretches}},
        }
        # Messages that were removed from the topic meanwhile must not fail the read: sweeps send their rows again.
        options = {**self._source_options(), "failOnDataLoss": "false"}
        options |= {name: json.dumps(value) for name, value in places.items()}
        return self._session.read.format("kafka").options(**options).load()

    def _versions(self) -> dict[int, int]:
        """Return the view version of every shard whose chain is whole."""
        return {shard: chain.view.version for shard, chain in enumerate(self._chain.chains) if not chain.trouble}

    def _follow_chain(self) -> None:
        shards = max(self._plane_shards, 1 + max(self._waiting.passed_over, default=-1))
        if shards > len(self._chain.chains) and self._chain.cover(shards, OUTPUTS):
            self._barriers.connect_again()
        self._view.joined(self._chain.views, self._chain.advance())
        troubles = {shard: chain.trouble for shard, chain in enumerate(self._chain.chains) if chain.trouble}
        for shard, trouble in troubles.items():
            if shard not in self._troubles:
                logger.error(f"Shard {shard}: the snapshot chain cannot be followed; {WHAT_TO_DO}", reason=trouble)
        for shard in self._troubles.keys() - troubles:
            logger.info("the snapshot chain is whole again", shard=shard)
        self._troubles = troubles
        self._metrics.chain_followed([view.version for view in self._chain.views], troubles)

    def _report(self, batch_id: int, outcome: BatchOutcome, seconds: float) -> None:
        self._metrics.batch_judged(outcome, seconds)
        if outcome.dead_letters:
            logger.warning("entries dead-lettered", batch=batch_id, count=outcome.dead_letters)
        logger.debug("batch judged", batch=batch_id, entries=outcome.entries, seconds=round(seconds, 3))

    def _translated(self, text: str) -> DeepcleanError:
        """Return the error for Spark's error text, in one sentence."""
        if re.search(_DATA_LOSS, text):
            return recreated(DELETED_ENTRIES.name, self._options.checkpoint)
        first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason")
        cause = re.search(r"^Caused by: (.+)$", text, re.MULTILINE)
        reason = cause[1] if cause else first
        return RetryableError(f"Spark gave up a batch ({reason[:300]}): see whether the broker runs, then start again.")


def is_one_of(messages: Iterable[PrematureMessage]) -> Column:
    """Return the condition that a message of the topic is one of ``messages``, which must not be empty.

    One condition a shard: Spark nests conditions, and one condition a message would overflow its stack.
    """
    offsets: dict[int, list[int]] = {}
    for message in messages:
        offsets.setdefault(message.shard, []).append(message.offset)
    return reduce(or_, [(col("partition") == shard) & col("offset").isin(some) for shard, some in offsets.items()])


def _close_together(due: Iterable[PrematureMessage], most: int) -> tuple[list[Stretch], list[PrematureMessage]]:
    """Return the stretches to read and the due messages in them, at most ``most`` offsets from a shard's first one."""
    stretches: dict[int, Stretch] = {}
    found = []
    for message in due:
        shard, offset = message.shard, message.offset
        first = stretches.get(shard, Stretch(shard, offset, offset)).first
        if offset < first + most:
            stretches[shard] = Stretch(shard, first, offset + 1)
            found.append(message)
    return list(stretches.values()), found


_NEW_PARTITION = rf"key not found: {re.escape(DELETED_ENTRIES.name)}-(\d+)"
_DATA_LOSS = r"KAFKA_DATA_LOSS|failOnDataLoss|some data may have been missed|OffsetOutOfRange|UnknownTopicOrPartition"

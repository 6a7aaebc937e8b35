"""The log over a Kafka broker.

Partitions are assigned, never balanced: a shard belongs to the process that is configured for it, and positions come
from its database.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec

from schemas.credentials import KafkaCredentials
from services.domain.errors import DeepcleanError, RetryableError
from services.log.kafka_errors import LEADERLESS, log_error, translate
from services.log.kafka_sinks import FLUSH_SECONDS, KafkaSink, OwnedKafkaSink
from services.log.port import MAX_CHANGE_MESSAGE_BYTES, LogRecord, Sink
from services.log.stalls import ASK_SECONDS, StallWatch

ANSWER_SECONDS = 10.0
LEADER_SECONDS = 0.5
CLOSE_SECONDS = 5.0
"""Time that the end of a reader may take before its loop goes on without it."""
MAX_QUEUED_MESSAGES = 500_000
POLLS_BETWEEN_COMMITS = 200
BUSY_MESSAGES = 100
GATHER_SECONDS = 0.03
"""Time that a reader whose last poll had many messages waits for more, so that one unit of work takes them together: a
unit costs as much as some hundred of its messages (a sync of the disk, an answer of the broker, messages of its own),
and its output costs the readers as much again."""
LULL_SECONDS = 0.01
"""Time without a message after which the reader waits no longer: the sender may itself wait for the output of these
messages. A producer sends its messages every ``linger.ms``, which is half of this time."""

Answer = TypeVar("Answer")

_logger = logging.getLogger(__name__)


def client_configuration(
    bootstrap_servers: str, client_id: str, credentials: KafkaCredentials | None = None
) -> dict[str, Any]:
    """Return the settings of all clients, which reconnect quickly. Without credentials the connection is plain text."""
    return {
        **(credentials.client_settings() if credentials else {}),
        "bootstrap.servers": bootstrap_servers,
        "client.id": client_id,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        "socket.connection.setup.timeout.ms": 5_000,
    }


def consumer_configuration(
    bootstrap_servers: str, client_id: str, credentials: KafkaCredentials | None = None
) -> dict[str, Any]:
    """Return the settings of a reader of assigned partitions."""
    return {
        **client_configuration(bootstrap_servers, client_id, credentials),
        "group.id": client_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 50,
        # With the default of a second, a reader whose queue was full once is idle until that second is over.
        "fetch.queue.backoff.ms": 10,
        # Prefetched messages delay a rare message of another topic: fewer of them shorten the delay.
        "queued.min.messages": 10_000,
        "queued.max.messages.kbytes": 32_768,
        # One answer comes on top of that. Unpacked it is several times as large, with 500 bytes more per message.
        "fetch.message.max.bytes": 262_144,
    }


def producer_configuration(
    bootstrap_servers: str, client_id: str, credentials: KafkaCredentials | None = None
) -> dict[str, Any]:
    """Return the settings of a writer: retries neither repeat nor reorder, every in-sync replica acknowledges."""
    return {
        **client_configuration(bootstrap_servers, client_id, credentials),
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": 5,
        "compression.type": "lz4",
        "message.max.bytes": MAX_CHANGE_MESSAGE_BYTES,
        "delivery.timeout.ms": int(FLUSH_SECONDS * 1000),
        "delivery.report.only.error": True,
        "queue.buffering.max.messages": MAX_QUEUED_MESSAGES,
        "queue.buffering.max.kbytes": 262_144,
    }


class KafkaLog:
    """All partitions of all topics of one broker or cluster."""

    def __init__(
        self,
        bootstrap_servers: str,
        client_id: str,
        answer_seconds: float = ANSWER_SECONDS,
        credentials: KafkaCredentials | None = None,
    ) -> None:
        self._answer_seconds = answer_seconds
        self.bootstrap_servers = bootstrap_servers
        self.client_id = client_id
        self._credentials = credentials
        self._admin = self._new_admin()
        self._pause = threading.Event()

    def _new_admin(self) -> AdminClient:
        configuration = client_configuration(self.bootstrap_servers, self.client_id, self._credentials)
        return AdminClient(configuration | {"error_cb": log_error}, logger=_logger)

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str]:
        """Return the broker's ids of the topics: a recreated topic has another id."""
        if not topics:
            return {}
        doing = f"asking {self.bootstrap_servers} for topic ids"
        admin = self._admin  # kept until its answers arrive: another shard may replace it
        answers = _asked(
            lambda: admin.describe_topics(TopicCollection(list(topics)), request_timeout=self._answer_seconds),
            doing,
        )
        return {
            topic: str(_asked(answers[topic].result, f"asking {self.bootstrap_servers} for topic {topic}").topic_id)
            for topic in topics
        }

    def topic_settings(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the settings of each topic, by Kafka's names, those of the brokers' defaults included."""
        if not topics:
            return {}
        doing = f"asking {self.bootstrap_servers} for the settings of topics"
        admin, resources = self._admin, {topic: ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics}
        answers = _asked(
            lambda: admin.describe_configs(list(resources.values()), request_timeout=self._answer_seconds), doing
        )
        return {
            topic: {
                name: str(entry.value) for name, entry in _asked(answers[resource].result, f"{doing}, {topic}").items()
            }
            for topic, resource in resources.items()
        }

    def end_offset(self, topic: str, partition: int) -> int:
        """Return the offset behind all that can be read: that of the next message, unless a transaction is open."""
        return self._offset(topic, partition, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def first_offset(self, topic: str, partition: int) -> int:
        """Return the offset of the oldest message that is left."""
        return self._offset(topic, partition, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def offset_since(self, topic: str, partition: int, time_ms: int) -> int:
        """Return the offset of the first message appended at a time or later; the end offset when there is none."""
        end = self.end_offset(topic, partition)
        since = OffsetSpec.for_timestamp(time_ms)
        found = self._offset(topic, partition, since, none=end)
        return min(found, end)

    def _offset(self, topic: str, partition: int, which: OffsetSpec, none: int | None = None) -> int:
        deadline = time.monotonic() + self._answer_seconds
        while True:
            try:
                return self._listed_offset(topic, partition, which, none)
            except RetryableError as error:
                # A client keeps the leaders' epochs for minutes; a restarted broker refuses old ones.
                self._admin = self._new_admin()
                if not _is_leaderless(error) or time.monotonic() > deadline:
                    raise
            self._pause.wait(LEADER_SECONDS)

    def _listed_offset(self, topic: str, partition: int, which: OffsetSpec, none: int | None) -> int:
        """Return an offset; ``none``, if it is given, when there is no message of that kind."""
        place, admin = TopicPartition(topic, partition), self._admin
        doing = f"asking for the ends of {topic}, partition {partition}"
        answers = _asked(
            lambda: admin.list_offsets(
                {place: which}, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._answer_seconds
            ),
            doing,
        )
        offset = int(_asked(answers[place].result, doing).offset)
        if offset < 0:
            if none is not None:
                return none
            # librdkafka returns this, without an error, when the leader has disconnected before it answered.
            raise RetryableError(f"{doing}: the leader did not answer")
        return offset

    def trim(self, topic: str, partition: int, before_offset: int) -> None:
        """Make the broker delete the messages before an offset, permanently."""
        place = TopicPartition(topic, partition, before_offset)
        doing = f"trimming {topic}, partition {partition}, up to {before_offset}"
        admin = self._admin
        answers = _asked(lambda: admin.delete_records([place], request_timeout=self._answer_seconds), doing)
        for answer in answers.values():
            _asked(answer.result, doing)

    def open_source(self, topics: Sequence[str], partition: int, next_offsets: Mapping[str, int]) -> KafkaSource:
        """Open a source of one partition of some topics, each from its position on."""
        settings = consumer_configuration(self.bootstrap_servers, self.client_id, self._credentials)
        return KafkaSource(settings, partition, {topic: next_offsets.get(topic, 0) for topic in topics})

    def open_sink(self, owner: str = "") -> Sink:
        """As ``Log.open_sink``."""
        settings = producer_configuration(self.bootstrap_servers, self.client_id, self._credentials)
        return OwnedKafkaSink(settings, owner) if owner else KafkaSink(settings)


class KafkaSource:
    """Reads one partition of some topics. For one thread, except ``lag``."""

    def __init__(self, settings: Mapping[str, Any], partition: int, next_offsets: dict[str, int]) -> None:
        self._partition = partition
        self._next_offsets = next_offsets
        self._ends: dict[str, int] = {}
        """Where the partitions end, as far as the last poll has come to their ends."""
        self._is_lull = False
        """Whether nothing has come the last time, not even the end of a partition."""
        self._waits: dict[str, tuple[int, int]] = {}
        """Positions behind which an open transaction has held messages back, and at how many looks in a row."""
        self._has_lost_brokers = threading.Event()
        self._closing: threading.Thread | None = None
        self._polls = 0
        self._is_busy = False
        self._bootstrap_servers = settings["bootstrap.servers"]
        # Only this tells how far a partition goes behind its last message: control records have offsets, too.
        self._settings = {**settings, "enable.partition.eof": True, "error_cb": self._on_error}
        self._consumer = Consumer(self._settings, logger=_logger)
        self._stalls = StallWatch(self._end_by_leader)
        self._assign()

    def _open_again(self, topic: str) -> None:
        """Go on with another consumer: this one fetches nothing more of a topic. Nothing is lost, nor read twice."""
        _logger.warning(
            "the reader of %s, partition %d, stood still at %d and is opened again",
            *(topic, self._partition, self._next_offsets[topic]),
        )
        stalled, self._consumer = self._consumer, Consumer(self._settings, logger=_logger)
        self._assign()
        # It may wait for an answer about the positions for lag tools, from the very broker that has gone.
        threading.Thread(target=stalled.close, name="stalled reader", daemon=True).start()

    def _end_by_leader(self, topic: str) -> int:
        end = end_by_leader(self._consumer, topic, self._partition)
        self._report_open_transaction(topic, end)
        return end

    def _report_open_transaction(self, topic: str, readable_end: int) -> None:
        """Log that messages wait behind a transaction that was open at two looks: nothing else says why they wait."""
        position = self._next_offsets[topic]
        if not 0 <= readable_end <= position < self._end(topic, position):
            self._waits.pop(topic, None)
            return
        before, looks = self._waits.get(topic, (position, 0))
        looks = looks + 1 if before == position else 1
        self._waits[topic] = position, looks
        if looks == 2:
            _logger.warning(
                "messages of %s, partition %d, wait from offset %d on behind an open transaction",
                *(topic, self._partition, position),
            )

    def _assign(self) -> None:
        self._consumer.assign(
            [TopicPartition(topic, self._partition, offset) for topic, offset in self._next_offsets.items()]
        )

    def _on_error(self, error: KafkaError) -> None:
        log_error(error)
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._has_lost_brokers.set()

    def poll(self, max_records: int, timeout_seconds: float) -> list[LogRecord]:
        """As ``Source.poll``: return once there is a message, or a little later if busy.

        With a timeout of 0 it never waits, since its caller has messages to apply already. When the broker has gone it
        raises RetryableError once; reading goes on by itself when it is back.
        """
        # For many messages consume waits until it has all of them or the time is over; for one it waits only for that.
        messages = self._awaited(timeout_seconds)
        if messages and max_records > 1:
            messages += self._consumed(max_records - 1, 0)
            if self._is_busy and timeout_seconds:
                self._gather(messages, max_records)
        if timeout_seconds:
            self._is_busy = len(messages) >= BUSY_MESSAGES
        if not messages and self._has_lost_brokers.is_set():
            self._has_lost_brokers.clear()
            raise RetryableError(f"no broker answers on {self._bootstrap_servers}: see that it runs")
        try:
            records = [self._record(message) for message in messages]
        except DeepcleanError:
            self._ends.clear()
            self._assign()  # the good messages of this poll are not returned: they must be read again
            raise
        self._commit_for_metrics()
        for record in records:
            self._next_offsets[record.topic] = record.offset + 1
        for topic, end in self._ends.items():  # they came behind the messages
            self._next_offsets[topic] = max(self._next_offsets[topic], end)
        self._ends.clear()
        if timeout_seconds and len(records) < max_records:  # else there may be more of it here
            stalled = self._stalls.stalled(self._next_offsets)
            if stalled is not None:
                self._open_again(stalled)
        return records

    def _awaited(self, timeout_seconds: float) -> list[Message]:
        """Wait for a message, or for the end of a partition beyond the last message."""
        until = time.monotonic() + timeout_seconds
        while True:
            messages = self._consumed(1, max(0.0, until - time.monotonic()))
            is_further = any(end > self._next_offsets[topic] for topic, end in self._ends.items())
            # After a lull the time is over, but for a part of a millisecond: librdkafka would not wait for that.
            if messages or is_further or self._is_lull or time.monotonic() >= until:
                return messages

    def _gather(self, messages: list[Message], max_records: int) -> None:
        """Add the messages of the next ``GATHER_SECONDS``, until none arrives for ``LULL_SECONDS``."""
        until = time.monotonic() + GATHER_SECONDS
        while len(messages) < max_records and time.monotonic() < until:
            more = self._consumed(max_records - len(messages), LULL_SECONDS)
            if self._is_lull:
                break
            messages += more

    def _consumed(self, most: int, timeout_seconds: float) -> list[Message]:
        """Return messages; note how far a partition goes that has no more."""
        messages = []
        consumed = self._consumer.consume(most, timeout_seconds)
        self._is_lull = not consumed
        for message in consumed:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                self._ends[message.topic() or ""] = message.offset() or 0
            else:
                messages.append(message)
        return messages

    def _record(self, message: Message) -> LogRecord:
        error = message.error()
        if error is not None:
            raise translate(error, f"reading {message.topic()}, partition {message.partition()}")
        headers: Any = message.headers()
        key = message.key()
        return LogRecord(
            message.topic() or "",
            message.partition() or 0,
            message.offset() or 0,
            message.timestamp()[1],
            message.value() or b"",
            key if isinstance(key, bytes) else b"",
            headers or (),
        )

    def _commit_for_metrics(self) -> None:
        """Commit the applied positions every ``POLLS_BETWEEN_COMMITS`` polls: for lag tools, never read back."""
        self._polls += 1
        if self._polls % POLLS_BETWEEN_COMMITS:
            return
        offsets = [TopicPartition(topic, self._partition, offset) for topic, offset in self._next_offsets.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            _logger.debug("positions for lag tools not committed: %s", error)

    def end(self, topic: str) -> int | None:
        """As ``Source.end``."""
        end = end_by_leader(self._consumer, topic, self._partition)
        return end if end >= 0 else None

    def positions(self) -> dict[str, int]:
        """As ``Source.positions``: control records at the end of a partition are passed over."""
        return dict(self._next_offsets)

    def lag(self) -> dict[str, int]:
        """Return the number of unread messages per topic, as of the last fetch."""
        return {topic: max(0, self._end(topic, offset) - offset) for topic, offset in self._next_offsets.items()}

    def _end(self, topic: str, otherwise: int) -> int:
        try:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(topic, self._partition), cached=True)
        except (KafkaException, RuntimeError):  # closed since, or not fetched yet
            return otherwise
        return end if end >= 0 else otherwise

    def close(self) -> None:
        """Stop reading."""
        # It may wait, for ever, for a broker that hangs to answer about the positions for lag tools.
        if self._closing is None:
            self._closing = threading.Thread(target=self._consumer.close, name="closed reader", daemon=True)
            self._closing.start()
        self._closing.join(CLOSE_SECONDS)


def end_by_leader(consumer: Consumer, topic: str, partition: int) -> int:
    """Return the end of what a consumer may read of a partition, as its leader says; -1 if it does not answer."""
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=ASK_SECONDS, cached=False)
    except KafkaException:
        return -1
    return int(end)


def _is_leaderless(error: RetryableError) -> bool:
    """Return whether a partition has no leader yet, as shortly after its topic was created or its broker restarted."""
    cause = error.__cause__
    return isinstance(cause, KafkaException) and cause.args[0].code() in LEADERLESS


def _asked(ask: Callable[[], Answer], doing: str) -> Answer:
    """Return a client's answer, or raise our error.

    The client's future keeps its error. A traceback in that error would hold the caller's frame, and with it the future
    and the client, until the garbage collector finds the cycle and ends the client's threads in any thread.
    """
    try:
        return ask()
    except KafkaException as error:
        raise translate(error.args[0], doing) from error.with_traceback(None)

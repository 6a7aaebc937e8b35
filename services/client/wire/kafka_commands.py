"""Commands to a running plane over Kafka, and their answers from its reply topics.

Each start is a client of its own: it takes a new id and numbers its commands from 1 in each shard, in the order in
which they are sent. The producer is idempotent, so that a retry neither repeats nor overtakes; a command that still
comes twice is answered once by its number.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from schemas.codec import FINGERPRINT_HEADER, DecodeError, codec
from schemas.credentials import KafkaCredentials
from schemas.records import MessageHeader, MetadataCommand, MetadataReply, Settle, SnapshotCommand, SnapshotReply
from schemas.topics import METADATA_COMMANDS, METADATA_REPLIES, SNAPSHOTS_COMMANDS, SNAPSHOTS_REPLIES, Topic
from services.client.errors import NotDeliveredError, PlaneError, PlaneTimeoutError, UnreachableError
from services.client.plane import SENDERS, NamespaceCommand, SnapshotRequest
from services.client.wire.answers import Answers
from services.domain.errors import DeepcleanError
from services.log.clock import SystemClock
from services.log.kafka import LEADERLESS, consumer_configuration, producer_configuration
from services.log.signing import Signer, signed_command

CONNECT_SECONDS = 15.0
DELIVERY_SECONDS = 120.0
POLL_SECONDS = 0.1
RENEW_SECONDS = 1.0
MAX_BATCH_MESSAGES = 5_000
_UNKNOWN_OUTCOME = (
    "whether it was carried out, or still will be, is unknown: see how the plane does (deepclean status), ask it what "
    "is there, then send the request again if it is still wanted"
)

_quiet = logging.getLogger("deepclean.client.connections")
_quiet.propagate = False
_quiet.addHandler(logging.NullHandler())
"""librdkafka reports every refused connection; what matters of it becomes an error of ours."""


_REJECTED = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.INVALID_MSG,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._QUEUE_FULL,
    }
)
"""Errors after which the message is certainly not in the log; after any other, as a timeout, it may be."""


class _Owed(Answers[Any]):
    """What one shard of one service owes this client, and how far its answers have come."""

    __slots__ = ("answered_txn",)

    def __init__(self) -> None:
        super().__init__()
        self.answered_txn = 0


class KafkaCommands:
    """One client's commands and their answers. Safe to use from several threads.

    Of each command the answer is kept until it is fetched, once, or until many others have come. A request that is not
    delivered fails alone, when its answer is asked for; the client goes on.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        shards: int,
        *,
        answer_seconds: float,
        settle_seconds: float,
        max_unanswered: int,
        check: Callable[[], None],
        credentials: KafkaCredentials | None = None,
        signer: Signer | None = None,
    ) -> None:
        self._signer = signer
        self.client_id = signer.client_id() if signer else str(uuid4())
        self._name = f"deepclean-client-{self.client_id.replace('/', '-')}"
        self._bootstrap_servers = bootstrap_servers
        self._credentials = credentials
        self._shards = shards
        self._answer_seconds = answer_seconds
        self._settle_seconds = settle_seconds
        self._max_unanswered = max_unanswered
        self._check = check
        self._sending = threading.Lock()
        """Numbers are taken and sent in one step, so that both rise together."""
        self._changed = threading.Condition()
        self._answers = {
            (topic.name, shard): _Owed() for topic in (METADATA_REPLIES, SNAPSHOTS_REPLIES) for shard in range(shards)
        }
        self._stop = threading.Event()
        self._producer = self._new_producer()
        self._retired: Producer | None = None
        """The producer before this one; threads that wait may still look at it."""
        try:
            self._consumer = self._assigned_consumer()
        except UnreachableError:
            self._producer.close()
            raise
        self._reader = threading.Thread(target=self._read_replies, name="replies", daemon=True)
        self._reader.start()

    def _new_producer(self) -> Producer:
        settings = _producer_settings(self._bootstrap_servers, self._name, self._credentials)
        return Producer(settings, logger=_quiet)

    def _assigned_consumer(self) -> Consumer:
        """Read from the present end offsets on: no awaited answer lies before them."""
        consumer = Consumer(
            consumer_configuration(self._bootstrap_servers, self._name, self._credentials), logger=_quiet
        )
        try:
            deadline = time.monotonic() + CONNECT_SECONDS
            consumer.assign(
                [TopicPartition(topic, shard, _end(consumer, topic, shard, deadline)) for topic, shard in self._answers]
            )
        except KafkaException as error:
            consumer.close()
            raise UnreachableError(
                f"the broker at {self._bootstrap_servers} cannot be reached, or has not the topics of "
                f"{self._shards} shards ({_reason(error)}): see whether the plane runs (deepclean status)"
            ) from error
        return consumer

    def submit(self, shard: int, command: NamespaceCommand) -> int:
        """Send a command; wait only if too many are unanswered. Return its number."""
        answers = self._answers[METADATA_REPLIES.name, shard]
        with self._sending:
            self._await_room(answers)
            number = answers.last_number + 1
            sender = SENDERS.get(type(command), "")
            value = self._signed(METADATA_COMMANDS, MetadataCommand(shard, self.client_id, number, command, sender))
            self._send(METADATA_COMMANDS, shard, value, answers)
        return number

    def answer(self, shard: int, number: int) -> MetadataReply:
        """Wait for the answer to a submitted command and return it."""
        reply: MetadataReply = self._await_reply(METADATA_REPLIES, shard, number, self._answer_seconds)
        return reply

    def request(self, shard: int, request: SnapshotRequest) -> SnapshotReply:
        """Send a request to the snapshots service, after all earlier commands; wait for its answer and return it."""
        answers = self._answers[SNAPSHOTS_REPLIES.name, shard]
        with self._sending:
            # It travels on another topic, and must not overtake what lies in the producer.
            if self._producer.flush(self._answer_seconds):
                raise PlaneTimeoutError(
                    f"the broker at {self._bootstrap_servers} did not take all commands within "
                    f"{self._answer_seconds:g} seconds, so the request behind them was not sent: see how the plane "
                    f"does (deepclean status)"
                )
            number = answers.last_number + 1
            value = self._signed(SNAPSHOTS_COMMANDS, SnapshotCommand(shard, self.client_id, number, request))
            self._send(SNAPSHOTS_COMMANDS, shard, value, answers)
        seconds = self._settle_seconds if isinstance(request, Settle) else self._answer_seconds
        reply: SnapshotReply = self._await_reply(SNAPSHOTS_REPLIES, shard, number, seconds)
        return reply

    def _signed(self, topic: Topic, command: Any) -> bytes:
        return signed_command(topic, command, self._signer, SystemClock().now_ms())

    def send_again(
        self, topic: str, partition: int, value: bytes, key: bytes, headers: Sequence[MessageHeader]
    ) -> None:
        """Append a message as it is given, and wait until the broker has it.

        Raises:
            PlaneError: PERMISSION_DENIED, clients may not write there, and nothing was sent.
            UnreachableError: the broker did not take it, or did not say so in time.
        """
        named: list[tuple[str, str | bytes | None]] = [(header.name, header.value) for header in headers]
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message | None) -> None:
            if error is not None:
                failures.append(error)

        with self._sending:
            try:
                self._producer.produce(
                    topic, value, key=key or None, partition=partition, headers=named, on_delivery=delivered
                )
            except KafkaException as error:  # said at once when the client knows it already
                self._renew_after(error.args[0])
                failures.append(error.args[0])
            is_waiting = self._producer.flush(self._answer_seconds)
        for failure in failures:
            if failure.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise PlaneError(
                    "PERMISSION_DENIED",
                    f"only services may write to {topic} here, so nothing was sent: they send such things again by "
                    f"themselves; drop the letter (deepclean dead-letters drop)",
                )
            raise self._not_delivered(failure)
        if is_waiting:
            raise UnreachableError(
                f"the broker at {self._bootstrap_servers} did not take the message within "
                f"{self._answer_seconds:g} seconds: see how the plane does (deepclean status)"
            )

    def answered_txn(self, shard: int) -> int:
        """The newest txn of a shard of which an answer has come."""
        return self._answers[METADATA_REPLIES.name, shard].answered_txn

    def close(self) -> None:
        """Deliver what was submitted, as long as there is anybody to take it, and leave."""
        deadline = time.monotonic() + self._answer_seconds
        with contextlib.suppress(DeepcleanError):
            while self._producer.flush(POLL_SECONDS) and time.monotonic() < deadline:
                self._check()
        self._producer.purge()
        self._stop.set()
        self._reader.join()
        self._consumer.close()
        self._producer.close()
        if self._retired is not None:
            self._retired.close()

    def _await_room(self, answers: _Owed) -> None:
        if len(answers.unanswered) < self._max_unanswered:
            return
        deadline = time.monotonic() + self._answer_seconds
        answered = answers.answered_txn
        with self._changed:
            while len(answers.unanswered) >= self._max_unanswered:
                self._producer.poll(0)
                if answers.answered_txn != answered:  # slow is not dead
                    answered, deadline = answers.answered_txn, time.monotonic() + self._answer_seconds
                self._wait_until(deadline, f"{len(answers.unanswered)} commands are unanswered")

    def _send(self, topic: Topic, shard: int, value: bytes, answers: _Owed) -> None:
        """Give a request its number and hand it over; one that cannot be handed over leaves no number behind."""
        headers: dict[str, str | bytes | None] = {FINGERPRINT_HEADER: codec(topic.record).fingerprint}
        with self._changed:
            number = answers.sent()
        delivered = partial(self._delivered, answers, number)
        deadline = time.monotonic() + self._answer_seconds
        try:
            while True:
                try:
                    self._producer.produce(topic.name, value, partition=shard, headers=headers, on_delivery=delivered)
                    break
                except BufferError as error:
                    if time.monotonic() >= deadline:
                        raise self._not_delivered(KafkaError(KafkaError._QUEUE_FULL)) from error
                    self._check()
                    self._producer.poll(POLL_SECONDS)
                except KafkaException as error:
                    if not self._renew_after(error.args[0]):
                        raise self._not_delivered(error.args[0]) from error
        except BaseException:
            with self._changed:
                answers.withdraw()
            raise
        self._producer.poll(0)

    def _renew_after(self, error: KafkaError) -> bool:
        """Take a new producer when this one will never send again; says whether it is so."""
        if not error.fatal() and error.code() != KafkaError._FATAL:
            return False
        broken, before = self._producer, self._retired
        self._producer, self._retired = self._new_producer(), broken
        broken.purge()
        broken.flush(POLL_SECONDS)  # what it had not delivered fails, each request by itself
        if before is not None:
            before.close()
        return True

    def _await_reply(self, topic: Topic, shard: int, number: int, seconds: float) -> Any:
        answers = self._answers[topic.name, shard]
        deadline = time.monotonic() + seconds
        with self._changed:
            while (reply := answers.pop_answer(number)) is None:
                self._producer.poll(0)
                self._wait_until(deadline, f"no answer to number {number} within {seconds:g} seconds")
            return reply

    def _wait_until(self, deadline: float, what: str) -> None:
        """Wait for the next answers; raises when there will be none."""
        self._check()
        left = deadline - time.monotonic()
        if left <= 0:
            raise PlaneTimeoutError(f"{what}: the plane is down or far behind; deepclean status tells")
        self._changed.wait(min(left, POLL_SECONDS))

    def _read_replies(self) -> None:
        """Sort what comes on the reply topics into the answers, until the plane is left."""
        while not self._stop.is_set():
            try:
                first = self._consumer.poll(POLL_SECONDS)
                if first is not None:
                    # A batch alone would wait until it is full; so wait for one, and take what lies behind it.
                    self._receive([first, *self._consumer.consume(MAX_BATCH_MESSAGES, 0)])
            except Exception as error:
                self._read_again(f"the answers of the plane cannot be read ({error})")
                self._stop.wait(RENEW_SECONDS)

    def _read_again(self, reason: str) -> None:
        """Read on from the present ends. What is awaited may lie before them, so it is given up, also what was sent
        while they were looked for.
        """
        failure = partial(NotDeliveredError, f"{reason}, and {_UNKNOWN_OUTCOME}", may_be_applied=True)
        self._fail_all(failure)
        try:
            consumer = self._assigned_consumer()
        except UnreachableError:
            return
        broken, self._consumer = self._consumer, consumer
        broken.close()
        self._fail_all(failure)

    def _fail_all(self, why: Callable[[], DeepcleanError]) -> None:
        with self._changed:
            for answers in self._answers.values():
                answers.fail_all(why)
            self._changed.notify_all()

    def _receive(self, messages: list[Message]) -> None:
        replies, failures = [], []
        for message in messages:
            failure = message.error()
            if failure is not None:
                failures += [] if failure.retriable() else [failure]
                continue
            reply = _decode(message)
            if reply is not None and reply.client_id == self.client_id:
                replies.append((self._answers[str(message.topic()), message.partition() or 0], reply))
        with self._changed:
            for answers, reply in replies:
                # A service that restarts may answer again.
                if answers.answered(reply.number, reply) and isinstance(reply, MetadataReply):
                    answers.answered_txn = max(answers.answered_txn, reply.txn)
            self._changed.notify_all()
        for failure in failures:
            raise KafkaException(failure)

    def _delivered(self, answers: _Owed, number: int, error: KafkaError | None, _: Message | None) -> None:
        """A request has come to the log, or not: then it fails, and it alone."""
        if error is None:
            return
        with self._changed:
            answers.answered(number, self._not_delivered(error))
            self._changed.notify_all()

    def _not_delivered(self, error: KafkaError) -> NotDeliveredError:
        what = f"the broker at {self._bootstrap_servers} did not take a request ({error.str()})"
        if error.code() in _REJECTED:
            return NotDeliveredError(
                f"{what}, so it was not carried out: remove the cause, then send it again", may_be_applied=False
            )
        return NotDeliveredError(f"{what}, and {_UNKNOWN_OUTCOME}", may_be_applied=True)


def _end(consumer: Consumer, topic: str, shard: int, deadline: float) -> int:
    """Where a partition ends; asked again while a broker that has just started is not yet sure of its own."""
    pause = threading.Event()
    while True:
        try:
            seconds = max(POLL_SECONDS, deadline - time.monotonic())
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, shard), timeout=seconds)
            return int(end)
        except KafkaException as error:
            if error.args[0].code() not in LEADERLESS or time.monotonic() > deadline:
                raise
            pause.wait(POLL_SECONDS)


def _decode(message: Message) -> MetadataReply | SnapshotReply | None:
    """The reply in a message; None for one that cannot be read, which is no answer of ours."""
    record = codec(MetadataReply) if message.topic() == METADATA_REPLIES.name else codec(SnapshotReply)
    fingerprint = dict(message.headers() or ()).get(FINGERPRINT_HEADER)
    value = message.value()
    if not isinstance(value, bytes) or isinstance(fingerprint, str):
        return None
    try:
        return record.decode_message(value, fingerprint)
    except DecodeError:
        return None


def _producer_settings(bootstrap_servers: str, client_id: str, credentials: KafkaCredentials | None) -> dict[str, Any]:
    return {
        **producer_configuration(bootstrap_servers, client_id, credentials),
        "linger.ms": 0.5,  # an answer is waited for; what comes within it shares a batch
        "delivery.timeout.ms": int(DELIVERY_SECONDS * 1000),
    }


def _reason(error: KafkaException) -> str:
    cause = error.args[0]
    return str(cause.str()) if isinstance(cause, KafkaError) else str(error)

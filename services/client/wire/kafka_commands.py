"""Commands to a running plane over Kafka, and their answers from its reply topics.

Each instance is a separate client with an id of its own. It numbers its commands from 1 in each shard, in the order of
sending. The producer is idempotent, so that its retries neither duplicate nor reorder commands; the plane answers a
command that arrives twice once, by its number.

So a request whose outcome got lost is repeated under its number, as long as it is the newest of its shard: the plane
remembers the answer to a client's highest number only. The outcome of an earlier one stays unknown, and its error says
so.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from schemas import published
from schemas.codec import DecodeError, codec
from schemas.credentials import KafkaCredentials
from schemas.records import MessageHeader, MetadataCommand, MetadataReply, Settle, SnapshotCommand, SnapshotReply
from schemas.topics import METADATA_COMMANDS, METADATA_REPLIES, SNAPSHOTS_COMMANDS, SNAPSHOTS_REPLIES, Topic
from services.client.errors import NotDeliveredError, PlaneError, PlaneTimeoutError, UnreachableError
from services.client.plane import SENDERS, NamespaceCommand, SnapshotRequest
from services.client.wire.answers import Answers
from services.domain.errors import DeepcleanError, RetryableError
from services.log.clock import SystemClock
from services.log.kafka import KafkaLog, consumer_configuration, end_by_leader, producer_configuration
from services.log.kafka_errors import LEADERLESS
from services.log.schema_topic import SchemaTopic
from services.log.signing import Signer, signed_command
from services.log.stalls import StallWatch

CONNECT_SECONDS = 15.0
DELIVERY_SECONDS = 120.0
POLL_SECONDS = 0.1
POLL_EVERY = 50
"""Requests after which the producer's reports are taken. Each poll gives the processor to other threads, and a report
of a failure is needed only when the answer is waited for, which polls as well."""
RENEW_SECONDS = 1.0
MAX_BATCH_MESSAGES = 5_000
_COMMANDS = (METADATA_COMMANDS, SNAPSHOTS_COMMANDS)
_UNKNOWN_OUTCOME = (
    "whether it was carried out, or still will be, is unknown: see how the plane does (deepclean status), ask it what "
    "is there, then send the request again if it is still wanted"
)

_quiet = logging.getLogger("deepclean.client.connections")
_quiet.propagate = False
_quiet.addHandler(logging.NullHandler())
"""Discards librdkafka's log lines, one per refused connection. The client raises its own errors instead."""


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
"""Errors after which the message is certainly not in the log. After any other error, such as a timeout, it may be."""


_LOST_PLACE = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
"""Errors after which a reader cannot go on where it was: the broker has lost, or removed, what lies there."""

Place = tuple[str, int]
"""A topic and a shard."""


def _places(shards: Iterable[int]) -> list[Place]:
    return [(topic.name, shard) for topic in (METADATA_REPLIES, SNAPSHOTS_REPLIES) for shard in shards]


@dataclass(slots=True)
class _Reader:
    """Reads the answers of some shards. Each addition of shards has one, so that it does not disturb the others."""

    consumer: Consumer
    positions: dict[Place, int]
    """The offset behind the last message that was read of each of its places."""
    thread: threading.Thread = field(init=False)
    failed_at: dict[Place, int] = field(default_factory=dict)
    """The positions at the last error, to notice one that comes again at the same message."""
    stalls: StallWatch[Place] = field(init=False)

    def __post_init__(self) -> None:
        self.stalls = StallWatch(lambda place: end_by_leader(self.consumer, *place))


class KafkaCommands:
    """One client's commands and their answers. Safe to use from several threads.

    An answer is kept until it is fetched, once, or until ``MAX_KEPT_ANSWERS`` newer ones have arrived. A request that
    was not delivered raises when its answer is fetched; other requests are not affected.
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
        """Held while a number is assigned and its request is sent, so that numbers rise in sending order."""
        self._changed = threading.Condition()
        self._answers: dict[Place, Answers[Any]] = {place: Answers() for place in _places(range(shards))}
        self._newest: dict[Place, tuple[int, Any]] = {}
        """Number and body of the newest request of each shard, by the topic of its reply."""
        self._readers: list[_Reader] = []
        self._covering = threading.Lock()
        self._stop = threading.Event()
        self._producer = self._new_producer()
        self._retired: Producer | None = None
        """The previous producer. It is closed late, because waiting threads may still use it."""
        published.read_from(self._learn_schemas)
        try:
            with self._reading_schemas():
                self._schemas.require(_COMMANDS)
            self._start_reader(_places(range(shards)))
        except DeepcleanError:
            self._producer.close()
            raise

    def cover(self, shards: int) -> None:
        """Use shards that were added to the plane, too. What is under way in the others goes on.

        Raises:
            UnreachableError: the broker cannot be reached, or lacks the topics.
        """
        with self._covering:
            added = _places(range(self._shards, shards))
            if not added:
                return
            try:
                for topic in _COMMANDS:  # a producer would learn of new partitions minutes later
                    self._producer.list_topics(topic.name, timeout=CONNECT_SECONDS)
            except KafkaException as error:
                raise UnreachableError(
                    f"the broker at {self._bootstrap_servers} does not say which shards it has "
                    f"({error.args[0].str()}): see whether the plane runs (deepclean status)"
                ) from error
            self._start_reader(added)
            with self._changed:
                self._answers = {**self._answers, **{place: Answers() for place in added}}
                self._shards = shards

    def _start_reader(self, places: Sequence[Place]) -> None:
        reader = _Reader(*self._assigned_consumer(places))
        reader.thread = threading.Thread(target=self._read_replies, args=(reader,), name="replies", daemon=True)
        self._readers.append(reader)
        reader.thread.start()

    def _learn_schemas(self) -> None:
        with self._reading_schemas():
            self._schemas.read()

    @contextlib.contextmanager
    def _reading_schemas(self) -> Iterator[None]:
        try:
            yield
        except RetryableError as error:
            raise UnreachableError(
                f"the broker at {self._bootstrap_servers} does not answer the question for the schemas of other "
                f"versions: see whether the plane runs (deepclean status)"
            ) from error

    @cached_property
    def _schemas(self) -> SchemaTopic:
        """The topic of schemas: most clients need no connection to it."""
        return SchemaTopic(KafkaLog(self._bootstrap_servers, self._name, credentials=self._credentials))

    def _new_producer(self) -> Producer:
        settings = {
            **producer_configuration(self._bootstrap_servers, self._name, self._credentials),
            "linger.ms": 0.5,  # short, because clients wait for the answer; requests within it share a batch
            "delivery.timeout.ms": int(DELIVERY_SECONDS * 1000),
            "delivery.report.only.error": True,  # a success shows by its answer: no callback for each request
        }
        return Producer(settings, logger=_quiet)

    def _assigned_consumer(
        self, places: Sequence[Place], positions: Mapping[Place, int] | None = None
    ) -> tuple[Consumer, dict[Place, int]]:
        """Return a consumer of reply topics and its positions: those given, or the present end offsets.

        No answer that is still awaited lies before the end offsets at the start.

        Raises:
            UnreachableError: the broker cannot be reached, or lacks the topics.
        """
        settings = consumer_configuration(self._bootstrap_servers, self._name, self._credentials)
        # Only the end of a partition tells that nothing but control records is left.
        consumer = Consumer({**settings, "enable.partition.eof": True}, logger=_quiet)
        try:
            if positions is None:
                deadline = time.monotonic() + CONNECT_SECONDS
                positions = {(topic, shard): _end(consumer, topic, shard, deadline) for topic, shard in places}
            consumer.assign([TopicPartition(topic, shard, at) for (topic, shard), at in positions.items()])
        except KafkaException as error:
            consumer.close()
            raise UnreachableError(
                f"the broker at {self._bootstrap_servers} cannot be reached, or has no topics of "
                f"shard {max(shard for _, shard in places)} ({error.args[0].str()}): see whether the plane runs "
                f"(deepclean status)"
            ) from error
        return consumer, dict(positions)

    def submit(self, shard: int, command: NamespaceCommand) -> int:
        """Send a command; wait only if too many are unanswered. Return its number."""
        answers = self._answers[METADATA_REPLIES.name, shard]
        with self._sending:
            if len(answers.unanswered) >= self._max_unanswered:
                self._await_room(answers)
            number = answers.last_number + 1
            value = self._encoded(METADATA_REPLIES, shard, number, command)
            self._send(METADATA_COMMANDS, shard, value, answers)
            self._newest[METADATA_REPLIES.name, shard] = number, command
            self._take_reports(number)
        return number

    def answer(self, shard: int, number: int) -> MetadataReply:
        """Wait for the answer to a submitted command and return it."""
        reply: MetadataReply = self._await_reply(METADATA_REPLIES, shard, number, self._answer_seconds)
        return reply

    def request(self, shard: int, request: SnapshotRequest) -> SnapshotReply:
        """Send a request to the snapshots service, after all earlier commands; wait for its answer and return it."""
        answers = self._answers[SNAPSHOTS_REPLIES.name, shard]
        with self._sending:
            # The request goes to another topic, and must not overtake the commands in the producer's queue.
            if self._producer.flush(self._answer_seconds):
                raise PlaneTimeoutError(
                    f"the broker at {self._bootstrap_servers} did not take all commands within "
                    f"{self._answer_seconds:g} seconds, so the request behind them was not sent: see how the plane "
                    f"does (deepclean status)"
                )
            number = answers.last_number + 1
            value = self._encoded(SNAPSHOTS_REPLIES, shard, number, request)
            self._send(SNAPSHOTS_COMMANDS, shard, value, answers)
            self._newest[SNAPSHOTS_REPLIES.name, shard] = number, request
            self._take_reports(number)
        seconds = self._settle_seconds if isinstance(request, Settle) else self._answer_seconds
        reply: SnapshotReply = self._await_reply(SNAPSHOTS_REPLIES, shard, number, seconds)
        return reply

    def _encoded(self, replies: Topic, shard: int, number: int, body: Any) -> bytes:
        """Return a request as the message that is answered on a topic of replies, signed now."""
        now_ms = SystemClock().now_ms() if self._signer else 0
        if replies is METADATA_REPLIES:
            command = MetadataCommand(shard, self.client_id, number, body, SENDERS.get(type(body), ""))
            return signed_command(METADATA_COMMANDS, command, self._signer, now_ms)
        request = SnapshotCommand(shard, self.client_id, number, body)
        return signed_command(SNAPSHOTS_COMMANDS, request, self._signer, now_ms)

    def send_again(
        self, topic: str, partition: int, value: bytes, key: bytes, headers: Sequence[MessageHeader]
    ) -> None:
        """Append a message unchanged, and wait until the broker has it.

        Raises:
            PlaneError: PERMISSION_DENIED, clients may not write to the topic; nothing was sent.
            UnreachableError: the broker refused the message, or did not confirm it in time.
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
            except KafkaException as error:  # an error that librdkafka knows before it sends
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
        """Return the newest txn of a shard that was answered."""
        return self._answers[METADATA_REPLIES.name, shard].answered_txn

    def close(self) -> None:
        """Deliver the submitted requests, unless ``check`` raises or the answer time is over, and close the client."""
        deadline = time.monotonic() + self._answer_seconds
        with contextlib.suppress(DeepcleanError):
            while self._producer.flush(POLL_SECONDS) and time.monotonic() < deadline:
                self._check()
        self._producer.purge()
        self._stop.set()
        for reader in self._readers:
            reader.thread.join()
            reader.consumer.close()
        self._producer.close()
        if self._retired is not None:
            self._retired.close()

    def _await_room(self, answers: Answers[Any]) -> None:
        deadline = time.monotonic() + self._answer_seconds
        answered = answers.answered_txn
        with self._changed:
            while len(answers.unanswered) >= self._max_unanswered:
                self._producer.poll(0)
                if answers.answered_txn != answered:  # a plane that still answers is slow, not down
                    answered, deadline = answers.answered_txn, time.monotonic() + self._answer_seconds
                self._wait_until(deadline, f"{len(answers.unanswered)} commands are unanswered")

    def _send(self, topic: Topic, shard: int, value: bytes, answers: Answers[Any]) -> None:
        """Assign the next number to a request and pass it to the producer. If this fails, the number is free again.

        An interruption (``KeyboardInterrupt``) frees no number: the message may be in the producer's queue by then, and
        a second request under its number would get its answer.
        """
        with self._changed:
            number = answers.sent()
        try:
            self._produce(topic, shard, value, answers, number)
        except Exception:
            with self._changed:
                answers.withdraw()
            raise

    def _produce(self, topic: Topic, shard: int, value: bytes, answers: Answers[Any], number: int) -> None:
        """Pass a request to the producer; wait while its queue is full, at most as long as for an answer."""
        delivered = partial(self._delivered, answers, number)
        deadline = time.monotonic() + self._answer_seconds
        while True:
            try:
                self._producer.produce(topic.name, value, partition=shard, on_delivery=delivered)
                break
            except BufferError as error:
                if time.monotonic() >= deadline:
                    raise self._not_delivered(KafkaError(KafkaError._QUEUE_FULL)) from error
                self._check()
                self._producer.poll(POLL_SECONDS)
            except KafkaException as error:
                if not self._renew_after(error.args[0]):
                    raise self._not_delivered(error.args[0]) from error

    def _take_reports(self, number: int) -> None:
        """Take the producer's reports behind every some requests. Their messages are sent: what is raised here, such as
        an interruption, frees no number.
        """
        if number % POLL_EVERY == 0:
            self._producer.poll(0)

    def _repeat(self, replies: Topic, shard: int, number: int) -> bool:
        """Send a request again under its number. Return False if it is not the newest one, so that its answer is not
        remembered by the plane.
        """
        answers = self._answers[replies.name, shard]
        with self._sending:
            newest, body = self._newest.get((replies.name, shard), (0, None))
            if number != newest or number != answers.last_number:  # of an interrupted request the body is not kept
                return False
            topic = METADATA_COMMANDS if replies is METADATA_REPLIES else SNAPSHOTS_COMMANDS
            value = self._encoded(replies, shard, number, body)
            with self._changed:
                answers.unanswered.add(number)
            try:
                self._produce(topic, shard, value, answers, number)
            except Exception:
                with self._changed:
                    answers.unanswered.discard(number)
                raise
        return True

    def _renew_after(self, error: KafkaError) -> bool:
        """Replace the producer after a fatal error. Return whether the error was fatal."""
        if not error.fatal() and error.code() != KafkaError._FATAL:
            return False
        broken, before = self._producer, self._retired
        self._producer, self._retired = self._new_producer(), broken
        broken.purge()
        broken.flush(POLL_SECONDS)  # runs the delivery callbacks: each undelivered request fails
        if before is not None:
            before.close()
        return True

    def _await_reply(self, topic: Topic, shard: int, number: int, seconds: float) -> Any:
        """Return the answer to a request; repeat the request in this time if its outcome got lost.

        A try whose outcome got lost may be applied, whatever becomes of those behind it. So its error is raised, also
        if a later one was certainly not delivered.
        """
        deadline = time.monotonic() + seconds
        try:
            return self._next_reply(topic, shard, number, seconds, deadline)
        except NotDeliveredError as error:
            if not error.may_be_applied:
                raise
            lost = error
        while time.monotonic() < deadline and not self._stop.wait(POLL_SECONDS):
            try:
                if not self._repeat(topic, shard, number):
                    break
                return self._next_reply(topic, shard, number, seconds, deadline)
            except NotDeliveredError as error:
                if not error.may_be_applied:
                    raise lost from error
        raise lost

    def _next_reply(self, topic: Topic, shard: int, number: int, seconds: float, deadline: float) -> Any:
        answers = self._answers[topic.name, shard]
        with self._changed:
            while (reply := answers.pop_answer(number)) is None:
                self._producer.poll(0)
                self._wait_until(deadline, f"no answer to number {number} within {seconds:g} seconds")
            return reply

    def _wait_until(self, deadline: float, what: str) -> None:
        """Wait for the next answers, at most ``POLL_SECONDS``.

        Raises:
            PlaneTimeoutError: the deadline has passed. ``check`` may raise other errors.
        """
        self._check()
        left = deadline - time.monotonic()
        if left <= 0:
            raise PlaneTimeoutError(f"{what}: the plane is down or far behind; deepclean status tells")
        self._changed.wait(min(left, POLL_SECONDS))

    def _read_replies(self, reader: _Reader) -> None:
        """Store the messages of the reply topics as answers until the client is closed."""
        while not self._stop.is_set():
            try:
                first = reader.consumer.poll(POLL_SECONDS)
                if first is not None:
                    # consume alone would wait for a full batch: wait for one message, then take those already there.
                    messages = [first, *reader.consumer.consume(MAX_BATCH_MESSAGES, 0)]
                    self._receive(messages)
                    reader.positions.update(_positions_after(messages))
                if reader.stalls.is_due:
                    self._replace_if_stalled(reader)
            except Exception as error:
                with contextlib.suppress(Exception):  # or no answer would ever be read again
                    self._read_again(reader, error)
                self._stop.wait(RENEW_SECONDS)

    def _replace_if_stalled(self, reader: _Reader) -> None:
        """Replace a consumer that fetches nothing more of a partition in which an answer is awaited."""
        with self._changed:
            answers = {place: self._answers.get(place) for place in reader.positions}
        awaited = {place: reader.positions[place] for place, one in answers.items() if one and one.unanswered}
        if reader.stalls.stalled(awaited) is not None:
            self._replace(reader, reader.positions)

    def _read_again(self, reader: _Reader, error: Exception) -> None:
        """Replace a consumer after an error by one that goes on where it was, or at the present end offsets.

        It goes on at the end if what lies before is lost, or if the same error came twice at one message. Awaited
        answers may lie before the end. So all unanswered requests to its shards fail then, including those sent while
        the offsets were fetched; the newest of each shard is repeated.
        """
        is_lost = isinstance(error, KafkaException) and error.args[0].code() in _LOST_PLACE
        if not is_lost and reader.failed_at != reader.positions:
            reader.failed_at = dict(reader.positions)
            self._replace(reader, reader.positions)
            return
        failure = partial(
            NotDeliveredError,
            f"the answers of the plane cannot be read ({error}), and {_UNKNOWN_OUTCOME}",
            may_be_applied=True,
        )
        self._fail_all(reader, failure)
        if self._replace(reader, None):
            self._fail_all(reader, failure)

    def _replace(self, reader: _Reader, positions: Mapping[Place, int] | None) -> bool:
        """Give a reader another consumer. Return False if the broker cannot be reached, and the old one stays."""
        try:
            consumer, found = self._assigned_consumer(list(reader.positions), positions)
        except UnreachableError:
            return False
        broken, reader.consumer, reader.positions = reader.consumer, consumer, found
        broken.close()
        return True

    def _fail_all(self, reader: _Reader, why: Callable[[], DeepcleanError]) -> None:
        with self._changed:
            for place in reader.positions:
                if place in self._answers:
                    self._answers[place].fail_all(why)
            self._changed.notify_all()

    def _receive(self, messages: list[Message]) -> None:
        replies, failures = [], []
        for message in messages:
            failure = message.error()
            if failure is not None:
                failures += [] if failure.retriable() or failure.code() == KafkaError._PARTITION_EOF else [failure]
                continue
            reply = _decode(message)
            if reply is not None and reply.client_id == self.client_id:
                replies.append((self._answers[str(message.topic()), message.partition() or 0], reply))
        with self._changed:
            for answers, reply in replies:
                # A restarted service may send answers twice.
                if answers.answered(reply.number, reply) and isinstance(reply, MetadataReply):
                    answers.answered_txn = max(answers.answered_txn, reply.txn)
            self._changed.notify_all()
        for failure in failures:
            raise KafkaException(failure)

    def _delivered(self, answers: Answers[Any], number: int, error: KafkaError | None, _: Message | None) -> None:
        """Fail a request that did not reach the log. Other requests are not affected."""
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


def _positions_after(messages: Iterable[Message]) -> dict[Place, int]:
    """Return the offsets behind these messages, and those of ends, by place."""
    positions = {}
    for message in messages:
        error, place = message.error(), (str(message.topic()), message.partition() or 0)
        if error is None:
            positions[place] = (message.offset() or 0) + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            positions[place] = message.offset() or 0
    return positions


def _end(consumer: Consumer, topic: str, shard: int, deadline: float) -> int:
    """Return the end offset of a partition, with retries while a broker that just started has no leader for it."""
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
    """Return the reply in a message, or None for an unreadable message, which cannot be an answer to this client."""
    record = codec(MetadataReply) if message.topic() == METADATA_REPLIES.name else codec(SnapshotReply)
    try:
        return record.decode_message(message.value() or b"")
    except DecodeError:
        return None

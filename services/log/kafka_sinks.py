"""The sinks over a Kafka broker: a plain one, and one that only the owner of a shard has.

An owner's sink publishes in transactions, because only with them the broker refuses a former owner. Nothing rests on
their other promises: what a message causes is decided by its content, however often it comes.

The broker acknowledges the end of a transaction before readers can see its messages. But it begins no other transaction
of the owner until they can: who reads a message can read all that the owner has flushed before it was sent.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from services.domain.errors import FencedError, RetryableError, StartAgainError
from services.log.kafka_errors import log_error, translate
from services.log.port import Headers

FLUSH_SECONDS = 15.0
TRANSACTION_SECONDS = 60.0
"""Time after which the broker ends the transaction of an owner that has stopped in it; a new owner ends it at once."""
_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})

_logger = logging.getLogger(__name__)


class KafkaSink:
    """Publishes in order, each message at least once. For one thread."""

    def __init__(self, settings: Mapping[str, Any], flush_seconds: float = FLUSH_SECONDS) -> None:
        self._bootstrap_servers = settings["bootstrap.servers"]
        self._configuration = {**settings, "error_cb": log_error}
        self._flush_seconds = flush_seconds
        self._failures: list[KafkaError] = []
        self._producer = Producer(self._configuration, logger=_logger)

    def send(self, topic: str, partition: int, value: bytes, key: bytes = b"", headers: Headers = ()) -> None:
        """Send a message; the log may not have it yet when this returns."""
        try:
            self._produce(topic, partition, value, key or None, headers)
        except KafkaException as error:
            self._start_again()
            raise translate(error.args[0], f"sending to {topic}, partition {partition}") from error

    def _produce(self, topic: str, partition: int, value: bytes, key: bytes | None, headers: Headers) -> None:
        try:
            self._producer.produce(topic, value, key, partition, self._on_delivery, headers=list(headers) or None)
        except BufferError:
            self.flush()  # the queue is full: send all of it first
            self._producer.produce(topic, value, key, partition, self._on_delivery, headers=list(headers) or None)

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._failures.append(error)

    def start_flush(self) -> None:
        """Do nothing: a plain producer sends by itself."""

    def flush(self) -> None:
        """As ``Sink.flush``."""
        waiting = self._producer.flush(self._flush_seconds)
        if not waiting and not self._failures:
            return
        failures = list(self._failures)
        self._start_again()
        if failures:
            raise translate(failures[0], f"sending to {self._bootstrap_servers}")
        raise RetryableError(
            f"the broker on {self._bootstrap_servers} did not acknowledge {waiting} messages within "
            f"{self._flush_seconds:g} seconds: see that it runs"
        )

    def _start_again(self) -> None:
        """Replace the producer: the old one would send messages out of order, or never after a fatal error."""
        self.close()
        self._failures = []
        self._producer = Producer(self._configuration, logger=_logger)

    def close(self) -> None:
        """Stop publishing; messages that are not flushed are dropped."""
        self._producer.purge()
        self._producer.flush(1.0)


class OwnedKafkaSink:
    """Publishes for an owner, in transactions. For one thread, except the end of a transaction."""

    def __init__(self, settings: Mapping[str, Any], owner: str, flush_seconds: float = FLUSH_SECONDS) -> None:
        """Fence the earlier sinks of the owner, and end the transaction that the last one may have left open.

        Raises:
            RetryableError: the broker did not answer.
        """
        self._owner = owner
        self._bootstrap_servers = settings["bootstrap.servers"]
        self._flush_seconds = flush_seconds
        self._is_open = False
        self._end: Future[None] | None = None
        """The end of the last transaction, if nobody has waited for it yet."""
        self._pause = threading.Event()
        self._producer = Producer(
            {
                **settings,
                "error_cb": log_error,
                "transactional.id": owner,
                "transaction.timeout.ms": int(TRANSACTION_SECONDS * 1000),
            },
            logger=_logger,
        )
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=f"commit-{owner}")
        try:
            self._producer.init_transactions(flush_seconds)
        except KafkaException as error:
            self.close()
            raise translate(error.args[0], f"becoming the owner {owner}") from error.with_traceback(None)

    def send(self, topic: str, partition: int, value: bytes, key: bytes = b"", headers: Headers = ()) -> None:
        """As ``Sink.send``; wait for the end of the last transaction first."""
        self._await_end()
        doing = f"sending to {topic}, partition {partition}"
        try:
            if not self._is_open:
                self._producer.begin_transaction()
                self._is_open = True
            until = time.monotonic() + self._flush_seconds
            self._produce(topic, partition, value, key or None, headers, until)
        except KafkaException as error:
            self._give_up(error, doing, may_abort=True)

    def _produce(
        self, topic: str, partition: int, value: bytes, key: bytes | None, headers: Headers, until: float
    ) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, partition, headers=list(headers) or None)
            except BufferError:  # the queue is full
                if time.monotonic() > until:
                    self._abort()
                    raise RetryableError(
                        f"the broker on {self._bootstrap_servers} took no message within {self._flush_seconds:g} "
                        f"seconds: see that it runs"
                    ) from None
                self._producer.poll(0.05)
            else:
                return

    def start_flush(self) -> None:
        """As ``Sink.start_flush``."""
        if self._is_open:
            self._is_open = False
            self._end = self._worker.submit(self._commit)

    def flush(self) -> None:
        """As ``Sink.flush``."""
        self.start_flush()
        self._await_end()

    def _await_end(self) -> None:
        if self._end is not None:
            end, self._end = self._end, None
            end.result()

    def _commit(self) -> None:
        doing, until = f"sending to {self._bootstrap_servers}", time.monotonic() + self._flush_seconds
        while True:
            try:
                self._producer.commit_transaction(self._flush_seconds)
            except KafkaException as error:
                if error.args[0].retriable() and time.monotonic() < until:
                    self._pause.wait(0.05)
                    continue
                self._give_up(error, doing, may_abort=error.args[0].txn_requires_abort())
            return

    def _give_up(self, error: KafkaException, doing: str, *, may_abort: bool) -> None:
        """End the transaction without its messages, and raise what the caller has to do.

        ``may_abort``: the transaction is known not to have ended.
        """
        cause: KafkaError = error.args[0]
        if cause.code() in _FENCED:
            raise FencedError(
                f"{doing}: another process publishes for {self._owner} since this one has started ({cause.str()}): "
                f"this one ends, and asks the group when it is started again"
            ) from error.with_traceback(None)
        if cause.fatal() or not may_abort:
            raise StartAgainError(f"{doing}: {cause.str()}") from error.with_traceback(None)
        self._abort()
        raise translate(cause, doing) from error.with_traceback(None)

    def _abort(self) -> None:
        """Raise StartAgainError if the transaction cannot be ended."""
        self._is_open = False
        try:
            self._producer.abort_transaction(self._flush_seconds)
        except KafkaException as error:
            raise StartAgainError(
                f"ending a transaction of {self._owner}: {error.args[0].str()}"
            ) from error.with_traceback(None)

    def close(self) -> None:
        """Stop publishing; messages that are not flushed are dropped."""
        self._worker.shutdown()
        if self._is_open:
            with contextlib.suppress(StartAgainError):
                self._abort()  # else readers would wait for the broker to end it
        with contextlib.suppress(KafkaException):  # it is fenced
            self._producer.purge()
            self._producer.flush(1.0)

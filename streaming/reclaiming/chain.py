"""Follows gc.snapshot-chain in the driver, one chain a shard: one that is broken leaves the others as they are.

A batch's end offsets are fixed before the ends of the chain are asked for. metadata has the acknowledgement for a
marker before it publishes anything later, so the view that is read up to there knows all that any entry of the batch
knows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not in its __all__

from schemas.codec import FINGERPRINT_HEADER
from schemas.credentials import KafkaCredentials
from schemas.topics import SNAPSHOT_CHAIN, Topic
from services.domain.chain_view import ChainView
from services.domain.errors import RetryableError
from streaming.reclaiming.shard_chain import ShardChain

ANSWER_SECONDS = 30.0
RETURN_SECONDS = 15.0
"""How long a broker may be away: waiting for one that is started again costs less than starting Spark again."""
RETRY_SECONDS = 0.2
MARKERS_PER_POLL = 1_000
METADATA_MS = 5_000
"""How soon a partition is found that a broker did not know of at first; well within ``ANSWER_SECONDS``."""


class ChainReader:
    """Reads every shard's markers from the beginning of the topic on."""

    def __init__(self, bootstrap_servers: str, shards: int, credentials: KafkaCredentials | None = None) -> None:
        self.chains = [ShardChain() for _ in range(shards)]
        self._pause = threading.Event()
        self._login = credentials.client_settings() if credentials else {}
        self._bootstrap_servers = bootstrap_servers
        # Asked by a client of its own: on the consumer's connection the answer would wait behind a fetch.
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, **self._login})
        self._consumer = self._connected()
        self._assign()

    @property
    def views(self) -> list[ChainView]:
        """What is known of each shard's chain, also of one that is broken."""
        return [chain.view for chain in self.chains]

    def cover(self, shards: int, others: Iterable[Topic]) -> bool:
        """Follow more shards, as far as this topic and others have partitions for them; says whether any was added.

        Raises:
            RetryableError: the broker did not answer.
        """
        try:
            topics = self._admin.list_topics(timeout=ANSWER_SECONDS).topics
        except KafkaException as error:
            raise RetryableError(f"The broker did not say what topics it has ({error}): see if it runs.") from error
        counts = [len(topics[one.name].partitions) if one.name in topics else 0 for one in (SNAPSHOT_CHAIN, *others)]
        covered = min(shards, *counts)
        if covered <= len(self.chains):
            return False
        self.chains += [ShardChain() for _ in range(covered - len(self.chains))]
        self._consumer.close()
        self._consumer = self._connected()
        self._assign()
        return True

    def _connected(self) -> Consumer:
        """A consumer that knows of all partitions there are: one that is connected hears of new ones much later."""
        return Consumer(
            {
                **self._login,
                "bootstrap.servers": self._bootstrap_servers,
                "group.id": "deepclean-streaming",  # wanted by the client; no group is joined and nothing stored
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "topic.metadata.refresh.interval.ms": METADATA_MS,
            }
        )

    def _assign(self) -> None:
        """Read every chain on from where it is; what was fetched and not yet taken in is fetched again."""
        places = [chain.next_offset or OFFSET_BEGINNING for chain in self.chains]
        self._consumer.assign([TopicPartition(SNAPSHOT_CHAIN.name, shard, at) for shard, at in enumerate(places)])

    def advance(self) -> set[tuple[int, int]]:
        """Read on to the present end of every shard's chain; says which (shard, bucket) changed.

        Raises:
            RetryableError: the broker did not answer.
        """
        ends = self._ends()
        changed = self._begin_what_was_cut(ends)
        deadline = time.monotonic() + ANSWER_SECONDS
        while any(chain.next_offset < end for chain, end in zip(self.chains, ends, strict=True)):
            messages = self._consumer.consume(MARKERS_PER_POLL, timeout=min(1.0, ANSWER_SECONDS))
            for message in messages:
                changed |= self._follow(message)
            if messages:
                deadline = time.monotonic() + ANSWER_SECONDS
            elif time.monotonic() > deadline:
                raise RetryableError(
                    f"{SNAPSHOT_CHAIN.name} did not come within {ANSWER_SECONDS:g} seconds: see if the broker runs."
                )
        return changed

    def _begin_what_was_cut(self, ends: list[int]) -> set[tuple[int, int]]:
        """Read a chain anew that ends before what was read of it."""
        changed: set[tuple[int, int]] = set()
        for shard, (chain, end) in enumerate(zip(self.chains, ends, strict=True)):
            if end < chain.next_offset:
                changed |= self._begin_again(shard, f"it was read up to offset {chain.next_offset}, but ends at {end}")
        return changed

    def _begin_again(self, shard: int, reason: str) -> set[tuple[int, int]]:
        changed = self.chains[shard].begin_again(reason)
        self._assign()
        return {(shard, bucket_id) for bucket_id in changed}

    def _ends(self) -> list[int]:
        """The ends as the broker says them: one that has just started knows neither leaders nor epochs for a while."""
        deadline = time.monotonic() + RETURN_SECONDS
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        partitions = [TopicPartition(SNAPSHOT_CHAIN.name, shard) for shard in range(len(self.chains))]
        asked = dict.fromkeys(partitions, latest)
        while True:
            try:
                answers = self._admin.list_offsets(asked, request_timeout=ANSWER_SECONDS)
                ends = [answers[partition].result().offset for partition in partitions]
            except KafkaException as error:
                problem = str(error)
            else:
                if min(ends) >= 0:
                    return ends
                # What librdkafka says, without an error, when a leader has gone away before it could answer.
                problem = "a leader did not answer"
            if time.monotonic() > deadline:
                raise RetryableError(
                    f"The end of {SNAPSHOT_CHAIN.name} could not be asked for ({problem}): see if the broker runs."
                )
            # It keeps the epochs of leaders for minutes, and a broker that was started again refuses old ones.
            self._close_admin()
            self._admin = AdminClient({"bootstrap.servers": self._bootstrap_servers, **self._login})
            self._pause.wait(RETRY_SECONDS)

    def _follow(self, message: Message) -> set[tuple[int, int]]:
        shard, error = message.partition(), message.error()
        if error is not None:
            if shard is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                lost = self.chains[shard].next_offset
                return self._begin_again(shard, f"offset {lost} is not in the topic any more")
            if error.fatal():
                raise RetryableError(f"The broker's client gave up ({error.str()}).")
            return set()  # a passing trouble of the connection; the deadline ends a lasting one
        offset = message.offset()
        assert shard is not None  # noqa: S101  a message that came has a place
        assert offset is not None  # noqa: S101
        changed = self.chains[shard].receive(offset, message.value() or b"", _fingerprint(message))
        return {(shard, bucket_id) for bucket_id in changed}

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()
        self._close_admin()

    def _close_admin(self) -> None:
        self._admin.__exit__(None, None, None)  # it has no other way to be closed


def _fingerprint(message: Message) -> bytes | None:
    headers: Any = message.headers()
    for name, value in headers or ():
        if name == FINGERPRINT_HEADER:
            return value or b""
    return None

"""Follows gc.snapshot-chain in the driver. Each shard has its own chain; a broken chain does not affect other shards.

Spark fixes a batch's end offsets before this module asks for the ends of the chain. metadata publishes nothing after a
marker until the broker has acknowledged the marker. Therefore a view that is read to these ends has reached the chain
version of every entry of the batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not in its __all__

from schemas.credentials import KafkaCredentials
from schemas.topics import SNAPSHOT_CHAIN, Topic
from services.domain.chain_view import ChainView
from services.domain.errors import RetryableError
from services.log.patience import patiently
from streaming.reclaiming.shard_chain import ShardChain

ANSWER_SECONDS = 30.0
RETURN_SECONDS = 15.0
"""How long a broker may be unavailable. Waiting for its restart costs less than restarting Spark."""
MARKERS_PER_POLL = 1_000
METADATA_MS = 5_000
"""Interval at which a partition that the broker did not know at first is looked up; well below ``ANSWER_SECONDS``."""


class ChainReader:
    """Reads the markers of every shard, from the beginning of the topic."""

    def __init__(self, bootstrap_servers: str, shards: int, credentials: KafkaCredentials | None = None) -> None:
        self.chains = [ShardChain() for _ in range(shards)]
        login = credentials.client_settings() if credentials else {}
        self._settings: dict[str, str | int | float | bool] = {**login, "bootstrap.servers": bootstrap_servers}
        # A separate client asks for offsets: on the consumer's connection the answer would wait behind a fetch.
        self._admin = AdminClient(self._settings)
        self._consumer = self._connected()
        self._assign()
        self._changed: set[tuple[int, int]] = set()
        """What has changed and was not returned yet: an ``advance`` that fails may have followed some markers."""

    @property
    def views(self) -> list[ChainView]:
        """Return the view of each shard's chain, including broken chains."""
        return [chain.view for chain in self.chains]

    def cover(self, shards: int, others: Iterable[Topic]) -> bool:
        """Follow up to ``shards`` shards, if this topic and others have their partitions; return whether any was added.

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
        """Return a new consumer, which knows all present partitions: a connected one learns of new ones much later."""
        return Consumer(
            {
                **self._settings,
                "group.id": "deepclean-streaming",  # required by the client; no group is joined, no offset stored
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "enable.partition.eof": True,  # control records at the end have offsets, too
                "topic.metadata.refresh.interval.ms": METADATA_MS,
            }
        )

    def _assign(self) -> None:
        """Read every chain from its next offset; messages that were fetched but not followed are fetched again."""
        places = [chain.next_offset or OFFSET_BEGINNING for chain in self.chains]
        self._consumer.assign([TopicPartition(SNAPSHOT_CHAIN.name, shard, at) for shard, at in enumerate(places)])

    def advance(self) -> set[tuple[int, int]]:
        """Read to the present end of every shard's chain; return the (shard, bucket id) pairs that changed.

        Raises:
            RetryableError: the broker did not answer.
        """
        ends = patiently(self._ends, RETURN_SECONDS)
        self._changed |= self._begin_what_was_cut(ends)
        deadline = time.monotonic() + ANSWER_SECONDS
        while any(chain.next_offset < end for chain, end in zip(self.chains, ends, strict=True)):
            messages = self._consumer.consume(MARKERS_PER_POLL, timeout=min(1.0, ANSWER_SECONDS))
            for message in messages:
                self._changed |= self._follow(message)
            if messages:
                deadline = time.monotonic() + ANSWER_SECONDS
            elif time.monotonic() > deadline:
                raise RetryableError(
                    f"{SNAPSHOT_CHAIN.name} did not come within {ANSWER_SECONDS:g} seconds: see if the broker runs."
                )
        changed, self._changed = self._changed, set()
        return changed

    def _begin_what_was_cut(self, ends: list[int]) -> set[tuple[int, int]]:
        """Reread every chain whose end is below its next offset; return the (shard, bucket id) pairs that changed."""
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
        """Return the end offset of each shard's chain.

        Raises:
            RetryableError: the broker did not answer: one that has just started knows neither leaders nor epochs for a
                while. The next call asks through a new client.
        """
        partitions = [TopicPartition(SNAPSHOT_CHAIN.name, shard) for shard in range(len(self.chains))]
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = dict.fromkeys(partitions, latest)
        try:
            answers = self._admin.list_offsets(
                asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ANSWER_SECONDS
            )
            ends = [answers[partition].result().offset for partition in partitions]
            # librdkafka returns a negative offset, without an error, when a leader fails before it answers.
            problem = "a leader did not answer" if min(ends) < 0 else ""
        except KafkaException as error:
            problem = str(error)
        if problem:
            # A client caches the epochs of leaders for minutes, and a restarted broker rejects old epochs.
            self._close_admin()
            self._admin = AdminClient(self._settings)
            raise RetryableError(
                f"The end of {SNAPSHOT_CHAIN.name} could not be asked for ({problem}): see if the broker runs."
            )
        return ends

    def _follow(self, message: Message) -> set[tuple[int, int]]:
        shard, error = message.partition(), message.error()
        if error is not None:
            if shard is not None and error.code() == KafkaError._PARTITION_EOF:
                self.chains[shard].ends_at(message.offset() or 0)
                return set()
            if shard is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
                lost = self.chains[shard].next_offset
                return self._begin_again(shard, f"offset {lost} is not in the topic any more")
            if error.fatal():
                raise RetryableError(f"The broker's client gave up ({error.str()}).")
            return set()  # a transient connection error; the deadline of ``advance`` ends a lasting one
        offset = message.offset()
        assert shard is not None  # noqa: S101  a received message has a partition and an offset
        assert offset is not None  # noqa: S101
        changed = self.chains[shard].receive(offset, message.value() or b"")
        return {(shard, bucket_id) for bucket_id in changed}

    def close(self) -> None:
        """Close the consumer and the admin client."""
        self._consumer.close()
        self._close_admin()

    def _close_admin(self) -> None:
        self._admin.__exit__(None, None, None)  # the admin client has no other way to be closed

"""Follows gc.snapshot-chain in the driver, one view a shard.

A batch's end offsets are fixed before the ends of the chain are asked for. metadata has the acknowledgement for a
marker before it publishes anything later, so the view that is read up to there knows all that any entry of the batch
knows.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not in its __all__

from schemas.codec import FINGERPRINT_HEADER, DecodeError, codec
from schemas.credentials import KafkaCredentials
from schemas.records import SnapshotChainRecord
from schemas.topics import SNAPSHOT_CHAIN
from services.domain.chain_view import ChainGapError, ChainOrderError, ChainView
from streaming.errors import ChainError, TryAgainError

ANSWER_SECONDS = 30.0
RETURN_SECONDS = 15.0
"""How long a broker may be away: waiting for one that is started again costs less than starting Spark again."""
RETRY_SECONDS = 0.2
MARKERS_PER_POLL = 1_000


class ChainReader:
    """Reads every shard's markers from the beginning of the topic on."""

    def __init__(self, bootstrap_servers: str, shards: int, credentials: KafkaCredentials | None = None) -> None:
        login = credentials.client_settings() if credentials else {}
        self.views = [ChainView() for _ in range(shards)]
        self._next_offsets = [0] * shards
        self._partitions = [TopicPartition(SNAPSHOT_CHAIN.name, shard) for shard in range(shards)]
        self._pause = threading.Event()
        # Asked by a client of its own: on the consumer's connection the answer would wait behind a fetch.
        self._login = login
        self._bootstrap_servers = bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, **login})
        self._consumer = Consumer(
            {
                **login,
                "bootstrap.servers": bootstrap_servers,
                "group.id": "deepclean-streaming",  # wanted by the client; no group is joined and nothing stored
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.assign([TopicPartition(SNAPSHOT_CHAIN.name, shard, OFFSET_BEGINNING) for shard in range(shards)])

    def advance(self) -> set[tuple[int, int]]:
        """Read on to the present end of every shard's chain; says which (shard, bucket) changed.

        Raises:
            ChainError: a marker is missing or cannot be read.
            TryAgainError: the broker did not answer.
        """
        changed: set[tuple[int, int]] = set()
        ends = self._ends()
        deadline = time.monotonic() + ANSWER_SECONDS
        while any(have < end for have, end in zip(self._next_offsets, ends, strict=True)):
            messages = self._consumer.consume(MARKERS_PER_POLL, timeout=min(1.0, ANSWER_SECONDS))
            for message in messages:
                changed |= self._follow(message)
            if messages:
                deadline = time.monotonic() + ANSWER_SECONDS
            elif time.monotonic() > deadline:
                raise TryAgainError(
                    f"{SNAPSHOT_CHAIN.name} did not come within {ANSWER_SECONDS:g} seconds: see if the broker runs."
                )
        return changed

    def _ends(self) -> list[int]:
        ends = self._answered_ends()
        for shard, (have, end) in enumerate(zip(self._next_offsets, ends, strict=True)):
            if end < have:
                raise ChainError(shard, f"it was read up to offset {have}, but it ends at {end} now")
        return ends

    def _answered_ends(self) -> list[int]:
        """The ends as the broker says them: one that has just started knows neither leaders nor epochs for a while."""
        deadline = time.monotonic() + RETURN_SECONDS
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = dict.fromkeys(self._partitions, latest)
        while True:
            try:
                answers = self._admin.list_offsets(asked, request_timeout=ANSWER_SECONDS)
                ends = [answers[partition].result().offset for partition in self._partitions]
            except KafkaException as error:
                problem = str(error)
            else:
                if min(ends) >= 0:
                    return ends
                # What librdkafka says, without an error, when a leader has gone away before it could answer.
                problem = "a leader did not answer"
            if time.monotonic() > deadline:
                raise TryAgainError(
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
                raise ChainError(shard, f"offset {self._next_offsets[shard]} is not in the topic any more")
            if error.fatal():
                raise TryAgainError(f"The broker's client gave up ({error.str()}).")
            return set()  # a passing trouble of the connection; the deadline ends a lasting one
        offset = message.offset()
        assert shard is not None  # noqa: S101  a message that came has a place
        assert offset is not None  # noqa: S101
        try:
            marker = codec(SnapshotChainRecord).decode_message(message.value() or b"", _fingerprint(message))
            changed = self.views[shard].follow(marker)
        except DecodeError as unreadable:
            raise ChainError(shard, f"offset {offset} cannot be read: {unreadable}") from unreadable
        except (ChainGapError, ChainOrderError) as broken:
            raise ChainError(shard, f"offset {offset}: {broken}") from broken
        self._next_offsets[shard] = offset + 1
        return {(shard, bucket_id) for bucket_id in changed or ()}

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

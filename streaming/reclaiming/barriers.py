"""Forwards barriers after every message that was published for the entries before them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from confluent_kafka import Producer

from schemas.codec import codec
from schemas.credentials import KafkaCredentials
from schemas.records import DirectoryVerdict, PurgeKeys, SweepResult
from schemas.topics import PURGE_DIRECTORIES, PURGE_KEYS, SWEEP_RESULTS
from services.domain.errors import RetryableError
from services.domain.row_columns import NO_ROWS
from streaming.reclaiming.outcome import PlacedBarrier

PUBLISH_SECONDS = 60.0


class BarrierSender:
    """Publishes each barrier to the three topics whose consumers may wait for it."""

    def __init__(self, bootstrap_servers: str, credentials: KafkaCredentials | None = None) -> None:
        login = credentials.client_settings() if credentials else {}
        settings = {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "acks": "all", "linger.ms": 0}
        self._settings = {**login, **settings}
        self._producer = Producer(self._settings)

    def connect_again(self) -> None:
        """Reconnect, so that added partitions are known.

        A connected producer refreshes its metadata every few minutes only and rejects unknown partitions until then.
        """
        self._producer.close()
        self._producer = Producer(self._settings)

    def send(self, barriers: Iterable[PlacedBarrier], versions: Sequence[int], waiting: Sequence[int]) -> None:
        """Publish the barriers and wait for the acknowledgements.

        ``waiting`` is the number of premature messages of each shard; it is added to the work that a barrier reports.

        Raises:
            RetryableError: the broker did not acknowledge every barrier within ``PUBLISH_SECONDS``.
        """
        failures: list[str] = []

        def delivered(error: Any, message: Any) -> None:  # noqa: ARG001 the client's signature
            if error is not None:
                failures.append(str(error))

        for placed in barriers:
            version = versions[placed.shard]
            barrier = replace(placed.barrier, work=placed.barrier.work + waiting[placed.shard])
            for topic, record in (
                (PURGE_KEYS, PurgeKeys(version, NO_ROWS, (), barrier)),
                (PURGE_DIRECTORIES, DirectoryVerdict(version, (), barrier)),
                (SWEEP_RESULTS, SweepResult(0, 0, 0, 0, 0, 0, version, barrier)),
            ):
                message = codec(topic.record).encode_message(record)
                self._producer.produce(topic.name, message, partition=placed.shard, on_delivery=delivered)
        unanswered = self._producer.flush(PUBLISH_SECONDS)
        if unanswered or failures:
            reason = failures[0] if failures else f"no answer within {PUBLISH_SECONDS:g} seconds"
            raise RetryableError(f"Barriers could not be published ({reason}): see whether the broker runs.")

    def close(self) -> None:
        """Close the producer."""
        self._producer.close()

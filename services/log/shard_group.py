"""The group of the instances of a service: Kafka's group protocol says which shards each of them runs.

The instances subscribe to the topic of their service's commands. A partition that an instance is assigned is a shard
that it runs. Nothing is read here, and no position is kept. The group only says who should own a shard; who does is
decided by the fence of the owner's sink, so two instances that both believe in an assignment do no harm.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from services.domain.errors import InvariantError
from services.log.kafka_errors import log_error, translate

SESSION_SECONDS = 6.0
"""Silence after which an instance is given up: the shortest that brokers allow by default. A member that has a name
keeps its shards if it returns within this time."""
HEARTBEAT_SECONDS = 0.5
"""As short as this, so that the end of a session and a new assignment are noticed at once."""
LOOK_SECONDS = 30
"""Time after which each instance asks which partitions there are, in case that nobody has told it."""
ANSWER_SECONDS = 5.0
MOST_FENCES, FENCES_SECONDS = 4, 60.0
"""An instance that is fenced more often within this time shares its name with another process. Of two that do, each
fences the other about once a second. A broker that is lost under load has been seen to fence one twice in 20 seconds.
"""

_logger = logging.getLogger(__name__)

Shards = Callable[[Collection[int]], None]


class ShardGroup:
    """The membership of one instance. For one thread, which calls ``poll`` all the time."""

    def __init__(
        self, settings: Mapping[str, Any], group: str, instance: str, topic: str, gained: Shards, lost: Shards
    ) -> None:
        """``gained`` and ``lost`` are called by ``poll``. When ``lost`` returns, others may run these shards."""
        self._instance = instance
        self._topic = topic
        self._gained = gained
        self._lost = lost
        self._owned: set[int] = set()
        self._fenced_at = deque[float](maxlen=MOST_FENCES)
        self._settings = {
            **settings,
            "group.id": group,
            "group.instance.id": instance,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": int(SESSION_SECONDS * 1000),
            "heartbeat.interval.ms": int(HEARTBEAT_SECONDS * 1000),
            "topic.metadata.refresh.interval.ms": LOOK_SECONDS * 1000,
            "auto.offset.reset": "latest",
            "error_cb": log_error,
        }
        self._consumer = self._joined()

    def _joined(self) -> Consumer:
        consumer = Consumer(self._settings, logger=_logger)
        consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        return consumer

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        consumer.incremental_assign(places)
        consumer.pause(places)
        shards = [place.partition for place in places]
        self._owned.update(shards)
        self._gained(shards)

    def _revoked(self, consumer: Consumer, places: list[TopicPartition]) -> None:  # noqa: ARG002
        shards = sorted(self._owned & {place.partition for place in places})
        self._owned.difference_update(shards)
        self._lost(shards)

    def poll(self, seconds: float) -> None:
        """Take part in the group for a while.

        Raises:
            InvariantError: another process joins again and again under this instance's name, or the broker refuses it.
        """
        try:
            message = self._consumer.poll(seconds)
        except KafkaException as error:
            raise self._refused(error.args[0]) from error.with_traceback(None)
        failure = None if message is None else message.error()
        if failure is None or not (failure.fatal() or _is_fenced(failure)):
            return
        now = time.monotonic()
        is_shared = len(self._fenced_at) == MOST_FENCES and now - self._fenced_at[0] < FENCES_SECONDS
        if not _is_fenced(failure) or is_shared:
            raise self._refused(failure)
        self._fenced_at.append(now)
        self._join_again()

    def _join_again(self) -> None:
        """Become a member anew, without the shards of the former one, which others may have by now.

        A broker that is lost while members join may have taken this one twice: then the first of both is fenced, as by
        another process with its name.
        """
        _logger.warning("the group has another member named %s: joining again", self._instance)
        lost, self._owned = sorted(self._owned), set()
        self._lost(lost)
        self._consumer.close()
        self._consumer = self._joined()

    def look_for_shards(self) -> None:
        """Ask the broker which partitions there are, so that the group divides new ones now and not minutes later.

        The group takes notice of a question for all topics only.
        """
        try:
            self._consumer.list_topics(timeout=ANSWER_SECONDS)
        except KafkaException as error:
            _logger.warning("new shards will be looked for later (%s)", error.args[0].str())

    def _refused(self, error: KafkaError) -> InvariantError:
        if _is_fenced(error):
            return InvariantError(
                f"another process has the instance name {self._instance}: give each process a name of its own "
                f"(DEEPCLEAN_INSTANCE)"
            )
        found = translate(error, f"taking part in the group as {self._instance}")
        return found if isinstance(found, InvariantError) else InvariantError(str(found))

    def close(self) -> None:
        """Stop taking part. A member with a name keeps its shards until the session is over."""
        self._consumer.close()


def _is_fenced(error: KafkaError) -> bool:
    """Return whether a member was fenced: a consumer tells it as its one fatal error, which does not call itself so."""
    return error.code() in (KafkaError.FENCED_INSTANCE_ID, KafkaError._FENCED, KafkaError._FATAL)

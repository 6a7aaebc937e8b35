"""Metrics of the loop, for every service. Labels are closed sets: the service, its shards, its topics.

The collectors are made once per process; each shard's runner writes through its own ``RunnerMetrics``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from schemas.build_info import report_build
from schemas.topics import CHANGELOGS
from services.log.clock import Clock
from services.runtime.loop.runner import BatchSummary, LoopMetrics

AWAY_METRIC = "deepclean_away_from_log_seconds"
_SHARD = ("service", "shard")
_TOPIC = ("service", "shard", "topic")
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
AWAY_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.125, 0.15, 0.175, 0.2, 0.225),
    *(0.25, 0.3, 0.35, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0),
)
"""Close together around a quarter of a second, the limit for the 99.9th percentile."""
_MESSAGES = (1, 10, 50, 100, 250, 500, 1_000, 2_000, 5_000)


class RuntimeMetrics:
    """The collectors of one process."""

    def __init__(self, registry: CollectorRegistry, service: str) -> None:
        self.service = service
        report_build(registry)
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, labelnames=_SHARD, registry=registry)
        self.applied = counter("deepclean_messages_applied_total", "Messages applied, including dead letters.", _TOPIC)
        self.dead_letters = counter(
            "deepclean_dead_letters_total", "Messages dead-lettered because they could not be read or applied.", _TOPIC
        )
        self.published = counter("deepclean_messages_published_total", "Messages that the log acknowledged.", _SHARD)
        self.retries = counter("deepclean_step_retries_total", "Steps that failed and are retried.", _SHARD)
        self.batch_seconds = histogram(
            "deepclean_batch_seconds",
            "Time from the first message of a unit of work until the unit is durable.",
            buckets=_SECONDS,
        )
        self.away_seconds = histogram(
            AWAY_METRIC,
            "Time from a poll that returned messages until their output is written and sent and the next poll begins.",
            buckets=AWAY_SECONDS,
        )
        self.batch_messages = histogram("deepclean_batch_messages", "Messages per unit of work.", buckets=_MESSAGES)
        self.outbox = gauge(
            "deepclean_outbox_messages", "Messages in the outbox that the log has not acknowledged.", _SHARD
        )
        self.position = gauge("deepclean_input_position", "Offset of the next message to apply.", _TOPIC)
        self.changelog_offset = gauge(
            "deepclean_changelog_offset", "Offset of the changelog from which the next start reads.", _SHARD
        )
        self.end_offset = gauge("deepclean_input_end_offset", "Offset after the last message of the input.", _TOPIC)
        self.lag_messages = gauge(
            "deepclean_input_lag_messages", "Messages of the input that are not applied yet.", _TOPIC
        )
        self.lag_seconds = gauge(
            "deepclean_input_lag_seconds",
            "Age of the last applied message while others wait; 0 when none waits.",
            _TOPIC,
        )
        self.standby_lag = gauge(
            "deepclean_standby_lag_messages",
            "Messages that this standby of the shard has not applied.",
            _SHARD,
        )
        self.last_step = gauge("deepclean_last_step_timestamp_seconds", "Time of the last step of the loop.", _SHARD)
        self.database_bytes = gauge("deepclean_database_bytes", "Size of the database on disk.", _SHARD)
        self.checkpoints = gauge("deepclean_checkpoints", "Number of snapshot checkpoints kept.", _SHARD)
        self.defragmented = counter("deepclean_checkpoints_defragmented_total", "Checkpoints rewritten.", _SHARD)
        self.defragmented_bytes = counter(
            "deepclean_checkpoint_defragmented_bytes_total", "Bytes by which rewritten checkpoints are smaller.", _SHARD
        )
        self.checkpoint_bytes = gauge(
            "deepclean_checkpoint_bytes", "Bytes on disk that only checkpoints reference.", _SHARD
        )

    def followed(self, shard: int, behind_messages: int | None) -> None:
        """Record how far a standby is behind; None once it has ended."""
        if behind_messages is not None:
            self.standby_lag.labels(self.service, str(shard)).set(behind_messages)
            return
        with contextlib.suppress(KeyError):
            self.standby_lag.remove(self.service, str(shard))


class RunnerMetrics(LoopMetrics):
    """The metrics of one shard's runner."""

    def __init__(self, metrics: RuntimeMetrics, shard: int, topics: Sequence[str], clock: Clock) -> None:
        labels = (metrics.service, str(shard))
        of_topics = (metrics.position, metrics.end_offset, metrics.lag_messages, metrics.lag_seconds)
        of_shard = (metrics.outbox, metrics.last_step, metrics.database_bytes, metrics.checkpoints)
        self._present = [
            *((gauge, (*labels, topic)) for gauge in of_topics for topic in topics),
            *((gauge, labels) for gauge in (*of_shard, metrics.checkpoint_bytes, metrics.changelog_offset)),
        ]
        self._clock = clock
        self._topics = tuple(topics)
        self._applied = {topic: metrics.applied.labels(*labels, topic) for topic in topics}
        self._dead_letters = {topic: metrics.dead_letters.labels(*labels, topic) for topic in topics}
        self._position = {topic: metrics.position.labels(*labels, topic) for topic in topics}
        has_changelog = metrics.service in CHANGELOGS
        self._changelog_offset = metrics.changelog_offset.labels(*labels) if has_changelog else None
        self._end_offset = {topic: metrics.end_offset.labels(*labels, topic) for topic in topics}
        self._lag_messages = {topic: metrics.lag_messages.labels(*labels, topic) for topic in topics}
        self._lag_seconds = {topic: metrics.lag_seconds.labels(*labels, topic) for topic in topics}
        self._published = metrics.published.labels(*labels)
        self._retries = metrics.retries.labels(*labels)
        self._batch_seconds = metrics.batch_seconds.labels(*labels)
        self._away_seconds = metrics.away_seconds.labels(*labels)
        self._batch_messages = metrics.batch_messages.labels(*labels)
        self._outbox = metrics.outbox.labels(*labels)
        self._last_step = metrics.last_step.labels(*labels)
        self._database_bytes = metrics.database_bytes.labels(*labels)
        self._defragmented = metrics.defragmented.labels(*labels)
        self._defragmented_bytes = metrics.defragmented_bytes.labels(*labels)
        self._checkpoints = metrics.checkpoints.labels(*labels)
        self._checkpoint_bytes = metrics.checkpoint_bytes.labels(*labels)
        self._started_seconds = self._polled_seconds = time.perf_counter()
        self._positions: dict[str, int] = {}
        # The lag of a topic in seconds counts from here until its first message is applied.
        self._log_times_ms = dict.fromkeys(topics, clock.now_ms())

    def forget(self) -> None:
        """Remove the figures of the present state: this process does not run the shard any more."""
        for gauge, labels in self._present:
            with contextlib.suppress(KeyError):
                gauge.remove(*labels)

    def polled(self) -> None:
        """Record that a poll has ended."""
        self._polled_seconds = time.perf_counter()

    def returned(self, messages: int) -> None:
        """Record that the output of ``messages`` messages is written and sent."""
        if messages:
            self._away_seconds.observe(time.perf_counter() - self._polled_seconds)

    def batch_started(self) -> None:
        """Record that a unit of work begins."""
        self._started_seconds = time.perf_counter()

    def batch_written(self, batch: BatchSummary, waiting_messages: int) -> None:
        """Record that a unit of work is durable."""
        self._batch_seconds.observe(time.perf_counter() - self._started_seconds)
        self._batch_messages.observe(sum(batch.messages.values()))
        for topic, messages in batch.messages.items():
            self._applied[topic].inc(messages)
        for topic, letters in batch.dead_letters.items():
            self._dead_letters[topic].inc(letters)
        self._positions |= batch.next_offsets
        self._log_times_ms |= batch.log_times_ms
        self._outbox.set(waiting_messages)

    def published(self, messages: int) -> None:
        """Record that messages were acknowledged; none wait until the next batch is written."""
        self._published.inc(messages)
        self._outbox.set(0)

    def retried(self) -> None:
        """Record that a step failed and is retried."""
        self._retries.inc()

    def stepped(self) -> None:
        """Record that a step of the loop has ended."""
        self._last_step.set(self._clock.now_ms() / 1000)

    def positions_known(self, positions: dict[str, int]) -> None:
        """Record the positions at which the runner starts."""
        self._positions = dict(positions)

    def changelog_known(self, offset: int | None) -> None:
        """Record the offset from which the next start reads the changelog; None for a service without one."""
        if self._changelog_offset is not None and offset is not None:
            self._changelog_offset.set(offset)

    def lag_known(self, lag: dict[str, int]) -> None:
        """Record the number of messages not applied yet, per topic."""
        now_ms = self._clock.now_ms()
        for topic in self._topics:
            ahead, position = lag.get(topic, 0), self._positions.get(topic, 0)
            self._position[topic].set(position)
            self._end_offset[topic].set(position + ahead)
            self._lag_messages[topic].set(ahead)
            self._lag_seconds[topic].set(max(0, now_ms - self._log_times_ms[topic]) / 1000 if ahead else 0)

    def defragmented(self, less_bytes: int) -> None:
        """Record that a checkpoint was rewritten."""
        self._defragmented.inc()
        self._defragmented_bytes.inc(max(0, less_bytes))

    def disk_known(self, database_bytes: int, checkpoints: int, checkpoint_bytes: int) -> None:
        """Record the disk space of the shard."""
        self._database_bytes.set(database_bytes)
        self._checkpoints.set(checkpoints)
        self._checkpoint_bytes.set(checkpoint_bytes)

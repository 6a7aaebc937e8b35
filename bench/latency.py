"""Measures the latency of deletions at a rate that the plane can sustain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from bench.bulk import flat_deletes, flat_puts
from bench.conditions import Conditions
from bench.figures import Figure, Target
from bench.offered import Offered, percentile
from bench.shared_plane import SharedPlane, shared_plane
from schemas.codec import codec
from schemas.records import BlocksDeleted, DeleteBlocks, PurgeKeys
from schemas.topics import PURGE_KEYS, SCM_COMMANDS, SCM_REPLIES, Topic
from services.log.kafka import consumer_configuration
from services.plane.machine.errors import StackError

NAME = "latency"
ANSWER_SECONDS = 10.0
MESSAGES_PER_CONSUME = 2_000
TARGETS = {
    ("verdict", 50): Target(1_000, is_upper=True),
    ("verdict", 99): Target(3_000, is_upper=True),
    ("freed", 50): None,
    ("freed", 99): Target(6_000, is_upper=True),
}


def measure_latency(conditions: Conditions) -> Sequence[Figure]:
    """Milliseconds from a delete to its verdict and to freed, at 2,000 deletes a second offered: p50 and p99.

    The whole plane runs. Deletes are sent by a fixed schedule (open loop). The time of a delete begins when it was due,
    so that a stall counts for all deletes behind it. The time ends when the broker has the purge request of the row
    (verdict), and when it has the block store's answer that the blocks are deleted (freed), by the broker's clock,
    which is that of this machine. The death identifies a delete: it grows in the order in which deletes were sent.
    """
    plane = shared_plane(conditions)
    plane.warm()
    per_second = conditions.sizes.offered_per_second
    count = conditions.count(per_second)
    bucket = plane.make_bucket(NAME)
    plane.send(flat_puts(bucket, count))
    bucket_id = plane.bucket_id(bucket)
    deletes = list(plane.maker.encoded(flat_deletes(bucket, count)))
    with _Ends(plane) as ends:
        conditions.say(f"{NAME}: offering {per_second:,} deletes a second, {count:,} in all")
        with Offered(plane.producer, deletes, per_second) as offered:
            offered.finish()
        plane.settle(NAME)
        seen = {"verdict": ends.judged(bucket_id), "freed": ends.freed(bucket_id)}
    figures = []
    for what, ended_ms in seen.items():
        if len(ended_ms) != count:
            raise StackError(f"{len(ended_ms):,} of {count:,} deletes have a {what}: this is a defect, report it.")
        waited = [ended_ms[death] - offered.due_at(place) * 1_000 for place, death in enumerate(sorted(ended_ms))]
        details = {
            "deletes": count,
            "offered_per_second": per_second,
            "slowest_ms": max(waited),
            "sender_late_ms": offered.latest_seconds * 1_000,
        }
        figures += [
            Figure(
                f"{NAME}/{what}-p{share}", percentile(waited, share / 100), "ms", TARGETS[what, share], None, details
            )
            for share in (50, 99)
        ]
    return figures


class _Ends:
    """Reads messages published since the context was entered: when each row was judged, and when it was freed."""

    def __init__(self, plane: SharedPlane) -> None:
        self._consumer = Consumer(consumer_configuration(plane.stack.address.bootstrap_servers, "deepclean.bench"))
        self._starts: dict[str, int] = {}

    def __enter__(self) -> _Ends:
        topics = (PURGE_KEYS, SCM_COMMANDS, SCM_REPLIES)
        self._starts = {topic.name: self._end(topic) for topic in topics}
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def judged(self, bucket_id: int) -> Mapping[int, int]:
        """Return, by death, when the broker had the row's purge request, in milliseconds since the epoch."""
        found: dict[int, int] = {}
        for at_ms, purge in self._read(PURGE_KEYS):
            assert isinstance(purge, PurgeKeys)  # noqa: S101  nothing else is on the topic
            for bucket, death in zip(purge.rows.bucket_ids, purge.rows.deaths, strict=True):
                if bucket == bucket_id:
                    found.setdefault(death, at_ms)
        return found

    def freed(self, bucket_id: int) -> Mapping[int, int]:
        """Return, by death, when the block store had deleted the blocks, in milliseconds since the epoch."""
        deaths: dict[tuple[int, int], list[int]] = {}
        for _, command in self._read(SCM_COMMANDS):
            if isinstance(command.body, DeleteBlocks):
                groups = command.body.groups
                named = zip(groups.bucket_ids, groups.deaths, strict=True)
                deaths[command.body.task, command.body.attempt] = [death for one, death in named if one == bucket_id]
        found: dict[int, int] = {}
        for at_ms, reply in self._read(SCM_REPLIES):
            if isinstance(reply.body, BlocksDeleted) and not reply.body.failed:
                for death in deaths.get((reply.body.task, reply.body.attempt), ()):
                    found.setdefault(death, at_ms)
        return found

    def _end(self, topic: Topic) -> int:
        watermarks = self._consumer.get_watermark_offsets(TopicPartition(topic.name, 0), ANSWER_SECONDS)
        if watermarks is None:
            raise StackError("The broker does not say where a topic ends: measure again when the machine is idle.")
        end: int = watermarks[1]
        return end

    def _read(self, topic: Topic) -> Iterator[tuple[int, Any]]:
        """Yield the messages since the start, with the broker's timestamps."""
        end, offset = self._end(topic), self._starts[topic.name]
        self._consumer.assign([TopicPartition(topic.name, 0, offset)])
        record = codec(topic.record)
        while offset < end:
            messages = self._consumer.consume(1, ANSWER_SECONDS)
            if not messages:
                raise StackError(f"No message of {topic.name} came within {ANSWER_SECONDS:g} seconds.")
            messages += self._consumer.consume(MESSAGES_PER_CONSUME, 0)  # a timeout would wait for all of them
            for message in messages:
                if (error := message.error()) is not None:
                    raise KafkaException(error)
                offset = int(message.offset() or 0) + 1
                yield message.timestamp()[1], record.decode_message(message.value() or b"")

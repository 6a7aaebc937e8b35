"""The topics of the plane and of volumes: how many shards there are, and to which one a name belongs."""

from __future__ import annotations

import pytest

from schemas.topics import (
    DELETED_ENTRIES,
    METADATA_COMMANDS,
    PLANE,
    SNAPSHOT_CHAIN,
    SNAPSHOTS_COMMANDS,
    TOPICS,
    VOLUMES,
)
from services.domain.errors import InvariantError, RetryableError, TopicMissingError
from services.log.added_shards import AddedShards
from services.log.clock import VirtualClock
from services.log.memory import MemoryLog
from services.log.plane_topic import PlaneTopic
from services.log.port import LogAround, Sink
from services.log.volume_topic import VolumeTopic
from services.plane.broker.topics import GROWTH_ORDER, SINGLE


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(VirtualClock())


def test_the_number_of_shards_is_the_largest_that_was_published(log: MemoryLog) -> None:
    topic = PlaneTopic(log)
    assert topic.shards() == 0
    topic.publish(2)
    assert topic.shards() == 2
    topic.publish(6)
    topic.publish(4)  # by an operator who did not see the other one
    assert topic.shards() == PlaneTopic(log).shards() == 6


@pytest.mark.parametrize("value", [b"", b"{", b"3", b"{}", b'{"shards": "9"}', b'{"shards": 0}', b'{"shards": 9999}'])
def test_what_is_no_number_of_shards_counts_for_nothing(log: MemoryLog, value: bytes) -> None:
    PlaneTopic(log).publish(2)
    log.append(PLANE, 0, value, b"shards")
    log.append(PLANE, 0, b'{"shards": 7}', b"another")
    assert PlaneTopic(log).shards() == 2


def test_a_number_does_not_fall_when_the_topic_was_recreated(log: MemoryLog) -> None:
    topic = PlaneTopic(log)
    topic.publish(2)
    topic.publish(3)
    assert topic.shards() == 3
    log.partitions.clear()
    assert topic.shards() == 3
    topic.publish(5)
    assert topic.shards() == 5


def test_the_first_choice_of_a_shard_for_a_name_is_that_of_all(log: MemoryLog) -> None:
    one, other = VolumeTopic(log), VolumeTopic(log)
    assert one.place("photos", 2) == 2
    assert other.place("photos", 0) == 2
    assert one.place("photos", 1) == 2
    assert other.place("films", 0) == 0
    assert log.end_offset(VOLUMES, 0) == 2, "who knows it does not append it"


def test_of_two_that_choose_at_the_same_time_the_first_in_the_log_counts(log: MemoryLog) -> None:
    class Racing(LogAround):
        """Another client appends its choice just before this one does."""

        def open_sink(self, owner: str = "") -> Sink:
            VolumeTopic(log).place("photos", 3)
            return log.open_sink(owner)

    assert VolumeTopic(Racing(log)).place("photos", 1) == 3
    assert VolumeTopic(log).place("photos", 1) == 3


def test_a_choice_whose_answer_was_lost_counts_for_the_repeat(log: MemoryLog) -> None:
    class Away(LogAround):
        """The broker takes the choice and does not answer any more."""

        is_away = False

        def open_sink(self, owner: str = "") -> Sink:
            self.is_away = True
            return log.open_sink(owner)

        def end_offset(self, topic: str, partition: int) -> int:
            if self.is_away:
                raise RetryableError("the broker is away")
            return log.end_offset(topic, partition)

    with pytest.raises(RetryableError):
        VolumeTopic(Away(log)).place("photos", 1)
    assert VolumeTopic(log).place("photos", 2) == 1


@pytest.mark.parametrize("value", [b"", b"{", b"3", b"{}", b'{"shard": "1"}', b'{"shard": -1}', b'{"shard": 1024}'])
def test_what_is_no_shard_counts_for_nothing(log: MemoryLog, value: bytes) -> None:
    log.append(VOLUMES, 0, value, b"photos")
    assert VolumeTopic(log).place("photos", 2) == 2


def test_who_watches_hears_of_each_growth_once_and_again_after_a_failure(log: MemoryLog) -> None:
    heard: list[int] = []

    def hear(shards: int) -> None:
        heard.append(shards)
        if len(heard) == 2:
            raise InvariantError("the disk is full")

    watched = AddedShards(log, hear)
    watched.look()
    assert heard == []
    PlaneTopic(log).publish(2)
    watched.look()
    watched.look()
    assert heard == [2]
    PlaneTopic(log).publish(3)
    watched.look()
    watched.look()
    watched.look()
    assert heard == [2, 3, 3]


def test_a_plane_without_the_topic_is_watched_until_it_has_it(log: MemoryLog) -> None:
    class Older(LogAround):
        is_older = True

        def end_offset(self, topic: str, partition: int) -> int:
            if self.is_older:
                raise TopicMissingError(f"there is no {topic}")
            return log.end_offset(topic, partition)

    older, heard = Older(log), list[int]()
    watched = AddedShards(older, heard.append)
    watched.look()
    PlaneTopic(log).publish(4)
    older.is_older = False
    watched.look()
    assert heard == [4]


def test_partitions_are_added_to_outputs_before_inputs() -> None:
    assert set(GROWTH_ORDER) == {topic.name for topic in TOPICS}
    assert not set(GROWTH_ORDER) & set(SINGLE)
    places = {name: place for place, name in enumerate(GROWTH_ORDER)}
    commands = {METADATA_COMMANDS.name, SNAPSHOTS_COMMANDS.name}
    assert set(GROWTH_ORDER[-2:]) == commands, "everything begins with a command"
    deletion = [topic.name for topic in TOPICS if topic.name not in commands]
    assert sorted(deletion, key=places.__getitem__) == deletion[::-1], "a deletion meets them in the order of TOPICS"
    judged = places[DELETED_ENTRIES.name]  # Spark reads a partition of this one as soon as it is there
    assert all(places[topic.name] < judged for topic in TOPICS if "streaming" in topic.producers)
    assert places[SNAPSHOT_CHAIN.name] < judged

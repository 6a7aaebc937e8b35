"""Defects of adding shards: numbers that come too early or fall, and names of volumes in two shards."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pytest

from services.log.followed_topic import said
from services.log.plane_topic import PlaneTopic
from services.log.volume_topic import VolumeTopic
from services.plane.broker.topics import create_partitions, publish_shards
from services.plane.in_memory.client import InMemoryClient
from services.plane.upkeep import growth
from services.runtime.process import hosted_shard
from services.runtime.process.process import ServiceProcess
from tests.faults.fault import Fault


def the_number_is_published_before_the_partitions_are_there(patch: pytest.MonkeyPatch) -> None:
    """Clients sent commands for shards that no process could serve, and services stopped at missing partitions."""

    def published_first(servers: str, shards: int, credentials: Any, *others: Any, **named: Any) -> None:
        publish_shards(servers, shards, credentials)
        create_partitions(servers, shards, credentials, *others, **named)

    patch.setattr(growth, "create_partitions", published_first)


def the_last_number_counts(patch: pytest.MonkeyPatch) -> None:
    """Of two operators who added shards at once, the slower one took away those of the other."""

    def last(topic: PlaneTopic) -> int:
        for record in topic._topic.new_records(lambda: None):
            topic._shards = said(record.value, "shards")
        return topic._shards

    patch.setattr(PlaneTopic, "shards", last)


def each_client_believes_its_own_choice(patch: pytest.MonkeyPatch) -> None:
    """A volume whose creation was repeated after shards were added was there twice."""
    patch.setattr(VolumeTopic, "place", lambda _, __, chosen: chosen)


def the_first_choice_is_not_looked_for_again(patch: pytest.MonkeyPatch) -> None:
    """Two clients that created a volume at once each had one."""

    def place(topic: VolumeTopic, volume: str, chosen: int) -> int:
        topic._read()
        if (name := volume.encode()) not in topic._shards:
            topic._topic.append([(json.dumps({"shard": chosen}).encode(), name)])
            topic._shards[name] = chosen
        return topic._shards[name]

    patch.setattr(VolumeTopic, "place", place)


def clients_keep_the_number_that_they_began_with(patch: pytest.MonkeyPatch) -> None:
    """A program that ran for long created no volume in added shards, and did not find those of others."""
    patch.setattr(InMemoryClient, "learn_shards", lambda client: client.shards)


def a_partition_that_comes_before_its_number_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The group gave a shard to an instance that did not know it yet, and nobody ever ran it."""
    gained = ServiceProcess._gained

    def forgotten(process: ServiceProcess, shards: Collection[int]) -> None:
        gained(process, shards)
        process._given &= {shard.shard for shard in process._shards}

    patch.setattr(ServiceProcess, "_gained", forgotten)


def a_process_keeps_the_shards_that_it_began_with(patch: pytest.MonkeyPatch) -> None:
    """Added shards were served only after all processes had been started again."""
    patch.setattr(ServiceProcess, "_add", lambda *_: None)


def a_missing_partition_ends_a_process(patch: pytest.MonkeyPatch) -> None:
    """All shards of a process ended when one of the brokers heard of the new partitions later than the others."""
    patch.setattr(hosted_shard, "ADDED_SECONDS", -1.0)


_TOPICS = "tests/unit/test_plane_topics.py"
_PROCESS = "tests/integration/test_process.py"
_VOLUMES = "tests/unit/test_volume_shards.py"
FAULTS = (
    Fault(
        the_number_is_published_before_the_partitions_are_there,
        caught_by="tests/integration/test_added_shards.py::test_an_end_at_any_step_is_made_good_by_a_repeat",
        message=r"assert 3 == \(3 - 1\)",
    ),
    Fault(
        the_last_number_counts,
        caught_by=f"{_TOPICS}::test_the_number_of_shards_is_the_largest_that_was_published",
        message="assert 4 == 6",
    ),
    Fault(
        each_client_believes_its_own_choice,
        caught_by=f"{_VOLUMES}::test_a_repeat_after_shards_were_added_goes_where_the_first_try_went",
        message=r"assert \d == 0",
    ),
    Fault(
        the_first_choice_is_not_looked_for_again,
        caught_by=f"{_TOPICS}::test_of_two_that_choose_at_the_same_time_the_first_in_the_log_counts",
        message="assert 1 == 3",
    ),
    Fault(
        clients_keep_the_number_that_they_began_with,
        caught_by=f"{_VOLUMES}::test_a_client_that_was_there_before_uses_added_shards",
        message="assert|VOLUME_NOT_FOUND|there is no volume",
    ),
    Fault(
        a_partition_that_comes_before_its_number_is_forgotten,
        caught_by=f"{_PROCESS}::test_an_instance_runs_a_shard_that_the_group_has_given_to_it_before_it_was_there",
        message="it never came to be",
    ),
    Fault(
        a_process_keeps_the_shards_that_it_began_with,
        caught_by=f"{_PROCESS}::test_a_process_runs_shards_that_are_added_to_the_plane",
        message="it never came to be",
    ),
    Fault(
        a_missing_partition_ends_a_process,
        caught_by=f"{_PROCESS}::test_a_broker_that_does_not_know_an_added_shard_yet_is_asked_again",
        message="it never came to be",
    ),
)

"""The membership of an instance outlives that it is fenced once, as a broker that is lost may do to it."""

from __future__ import annotations

from collections.abc import Collection
from uuid import uuid4

import pytest

from services.domain.errors import InvariantError
from services.log.kafka import client_configuration
from services.log.shard_group import ShardGroup
from services.plane.broker.topics import create_topics
from tests.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]
SHARDS = 3


class Member:
    """A member of a group, and the shards that it has."""

    def __init__(self, servers: str, group: str, topic: str, instance: str = "one") -> None:
        self.shards: set[int] = set()
        self.gains = 0
        settings = client_configuration(servers, group)
        self._group = ShardGroup(settings, group, instance, topic, self._gained, self._lost)
        self.close = self._group.close

    def _gained(self, shards: Collection[int]) -> None:
        self.shards.update(shards)
        self.gains += 1

    def _lost(self, shards: Collection[int]) -> None:
        self.shards.difference_update(shards)

    def has_all(self) -> bool:
        """Take part for a moment; whether all shards are its."""
        self._group.poll(0.1)
        return self.shards == set(range(SHARDS))


@pytest.fixture
def topic(bootstrap_servers: str) -> str:
    name = f"group-{uuid4().hex}"
    create_topics(bootstrap_servers, {name: {}}, partitions=SHARDS)
    return name


def test_who_is_fenced_once_joins_again(bootstrap_servers: str, topic: str) -> None:
    member = Member(bootstrap_servers, topic, topic)
    eventually(member.has_all)
    double = Member(bootstrap_servers, topic, topic)  # what a repeated request to join makes of one member
    eventually(double.has_all)
    gains = member.gains
    eventually(lambda: member.has_all() and member.gains > gains, otherwise="it does not come back")
    double.close()
    member.close()


def test_of_two_processes_with_one_name_one_ends(bootstrap_servers: str, topic: str) -> None:
    members = [Member(bootstrap_servers, topic, topic) for _ in range(2)]
    with pytest.raises(InvariantError, match="another process has the instance name one"):
        eventually(lambda: not [member.has_all() for member in members], otherwise="both go on")  # never so
    for member in members:
        member.close()

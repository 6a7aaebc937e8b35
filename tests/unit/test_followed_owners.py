"""Clients follow a shard to its next owner, by the topic of owners."""

from __future__ import annotations

import httpx
import pytest

from schemas.topics import OWNERS
from services.client.errors import PlaneError, UnreachableError
from services.client.wire import http_reads
from services.client.wire.http_reads import HttpShard
from services.client.wire.owners import FollowedOwner
from services.log.clock import VirtualClock
from services.log.followed_topic import PARTITION
from services.log.memory import MemoryLog
from services.log.owner_topic import OwnerTopic, owner_key, owner_value

HERE, THERE = "http://127.0.0.1:1", "http://127.0.0.1:2"


class Hosts:
    """Two hosts, of which one owns the shard; what the other one does is set."""

    def __init__(self) -> None:
        self.log = MemoryLog(VirtualClock())
        self.owner = HERE
        self.other_answers = False
        self.asked: list[str] = []
        self.moves_at = 0
        topic = OwnerTopic(self.log)
        http = httpx.Client(transport=httpx.MockTransport(self._answer))
        self.shard = HttpShard(http, "metadata", "", 3, owner=FollowedOwner(lambda: topic, "metadata", 3))

    def publish(self, url: str, shard: int = 3) -> None:
        self.log.append(OWNERS, PARTITION, owner_value(url), owner_key("metadata", shard))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        url = f"http://{request.url.host}:{request.url.port}"
        self.asked.append(url)
        if len(self.asked) == self.moves_at:
            self.owner = THERE
            self.publish(THERE)
        if url == self.owner:
            return httpx.Response(200, json=7)
        if self.other_answers:
            return httpx.Response(404, json={"code": "WRONG_SHARD", "message": "shard 3 is not served here"})
        raise httpx.ConnectError("connection refused")


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Hosts:
    monkeypatch.setattr("services.client.wire.owners.LOOK_SECONDS", 0.0)
    monkeypatch.setattr(http_reads, "MOVE_SECONDS", 2.0)
    return Hosts()


def test_a_read_goes_where_the_topic_says(hosts: Hosts) -> None:
    hosts.publish(THERE)
    hosts.publish(HERE)
    hosts.publish(THERE, shard=2)
    assert hosts.shard.get("/state", int) == 7
    assert hosts.asked == [HERE]


@pytest.mark.parametrize("other_answers", [True, False])
def test_a_read_follows_a_shard_that_moves(hosts: Hosts, other_answers: bool) -> None:
    hosts.publish(HERE)
    assert hosts.shard.get("/state", int) == 7
    hosts.owner, hosts.other_answers, hosts.moves_at = "", other_answers, 4
    assert hosts.shard.get("/state", int) == 7
    assert hosts.asked == [HERE, HERE, HERE, HERE, THERE]


def test_a_shard_that_nobody_takes_over_is_given_up(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_reads, "MOVE_SECONDS", 0.05)
    with pytest.raises(UnreachableError, match="no process has published the address of shard 3 of metadata"):
        hosts.shard.get("/state", int)
    hosts.publish(HERE)
    hosts.owner = ""
    with pytest.raises(UnreachableError, match=f"metadata at {HERE} cannot be reached"):
        hosts.shard.get("/state", int)


def test_who_is_told_late_that_a_shard_has_moved_asks_its_new_owner(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner was stopped for longer than a shard needs to move, and refuses when it goes on."""
    monkeypatch.setattr(http_reads, "MOVE_SECONDS", -1.0)
    hosts.publish(HERE)
    hosts.owner, hosts.other_answers, hosts.moves_at = "", True, 1
    assert hosts.shard.get("/state", int) == 7
    assert hosts.asked == [HERE, THERE]


def test_a_first_owner_is_awaited(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plane has just been started, or the shard was just added."""
    looks = iter(range(10))

    def look_again(owner: FollowedOwner) -> None:
        if next(looks) == 2:
            hosts.publish(HERE)
        owner.newest_url()

    monkeypatch.setattr(FollowedOwner, "look_again", look_again)
    assert hosts.shard.get("/state", int) == 7
    assert hosts.asked == [HERE]


def test_two_hosts_that_both_refuse_are_asked_once_each_when_time_is_over(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_reads, "MOVE_SECONDS", -1.0)

    def look_again(owner: FollowedOwner) -> None:
        hosts.publish(THERE if owner.known_url() == HERE else HERE)
        owner.newest_url()

    monkeypatch.setattr(FollowedOwner, "look_again", look_again)
    hosts.publish(HERE)
    hosts.owner, hosts.other_answers = "", True
    with pytest.raises(UnreachableError, match="does not own shard 3"):
        hosts.shard.get("/state", int)
    assert hosts.asked == [HERE, THERE]


def test_a_shard_that_its_last_owner_refuses_is_out_of_reach(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_reads, "MOVE_SECONDS", 0.05)
    hosts.publish(HERE)
    hosts.owner, hosts.other_answers = "", True
    with pytest.raises(UnreachableError, match=f"metadata at {HERE} does not own shard 3"):
        hosts.shard.get("/state", int)


def test_other_refusals_are_not_repeated(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts.publish(HERE)
    refused = httpx.Response(404, json={"code": "KEY_NOT_FOUND", "message": "there is no such key"})
    monkeypatch.setattr(hosts.shard.http, "_transport", httpx.MockTransport(lambda _: refused))
    with pytest.raises(PlaneError, match="there is no such key"):
        hosts.shard.get("/state", int)


def test_an_address_that_cannot_be_read_is_none(hosts: Hosts) -> None:
    hosts.publish(HERE)
    hosts.log.append(OWNERS, PARTITION, b"{", owner_key("metadata", 3))
    topic = OwnerTopic(hosts.log)
    topic.read()
    assert topic.url("metadata", 3) == ""
    hosts.publish(THERE)
    topic.read()
    assert topic.url("metadata", 3) == THERE

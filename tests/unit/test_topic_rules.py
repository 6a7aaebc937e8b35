"""What topics have to be like, and what is said of those that are not."""

from __future__ import annotations

import pytest

from services.domain.topic_rules import WANTED, FoundTopic, Replicas, WantedTopic, flaws, losses

REPLICAS = Replicas(3, 2)
TOPIC = WantedTopic(4, 1_000)
GOOD = {**WANTED, "max.message.bytes": "1000", "min.insync.replicas": "2"}


def sentences(partitions: int = 4, factor: int = 3, **changed: str) -> list[str]:
    settings = {**GOOD, **{name.replace("_", "."): value for name, value in changed.items()}}
    return [one.sentence for one in flaws("t", FoundTopic(partitions, factor, settings), TOPIC, REPLICAS)]


def test_a_topic_as_it_should_be_has_no_flaw() -> None:
    assert sentences() == []
    assert sentences(max_message_bytes="5000", factor=5) == []


def test_each_flaw_is_named() -> None:
    assert [one.sentence for one in flaws("t", None, TOPIC, REPLICAS)] == ["it is missing"]
    assert sentences(partitions=3) == ["3 partitions instead of 4"]
    assert sentences(partitions=5) == ["5 partitions, but 4 shards: finish what was begun (deepclean shards add 5)"]
    assert sentences(factor=2) == ["2 replicas instead of 3: add some (kafka-reassign-partitions.sh)"]
    assert sentences(min_insync_replicas="1") == ["min.insync.replicas is 1 of 3 replicas instead of 2"]
    assert sentences(min_insync_replicas="4") == ["min.insync.replicas is 4 of 3 replicas instead of 2"]
    assert len(sentences(factor=1, min_insync_replicas="1")) == 1, "more replicas come first"
    assert sentences(max_message_bytes="999") == ["max.message.bytes is 999 instead of 1000"]


@pytest.mark.parametrize(("name", "wrong"), [("retention.ms", "604800000"), ("cleanup.policy", "delete,compact")])
def test_a_setting_that_loses_messages_is_named_and_says_how_it_is_mended(name: str, wrong: str) -> None:
    settings = {**GOOD, name: wrong}
    (flaw,) = flaws("t", FoundTopic(4, 3, settings), TOPIC, REPLICAS)
    assert (flaw.sentence, flaw.settings) == (f"{name} is {wrong} instead of {WANTED[name]}", {name: WANTED[name]})
    (sentence,) = losses("t", settings)
    assert sentence == (
        f"topic t has {name}={wrong} and would lose messages: set {name}={WANTED[name]} (deepclean topics ensure)"
    )


def test_only_what_is_lost_stops_a_service() -> None:
    others = {"message.timestamp.type": "CreateTime", "min.insync.replicas": "1", "max.message.bytes": "1"}
    assert losses("t", {**GOOD, **others}) == []
    assert losses("t", {}) == [], "a log that has no settings keeps everything"


def test_the_topic_of_schemas_is_compacted() -> None:
    schemas = WantedTopic(1, 1_000, is_compacted=True)
    found = FoundTopic(1, 3, {**GOOD, "cleanup.policy": "compact"})
    assert flaws("s", found, schemas, REPLICAS) == []
    assert losses("s", found.settings, is_compacted=True) == []
    assert len(losses("s", GOOD, is_compacted=True)) == 1

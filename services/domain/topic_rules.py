"""What a topic of a plane has to be like: rules without state.

The log is the truth from which everything is made again, so nothing may be removed from it by age, by size or by
compaction. The names and values are those of Kafka's topic configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WANTED = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "LogAppendTime",
    "unclean.leader.election.enable": "false",
}
"""Kafka's settings of each topic, but for its largest message and for those of a compacted one."""
KEEPING = ("cleanup.policy", "retention.ms", "retention.bytes")
"""The settings with another value of which a log loses messages by itself."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """On how many brokers a cluster keeps each message."""

    replication_factor: int
    min_insync_replicas: int
    """Replicas that must have a message before it is acknowledged."""

    def settings(self) -> dict[str, str]:
        """Return them as settings of a topic, by Kafka's names."""
        return {"min.insync.replicas": str(self.min_insync_replicas)}


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """What a plane needs of one topic."""

    partitions: int
    max_message_bytes: int
    is_compacted: bool = False
    """It keeps the last message of each key."""

    def settings(self) -> dict[str, str]:
        """Return its settings by Kafka's names."""
        return {**_wanted(is_compacted=self.is_compacted), "max.message.bytes": str(self.max_message_bytes)}


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """What a topic is like."""

    partitions: int
    replication_factor: int
    """The smallest number of replicas of its partitions."""
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicFlaw:
    """What is wrong with a topic."""

    topic: str
    sentence: str
    settings: Mapping[str, str]
    """The settings that mend it; empty if settings do not."""
    is_absence: bool = False
    """Whether there is no such topic."""


def _wanted(*, is_compacted: bool) -> dict[str, str]:
    return {**WANTED, "cleanup.policy": "compact"} if is_compacted else WANTED


def losses(topic: str, settings: Mapping[str, str], *, is_compacted: bool = False) -> list[str]:
    """Return a sentence for each setting by which a topic loses messages that are still needed."""
    wanted = _wanted(is_compacted=is_compacted)
    return [
        f"topic {topic} has {name}={settings[name]} and would lose messages: set {name}={wanted[name]} "
        f"(deepclean topics ensure)"
        for name in KEEPING
        if settings.get(name, wanted[name]) != wanted[name]
    ]


def flaws(topic: str, found: FoundTopic | None, wanted: WantedTopic, replicas: Replicas) -> list[TopicFlaw]:
    """Return what is wrong with a topic; ``found`` is None for one that is missing."""
    if found is None:
        return [TopicFlaw(topic, "it is missing", {}, is_absence=True)]
    seen = []
    if found.partitions != wanted.partitions:
        seen.append(TopicFlaw(topic, _partitions(found.partitions, wanted.partitions), {}))
    if found.replication_factor < replicas.replication_factor:
        sentence = (
            f"{found.replication_factor} replicas instead of {replicas.replication_factor}: add some "
            f"(kafka-reassign-partitions.sh)"
        )
        seen.append(TopicFlaw(topic, sentence, {}))
    for name, value in wanted.settings().items():
        if not _is_good(name, found.settings.get(name, ""), value):
            seen.append(TopicFlaw(topic, f"{name} is {found.settings.get(name)} instead of {value}", {name: value}))
    least = int(found.settings.get("min.insync.replicas", "1"))
    wanted_least = min(replicas.min_insync_replicas, found.replication_factor)
    if least < wanted_least or least > found.replication_factor:
        sentence = f"min.insync.replicas is {least} of {found.replication_factor} replicas instead of {wanted_least}"
        seen.append(TopicFlaw(topic, sentence, {"min.insync.replicas": str(wanted_least)}))
    return seen


def _partitions(found: int, wanted: int) -> str:
    if found < wanted:
        return f"{found} partitions instead of {wanted}"
    return f"{found} partitions, but {wanted} shards: finish what was begun (deepclean shards add {found})"


def _is_good(name: str, found: str, wanted: str) -> bool:
    return int(found or 0) >= int(wanted) if name == "max.message.bytes" else found == wanted

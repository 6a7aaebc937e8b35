"""Judges the topics of a plane on any Kafka cluster, and mends their settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from schemas.credentials import KafkaCredentials
from services.domain.errors import DeepcleanError
from services.domain.topic_rules import FoundTopic, Replicas, TopicFlaw, flaws
from services.log.kafka import KafkaLog
from services.plane.broker.quiet_admin import quiet_admin
from services.plane.broker.topics import ANSWER_SECONDS, once_known, wanted_topics
from services.plane.machine.errors import StackError

MOST_REPLICAS = 3
"""Replicas of each partition by default, if the cluster has as many brokers."""


@contextmanager
def _asking(bootstrap_servers: str, credentials: KafkaCredentials | None) -> Iterator[AdminClient]:
    try:
        with quiet_admin(bootstrap_servers, credentials) as admin:
            yield admin
    except (KafkaException, DeepcleanError) as error:
        said = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        raise StackError(
            f"The cluster on {bootstrap_servers} did not do it ({said}): see that it runs, and that these credentials "
            f"may describe and alter topics."
        ) from error


def chosen_replicas(
    bootstrap_servers: str, credentials: KafkaCredentials | None, factor: int | None, least: int | None
) -> Replicas:
    """Return the wanted replicas; by default three of which two must have a message, or what the brokers allow.

    Raises:
        StackError: the cluster does not answer, or has fewer brokers than replicas.
    """
    with _asking(bootstrap_servers, credentials) as admin:
        brokers = len(admin.list_topics(timeout=ANSWER_SECONDS).brokers)
    factor = factor or min(MOST_REPLICAS, brokers)
    least = least or factor // 2 + 1
    if factor > brokers:
        raise StackError(f"{bootstrap_servers} has {brokers} brokers, too few for {factor} replicas.")
    if least > factor:
        raise StackError(f"{least} of {factor} replicas can never have a message: set --min-insync-replicas lower.")
    return Replicas(factor, least)


def check_topics(
    bootstrap_servers: str, credentials: KafkaCredentials | None, shards: int, replicas: Replicas
) -> list[TopicFlaw]:
    """Return what is wrong with the topics of a plane, in their order.

    Raises:
        StackError: the cluster does not answer.
    """
    wanted = wanted_topics(shards)
    log = KafkaLog(bootstrap_servers, "deepclean.topics", credentials=credentials)
    with _asking(bootstrap_servers, credentials) as admin:
        known = admin.list_topics(timeout=ANSWER_SECONDS).topics
        settings = once_known(lambda: log.topic_settings([name for name in wanted if name in known]))
    found = {
        name: FoundTopic(len(known[name].partitions), _replication_factor(known[name]), of_topic)
        for name, of_topic in settings.items()
    }
    return [flaw for name, one in wanted.items() for flaw in flaws(name, found.get(name), one, replicas)]


def _replication_factor(topic: Any) -> int:
    return min((len(partition.replicas) for partition in topic.partitions.values()), default=0)


def mend_settings(bootstrap_servers: str, credentials: KafkaCredentials | None, found: Iterable[TopicFlaw]) -> None:
    """Change the settings of topics that are wrong.

    Raises:
        StackError: the cluster refuses.
    """
    entries: dict[str, list[ConfigEntry]] = {}
    for flaw in found:
        for name, value in flaw.settings.items():
            entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            entries.setdefault(flaw.topic, []).append(entry)
    if not entries:
        return
    resources = [
        ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=of_topic)
        for topic, of_topic in entries.items()
    ]
    with _asking(bootstrap_servers, credentials) as admin:
        for answer in admin.incremental_alter_configs(resources, request_timeout=ANSWER_SECONDS).values():
            answer.result()

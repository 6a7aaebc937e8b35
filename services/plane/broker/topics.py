"""Create the topics of a plane on a broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from schemas.credentials import KafkaCredentials
from schemas.records import Replication
from schemas.topics import CHANGELOGS, DEAD_LETTERS, METADATA_COMMANDS, OWNERS, SCHEMAS, TOPICS
from services.domain.errors import DeepcleanError, RetryableError, TopicMissingError
from services.domain.topic_rules import Replicas, WantedTopic
from services.log.clock import SystemClock
from services.log.first_commands import first_commands
from services.log.kafka import KafkaLog
from services.log.patience import patiently
from services.log.port import MAX_CHANGE_MESSAGE_BYTES, MAX_LETTER_MESSAGE_BYTES, MAX_MESSAGE_BYTES
from services.log.schema_topic import SchemaTopic
from services.log.signing import Signer, announcement
from services.plane.broker.quiet_admin import quiet_admin
from services.plane.machine.errors import StackError

T = TypeVar("T")

ANSWER_SECONDS = 30.0
POLL_SECONDS = 1.0
BROKERS_DEFAULT = -1
"""Replication factor of a topic for which the brokers choose it."""
_LARGER = {
    DEAD_LETTERS.name: MAX_LETTER_MESSAGE_BYTES,
    **{topic.name: MAX_CHANGE_MESSAGE_BYTES for topic in CHANGELOGS.values()},
}


def wanted_topics(shards: int) -> dict[str, WantedTopic]:
    """Return what a plane needs of each of its topics, by their names."""
    wanted = {topic.name: WantedTopic(shards, _LARGER.get(topic.name, MAX_MESSAGE_BYTES)) for topic in TOPICS}
    return wanted | dict.fromkeys((SCHEMAS, OWNERS), WantedTopic(1, MAX_MESSAGE_BYTES, is_compacted=True))


TOPIC_SETTINGS = WantedTopic(1, MAX_MESSAGE_BYTES).settings()
_COMPACTED = (SCHEMAS, OWNERS)
PLANE_TOPICS = {name: wanted.settings() for name, wanted in wanted_topics(1).items() if name not in _COMPACTED}
COMPACTED_TOPICS = {name: wanted_topics(1)[name].settings() for name in _COMPACTED}


def create_plane_topics(
    bootstrap_servers: str,
    shards: int,
    credentials: KafkaCredentials | None = None,
    signer: Signer | None = None,
    replication: Replication = Replication.RATIS_ONE,
    replicas: Replicas | None = None,
) -> None:
    """Create the topics of a plane that are missing, and publish the schemas of this program.

    ``signer`` is the administrator, for a plane that requires signatures. ``replication`` is that of new buckets, if
    the plane is new. ``replicas`` are those of new topics, by default what the brokers are set to.

    Raises:
        StackError: the broker did not do it.
    """
    create_topics(bootstrap_servers, PLANE_TOPICS, shards, credentials, replicas)
    create_topics(bootstrap_servers, COMPACTED_TOPICS, 1, credentials, replicas)
    _begin_logs_of_a_new_plane(bootstrap_servers, shards, credentials, signer, replication)
    publish_schemas(bootstrap_servers, shards, credentials, signer)


def _begin_logs_of_a_new_plane(
    bootstrap_servers: str,
    shards: int,
    credentials: KafkaCredentials | None,
    signer: Signer | None,
    replication: Replication,
) -> None:
    """Send the first commands if no program has published its schemas yet, which it does afterwards.

    So an earlier call that died in between is made good, and an older plane never gets them. A repeat does no harm.
    """
    log, now_ms = KafkaLog(bootstrap_servers, "deepclean.schemas", credentials=credentials), SystemClock().now_ms()

    def begin() -> None:
        with closing(log.open_sink()) as sink:
            new_shards = 0 if log.end_offset(SCHEMAS, 0) else shards
            for shard in range(new_shards):
                for message in first_commands(shard, signer, now_ms, replication):
                    sink.send(METADATA_COMMANDS.name, shard, message)
            sink.flush()

    try:
        once_known(begin)
    except DeepcleanError as error:
        raise StackError(f"The first commands could not be sent: {error}") from error


def publish_schemas(
    bootstrap_servers: str, shards: int, credentials: KafkaCredentials | None = None, signer: Signer | None = None
) -> int:
    """Publish the schemas of this program that are missing, and announce those of commands; return their number.

    Raises:
        StackError: the broker did not do it, or the topic has other schemas.
    """
    log = KafkaLog(bootstrap_servers, "deepclean.schemas", credentials=credentials)

    def announce(schema_id: int) -> None:
        now_ms = SystemClock().now_ms()
        with closing(log.open_sink()) as sink:
            for shard in range(shards):
                sink.send(METADATA_COMMANDS.name, shard, announcement(schema_id, shard, signer, now_ms))
            sink.flush()

    try:
        return once_known(lambda: SchemaTopic(log).publish(TOPICS, announce))
    except DeepcleanError as error:
        raise StackError(f"The schemas could not be published: {error}") from error


def once_known(act: Callable[[], T]) -> T:
    """Act again until the broker answers, which may have just started, and knows the topics, which are new."""

    def act_or_wait() -> T:
        try:
            return act()
        except TopicMissingError as error:
            raise RetryableError(str(error)) from error

    return patiently(act_or_wait, ANSWER_SECONDS)


def create_topics(
    bootstrap_servers: str,
    topics: Mapping[str, Mapping[str, str]],
    partitions: int,
    credentials: KafkaCredentials | None = None,
    replicas: Replicas | None = None,
) -> frozenset[str]:
    """Create the missing topics with this number of partitions, and return the names of the created ones.

    An existing topic with fewer partitions gets more. The settings of existing topics are not changed.

    Raises:
        StackError: the broker refuses, or a topic has more partitions, whose shards no process would serve.
    """
    try:
        with quiet_admin(bootstrap_servers, credentials) as admin:
            created = _create_missing(admin, topics, partitions, replicas)
            _add_partitions(admin, set(topics) - created, partitions)
            _await_leaders(admin, set(topics), partitions)
    except KafkaException as error:
        raise StackError(
            f"The topics could not be made on {bootstrap_servers} ({error.args[0].str()}): see whether the broker runs "
            f"and allows it, then start again."
        ) from error
    return created


def _create_missing(
    admin: AdminClient, topics: Mapping[str, Mapping[str, str]], partitions: int, replicas: Replicas | None
) -> frozenset[str]:
    missing = set(topics) - set(admin.list_topics(timeout=ANSWER_SECONDS).topics)
    if not missing:
        return frozenset()
    factor, least = (replicas.replication_factor, replicas.settings()) if replicas else (BROKERS_DEFAULT, {})
    wanted = [NewTopic(name, partitions, factor, config={**topics[name], **least}) for name in sorted(missing)]
    created = set()
    for name, answer in admin.create_topics(wanted, request_timeout=ANSWER_SECONDS).items():
        try:
            answer.result()
            created.add(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another process created the topic first
                raise
    return frozenset(created)


def _add_partitions(admin: AdminClient, existing: set[str], partitions: int) -> None:
    known = admin.list_topics(timeout=ANSWER_SECONDS).topics
    counts = {name: len(known[name].partitions) for name in sorted(existing) if name in known}
    for name, count in counts.items():
        if count > partitions:
            raise StackError(
                f"Topic {name} has {count} partitions and the plane is set to {partitions} shards: set {count} shards, "
                f"since shards cannot be removed."
            )
    grown = [NewPartitions(name, partitions) for name, count in counts.items() if count < partitions]
    if grown:
        for answer in admin.create_partitions(grown, request_timeout=ANSWER_SECONDS).values():
            answer.result()


def _await_leaders(admin: AdminClient, names: set[str], partitions: int) -> None:
    """Wait until every partition has a leader: the broker receives new partitions from its controller with a delay."""
    deadline = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < deadline:
        known = admin.list_topics(timeout=POLL_SECONDS).topics
        ready = {
            name
            for name in names & set(known)
            if len(known[name].partitions) == partitions
            and all(partition.leader >= 0 for partition in known[name].partitions.values())
        }
        if ready == names:
            return
    raise StackError(
        f"The broker has not created topic {min(names - ready)} within {ANSWER_SECONDS:g} seconds: read its log."
    )

"""Create the topics of a plane on a broker, and add partitions to them.

The number of shards is published on the topic of the plane after all partitions are there. A topic may have more
partitions than that: shards that somebody has begun to add.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from schemas.credentials import KafkaCredentials
from schemas.records import MetadataCommand, Replication
from schemas.schema_files import released_versions
from schemas.topics import (
    CHANGELOGS,
    DEAD_LETTERS,
    METADATA_COMMANDS,
    OWNERS,
    PLANE,
    SCHEMAS,
    SNAPSHOTS_COMMANDS,
    TOPICS,
    VOLUMES,
    Topic,
)
from services.domain.errors import DeepcleanError, RetryableError, TopicMissingError
from services.domain.topic_rules import Replicas, WantedTopic
from services.log.clock import SystemClock
from services.log.first_commands import first_commands
from services.log.kafka import KafkaLog
from services.log.patience import patiently
from services.log.plane_topic import PlaneTopic
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
    wanted = {name: WantedTopic(shards, _LARGER.get(name, MAX_MESSAGE_BYTES)) for name in GROWTH_ORDER}
    single = {name: WantedTopic(1, MAX_MESSAGE_BYTES, is_compacted=name in COMPACTED) for name in SINGLE}
    return wanted | single


_COMMANDS = (SNAPSHOTS_COMMANDS.name, METADATA_COMMANDS.name)
GROWTH_ORDER = (*(topic.name for topic in reversed(TOPICS) if topic.name not in _COMMANDS), *_COMMANDS)
"""The topics with a partition for each shard, in the order in which partitions are added: against the way of a
deletion, so that who reads a message finds the partitions of what it causes. Everything begins with a command, so the
topics of commands are the last. Spark reads a partition of gc.deleted-entries as soon as it is there; everybody else
waits for the published number."""
COMPACTED = (SCHEMAS, OWNERS)
SINGLE = (*COMPACTED, PLANE, VOLUMES)
"""The topics of one partition."""
TOPIC_SETTINGS = WantedTopic(1, MAX_MESSAGE_BYTES).settings()
PLANE_TOPICS = {name: wanted_topics(1)[name].settings() for name in GROWTH_ORDER}
SINGLE_TOPICS = {name: wanted_topics(1)[name].settings() for name in SINGLE}


def create_plane_topics(
    bootstrap_servers: str,
    shards: int,
    credentials: KafkaCredentials | None = None,
    signer: Signer | None = None,
    replication: Replication = Replication.RATIS_ONE,
    replicas: Replicas | None = None,
) -> int:
    """Create the topics of a plane that are missing, publish the schemas of this program and the number of shards.

    Return this number: ``shards``, or a larger one that was published before.

    ``signer`` is the administrator, for a plane that requires signatures. ``replication`` is that of new buckets, if
    the plane is new. ``replicas`` are those of new topics, by default what the brokers are set to.

    Raises:
        StackError: the broker did not do it.
    """
    create_topics(bootstrap_servers, SINGLE_TOPICS, 1, credentials, replicas)
    published = published_shards(bootstrap_servers, credentials)
    shards = max(shards, published)
    create_partitions(bootstrap_servers, shards, credentials, replicas, may_have_more=bool(published))
    _begin_logs_of_a_new_plane(bootstrap_servers, shards, credentials, signer, replication)
    publish_schemas(bootstrap_servers, shards, credentials, signer)
    if shards > published > 0:  # their feature level is raised when the upgrade of the plane is finished
        announce_newest(bootstrap_servers, range(published, shards), credentials, signer)
    if shards > published:
        publish_shards(bootstrap_servers, shards, credentials)
    return shards


def create_partitions(
    bootstrap_servers: str,
    shards: int,
    credentials: KafkaCredentials | None = None,
    replicas: Replicas | None = None,
    *,
    may_have_more: bool,
) -> None:
    """Create the partitions of so many shards in all topics, in ``GROWTH_ORDER``.

    ``may_have_more`` says that more partitions are those of shards that somebody has begun to add.

    Raises:
        StackError: the broker did not do it, or a topic has more partitions, whose shards no process would serve.
    """
    try:
        with quiet_admin(bootstrap_servers, credentials) as admin:
            _create_missing(admin, PLANE_TOPICS, shards, replicas)
            counts = _partitions(admin, GROWTH_ORDER)
            if not may_have_more:
                _refuse_more(counts, shards)
            for name in GROWTH_ORDER:
                if counts.get(name, shards) < shards:
                    _add_partitions(admin, [name], shards)
            _await_leaders(admin, set(GROWTH_ORDER), shards)
    except KafkaException as error:
        raise _not_made(bootstrap_servers, error) from error


def published_shards(bootstrap_servers: str, credentials: KafkaCredentials | None = None) -> int:
    """Return the published number of shards; 0 if there is none yet. Raise StackError if the broker does not answer."""
    log = KafkaLog(bootstrap_servers, "deepclean.shards", credentials=credentials)
    try:
        return once_known(PlaneTopic(log).shards)
    except DeepcleanError as error:
        raise StackError(f"The number of shards could not be read: {error}") from error


def publish_shards(bootstrap_servers: str, shards: int, credentials: KafkaCredentials | None = None) -> None:
    """Publish the number of shards: from now on processes and clients use them. Their partitions must be there.

    Raises:
        StackError: the broker did not do it.
    """
    log = KafkaLog(bootstrap_servers, "deepclean.shards", credentials=credentials)
    try:
        once_known(lambda: PlaneTopic(log).publish(shards))
    except DeepcleanError as error:
        raise StackError(f"The number of shards could not be published: {error}") from error


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
    try:
        is_new = once_known(lambda: log.end_offset(SCHEMAS, 0)) == 0
    except DeepcleanError as error:
        raise StackError(f"The topic {SCHEMAS} could not be read: {error}") from error
    messages = ((shard, one) for shard in range(shards) for one in first_commands(shard, signer, now_ms, replication))
    if is_new:
        send_commands(bootstrap_servers, messages, credentials)


def announce_newest(
    bootstrap_servers: str, shards: Iterable[int], credentials: KafkaCredentials | None, signer: Signer | None
) -> None:
    """Allow commands by the newest schema of this program, which is published, in shards that are added."""
    newest = released_versions(MetadataCommand.__name__)[-1].schema_id
    now_ms = SystemClock().now_ms()
    send_commands(
        bootstrap_servers, ((shard, announcement(newest, shard, signer, now_ms)) for shard in shards), credentials
    )


def send_commands(
    bootstrap_servers: str,
    commands: Iterable[tuple[int, bytes]],
    credentials: KafkaCredentials | None,
    topic: Topic = METADATA_COMMANDS,
) -> None:
    """Append commands to the logs of their shards. Raise StackError if the broker did not take them."""
    log, wanted = KafkaLog(bootstrap_servers, "deepclean.shards", credentials=credentials), list(commands)

    def send() -> None:
        with closing(log.open_sink()) as sink:
            for shard, message in wanted:
                sink.send(topic.name, shard, message)
            sink.flush()

    try:
        once_known(send)
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
            counts = _partitions(admin, sorted(set(topics) - created))
            _refuse_more(counts, partitions)
            _add_partitions(admin, [name for name, count in counts.items() if count < partitions], partitions)
            _await_leaders(admin, set(topics), partitions)
    except KafkaException as error:
        raise _not_made(bootstrap_servers, error) from error
    return created


def _not_made(bootstrap_servers: str, error: KafkaException) -> StackError:
    return StackError(
        f"The topics could not be made on {bootstrap_servers} ({error.args[0].str()}): see whether the broker runs "
        f"and allows it, then start again."
    )


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


def _partitions(admin: AdminClient, names: Iterable[str]) -> dict[str, int]:
    """Return the numbers of partitions of the topics that the broker has."""
    known = admin.list_topics(timeout=ANSWER_SECONDS).topics
    return {name: len(known[name].partitions) for name in names if name in known}


def _refuse_more(counts: Mapping[str, int], partitions: int) -> None:
    for name, count in counts.items():
        if count > partitions:
            raise StackError(
                f"Topic {name} has {count} partitions and the plane is set to {partitions} shards: set {count} shards, "
                f"since shards cannot be removed."
            )


def _add_partitions(admin: AdminClient, names: Sequence[str], partitions: int) -> None:
    grown = [NewPartitions(name, partitions) for name in names]
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
            if len(known[name].partitions) >= partitions
            and all(partition.leader >= 0 for partition in known[name].partitions.values())
        }
        if ready == names:
            return
    raise StackError(
        f"The broker has not created topic {min(names - ready)} within {ANSWER_SECONDS:g} seconds: read its log."
    )

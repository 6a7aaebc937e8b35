"""Creates the topics of the plane on any broker."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from schemas.credentials import KafkaCredentials
from services.plane.broker.embedded import quiet_admin
from services.plane.machine.errors import StackError

ANSWER_SECONDS = 30.0
POLL_SECONDS = 1.0


def create_topics(
    bootstrap_servers: str,
    topics: Mapping[str, Mapping[str, str]],
    partitions: int,
    credentials: KafkaCredentials | None = None,
) -> frozenset[str]:
    """Make sure that each topic is there with so many partitions, and return the names of those that were new.

    A topic with fewer is given more, since more shards are more partitions; one that has more is refused, since
    the shards beyond would belong to nobody. An existing topic's settings are left as they are.
    """
    try:
        with quiet_admin(bootstrap_servers, credentials) as admin:
            created = _create_missing(admin, topics, partitions)
            _add_partitions(admin, set(topics) - created, partitions)
            _await_leaders(admin, set(topics), partitions)
    except KafkaException as error:
        raise StackError(
            f"The topics could not be made on {bootstrap_servers} ({_reason(error)}): see whether the broker runs "
            f"and allows it, then start again."
        ) from error
    return created


def _create_missing(admin: AdminClient, topics: Mapping[str, Mapping[str, str]], partitions: int) -> frozenset[str]:
    missing = set(topics) - set(admin.list_topics(timeout=ANSWER_SECONDS).topics)
    if not missing:
        return frozenset()
    wanted = [NewTopic(name, num_partitions=partitions, config=dict(topics[name])) for name in sorted(missing)]
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
    """Wait until the broker itself knows every partition: it learns them from its controller a little later."""
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


def _reason(error: KafkaException) -> str:
    cause = error.args[0]
    return str(cause.str()) if isinstance(cause, KafkaError) else str(error)

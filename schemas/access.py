"""The rights of each identity on each topic, derived from ``schemas.topics``. The broker's access list is made of them.

An identity is a name in ``Topic.producers`` or ``Topic.consumers``: a service, the Spark job, or ``clients``. An
identity that a topic does not name can neither read nor write the topic, nor see that it exists. All identities read
the topics of schemas and of the plane. Only the administrator writes them, because services decode newer messages by
the one, and run the shards that the other one names.
"""

from __future__ import annotations

from typing import NamedTuple

from schemas.topics import CLIENTS, NUMBERED, OWNERS, PLANE, SCHEMAS, TOPICS, VOLUMES

ADMINISTRATOR = "admin"
"""The only identity that needs no rights: it creates topics, identities and rights, and repairs logs."""
STREAMING = "streaming"
READ, WRITE = "READ", "WRITE"
_GROUPS = {CLIENTS: "deepclean-client-", STREAMING: "deepclean-streaming"}


class Right(NamedTuple):
    """Permission for one identity to do one operation on one topic."""

    identity: str
    operation: str
    """``READ`` or ``WRITE``; either includes the right to query the topic's end offsets."""
    topic: str


def identities() -> tuple[str, ...]:
    """Return all identities that a topic names, sorted by name."""
    return tuple(sorted({name for topic in TOPICS for name in (*topic.producers, *topic.consumers)}))


def rights() -> frozenset[Right]:
    """Return all rights; the broker refuses every other access."""
    readers = {Right(name, READ, topic.name) for topic in TOPICS for name in topic.consumers}
    writers = {Right(name, WRITE, topic.name) for topic in TOPICS for name in topic.producers}
    # metadata reads its own output at startup, to check that the log is not behind the numbers that it published.
    looks_back = {Right("metadata", READ, topic.name) for topic in NUMBERED}
    of_all = {Right(name, READ, topic) for name in identities() for topic in (SCHEMAS, PLANE)}
    owners = {Right(name, WRITE, OWNERS) for name in identities() if name not in (CLIENTS, STREAMING)}
    of_clients = {Right(CLIENTS, READ, OWNERS), Right(CLIENTS, READ, VOLUMES), Right(CLIENTS, WRITE, VOLUMES)}
    return frozenset(readers | writers | looks_back | of_all | owners | of_clients)


def owner_prefix(identity: str) -> str:
    """Return the prefix of the names (Kafka: transactional ids) under which a service publishes for its shards."""
    return f"deepclean.{identity}."


def group_prefix(identity: str) -> str:
    """Return the prefix of an identity's consumer group names. The groups only hold positions for lag tools."""
    return _GROUPS.get(identity, f"deepclean.{identity}")

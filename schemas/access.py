"""Who may do what with which topic, derived from ``schemas.topics`` alone: the broker's access list is made of this.

An identity is a name in ``Topic.producers`` or ``Topic.consumers``: a service, the Spark job, or ``clients``. Whoever
is not named at a topic may neither read nor write it, nor see that it is there.
"""

from __future__ import annotations

from typing import NamedTuple

from schemas.topics import CLIENTS, NUMBERED, TOPICS

ADMINISTRATOR = "admin"
"""The one identity that is asked for no right: it makes topics, identities and rights, and repairs logs."""
STREAMING = "streaming"
_METADATA = "metadata"
"""Reads its own output at its start, to check that the log is not behind the numbers that it has published."""
READ, WRITE = "READ", "WRITE"
_GROUPS = {CLIENTS: "deepclean-client-", STREAMING: "deepclean-streaming"}


class Right(NamedTuple):
    """One identity may do one thing with one topic."""

    identity: str
    operation: str
    """``READ`` or ``WRITE``; either includes asking where the topic ends."""
    topic: str


def identities() -> tuple[str, ...]:
    """Return all identities that a topic names, sorted by name."""
    return tuple(sorted({name for topic in TOPICS for name in (*topic.producers, *topic.consumers)}))


def rights() -> frozenset[Right]:
    """Return all rights; the broker refuses every other access."""
    readers = {Right(name, READ, topic.name) for topic in TOPICS for name in topic.consumers}
    writers = {Right(name, WRITE, topic.name) for topic in TOPICS for name in topic.producers}
    looks_back = {Right(name, READ, topic.name) for topic in NUMBERED for name in topic.producers if name == _METADATA}
    return frozenset(readers | writers | looks_back)


def group_prefix(identity: str) -> str:
    """What the names of an identity's consumer groups begin with: they hold positions for lag tools, nothing else."""
    return _GROUPS.get(identity, f"deepclean.{identity}")

"""Rows that each service keeps, and its changelog."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChangelogRow:
    """changelog: how far a service has come with the topic that keeps what it changes; one row."""

    number: int
    """Number of the newest unit of work."""
    digest: bytes
    """Digest of that unit."""
    topic_id: str
    """The topic's id, so that a recreated topic is noticed."""
    base_offset: int
    """Every unit behind base_number is at this offset or behind it."""
    base_number: int
    """Number of a unit that the topic is known to hold with all before it; they are before base_offset."""
    base_start: str
    """The start whose units are to be found at base_offset; empty when that is not known."""


@dataclass(frozen=True, slots=True)
class LastRead:
    """The last message that was read of an input: by this a log that has lost it and has grown again is noticed."""

    timestamp_ms: int
    """When the log appended it."""
    crc32: int
    """CRC-32 of its bytes, 0 to 4294967295."""


@dataclass(frozen=True, slots=True)
class OutboxRun:
    """Messages of an outbox row that follow each other on one topic."""

    topic: str
    """Where they go."""
    fingerprint: bytes
    """Their header avro-fingerprint."""
    values: tuple[bytes, ...]
    """The encoded records."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """What one row of a service's own tables has become."""

    table: str
    """The table, by its persistent name."""
    key: bytes
    """The row's key."""
    is_removed: bool
    """Whether there is no such row any more."""
    value: bytes
    """The row as it is stored; empty when it was removed."""


@dataclass(frozen=True, slots=True)
class PositionRow:
    """positions: where a service is in one of its inputs."""

    topic: str
    """The topic."""
    topic_id: str
    """The topic's id, so that a recreated topic is noticed."""
    next_offset: int
    """Offset of the next message to read."""
    last_read: LastRead | None = None
    """The message before that, as it was read; null when a person has set the position."""


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """outbox: the messages of one unit of work, in order."""

    runs: tuple[OutboxRun, ...]
    """The messages."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """What one unit of work has changed in a service's own tables, or a part of that. Whoever applies all of them in
    order has that service's database.
    """

    start: str
    """Which start of the service wrote it, by an id of its own. What an earlier start wrote and comes behind the
    beginning of a later one is left out, its own beginning as well.
    """
    number: int
    """Number of the unit of work: one more than that of the unit before it. Of the beginning of a start, where the
    topic ended when it was sent: it counts if no other beginning is there or behind that.
    """
    previous: bytes
    """Digest of the unit before it, so that no two histories are joined; empty for the first."""
    part: int
    """Which part of it this is, from 0; -1 for the beginning of a start, which changes nothing."""
    is_last: bool
    """Whether the unit ends with this part. One without a last part was never seen by anybody: it is left out."""
    rows: tuple[RowChange, ...]
    """The rows, positions in the inputs among them."""
    messages: tuple[OutboxRun, ...]
    """Messages that the unit sends to others: sent behind this, and perhaps never, so that a service that continues
    from here sends them.
    """

"""Rows in tables that every service has, and the records of changelogs."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from schemas.frozen import record


@record
class ChangelogRow:
    """changelog: the position of a service's database in its changelog topic; one row."""

    number: int
    """Number of the newest unit of work."""
    digest: bytes
    """Digest of that unit of work."""
    topic_id: str
    """Id of the topic, by which a recreated topic is recognized."""
    base_offset: int
    """Every unit after base_number is at this offset or behind it."""
    base_number: int
    """Number of a unit that the topic is known to hold before base_offset, with all units before it."""
    base_start: str
    """Id of the start whose units count from base_offset on; empty when it is not known."""


@record
class LastRead:
    """The last message that was read from an input. With it, a service detects that a log has lost the message and
    has grown again.
    """

    timestamp_ms: int
    """Time at which the log appended the message."""
    crc32: int
    """CRC-32 of the message's bytes, 0 to 4294967295."""


@record
class OutboxRun:
    """Messages of an outbox row that follow each other on one topic."""

    topic: str
    """Topic of the messages."""
    values: tuple[bytes, ...]
    """The messages, with their frames."""
    keys: tuple[bytes, ...]
    """The keys of the messages, in the order of values; empty when no message has a key."""


@record
class RowChange:
    """The new state of one row of a service's own tables."""

    table: str
    """Persistent name of the table."""
    key: bytes
    """Key of the row."""
    is_removed: bool
    """Whether the row was removed."""
    value: bytes
    """The row as it is stored; empty when it was removed."""


@record
class PositionRow:
    """positions: the position of a service in one of its inputs."""

    topic: str
    """The topic."""
    topic_id: str
    """Id of the topic, by which a recreated topic is recognized."""
    next_offset: int
    """Offset of the next message to read."""
    last_read: LastRead | None = None
    """The message before next_offset, as it was read; null when it is not known, as after an operator has set the
    position.
    """


@record
class OutboxRow:
    """outbox: the messages of one unit of work, in order."""

    runs: tuple[OutboxRun, ...]
    """The messages."""


@record
class StateChange:
    """Changes of one unit of work to a service's own tables, or one part of them. Applying all changes in order
    rebuilds the service's database.
    """

    start: str
    """Id of the start of the service that wrote this message. Messages of an earlier start behind the beginning of a
    later one are ignored, including the earlier start's beginning.
    """
    number: int
    """Number of the unit of work, one higher than that of the unit before it. In the beginning of a start: the end
    offset of the topic when it was sent; the beginning is valid only if no other valid beginning is at or behind
    that offset.
    """
    previous: bytes
    """Digest of the unit before this one, so that units of different histories are never combined; empty for the
    first unit.
    """
    part: int
    """Number of this part of the unit, from 0; -1: the message is the beginning of a start, and changes nothing."""
    is_last: bool
    """Whether this is the last part of the unit. A unit without a last part was never published, and is ignored."""
    rows: tuple[RowChange, ...]
    """The changed rows, including the positions in the inputs."""
    messages: tuple[OutboxRun, ...]
    """Messages of the unit to other topics. They are sent after this message and may have been lost: a service that
    continues from this unit sends them again.
    """

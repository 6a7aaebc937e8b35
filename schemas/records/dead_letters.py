"""Records of dead-letters: messages that could not be read or applied."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from schemas.frozen import record


@record
class MessageHeader:
    """One header of a message."""

    name: str
    """Name of the header; several headers may have the same name."""
    value: bytes
    """Value of the header; empty when there is none."""


@record
class DeadLetter:
    """A message that could not be read or applied, with its original bytes. Topic dead-letters."""

    service: str
    """Service that could not read or apply the message."""
    topic: str
    """Topic of the original message."""
    partition: int
    """Partition of the original message."""
    offset: int
    """Offset of the original message."""
    error: str
    """Kind of the error."""
    message: str
    """Text of the error."""
    value: bytes
    """Original bytes; only the first ones if there are more than a letter may hold."""
    size_bytes: int
    """Size of the original message; larger than value if value was cut."""
    key: bytes
    """Original key; empty when there was none."""
    headers: tuple[MessageHeader, ...]
    """Original headers, in their order; none if they are larger than a letter may hold, which the field message then
    reports.
    """

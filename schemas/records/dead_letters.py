"""Records of dead-letters: messages that nobody could apply."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MessageHeader:
    """One header of a message."""

    name: str
    """Its name; several headers may have the same."""
    value: bytes
    """Its value; empty when it has none."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be read or applied, as it came. Topic dead-letters."""

    service: str
    """Who could not read or apply it."""
    topic: str
    """Where it came from."""
    partition: int
    """Where it came from."""
    offset: int
    """Where it came from."""
    error: str
    """Kind of the error."""
    message: str
    """The error in words."""
    fingerprint: bytes
    """Header avro-fingerprint; empty when there was none."""
    value: bytes
    """The original bytes; the first of them when there are more than a letter carries."""
    size_bytes: int
    """How many bytes the original has: more than value holds when it was cut."""
    key: bytes
    """The original key; empty when there was none."""
    headers: tuple[MessageHeader, ...]
    """The original headers, in their order; none when they are more than a letter carries, which the message then
    says.
    """

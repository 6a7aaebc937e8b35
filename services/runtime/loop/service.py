"""What the loop asks of a service, and what it hands to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from schemas.codec import codec
from schemas.topics import CHANGELOGS, DEAD_LETTERS, Topic
from services.domain.errors import InvalidMessageError
from services.log.port import MAX_CHANGE_MESSAGE_BYTES, MAX_LETTER_MESSAGE_BYTES, MAX_MESSAGE_BYTES
from services.storage.store import Store
from services.storage.tables import RowCache, TableDefinition, TablesReader, UnitOfWork

_FRAME_BYTES = 1_024
"""What a broker counts to a message beside its bytes, at most: a batch's head, the header of the schema."""
_LARGEST_BYTES = MAX_MESSAGE_BYTES - _FRAME_BYTES
_LARGEST_OF: dict[str, int] = {
    DEAD_LETTERS.name: MAX_LETTER_MESSAGE_BYTES - _FRAME_BYTES,
    **{topic.name: MAX_CHANGE_MESSAGE_BYTES - _FRAME_BYTES for topic in CHANGELOGS.values()},
}
"""Topics whose messages may be larger."""


class Message(NamedTuple):
    """One decoded input."""

    topic: Topic
    offset: int
    timestamp_ms: int
    """Log append time, as the log gave it."""
    record: Any
    value: bytes = b""
    """The record as it came: what a signature is over."""
    fingerprint: bytes | None = None
    """The header that says which schema wrote it."""


class OutgoingMessage(NamedTuple):
    """One encoded output."""

    topic: str
    fingerprint: bytes
    value: bytes


def fitting(topic: Topic, fingerprint: bytes, value: bytes) -> OutgoingMessage:
    """An output that its topic will take: one that it will not would stand before all others for ever.

    Raises:
        InvalidMessageError: it is too large. Whatever has caused it is put aside.
    """
    if len(value) > _LARGEST_BYTES:
        largest = _LARGEST_OF.get(topic.name, _LARGEST_BYTES)
        if len(value) > largest:
            raise InvalidMessageError(
                f"a message of {len(value)} bytes for {topic.name} would come of it; {largest} are the most"
            )
    return OutgoingMessage(topic.name, fingerprint, value)


class Work(UnitOfWork):
    """A unit of work of a service: changes of its tables and the messages that they cause."""

    def __init__(self, shard: int, store: Store, cache: RowCache) -> None:
        super().__init__(store, cache)
        self.shard = shard
        self.store = store
        self.inputs: Sequence[Message] = ()
        """What is about to be applied, or the first of it will be: to read together what all of it will look at."""
        self.messages: list[OutgoingMessage] = []
        self.is_caught_up = True
        """Whether all that the log held when the service started is taken in: until then what it knows is old."""
        self._messages_before = 0

    def send(self, topic: Topic, record: Any) -> None:
        """Send a record to the shard's partition of a topic, once this unit of work is written."""
        encoder = codec(topic.record)
        self.messages.append(fitting(topic, encoder.fingerprint, encoder.encode(record)))

    def send_encoded(self, topic: Topic, value: bytes) -> None:
        """Send a record of the topic that is encoded already."""
        self.messages.append(fitting(topic, codec(topic.record).fingerprint, value))

    def begin_message(self) -> None:
        """Whatever follows belongs to the next message."""
        super().begin_message()
        self._messages_before = len(self.messages)

    def undo_message(self) -> None:
        """Take back what the present message has changed and sent."""
        super().undo_message()
        del self.messages[self._messages_before :]


class Service(Protocol):
    """One shard of one service: pure of IO but for its unit of work.

    What it keeps in memory must be derivable from its tables: ``restore`` is called at the start and again
    whenever a unit of work was thrown away.
    """

    @property
    def name(self) -> str:
        """Name of the service, as topics name it."""
        ...

    @property
    def inputs(self) -> Sequence[Topic]:
        """Topics that it reads."""
        ...

    @property
    def tables(self) -> Sequence[TableDefinition[Any]]:
        """Its own tables."""
        ...

    def restore(self, tables: TablesReader) -> None:
        """Make what is kept in memory anew from the committed tables."""
        ...

    def stands_alone(self, message: Message) -> bool:
        """Whether a message must be alone in its batch."""
        ...

    def apply(self, message: Message, work: Work) -> None:
        """Carry out one message.

        Raises:
            InvalidMessageError: it can never be carried out; it goes to the dead letters.
        """
        ...

    def tick(self, now_ms: int, work: Work) -> None:
        """Do what is due: called often, must be cheap when nothing is."""
        ...

    def end_batch(self, work: Work) -> None:
        """Last chance to change or send something before the batch is written."""
        ...

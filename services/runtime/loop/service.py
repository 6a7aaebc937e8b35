"""The interface between the loop and a service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from schemas.codec import codec
from schemas.topics import CHANGELOGS, DEAD_LETTERS, Topic
from services.domain.errors import InvalidMessageError
from services.log.port import MAX_CHANGE_MESSAGE_BYTES, MAX_LETTER_MESSAGE_BYTES, MAX_MESSAGE_BYTES
from services.storage.store import Store
from services.storage.tables import RowCache, TableDefinition, TablesReader, UnitOfWork

_FRAME_BYTES = 1_024
"""Most bytes that a broker counts to a message beside its own: the head of a batch, the key."""
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
    """Log append time."""
    record: Any
    value: bytes = b""
    """The message's bytes, which a signature covers."""


class OutgoingMessage(NamedTuple):
    """One encoded output."""

    topic: str
    value: bytes
    key: bytes = b""


def fitting(topic: Topic, value: bytes, key: bytes = b"") -> OutgoingMessage:
    """Return an output of these bytes. The broker always refuses one that is larger than its topic accepts,
    and that would block the outbox.

    Raises:
        InvalidMessageError: it is too large. The loop dead-letters the message that caused it.
    """
    if len(value) > _LARGEST_BYTES:
        largest = _LARGEST_OF.get(topic.name, _LARGEST_BYTES)
        if len(value) > largest:
            raise InvalidMessageError(
                f"a message of {len(value)} bytes for {topic.name} would come of it; {largest} are the most"
            )
    return OutgoingMessage(topic.name, value, key)


class Work(UnitOfWork):
    """A unit of work of a service: changes of its tables and the messages that they cause."""

    def __init__(self, shard: int, store: Store, cache: RowCache) -> None:
        super().__init__(store, cache)
        self.shard = shard
        self.store = store
        self.inputs: Sequence[Message] = ()
        """Messages that this unit applies unless it reaches a limit: a service can read their rows together."""
        self.messages: list[OutgoingMessage] = []
        self.is_caught_up = True
        """Whether the service has applied all that the log held when it started; until then its state is old."""
        self.has_read_all: Callable[[Topic], bool] = lambda _: False
        """Asks the broker whether the service has applied all that an input has; false if the broker does not answer
        within half a second."""
        self._messages_before = 0

    def send(self, topic: Topic, record: Any, key: bytes = b"") -> None:
        """Send a record to the shard's partition of a topic, once this unit of work is written."""
        self.messages.append(fitting(topic, codec(topic.record).encode_message(record), key))

    def send_encoded(self, topic: Topic, message: bytes) -> None:
        """Send a message of the topic that was encoded before, as ``send`` does."""
        self.messages.append(fitting(topic, message))

    def begin_message(self) -> None:
        """Begin the next message: ``undo_message`` undoes the changes from here on."""
        super().begin_message()
        self._messages_before = len(self.messages)

    def undo_message(self) -> None:
        """Undo the changes and the outputs of the present message."""
        super().undo_message()
        del self.messages[self._messages_before :]


class Service(Protocol):
    """One shard of one service. Its only IO is its unit of work.

    Its state in memory must be derivable from its tables: the loop calls ``restore`` at the start and whenever it
    discards a unit of work.
    """

    @property
    def name(self) -> str:
        """Name of the service, as topics name it."""

    @property
    def inputs(self) -> Sequence[Topic]:
        """Topics that the service reads."""

    @property
    def tables(self) -> Sequence[TableDefinition[Any]]:
        """The service's own tables."""

    def restore(self, tables: TablesReader) -> None:
        """Rebuild the state in memory from the committed tables."""

    def stands_alone(self, message: Message) -> bool:
        """Return whether a message must be alone in its batch."""

    def apply(self, message: Message, work: Work) -> None:
        """Carry out one message.

        Raises:
            InvalidMessageError: the message can never be applied; the loop dead-letters it.
            HalfAppliedError: the message can never be applied, and ``undo_message`` would undo only a part of it; the
                loop applies the messages of the unit of work one by one.
        """

    def tick(self, now_ms: int, work: Work) -> None:
        """Do the work that is due. It is called often, and must be cheap when nothing is due."""

    def end_batch(self, work: Work) -> None:
        """Make the last changes and outputs before the batch is written."""


def read_topics(service: Service) -> list[str]:
    """Return the topics that a service reads, at its start its changelog among them."""
    changelog = CHANGELOGS.get(service.name)
    return [topic.name for topic in (*service.inputs, *((changelog,) if changelog else ()))]

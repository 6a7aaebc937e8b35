"""A service on a harness: its real tables over a store in memory; all that it sends is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from schemas.codec import codec
from schemas.records import MetadataCommand
from schemas.topics import BY_NAME, Topic
from services.domain.errors import InvalidMessageError
from services.runtime.loop.service import Message, Service, Work
from services.storage.memory import MemoryStore
from services.storage.tables import RowCache, TableDefinition, TablesReader

START_MS = 1_700_000_000_000
SHARD = 0
V = TypeVar("V")
Sent = tuple[Topic, Any]


@dataclass
class Harness:
    """One shard of one service. With ``is_restored`` it is thrown away and made anew before every unit of work."""

    make: Callable[[], Service]
    is_restored: bool = False
    now_ms: int = START_MS
    sent: list[Sent] = field(default_factory=list)
    refused: list[Any] = field(default_factory=list)
    store: MemoryStore = field(default_factory=MemoryStore)
    has_read_all: bool = False
    """What the broker says of the ends of the topics."""

    def __post_init__(self) -> None:
        self._offset = 0
        self.restart()

    def restart(self) -> None:
        """Throw the service away and make it anew on its tables."""
        self.service = self.make()
        self._cache = RowCache()
        self.service.restore(TablesReader(self.store))

    def give(self, *inputs: Sent) -> list[Sent]:
        """Apply some messages in one unit of work, as the loop does; says what was sent."""
        if self.is_restored:
            self.restart()
        work = Work(SHARD, self.store, self._cache)
        work.has_read_all = lambda _: self.has_read_all
        for topic, record in inputs:
            encoder = codec(topic.record)
            decoded = encoder.decode(encoder.encode(record))
            work.begin_message()
            try:
                self.service.apply(Message(topic, self._offset, self.now_ms, decoded), work)
            except InvalidMessageError:
                work.undo_message()
                self.refused.append(record)
            self._offset += 1
        work.begin_message()
        self.service.tick(self.now_ms, work)
        self.service.end_batch(work)
        sent = [_decoded(message.topic, message.value) for message in work.messages]
        work.write()
        self.sent += sent
        return sent

    def wait(self, milliseconds: int) -> list[Sent]:
        """Let time pass; says what was sent then."""
        self.now_ms += milliseconds
        return self.give()

    def rows(self, definition: TableDefinition[V]) -> list[V]:
        """Committed rows of a table."""
        return [row for _, row in TablesReader(self.store).table(definition).scan(b"", b"\xff")]


def _decoded(topic: str, value: bytes) -> Sent:
    return BY_NAME[topic], codec(BY_NAME[topic].record).decode_message(value)


def bodies(sent: list[Sent], kind: type[V]) -> list[V]:
    """The bodies of one kind among sent messages."""
    found = [getattr(record, "body", record) for _, record in sent]
    return [body for body in found if isinstance(body, kind)]


def only(sent: list[Sent], kind: type[V]) -> V:
    """The body of the one sent message, which is of this kind."""
    assert len(sent) == 1, sent
    (body,) = bodies(sent, kind)
    return body


def senders(sent: list[Sent]) -> set[str]:
    """Who is named as the sender of commands to metadata."""
    return {record.sender for _, record in sent if isinstance(record, MetadataCommand)}

"""A service that keeps in memory what follows from its tables, and reads it again when a message has failed."""

from __future__ import annotations

from abc import ABC, abstractmethod

from services.runtime.loop.service import Message, Work
from services.storage.tables import TablesReader


class RememberingService(ABC):
    """The part of a service that keeps its memory equal to its tables.

    When a message fails the loop undoes its changes to the tables. Memory may be ahead of them then, so it is read
    again before it is used again.
    """

    _is_memory_ahead = False

    def restore(self, tables: TablesReader) -> None:
        """Read memory from the committed tables."""
        self._read_again(tables)

    def stands_alone(self, message: Message) -> bool:  # noqa: ARG002 no message needs it
        """No message needs a batch of its own."""
        return False

    def apply(self, message: Message, work: Work) -> None:
        """Carry out one message."""
        if self._is_memory_ahead:
            self._read_again(work)
        self._is_memory_ahead = True  # until the message is carried out
        self.carry_out(message, work)
        self._is_memory_ahead = False

    def tick(self, now_ms: int, work: Work) -> None:
        """Do what is due."""
        if self._is_memory_ahead:
            self._read_again(work)
        self.do_due(now_ms, work)

    def _read_again(self, tables: Work | TablesReader) -> None:
        self.read_memory(tables)
        self._is_memory_ahead = False

    @abstractmethod
    def read_memory(self, tables: Work | TablesReader) -> None:
        """Read from the tables everything that is kept in memory."""

    @abstractmethod
    def carry_out(self, message: Message, work: Work) -> None:
        """Carry out one message.

        Raises:
            InvalidMessageError: it can never be carried out; it goes to the dead letters.
        """

    @abstractmethod
    def do_due(self, now_ms: int, work: Work) -> None:
        """Do what is due: called often, must be cheap when nothing is."""

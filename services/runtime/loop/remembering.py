"""A service that keeps state derived from its tables in memory, and reads it again after a message has failed."""

from __future__ import annotations

from abc import ABC, abstractmethod

from services.runtime.loop.service import Message, Work
from services.storage.tables import Tables, TablesReader


class RememberingService(ABC):
    """The part of a service that keeps its memory equal to its tables.

    When a message fails, the loop undoes its changes to the tables, but not those in memory. So memory is read again
    before the next message or tick.
    """

    _is_memory_ahead = False

    def restore(self, tables: TablesReader) -> None:
        """Read memory from the committed tables."""
        self._read_again(tables)

    def stands_alone(self, message: Message) -> bool:  # noqa: ARG002 no message needs it
        """Return False: no message needs a batch of its own."""
        return False

    def apply(self, message: Message, work: Work) -> None:
        """Carry out one message."""
        if self._is_memory_ahead:
            self._read_again(work)
        self._is_memory_ahead = True  # until the message is carried out
        self.carry_out(message, work)
        self._is_memory_ahead = False

    def tick(self, now_ms: int, work: Work) -> None:
        """Do the work that is due."""
        if self._is_memory_ahead:
            self._read_again(work)
        self.do_due(now_ms, work)

    def _read_again(self, tables: Tables) -> None:
        self.read_memory(tables)
        self._is_memory_ahead = False

    @abstractmethod
    def read_memory(self, tables: Tables) -> None:
        """Replace the state in memory with the state of the tables."""

    @abstractmethod
    def carry_out(self, message: Message, work: Work) -> None:
        """Carry out one message, as ``Service.apply`` does."""

    @abstractmethod
    def do_due(self, now_ms: int, work: Work) -> None:
        """Do the work that is due. It is called often, and must be cheap when nothing is due."""

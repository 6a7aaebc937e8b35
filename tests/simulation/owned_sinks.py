"""Sinks of owners, as over a broker: what is published is seen as a whole or not at all, and a former owner is refused.

A transaction is decided when its end was asked for: until then the death of the process, or another owner, aborts it;
afterwards nobody knows before the next owner has started. An aborted one leaves nothing but offsets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from services.domain.errors import FencedError, RetryableError, StartAgainError
from services.log.memory import MemoryLog
from services.log.port import Headers, Sink
from tests.simulation.faults import Address, Faults, FaultyLog, Sent


@dataclass(slots=True)
class Owners:
    """Who publishes for each shard of each service, as the broker knows it."""

    sinks: dict[str, OwnedSink] = field(default_factory=dict)
    """By owner's name the sink that was opened last."""
    before_next: Callable[[], None] | None = None
    """What happens just before the next one is opened; once."""
    after_last: Callable[[], None] | None = None
    """What happens when the one before it can publish nothing any more; once."""
    refused: int = 0
    """Messages of former owners."""
    aborted: int = 0
    """Messages of transactions that did not end."""

    def open(self, owner: str, log: MemoryLog, faults: Faults) -> OwnedSink:
        """Let another sink publish for an owner, and nobody else from now on."""
        before, after = self.before_next, self.after_last
        self.before_next = self.after_last = None
        if before is not None:
            before()
        if owner in self.sinks:
            self.sinks[owner].fence()
        if after is not None:
            after()
        self.sinks[owner] = OwnedSink(log, faults, owner, self)
        return self.sinks[owner]


class OwnedLog(FaultyLog):
    """The log as one process sees it that publishes for the owner of a shard."""

    def __init__(self, log: MemoryLog, faults: Faults, address: Address, owners: Owners) -> None:
        super().__init__(log, faults, address)
        self._owners = owners

    def open_sink(self, owner: str = "") -> Sink:
        """A sink of its own, which fences the owner's earlier ones; without a name as over any log."""
        if not owner:
            return super().open_sink()
        self._faults.looks_at_log()
        return self._owners.open(owner, self._partitions, self._faults)


class OwnedSink:
    """Publishes in transactions."""

    def __init__(self, log: MemoryLog, faults: Faults, owner: str, owners: Owners) -> None:
        self._log = log
        self._faults = faults
        self._owner = owner
        self._owners = owners
        self._messages: list[Sent] = []
        """Those of the transaction that is open, or ending."""
        self._is_ending = False
        self._is_fenced = False
        self._is_refused = False
        """Whether it has heard of that."""

    def send(self, topic: str, partition: int, value: bytes, key: bytes = b"", headers: Headers = ()) -> None:
        """Send a message within the transaction; wait for the end of the last one first."""
        self._await_end()
        self._messages.append((topic, partition, value, key, headers))
        if self._is_fenced and self._faults.random.random() < 0.3:  # else it hears of it at the end
            self._refuse()

    def start_flush(self) -> None:
        """Ask for the end of the transaction, which may come at once."""
        if not self._messages:
            return
        self._is_ending = True
        if not self._is_fenced and (not self._faults.are_on or self._faults.random.random() < 0.5):
            self._commit()

    def flush(self) -> None:
        """Wait for the end of the transaction; now and then nobody says what has become of it."""
        self.start_flush()
        self._await_end()

    def _await_end(self) -> None:
        if self._is_refused or (self._is_fenced and self._is_ending):
            self._refuse()
        if not self._is_ending:
            return
        if not self._faults.is_unacknowledged():
            self._commit()
        elif self._faults.random.random() < 0.5:
            self._abort()
            raise RetryableError("the transaction was aborted")
        else:
            raise StartAgainError("nobody knows how the transaction has ended")

    def fence(self) -> None:
        """Another owner starts: end the transaction that is left, and refuse all others."""
        if self._is_ending and self._faults.random.random() < 0.5:
            self._commit()
        else:
            aborted = list(self._messages)
            self._abort()
            self._messages = aborted  # the former owner waits for their end, and will be refused
        self._is_fenced = True

    def _commit(self) -> None:
        for message in self._messages:
            self._log.append(*message)
        self._leave_control_records(1)

    def _abort(self) -> None:
        self._owners.aborted += len(self._messages)
        self._leave_control_records(self._faults.random.randint(1, 3))

    def _leave_control_records(self, each: int) -> None:
        """Leave so many offsets in each partition that are no messages."""
        for place in sorted({message[:2] for message in self._messages}):
            for _ in range(each):
                self._log.append_control_record(*place)
        self._messages.clear()
        self._is_ending = False

    def _refuse(self) -> None:
        self._owners.refused += len(self._messages)
        self._messages.clear()
        self._is_refused = True
        raise FencedError(f"another process publishes for {self._owner} since: end this one")

    def close(self) -> None:
        """Leave what is open to the next owner."""

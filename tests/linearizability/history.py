"""What clients asked, when, and what they were answered."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Put:
    """Commit a key; the tag is that of no other put."""

    path: str
    tag: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a key."""

    path: str


@dataclass(frozen=True, slots=True)
class DeleteTree:
    """Delete a directory with all that is below it."""

    path: str


@dataclass(frozen=True, slots=True)
class Rename:
    """Rename a key."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class RenameTree:
    """Rename a directory, and so all that is below it."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Undelete:
    """Bring the deleted version with a tag back to a path."""

    path: str
    tag: str


@dataclass(frozen=True, slots=True)
class Stat:
    """Look one key up: its tag."""

    path: str


@dataclass(frozen=True, slots=True)
class ListKeys:
    """List all keys: path and tag of each."""


@dataclass(frozen=True, slots=True)
class CreateSnapshot:
    """Take a snapshot."""

    name: str


@dataclass(frozen=True, slots=True)
class Capture:
    """First half of a snapshot's creation: it holds the keys of this moment, and has no name yet."""

    number: int


@dataclass(frozen=True, slots=True)
class Name:
    """Second half of a snapshot's creation: whoever asks finds it."""

    number: int
    name: str


@dataclass(frozen=True, slots=True)
class DeleteSnapshot:
    """Delete a snapshot."""

    name: str


@dataclass(frozen=True, slots=True)
class ListSnapshot:
    """List all keys as a snapshot shows them."""

    name: str


Write = Put | Delete | DeleteTree | Rename | RenameTree | Undelete | CreateSnapshot | Capture | Name | DeleteSnapshot
Read = Stat | ListKeys | ListSnapshot
Call = Write | Read
Keys = frozenset[tuple[str, str]]
"""Path and tag of each key."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer."""

    error: str = ""
    seen: Keys = frozenset()
    """What a read has shown; of a look-up one key or none."""


@dataclass(slots=True)
class Operation:
    """One call of one client."""

    number: int
    client: int
    call: Call
    invoked: int
    """Moment of the history at which it began; moments are counted, not measured."""
    returned: int | None = None
    """Moment at which its answer came; None as long as nobody knows whether it took effect."""
    outcome: Outcome | None = None

    @property
    def changes_nothing(self) -> bool:
        """Whether it is a read, or was refused."""
        return isinstance(self.call, Read) or (self.outcome is not None and bool(self.outcome.error))

    def __str__(self) -> str:
        end = "?" if self.returned is None else self.returned
        return f"{self.invoked:>5} to {end:>5}  client {self.client}  {self.call} -> {self.outcome}"


@dataclass(slots=True)
class History:
    """All calls on one bucket. Safe to use from several threads."""

    operations: list[Operation] = field(default_factory=list)
    _moments: itertools.count[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def invoke(self, client: int, call: Call) -> Operation:
        """A call begins."""
        with self._lock:
            operation = Operation(len(self.operations), client, call, next(self._moments))
            self.operations.append(operation)
            return operation

    def answer(self, operation: Operation, outcome: Outcome) -> None:
        """The answer to a call has come."""
        with self._lock:
            operation.outcome, operation.returned = outcome, next(self._moments)

    def in_halves(self) -> list[Operation]:
        """The calls, with each creation of a snapshot that was not refused in its halves.

        metadata captures a snapshot, and snapshots then gives it its name: both happen between the call and its
        answer, and what others write and read may come in between.
        """
        halves: list[Operation] = []
        for one in self.operations:
            if isinstance(one.call, CreateSnapshot) and (one.outcome is None or not one.outcome.error):
                # Numbers below zero are those of no call.
                halves.append(replace(one, number=-1 - 2 * one.number, call=Capture(one.number)))
                halves.append(replace(one, number=-2 - 2 * one.number, call=Name(one.number, one.call.name)))
            else:
                halves.append(one)
        return halves

    def __str__(self) -> str:
        return "\n".join(map(str, self.operations))

"""The requests of clients by which versions died: from metadata's log, joined with its answers."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from schemas.records import Committed, MetadataCommand, MetadataReply
from schemas.topics import METADATA_COMMANDS
from services.log.port import LogRecord
from services.tracing.steps import Station, Step, Version

MOST_PATHS = 200_000
"""Paths that the remembered requests name, before and after their answers: some 30 MB. A way whose request is forgotten
begins when metadata publishes it."""


@dataclass(frozen=True, slots=True)
class Request:
    """A command that a client has sent."""

    name: str
    """Its kind, such as ``DeleteKey``."""
    time_ms: int
    offset: int
    volume: str
    bucket: str
    paths: tuple[str, ...]
    """Paths that it names; empty for one that names none."""
    user: str
    object_id: int = 0
    """What metadata's answer names; 0 for none."""


K = TypeVar("K")


@dataclass(slots=True)
class _Remembered(Generic[K]):
    """Requests by a key, the first ones forgotten when all together name too many paths."""

    by_key: OrderedDict[K, Request] = field(default_factory=OrderedDict)
    paths: int = 0

    def add(self, key: K, request: Request) -> None:
        if key in self.by_key:  # a repeat came later
            return
        self.by_key[key] = request
        self.paths += _cost(request)
        while self.paths > MOST_PATHS:
            self.paths -= _cost(self.by_key.popitem(last=False)[1])

    def pop(self, key: K) -> Request | None:
        request = self.by_key.pop(key, None)
        self.paths -= _cost(request) if request else 0
        return request


@dataclass(slots=True)
class Requests:
    """The requests of one shard, by the txn at which metadata has applied them."""

    _sent: _Remembered[tuple[str, int]] = field(default_factory=_Remembered)
    _answered: _Remembered[int] = field(default_factory=_Remembered)

    def note(self, record: LogRecord, message: Any) -> None:
        """Remember a request, or that it was applied."""
        match message:
            case MetadataCommand(client_id=str(client), number=number, sender="") if client:
                self._sent.add((client, number), _request(record, message))
            case MetadataReply(client_id=str(client), number=number, txn=txn) if client:
                request = self._sent.pop((client, number))
                if request is not None and txn:
                    self._note_answer(request, txn, message.committed)
            case _:
                pass

    def _note_answer(self, request: Request, txn: int, committed: Committed | None) -> None:
        if committed is not None and committed.keys_put is not None:  # each path has a txn, and the answer the last one
            for its_txn, path in enumerate(request.paths, start=txn - len(request.paths) + 1):
                self._answered.add(its_txn, replace(request, paths=(path,)))
        else:
            self._answered.add(txn, replace(request, object_id=committed.object_id if committed else 0))

    def at(self, txn: int) -> Request | None:
        """Return the request that was applied at a txn; None if no client has sent it, or it is not remembered."""
        return self._answered.by_key.get(txn)

    def step_of(self, version: Version) -> Step | None:
        """Return the first step of a version's way: the request by which it died; None if that is not known."""
        request = self.at(version.death)
        if request is None:
            return None
        return Step(version, Station.REQUESTED, request.time_ms, METADATA_COMMANDS.name, request.offset)


def _request(record: LogRecord, command: MetadataCommand) -> Request:
    body = command.body
    one = next((text for name in ("key", "directory", "path") if (text := getattr(body, name, ""))), "")
    paths = (one,) if one else tuple(getattr(body, "keys", ()))
    names = getattr(body, "volume", ""), getattr(body, "bucket", "")
    return Request(type(body).__name__, record.timestamp_ms, record.offset, *names, paths, command.user)


def _cost(request: Request) -> int:
    return 1 + len(request.paths)

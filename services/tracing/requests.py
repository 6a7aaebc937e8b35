"""The requests of clients by which versions died: from metadata's log, joined with its answers."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from schemas.records import MetadataCommand, MetadataReply
from schemas.topics import METADATA_COMMANDS
from services.log.port import LogRecord
from services.tracing.steps import Station, Step, Version

MOST_REQUESTS = 200_000
"""Requests and answers that are remembered. A way whose request is forgotten begins when metadata publishes it."""


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


@dataclass(slots=True)
class Requests:
    """The requests of one shard, by the txn at which metadata has applied them."""

    _sent: OrderedDict[tuple[str, int], Request] = field(default_factory=OrderedDict)
    _answered: OrderedDict[int, MetadataReply] = field(default_factory=OrderedDict)

    def note(self, record: LogRecord, message: Any) -> None:
        """Remember a request, or an answer to one."""
        match message:
            case MetadataCommand(client_id=str(client), number=number, sender="") if client:
                self._sent.setdefault((client, number), _request(record, message))  # a repeat came later
                _forget(self._sent)
            case MetadataReply(client_id=str(client), txn=txn) if client and txn:
                self._answered.setdefault(txn, message)
                _forget(self._answered)
            case _:
                pass

    def at(self, txn: int) -> Request | None:
        """Return the request that was applied at a txn; None if no client has sent it, or it is not remembered."""
        reply = self._answered.get(txn)
        return None if reply is None else self._sent.get((reply.client_id, reply.number))

    def step_of(self, version: Version) -> Step | None:
        """Return the first step of a version's way: the request by which it died; None if that is not known."""
        request = self.at(version.death)
        if request is None:
            return None
        return Step(version, Station.REQUESTED, request.time_ms, METADATA_COMMANDS.name, request.offset)

    def object_id(self, txn: int) -> int:
        """Return the objectID that metadata's answer names; 0 for none."""
        reply = self._answered.get(txn)
        return reply.committed.object_id if reply is not None and reply.committed is not None else 0


def _request(record: LogRecord, command: MetadataCommand) -> Request:
    body = command.body
    one = next((text for name in ("key", "directory", "path") if (text := getattr(body, name, ""))), "")
    paths = (one,) if one else tuple(getattr(body, "keys", ()))
    names = getattr(body, "volume", ""), getattr(body, "bucket", "")
    return Request(type(body).__name__, record.timestamp_ms, record.offset, *names, paths, command.user)


def _forget(remembered: OrderedDict[Any, Any]) -> None:
    if len(remembered) > MOST_REQUESTS:
        remembered.popitem(last=False)

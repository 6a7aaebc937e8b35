"""Copies of databases that services are asked for, and that are deleted when nobody reads them any more."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator

from schemas.answers import AuditCopy
from services.client.wire.http_reads import HttpShard
from services.domain.errors import DeepcleanError

_PATH = "/audit-copies"


@contextlib.contextmanager
def asked_copies(services: Collection[HttpShard], audit_id: str) -> Iterator[Callable[[HttpShard, str], AuditCopy]]:
    """Yield a function that has one of these services make a copy of a name. All copies are deleted at the end."""

    def copy(service: HttpShard, name: str) -> AuditCopy:
        return service.ask_for("POST", _PATH, AuditCopy, {"audit_id": audit_id, "name": name})

    try:
        yield copy
    finally:
        for service in services:
            with contextlib.suppress(DeepcleanError):
                service.ask_for("DELETE", _PATH, bool, {"audit_id": audit_id})

"""Copies of a shard's database for audits: requested over HTTP, kept until the audit removes them or they are too old.

``services.runtime.copies.kept_copies`` describes their place and their removal.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import Field
from starlette.routing import Route

from schemas.answers import AuditCopy
from services.runtime.copies.kept_copies import AUDITS, DAY_SECONDS, KeptCopies
from services.runtime.http.reads import Asked, ReadError, ReadRoute, Stores
from services.storage.rocks import RocksStore

MAX_AUDITS = 4
"""Most audits of one shard that have copies at a time: each copy keeps files that compaction has replaced."""
MAX_COPIES = 4
"""Most copies of one audit in one service: an audit needs two of the inventory."""
Name = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")]

MakeCopy = Callable[[RocksStore, Path], AuditCopy]
"""Makes a copy below a directory and returns its description."""


def audit_routes(stores: Stores, make: MakeCopy) -> list[Route]:
    """Return the routes that make the copy ``name`` of an audit and that remove all copies of an audit."""

    def made(asked: Asked, audit_id: Name, name: Name) -> AuditCopy:
        """Make a copy of the database for an audit."""
        store = _rocks(asked)
        directory = _directory_of(store) / audit_id / name
        if directory.exists():
            raise ReadError("INVALID_REQUEST", f"audit {audit_id} has a copy {name} already")
        _require_room(directory)
        try:
            return make(store, directory)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    def given_back(asked: Asked, audit_id: Name) -> bool:
        """Remove all copies of an audit; false when it has none."""
        return _kept(_directory_of(_rocks(asked))).remove(audit_id)

    return [
        ReadRoute("/audit-copies", stores, made, method="POST"),
        ReadRoute("/audit-copies", stores, given_back, method="DELETE"),
    ]


def _directory_of(store: RocksStore) -> Path:
    return store.path.parent / AUDITS


def _rocks(asked: Asked) -> RocksStore:
    if not isinstance(asked.store, RocksStore):
        raise ReadError("INVALID_REQUEST", "this shard is kept in memory: there are no files to be copied")
    return asked.store


def _kept(directory: Path) -> KeptCopies:
    return KeptCopies(directory, DAY_SECONDS)


def _require_room(wanted: Path) -> None:
    """Remove copies that are too old. Raise ReadError when too many others remain, StoreError for the disk."""
    audit = wanted.parent
    audits = _kept(audit.parent).others(audit.name)
    copies = _kept(audit).others(wanted.name)
    if audits >= MAX_AUDITS:
        raise ReadError(
            "AUDITS_RUNNING",
            f"{audits} audits of this shard have copies: let one end, or give its copies back (DELETE "
            f"/audit-copies); a day after they were made they are removed",
        )
    if copies >= MAX_COPIES:
        raise ReadError("TOO_MANY_COPIES", f"audit {audit.name} has {copies} copies: give them back, and audit again")

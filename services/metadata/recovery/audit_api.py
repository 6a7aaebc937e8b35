"""The copy of metadata that an audit reads: the database as a whole, and the checkpoint of each snapshot live in it."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from starlette.routing import Route

from schemas.answers import AuditCopy
from services.metadata.reads.queries import shard_state
from services.metadata.recovery.digest import live_snapshot_ids
from services.runtime.copies.audit_copies import audit_routes
from services.runtime.http.reads import ReadError, Stores, closing_reader
from services.storage.rocks import RocksStore
from services.storage.rocks_checkpoints import directory_name

MAX_ATTEMPTS = 5


class _SnapshotDroppedError(Exception):
    """A snapshot went while the copies were made."""


def routes(stores: Stores) -> list[Route]:
    """Making and giving back copies."""
    return audit_routes(stores, make_copy)


def make_copy(store: RocksStore, directory: Path) -> AuditCopy:
    """Copy the database, then the checkpoints of the snapshots that are live in the copy.

    The other way round, one that is taken in between would be missing; this way one that is dropped in between is, and
    then all is done again: dropping is rare beside the moment that this takes.
    """
    for _ in range(MAX_ATTEMPTS):
        with contextlib.suppress(_SnapshotDroppedError):
            return _make_copy(store, directory)
        shutil.rmtree(directory, ignore_errors=True)
    raise ReadError(
        "UNAVAILABLE", f"snapshots were dropped during each of {MAX_ATTEMPTS} attempts to copy them: audit again"
    )


def _make_copy(store: RocksStore, directory: Path) -> AuditCopy:
    # Most checkpoints first: what is then left to be copied behind the database is what was taken meanwhile.
    copied: dict[str, str] = {}
    with closing_reader(store.reading()) as tables:
        before = live_snapshot_ids(tables)
    for snapshot_id in before:
        with contextlib.suppress(KeyError):
            _copy_checkpoint(store, snapshot_id, directory, copied)
    namespace = directory / "namespace"
    with closing_reader(store.copy_to(namespace)) as tables:
        txn, live = shard_state(tables).txn, live_snapshot_ids(tables)
    for snapshot_id in live:
        if snapshot_id not in copied:
            try:
                _copy_checkpoint(store, snapshot_id, directory, copied)
            except KeyError:
                raise _SnapshotDroppedError from None
    return AuditCopy(str(namespace), txn, copied)


def _copy_checkpoint(store: RocksStore, snapshot_id: str, directory: Path, copied: dict[str, str]) -> None:
    target = directory / "snapshots" / directory_name(snapshot_id)
    store.copy_checkpoint(snapshot_id, target)
    copied[snapshot_id] = str(target)

"""The copy of metadata that an audit reads: the whole database, and the checkpoint of each snapshot live in it."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from schemas.answers import AuditCopy
from services.metadata.reads.queries import shard_state
from services.metadata.recovery.digest import live_snapshot_ids
from services.runtime.http.reads import ReadError, closing_reader
from services.storage.rocks import RocksStore
from services.storage.rocks_checkpoints import directory_name

MAX_ATTEMPTS = 5


class _SnapshotDroppedError(Exception):
    """A snapshot was dropped while the copies were made."""


def make_copy(store: RocksStore, directory: Path) -> AuditCopy:
    """Copy the database, then the checkpoints of the snapshots that are live in the copy.

    In the reverse order, a snapshot captured in between would be missing. In this order, a snapshot dropped in between
    is missing, and the copy is made again: drops are rare, and a copy takes only a moment.

    Raises:
        ReadError: UNAVAILABLE, snapshots were dropped during each of ``MAX_ATTEMPTS`` attempts.
    """
    for _ in range(MAX_ATTEMPTS):
        with contextlib.suppress(_SnapshotDroppedError):
            return _make_copy(store, directory)
        shutil.rmtree(directory, ignore_errors=True)
    raise ReadError(
        "UNAVAILABLE", f"snapshots were dropped during each of {MAX_ATTEMPTS} attempts to copy them: audit again"
    )


def _make_copy(store: RocksStore, directory: Path) -> AuditCopy:
    # Copy the known checkpoints first, so that only those captured meanwhile remain to be copied after the database.
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

"""Finds the oldest unfinished operation of a shard: the log is never trimmed past its beginning.

RocksDB keeps its write-ahead logs for prepared transactions by the same rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from services.domain.table_keys import death_of_key
from services.metadata.checkpoints.rollback import is_finished
from services.metadata.collecting.claims import claim_txn
from services.metadata.state.tables import (
    RECLAIM_TABLE,
    ROLLBACK_TABLE,
    TRANSACTION_INFO_KEY,
    TRANSACTION_INFO_TABLE,
    UNEXPANDED_TABLE,
)
from services.storage.store import Reader
from services.storage.tables import TablesReader


def oldest_unfinished_txn(reader: Reader) -> int | None:
    """Return the txn of the oldest unconfirmed claim, unfinished rollback or unexpanded directory; None for none."""
    return min(_unfinished(TablesReader(reader)), default=None)


def _unfinished(tables: TablesReader) -> Iterator[int]:
    for _, claimed in tables.table(RECLAIM_TABLE).scan(b"/", b"0"):
        yield claim_txn(claimed)
    for _, rollback in tables.table(ROLLBACK_TABLE).scan(b"/", b"0"):
        if not is_finished(rollback):
            yield rollback.snapshot_txn
    for key, _ in tables.table(UNEXPANDED_TABLE).scan(b"/", b"0"):
        yield death_of_key(key)


def first_offset_of_txn(reader: Reader, txn: int) -> int:
    """Return an offset of metadata.commands at or before the command of a txn.

    A message takes an offset, and a command at most one txn beside those that ``skipped_txns`` counts, so
    txn - 1 - offset <= skipped_txns. The offset may be far before the command: by the messages before it that got no
    txn, and by the further txns that commands have got since.
    """
    state = TablesReader(reader).table(TRANSACTION_INFO_TABLE).get(TRANSACTION_INFO_KEY)
    return max(0, txn - 1 - (state.skipped_txns if state else 0))

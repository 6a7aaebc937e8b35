"""Reads of the mock storage container manager."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from schemas.answers import ScmTotals
from schemas.records import BlockRun
from services.domain.table_keys import local_id_txn
from services.mock_scm.inventory import scm_state
from services.mock_scm.tables import (
    DELAYED_DELETION_TABLE,
    DELETED_BLOCKS_TABLE,
    INVENTORY_TABLE,
    WAITING_DELETION_TABLE,
    inventory_key,
)
from services.storage.tables import TableDefinition, TablesReader


def exist(tables: TablesReader, runs: Iterable[BlockRun]) -> list[bool]:
    """Return for each run of blocks whether it is in the store."""
    table = tables.table(INVENTORY_TABLE)
    rows = ((run, table.get(inventory_key(run.container_id, run.first_local_id))) for run in runs)
    return [row is not None and row.blocks == run for run, row in rows]


def totals(tables: TablesReader) -> ScmTotals:
    """Return sums over the inventory, and the number of pending deletions."""
    state = scm_state(tables)
    return ScmTotals(
        mark_txn=local_id_txn(state.mark_local_id),
        inventory_bytes=state.inventory_bytes,
        inventory_blocks=state.inventory_blocks,
        deleted_bytes=state.deleted_bytes,
        deleted_blocks=state.deleted_blocks,
        waiting_deletions=pending_deletions(tables),
    )


def pending_deletions(tables: TablesReader) -> int:
    """Return the number of deletions that wait for their blocks or time, and of rows left for the datanodes."""
    deletions: tuple[TableDefinition[Any], ...] = (WAITING_DELETION_TABLE, DELAYED_DELETION_TABLE, DELETED_BLOCKS_TABLE)
    return sum(1 for table in deletions for _ in tables.table(table).scan())

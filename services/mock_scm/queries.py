"""Reads of the mock storage container manager, for its HTTP interface and for tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from schemas.answers import ScmTotals
from schemas.records import BlockRun, ContainerRow, InventoryRow
from services.domain.table_keys import local_id_txn
from services.mock_scm.inventory import scm_state
from services.mock_scm.tables import (
    CONTAINER_TABLE,
    DELAYED_DELETION_TABLE,
    DELETED_BLOCKS_TABLE,
    INVENTORY_TABLE,
    WAITING_DELETION_TABLE,
    inventory_key,
)
from services.storage.tables import TableDefinition, TablesReader


@dataclass(frozen=True, slots=True)
class BucketInventory:
    """The blocks of one bucket in the store."""

    bucket_id: int
    size_bytes: int
    block_count: int
    run_count: int


@dataclass(frozen=True, slots=True)
class InventoryPage:
    """Some runs of the inventory, and the key at which the next page starts; empty if there is none."""

    rows: tuple[InventoryRow, ...]
    next_key: bytes


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


def containers(tables: TablesReader) -> list[ContainerRow]:
    """Return every container, oldest first."""
    return [row for _, row in tables.table(CONTAINER_TABLE).scan()]


def pending_deletions(tables: TablesReader) -> int:
    """Return the number of deletions that wait for their blocks or time, and of rows left for the datanodes."""
    tables_of_deletions: tuple[TableDefinition[Any], ...] = (
        WAITING_DELETION_TABLE,
        DELAYED_DELETION_TABLE,
        DELETED_BLOCKS_TABLE,
    )
    return sum(1 for table in tables_of_deletions for _ in tables.table(table).scan())


def by_bucket(tables: TablesReader) -> dict[int, BucketInventory]:
    """Return the blocks of each bucket in the store. It reads the whole inventory."""
    found: dict[int, BucketInventory] = {}
    for _, row in tables.table(INVENTORY_TABLE).scan():
        before = found.get(row.bucket_id) or BucketInventory(row.bucket_id, 0, 0, 0)
        found[row.bucket_id] = BucketInventory(
            row.bucket_id,
            before.size_bytes + row.blocks.size_bytes,
            before.block_count + row.blocks.block_count,
            before.run_count + 1,
        )
    return found


def inventory_page(tables: TablesReader, start_key: bytes = b"", max_rows: int = 1_000) -> InventoryPage:
    """Return at most ``max_rows`` runs of the inventory, by container and local id, from ``start_key`` on."""
    rows: list[InventoryRow] = []
    for key, row in tables.table(INVENTORY_TABLE).scan(start_key):
        if len(rows) == max_rows:
            return InventoryPage(tuple(rows), key)
        rows.append(row)
    return InventoryPage(tuple(rows), b"")

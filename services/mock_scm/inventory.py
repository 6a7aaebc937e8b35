"""The blocks of one shard: what was written, what was deleted, and in which containers."""

from __future__ import annotations

from dataclasses import replace

import structlog

from schemas.records import (
    BlockGroup,
    BlockRun,
    BlocksWritten,
    ContainerRow,
    DeletedBlocksRow,
    InventoryRow,
    ScmState,
)
from services.mock_scm.metrics import GroupOutcome
from services.mock_scm.tables import (
    CONTAINER_TABLE,
    DELETED_BLOCKS_TABLE,
    INVENTORY_TABLE,
    SCM_STATE_TABLE,
    STATE_KEY,
    inventory_key,
    number_key,
)
from services.runtime.service import Work
from services.storage.tables import TablesReader

logger = structlog.get_logger(__name__)

NO_STATE = ScmState(0, 0, 0, 0, 0, 0, 0)


def scm_state(tables: Work | TablesReader, key: bytes = STATE_KEY) -> ScmState:
    """The counters of the shard."""
    return tables.table(SCM_STATE_TABLE).get(key) or NO_STATE


def add_written(written: BlocksWritten, work: Work) -> bool:
    """Take blocks into the inventory; says no when their txn is not above the mark: they are known, or gone again."""
    state = scm_state(work)
    if written.txn <= state.mark_txn:
        return False
    run = written.blocks
    work.table(INVENTORY_TABLE).put(inventory_key(run), InventoryRow(written.bucket_id, run))
    container = _container(run.container_id, work)
    _put_container(
        replace(
            container,
            block_count=container.block_count + run.block_count,
            used_bytes=container.used_bytes + run.size_bytes,
            written_bytes=container.written_bytes + run.size_bytes,
        ),
        work,
    )
    put_state(
        replace(
            state,
            mark_txn=written.txn,
            inventory_bytes=state.inventory_bytes + run.size_bytes,
            inventory_blocks=state.inventory_blocks + run.block_count,
        ),
        work,
    )
    return True


def next_container(container_size_bytes: int, work: Work) -> int | None:
    """The id of a new container when the newest one is full, else None."""
    state = scm_state(work)
    if _container(state.container_id, work).written_bytes < container_size_bytes:
        return None
    put_state(replace(state, container_id=state.container_id + 1), work)
    return state.container_id + 1


def remove_group(group: BlockGroup, work: Work) -> GroupOutcome:
    """Take a group's blocks out of the inventory; a group that is not in it was deleted before."""
    table = work.table(INVENTORY_TABLE)
    key = inventory_key(group.blocks)
    row = table.get(key)
    if row is None:
        return GroupOutcome.ABSENT
    if row.blocks != group.blocks or row.bucket_id != group.bucket_id:
        logger.error("group does not match the inventory: kept", group=group, inventory=row)
        return GroupOutcome.MISMATCHED
    table.delete(key)
    state = scm_state(work)
    run = group.blocks
    put_state(
        replace(
            state,
            inventory_bytes=state.inventory_bytes - run.size_bytes,
            inventory_blocks=state.inventory_blocks - run.block_count,
            deleted_bytes=state.deleted_bytes + run.size_bytes,
            deleted_blocks=state.deleted_blocks + run.block_count,
        ),
        work,
    )
    return GroupOutcome.DELETED


def log_deletion(runs: list[BlockRun], work: Work) -> list[bytes]:
    """Write the deletedBlocks log: one row, with the next delTxnId, for each container. Says their keys."""
    by_container: dict[int, list[BlockRun]] = {}
    for run in runs:
        by_container.setdefault(run.container_id, []).append(run)
    state = scm_state(work)
    deletion_txn = state.deletion_txn
    keys = []
    for container_id, of_container in sorted(by_container.items()):
        deletion_txn += 1
        row = DeletedBlocksRow(deletion_txn, container_id, tuple(of_container), 0)
        keys.append(number_key(deletion_txn))
        work.table(DELETED_BLOCKS_TABLE).put(keys[-1], row)
    put_state(replace(state, deletion_txn=deletion_txn), work)
    return keys


def carry_out(key: bytes, work: Work) -> None:
    """What a datanode does with a row of the deletedBlocks log: its container loses the blocks, once."""
    row = work.table(DELETED_BLOCKS_TABLE).get(key)
    if row is None:
        return
    container = _container(row.container_id, work)
    _put_container(
        replace(
            container,
            block_count=container.block_count - sum(run.block_count for run in row.blocks),
            used_bytes=container.used_bytes - sum(run.size_bytes for run in row.blocks),
        ),
        work,
    )
    work.table(DELETED_BLOCKS_TABLE).delete(key)


def put_state(state: ScmState, work: Work) -> None:
    """Set the counters of the shard."""
    work.table(SCM_STATE_TABLE).put(STATE_KEY, state)


def _container(container_id: int, work: Work) -> ContainerRow:
    row = work.table(CONTAINER_TABLE).get(number_key(container_id))
    return row or ContainerRow(container_id, 0, 0, 0)


def _put_container(row: ContainerRow, work: Work) -> None:
    work.table(CONTAINER_TABLE).put(number_key(row.container_id), row)

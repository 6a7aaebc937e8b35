"""The blocks of one shard: what was written, what was deleted, and in which containers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import structlog

from schemas.records import (
    BlockGroups,
    BlockRun,
    BlocksWritten,
    ContainerRow,
    DeletedBlocksRow,
    InventoryRow,
    ScmState,
)
from services.domain.row_columns import BlockGroup, check_lengths, group_columns
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
from services.runtime.errors import InvalidMessageError
from services.runtime.service import Work
from services.storage.tables import TablesReader

logger = structlog.get_logger(__name__)

NO_STATE = ScmState(0, 0, 0, 0, 0, 0, 0)
MAX_NUMBER = 2**63 - 1
"""Of an id or a figure. Figures that only ever grow stay there."""


def scm_state(tables: Work | TablesReader, key: bytes = STATE_KEY) -> ScmState:
    """The counters of the shard."""
    return tables.table(SCM_STATE_TABLE).get(key) or NO_STATE


def add_written(written: BlocksWritten, container_size_bytes: int, work: Work) -> tuple[int, int | None]:
    """Take blocks into the inventory, unless their ids are not above the mark: they are known, or gone again.

    Says how many bytes were new, and the id of the next container when the newest one is full now.

    Raises:
        InvalidMessageError: not every version has its place in all lists.
    """
    state = scm_state(work)
    runs = [run for run in _runs(written) if run.first_local_id > state.mark_local_id]
    if not runs:
        return 0, None
    inventory = work.table(INVENTORY_TABLE)
    for run in runs:
        inventory.put(inventory_key(run), InventoryRow(written.bucket_id, run))
    size_bytes, block_count = sum(run.size_bytes for run in runs), sum(run.block_count for run in runs)
    if max(state.inventory_bytes + size_bytes, state.inventory_blocks + block_count) > MAX_NUMBER:
        raise InvalidMessageError("the inventory would hold more than 2^63-1 bytes or blocks: metadata never does")
    before = _container(written.container_id, work)
    container = ContainerRow(
        written.container_id,
        before.block_count + block_count,
        before.used_bytes + size_bytes,
        min(before.written_bytes + size_bytes, MAX_NUMBER),
    )
    _put_container(container, work)
    is_full = written.container_id == state.container_id and container.written_bytes >= container_size_bytes
    newest_container_id = state.container_id + 1 if is_full else state.container_id
    _put_state(
        ScmState(
            last_local_id(runs[-1]),
            newest_container_id,
            state.deletion_txn,
            state.inventory_bytes + size_bytes,
            state.inventory_blocks + block_count,
            state.deleted_bytes,
            state.deleted_blocks,
        ),
        work,
    )
    return size_bytes, newest_container_id if is_full else None


def _runs(written: BlocksWritten) -> list[BlockRun]:
    columns = (written.first_local_ids, written.block_counts, written.block_sizes_bytes, written.sizes_bytes)
    if len({len(column) for column in columns}) > 1:
        raise InvalidMessageError("the lists of written blocks are not as long as each other: each version is in all")
    runs = [BlockRun(written.container_id, *values) for values in zip(*columns, strict=True)]
    for run in runs:
        check_run(run)
    return runs


def check_run(run: BlockRun) -> None:
    """Refuse a run that cannot be: what has no blocks, no size, or ids beyond the last one.

    Raises:
        InvalidMessageError: it is such a run.
    """
    if (
        min(run.container_id, run.first_local_id) < 0
        or min(run.block_count, run.block_size_bytes, run.size_bytes) < 1
        or last_local_id(run) > MAX_NUMBER
    ):
        raise InvalidMessageError(f"no blocks are like this: {run}")


def check_groups(groups: BlockGroups) -> None:
    """Refuse groups of which a run cannot be, or whose lists are not as long as each other.

    Raises:
        InvalidMessageError: there is such a run.
    """
    check_lengths(*group_columns(groups))
    if not groups.first_local_ids:
        return
    lasts = [first + count - 1 for first, count in zip(groups.first_local_ids, groups.block_counts, strict=True)]
    least_id = min((*groups.container_ids, *groups.first_local_ids))
    least_size = min((*groups.block_counts, *groups.block_sizes_bytes, *groups.sizes_bytes))
    if least_id < 0 or least_size < 1 or max(lasts) > MAX_NUMBER:
        raise InvalidMessageError("there is a group whose blocks cannot be: no blocks, no size, or ids beyond the last")


def last_local_id(run: BlockRun) -> int:
    """Local id of a run's last block."""
    return run.first_local_id + run.block_count - 1


def remove_groups(groups: Iterable[BlockGroup], work: Work) -> tuple[list[GroupOutcome], list[bytes]]:
    """Take groups out of the inventory and write the deletedBlocks log: one row, with the next delTxnId, a container.

    Says what became of each group, and the keys of the log's rows. A group that is not there was deleted before.
    """
    table = work.table(INVENTORY_TABLE)
    outcomes = []
    removed: dict[int, list[BlockRun]] = {}
    for group in groups:
        key = inventory_key(group.blocks)
        row = table.get(key)
        if row is None:
            outcomes.append(GroupOutcome.ABSENT)
        elif row.blocks != group.blocks or row.bucket_id != group.bucket_id:
            outcomes.append(GroupOutcome.MISMATCHED)
            logger.error("group does not match the inventory: kept", group=group, inventory=row)
        else:
            table.delete(key)
            outcomes.append(GroupOutcome.DELETED)
            removed.setdefault(group.blocks.container_id, []).append(group.blocks)
    return outcomes, _log_deletion(removed, work) if removed else []


def _log_deletion(removed: dict[int, list[BlockRun]], work: Work) -> list[bytes]:
    state = scm_state(work)
    deletion_txn = state.deletion_txn
    size_bytes = block_count = 0
    keys = []
    for container_id, runs in sorted(removed.items()):
        deletion_txn += 1
        keys.append(number_key(deletion_txn))
        work.table(DELETED_BLOCKS_TABLE).put(keys[-1], DeletedBlocksRow(deletion_txn, container_id, tuple(runs), 0))
        size_bytes += sum(run.size_bytes for run in runs)
        block_count += sum(run.block_count for run in runs)
    _put_state(
        replace(
            state,
            deletion_txn=deletion_txn,
            inventory_bytes=state.inventory_bytes - size_bytes,
            inventory_blocks=state.inventory_blocks - block_count,
            deleted_bytes=min(state.deleted_bytes + size_bytes, MAX_NUMBER),
            deleted_blocks=min(state.deleted_blocks + block_count, MAX_NUMBER),
        ),
        work,
    )
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


def _put_state(state: ScmState, work: Work) -> None:
    work.table(SCM_STATE_TABLE).put(STATE_KEY, state)


def _container(container_id: int, work: Work) -> ContainerRow:
    row = work.table(CONTAINER_TABLE).get(number_key(container_id))
    return row or ContainerRow(container_id, 0, 0, 0)


def _put_container(row: ContainerRow, work: Work) -> None:
    work.table(CONTAINER_TABLE).put(number_key(row.container_id), row)

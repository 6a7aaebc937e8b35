"""The blocks of one shard: those that were written, those that were deleted, and their containers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache

import structlog

from schemas.codec import codec
from schemas.records import (
    BlockGroups,
    BlockRun,
    BlocksWritten,
    ContainerRow,
    DeletedBlocksRow,
    InventoryRow,
    ScmState,
)
from services.domain.errors import InvalidMessageError
from services.domain.row_columns import check_lengths, group_columns, group_rows
from services.mock_scm.tables import (
    CONTAINER_TABLE,
    DELETED_BLOCKS_TABLE,
    INVENTORY_TABLE,
    SCM_STATE_TABLE,
    STATE_KEY,
    inventory_key,
    number_key,
)
from services.runtime.loop.service import Work
from services.storage.tables import Tables

logger = structlog.get_logger(__name__)

_BLOCK_RUN = codec(BlockRun)
_INVENTORY_ROW = codec(InventoryRow)
NO_STATE = ScmState(0, 0, 0, 0, 0, 0, 0)
MAX_NUMBER = 2**63 - 1
"""Largest id or counter. Counters that only grow stay at this value."""


def scm_state(tables: Tables, key: bytes = STATE_KEY) -> ScmState:
    """Return the counters of the shard."""
    return tables.table(SCM_STATE_TABLE).get(key) or NO_STATE


@dataclass(frozen=True, slots=True)
class Removal:
    """The outcomes of the groups of one deletion."""

    deleted: int
    absent: int
    mismatched: frozenset[int]
    """Places of the groups that do not match the inventory."""
    deleted_bytes: int
    log_keys: tuple[bytes, ...]
    """Keys of the rows that were written to the deletedBlocks log."""


def add_written(written: BlocksWritten, container_size_bytes: int, work: Work) -> tuple[int, int | None]:
    """Add blocks to the inventory, except those with ids up to the mark, which are known or deleted again.

    Return the new bytes, and the id of the next container if the newest one is full now, else None.

    Raises:
        InvalidMessageError: the lists have different lengths, or a run or a sum is out of range.
    """
    state = scm_state(work)
    marked = [(run, mark) for run, mark in _runs(written) if mark > state.mark_local_id]
    if not marked:
        return 0, None
    runs, mark = [run for run, _ in marked], marked[-1][1]
    size_bytes, block_count = sum(run[3] for run in runs), sum(run[1] for run in runs)
    inventory = work.table(INVENTORY_TABLE)
    for first_local_id, *sizes in runs:
        key = inventory_key(written.container_id, first_local_id)
        known = inventory.get(key) if written.marks else None
        if known is not None:  # its last block has grown
            size_bytes -= known.blocks.size_bytes
            block_count -= known.blocks.block_count
        row = _encoded_row(written.bucket_id, written.container_id, first_local_id, *sizes)
        inventory.put_encoded(key, row)
    if max(state.inventory_bytes + size_bytes, state.inventory_blocks + block_count) > MAX_NUMBER:
        raise InvalidMessageError("the inventory would hold more than 2^63-1 bytes or blocks: metadata never does")
    before = _container(written.container_id, work)
    container = replace(
        before,
        block_count=before.block_count + block_count,
        used_bytes=before.used_bytes + size_bytes,
        written_bytes=min(before.written_bytes + size_bytes, MAX_NUMBER),
    )
    _put_container(container, work)
    is_full = written.container_id == state.container_id and container.written_bytes >= container_size_bytes
    newest_container_id = state.container_id + 1 if is_full else state.container_id
    state = replace(
        state,
        mark_local_id=mark,
        container_id=newest_container_id,
        inventory_bytes=state.inventory_bytes + size_bytes,
        inventory_blocks=state.inventory_blocks + block_count,
    )
    work.table(SCM_STATE_TABLE).put(STATE_KEY, state)
    return size_bytes, newest_container_id if is_full else None


def _runs(written: BlocksWritten) -> list[tuple[tuple[int, int, int, int], int]]:
    """Return for each run the first local id, the number of blocks, the size of each and the size of all, and the local
    id up to which the inventory is complete with it.
    """
    columns = (written.first_local_ids, written.block_counts, written.block_sizes_bytes, written.sizes_bytes)
    if len({len(column) for column in columns}) > 1:
        raise InvalidMessageError("the lists of written blocks are not as long as each other: each version is in all")
    _check_runs((written.container_id,), *columns)
    runs = list(zip(*columns, strict=True))
    marks = written.marks or [run[0] + run[1] - 1 for run in runs]
    if len(marks) != len(runs) or max(marks, default=0) > MAX_NUMBER:
        raise InvalidMessageError("the marks of written blocks are not one for each run: nothing is added")
    return list(zip(runs, marks, strict=True))


def check_groups(groups: BlockGroups) -> None:
    """Raise ColumnsError if the lists of groups differ in length, InvalidMessageError if a run is impossible."""
    columns = group_columns(groups)
    check_lengths(*columns)
    _check_runs(*columns[4:])


def _check_runs(
    container_ids: Sequence[int],
    first_local_ids: Sequence[int],
    block_counts: Sequence[int],
    block_sizes_bytes: Sequence[int],
    sizes_bytes: Sequence[int],
) -> None:
    """Raise InvalidMessageError for a run without blocks or size, or with ids below 0 or above ``MAX_NUMBER``."""
    if not first_local_ids:
        return
    last_local_id = max(first + count - 1 for first, count in zip(first_local_ids, block_counts, strict=True))
    least_id = min((*container_ids, *first_local_ids))
    least_size = min((*block_counts, *block_sizes_bytes, *sizes_bytes))
    if least_id < 0 or least_size < 1 or last_local_id > MAX_NUMBER:
        raise InvalidMessageError("there are blocks that cannot be: of no number, no size, or with ids beyond the last")


@cache
def _encoded_bucket_id(bucket_id: int) -> bytes:
    """Return the first bytes of an encoded inventory row: Avro encodes a record as its fields, one after the other."""
    run = BlockRun(0, 0, 1, 1, 1)
    return _INVENTORY_ROW.encode(InventoryRow(bucket_id, run)).removesuffix(_BLOCK_RUN.encode(run))


def _encoded_row(
    bucket_id: int, container_id: int, first_local_id: int, block_count: int, block_size_bytes: int, size_bytes: int
) -> bytes:
    """Return an inventory row as it is stored, without making a record: comparing bytes costs half of decoding them."""
    return _encoded_bucket_id(bucket_id) + _BLOCK_RUN.encode_fields(
        {
            "container_id": container_id,
            "first_local_id": first_local_id,
            "block_count": block_count,
            "block_size_bytes": block_size_bytes,
            "size_bytes": size_bytes,
        }
    )


def remove_groups(groups: BlockGroups, refused: Collection[int], work: Work) -> Removal:
    """Remove groups from the inventory, except the refused places, and write the deletedBlocks log: for each container
    one row with the next delTxnId. A group that is not in the inventory was deleted before.
    """
    table = work.table(INVENTORY_TABLE)
    removed: dict[int, list[tuple[int, int, int]]] = {}
    deleted = absent = deleted_bytes = 0
    mismatched = []
    for place, (bucket_id, _, _, _, *blocks) in enumerate(group_rows(groups)):
        if place in refused:
            continue
        container_id, first_local_id, block_count, _, size_bytes = blocks
        key = inventory_key(container_id, first_local_id)
        row = table.get_encoded(key)
        if row is None:
            absent += 1
        elif not row.startswith(_encoded_row(bucket_id, *blocks)):  # what a later version adds does not say which
            mismatched.append(place)
            logger.error("group does not match the inventory: kept", group=blocks, inventory=table.decode(row))
        else:
            table.delete(key)
            deleted += 1
            deleted_bytes += size_bytes
            removed.setdefault(container_id, []).append((first_local_id, block_count, size_bytes))
    log_keys = _log_deletion(removed, work) if removed else ()
    return Removal(deleted, absent, frozenset(mismatched), deleted_bytes, tuple(log_keys))


def _log_deletion(removed: dict[int, list[tuple[int, int, int]]], work: Work) -> list[bytes]:
    state = scm_state(work)
    deletion_txn = state.deletion_txn
    size_bytes = block_count = 0
    keys = []
    for container_id, runs in sorted(removed.items()):
        deletion_txn += 1
        keys.append(number_key(deletion_txn))
        first_local_ids, block_counts, sizes_bytes = zip(*runs, strict=True)
        row = DeletedBlocksRow(deletion_txn, container_id, first_local_ids, block_counts, sizes_bytes, 0)
        work.table(DELETED_BLOCKS_TABLE).put(keys[-1], row)
        size_bytes += sum(sizes_bytes)
        block_count += sum(block_counts)
    state = replace(
        state,
        deletion_txn=deletion_txn,
        inventory_bytes=state.inventory_bytes - size_bytes,
        inventory_blocks=state.inventory_blocks - block_count,
        deleted_bytes=min(state.deleted_bytes + size_bytes, MAX_NUMBER),
        deleted_blocks=min(state.deleted_blocks + block_count, MAX_NUMBER),
    )
    work.table(SCM_STATE_TABLE).put(STATE_KEY, state)
    return keys


def carry_out(key: bytes, work: Work) -> None:
    """Do a datanode's work for a row of the deletedBlocks log: remove the blocks from their container, once."""
    row = work.table(DELETED_BLOCKS_TABLE).get(key)
    if row is None:
        return
    before = _container(row.container_id, work)
    container = replace(
        before,
        block_count=before.block_count - sum(row.block_counts),
        used_bytes=before.used_bytes - sum(row.sizes_bytes),
    )
    _put_container(container, work)
    work.table(DELETED_BLOCKS_TABLE).delete(key)


def _container(container_id: int, work: Work) -> ContainerRow:
    row = work.table(CONTAINER_TABLE).get(number_key(container_id))
    return row or ContainerRow(container_id, 0, 0, 0)


def _put_container(row: ContainerRow, work: Work) -> None:
    work.table(CONTAINER_TABLE).put(number_key(row.container_id), row)

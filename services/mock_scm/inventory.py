"""The inventory of one shard: the runs of blocks that were written and not deleted, and those that have bytes."""

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
    InventoryRow,
)
from services.domain.errors import InvalidMessageError
from services.domain.replication import sequence_of
from services.domain.row_columns import check_lengths, group_columns, group_rows
from services.mock_scm.containers import MAX_NUMBER, add_blocks, close, open_containers
from services.mock_scm.deletion_log import RemovedRun, log_deletion
from services.mock_scm.sequences import DELETION_TXN, last_id, next_container, put_state, scm_state
from services.mock_scm.tables import INVENTORY_TABLE, STORED_RUNS_TABLE, inventory_key
from services.runtime.loop.service import Work

logger = structlog.get_logger(__name__)

_BLOCK_RUN = codec(BlockRun)
_INVENTORY_ROW = codec(InventoryRow)
Run = tuple[int, int, int, int]
"""First local id, number of blocks, size of each but the last, and size of all."""


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


def add_written(
    written: BlocksWritten, container_size_bytes: int, work: Work, *, is_replicated: bool = False
) -> tuple[int, int | None]:
    """Add blocks to the inventory, except those with ids up to the mark, which are known or deleted again.

    Return the new bytes, and the id of the next container if the newest one is full now, else None.
    ``is_replicated``: datanodes have the bytes of the runs that a client has written.

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
    if is_replicated and written.marks:
        _note_stored(written, marked, work)
    if max(state.inventory_bytes + size_bytes, state.inventory_blocks + block_count) > MAX_NUMBER:
        raise InvalidMessageError("the inventory would hold more than 2^63-1 bytes or blocks: metadata never does")
    container = add_blocks(written.container_id, block_count, size_bytes, work)
    state = replace(
        state,
        mark_local_id=mark,
        inventory_bytes=state.inventory_bytes + size_bytes,
        inventory_blocks=state.inventory_blocks + block_count,
    )
    put_state(state, work)
    is_newest = sequence_of(written.container_id) == state.container_id
    if not is_newest or container.written_bytes < container_size_bytes:
        return size_bytes, None
    for one in open_containers(work):
        close(one, work)
    return size_bytes, next_container(work)


def _note_stored(written: BlocksWritten, marked: Sequence[tuple[Run, int]], work: Work) -> None:
    """Note the runs that were allocated before they were reported: a client has written bytes to these."""
    stored = work.table(STORED_RUNS_TABLE)
    for (first_local_id, block_count, *sizes), mark in marked:
        if mark != first_local_id + block_count - 1:
            run = BlockRun(written.container_id, first_local_id, block_count, *sizes)
            stored.put(inventory_key(written.container_id, first_local_id), InventoryRow(written.bucket_id, run))


def _runs(written: BlocksWritten) -> list[tuple[Run, int]]:
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


def remove_groups(groups: BlockGroups, refused: Collection[int], work: Work, *, is_replicated: bool = False) -> Removal:
    """Remove groups from the inventory, except the refused places, and write the deletedBlocks log: for each container
    one row with the next delTxnId. A group that is not in the inventory was deleted before.
    """
    table = work.table(INVENTORY_TABLE)
    removed: dict[int, list[RemovedRun]] = {}
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
            if is_replicated:
                work.table(STORED_RUNS_TABLE).delete(key)
            deleted += 1
            deleted_bytes += size_bytes
            removed.setdefault(container_id, []).append((first_local_id, block_count, size_bytes))
    log_keys = log_deletion(removed, work) if removed else ()
    _count_removed(removed, work)
    return Removal(deleted, absent, frozenset(mismatched), deleted_bytes, tuple(log_keys))


def _count_removed(removed: dict[int, list[RemovedRun]], work: Work) -> None:
    if not removed:
        return
    size_bytes = sum(run[2] for runs in removed.values() for run in runs)
    block_count = sum(run[1] for runs in removed.values() for run in runs)
    state = scm_state(work)
    state = replace(
        state,
        deletion_txn=last_id(DELETION_TXN, work),
        inventory_bytes=state.inventory_bytes - size_bytes,
        inventory_blocks=state.inventory_blocks - block_count,
        deleted_bytes=min(state.deleted_bytes + size_bytes, MAX_NUMBER),
        deleted_blocks=min(state.deleted_blocks + block_count, MAX_NUMBER),
    )
    put_state(state, work)

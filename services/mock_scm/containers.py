"""The containers of one shard: how full each is, and which state it is in.

    OPEN       metadata puts the blocks of new keys into it: the newest container of its replication
    CLOSING    it is full, or a datanode of it was lost; its datanodes are told to accept no more blocks
    CLOSED     no datanode accepts blocks; without datanodes a full container is closed at once
    DELETING   it was closed and is empty; its datanodes are told to remove their copies
    DELETED    no datanode has a copy

A key that was opened while its container was open may be committed when the container is closed. So a closed or a
deleted container can get blocks of the inventory again: it is CLOSED then. No bytes are lost by that, since a datanode
removes the copy of a container only while it has no block, and accepts none afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from schemas.records import ContainerRow, ContainerState, Replication
from services.domain.replication import container_of, sequence_of
from services.mock_scm.sequences import scm_state
from services.mock_scm.tables import CONTAINER_TABLE, number_key
from services.runtime.loop.service import Work
from services.storage.tables import Tables

MAX_NUMBER = 2**63 - 1
"""Largest id or counter. Counters that only grow stay at this value."""


def container(container_id: int, tables: Tables) -> ContainerRow:
    """Return a container, with its present state; an empty one if nothing is known of it."""
    row = tables.table(CONTAINER_TABLE).get(number_key(container_id))
    return _present(row or ContainerRow(container_id, 0, 0, 0), scm_state(tables).container_id)


def open_containers(tables: Tables) -> list[ContainerRow]:
    """Return the containers into which metadata puts blocks: the newest one, and for each other replication the one
    with the same number, if it is known.
    """
    sequence, table = scm_state(tables).container_id, tables.table(CONTAINER_TABLE)
    ids = [container_of(replication, sequence) for replication in Replication]
    return [container(one, tables) for one in ids if one == sequence or table.get(number_key(one)) is not None]


def containers(tables: Tables) -> Iterator[ContainerRow]:
    """Yield all containers in the order of their ids, with their present states."""
    newest = scm_state(tables).container_id
    for _, row in tables.table(CONTAINER_TABLE).scan():
        yield _present(row, newest)


def _present(row: ContainerRow, newest: int) -> ContainerRow:
    """Return a row with the state that it has: a program of release 0.2.0 has written none."""
    is_old = row.state is ContainerState.OPEN and sequence_of(row.container_id) < newest
    return replace(row, state=ContainerState.CLOSED) if is_old else row


def put_container(row: ContainerRow, work: Work) -> None:
    """Write the row of a container."""
    work.table(CONTAINER_TABLE).put(number_key(row.container_id), row)


def add_blocks(container_id: int, block_count: int, size_bytes: int, work: Work) -> ContainerRow:
    """Count blocks that were added to a container. Return its row."""
    before = container(container_id, work)
    row = replace(
        before,
        block_count=before.block_count + block_count,
        used_bytes=before.used_bytes + size_bytes,
        written_bytes=min(before.written_bytes + size_bytes, MAX_NUMBER),
        state=ContainerState.CLOSED if _is_leaving(before) else before.state,
    )
    put_container(row, work)
    return row


def _is_leaving(row: ContainerRow) -> bool:
    return row.state in (ContainerState.DELETING, ContainerState.DELETED)


def remove_blocks(container_id: int, block_count: int, size_bytes: int, work: Work) -> None:
    """Count blocks that all datanodes have removed, or that no datanode has."""
    before = container(container_id, work)
    row = replace(before, block_count=before.block_count - block_count, used_bytes=before.used_bytes - size_bytes)
    is_gone = row.state is ContainerState.CLOSED and not row.block_count and not row.replicas
    put_container(replace(row, state=ContainerState.DELETED) if is_gone else row, work)


def close(row: ContainerRow, work: Work) -> None:
    """Put no further blocks into a container."""
    state = ContainerState.CLOSING if row.replicas else ContainerState.CLOSED
    if not row.replicas and not row.block_count:
        state = ContainerState.DELETED
    put_container(replace(row, state=state), work)

"""Makes a datanode's copy of a container whole again from the copies of other datanodes.

A copy that is missing is made anew: it is RECOVERING until it has every block that a source has. Of a copy that is
there the damaged blocks are replaced, by bytes that fit the checksums with which they were written. What is damaged on
every source is left: the block is lost, and ``deepclean blocks lost`` names it.
"""

from __future__ import annotations

import structlog

from schemas.block_store import BlockContents, BlockEntry, RepairOrder, ReplicaState
from services.datanode.errors import BlockError
from services.datanode.node import DataNode
from services.datanode.peers import Peers, UnreachableError
from services.datanode.volume import Volume

logger = structlog.get_logger(__name__)
ALL_BLOCKS = 2**31
DELETED = frozenset({"NO_SUCH_BLOCK", "BLOCK_DELETED"})
"""Refusals of a block that is not wanted any more."""


def repair(node: DataNode, shard: int, order: RepairOrder, peers: Peers) -> int:
    """Carry out an order. Return the number of blocks that were copied or healed.

    Raises:
        UnreachableError: a source did not answer; what was copied stays, and the order comes again.
        DiskError: the own disk failed.
    """
    storage, volume = node.begin_copy(shard, order.container_id)
    if volume.state(storage) is not ReplicaState.RECOVERING:
        return _heal(volume, storage, shard, order, peers)
    copied = _copy(volume, storage, shard, order, peers)
    volume.close_container(storage)
    logger.info("container copied", shard=shard, container=order.container_id, blocks=copied)
    return copied


def _heal(volume: Volume, storage: int, shard: int, order: RepairOrder, peers: Peers) -> int:
    healed, is_silent = 0, False
    for entry in volume.blocks(storage, limit=ALL_BLOCKS):
        if not entry.is_damaged:
            continue
        for url in order.sources:
            try:
                volume.heal_block(storage, entry.local_id, peers.block(url, shard, order.container_id, entry))
            except UnreachableError:
                is_silent = True
            except BlockError as error:
                logger.warning("a source has no better copy", url=url, block=entry.local_id, reason=error.code)
            else:
                healed += 1
                break
    if is_silent and not healed:
        raise UnreachableError("no source of damaged blocks answers")
    return healed


def _copy(volume: Volume, storage: int, shard: int, order: RepairOrder, peers: Peers) -> int:
    """Copy each block that any source has. Sources may differ by blocks that were never committed."""
    have = {entry.local_id for entry in volume.blocks(storage, limit=ALL_BLOCKS)}
    wanted: dict[int, list[tuple[str, BlockEntry]]] = {}
    reached = 0
    for url in order.sources:
        try:
            for entry in peers.blocks(url, shard, order.container_id):
                if entry.local_id not in have:
                    wanted.setdefault(entry.local_id, []).append((url, entry))
        except BlockError as error:
            logger.warning("a source has no copy any more", url=url, reason=str(error))
        else:
            reached += 1
    if not reached:
        raise UnreachableError("no source has the container any more")
    return sum(_copy_block(volume, storage, shard, order.container_id, wanted[one], peers) for one in sorted(wanted))


def _copy_block(
    volume: Volume, storage: int, shard: int, container_id: int, found: list[tuple[str, BlockEntry]], peers: Peers
) -> bool:
    """Copy one block from the first source that has it whole. Return False if it was deleted, or no source can have it:
    then the copy says so, and is healed if a whole one is found.

    Raises:
        UnreachableError: it was not copied this time; the copy of the container is not whole without it.
    """
    may_come = is_deleted = False
    for url, entry in sorted(found, key=lambda one: one[1].is_damaged):
        contents = BlockContents(entry.size_bytes, entry.checksums)
        try:
            volume.copy_block(storage, entry.local_id, peers.block(url, shard, container_id, entry), contents)
        except BlockError as error:
            logger.warning("a block was not copied", url=url, block=entry.local_id, reason=error.code)
            may_come = may_come or not (entry.is_damaged or error.code in DELETED)
            is_deleted = is_deleted or error.code in DELETED
        else:
            return True
    if may_come:  # a source that finds its own block damaged lists it as such the next time
        raise UnreachableError(f"block {found[0][1].local_id} was not copied yet")
    if not is_deleted:
        entry = found[0][1]
        volume.note_lost(storage, entry.local_id, BlockContents(entry.size_bytes, entry.checksums))
    return False

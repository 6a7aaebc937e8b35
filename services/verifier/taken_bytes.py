"""What blocks take on disks, worked out anew from the layout of each replication: no code of the plane is used.

In an erasure code the cells of a block go to the disks of its data in turns, so the first disk has the most. A disk of
parity has as much as the first disk.
"""

from __future__ import annotations

from typing import NamedTuple

from schemas.records import BlockRun, Replication
from services.verifier.present import CONTAINER_BITS, REPLICATIONS

_CELL_BYTES = 1 << 20
_DISKS = {
    Replication.EC_RS_3_2_1024K: (3, 2),
    Replication.EC_RS_6_3_1024K: (6, 3),
    Replication.EC_RS_10_4_1024K: (10, 4),
    Replication.EC_XOR_2_1_1024K: (2, 1),
}
"""Disks of data and of parity."""


class Blocks(NamedTuple):
    """As much of a run of blocks as their sizes need."""

    container_id: int
    block_count: int
    block_size_bytes: int
    size_bytes: int


def blocks_of(run: BlockRun) -> Blocks:
    """Return this of a run."""
    return Blocks(run.container_id, run.block_count, run.block_size_bytes, run.size_bytes)


def taken_bytes(blocks: Blocks) -> int:
    """Return what all blocks take together. All but the last one are full."""
    number = blocks.container_id >> CONTAINER_BITS
    if not 0 < number < len(REPLICATIONS):
        return blocks.size_bytes
    replication, full = REPLICATIONS[number], blocks.block_count - 1
    last_bytes = blocks.size_bytes - full * blocks.block_size_bytes
    return full * _of_block(replication, blocks.block_size_bytes) + _of_block(replication, last_bytes)


def _of_block(replication: Replication, size_bytes: int) -> int:
    if replication not in _DISKS:
        return 3 * size_bytes
    data, parity = _DISKS[replication]
    cells, rest = divmod(size_bytes, _CELL_BYTES)
    turns, place = divmod(cells, data)  # the short cell, if there is one, goes to this place
    first_disk = (turns + 1) * _CELL_BYTES if place else turns * _CELL_BYTES + rest
    return size_bytes + parity * first_disk

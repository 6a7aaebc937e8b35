"""What blocks take on disks, cell by cell: the product has a formula for it."""

from __future__ import annotations

from schemas.records import Replication

CELL = 1024 * 1024
EC = {
    Replication.EC_RS_3_2_1024K: (3, 2),
    Replication.EC_RS_6_3_1024K: (6, 3),
    Replication.EC_RS_10_4_1024K: (10, 4),
    Replication.EC_XOR_2_1_1024K: (2, 1),
}


def replicated_size(replication: Replication, size_bytes: int) -> int:
    """The bytes of one block on all of its disks."""
    if replication not in EC:
        return size_bytes * (3 if replication is Replication.RATIS_THREE else 1)
    data, parity = EC[replication]
    disks, left, turn = [0] * (data + parity), size_bytes, 0
    while left:
        cell = min(left, CELL)
        disks[turn % data] += cell
        if turn % data == 0:  # the first cell of a stripe is its longest
            for disk in range(data, data + parity):
                disks[disk] += cell
        left -= cell
        turn += 1
    return sum(disks)


def replicated_run(replication: Replication, block_count: int, block_size_bytes: int, size_bytes: int) -> int:
    """The bytes of a run of blocks, of which the last one may be shorter than the others."""
    sizes = [min(block_size_bytes, size_bytes - place * block_size_bytes) for place in range(block_count)]
    return sum(replicated_size(replication, size) for size in sizes)


def whole_blocks(replication: Replication, size_bytes: int, block_size_bytes: int) -> int:
    """The bytes on disks of the blocks that so many bytes need, each of them full."""
    count = -(-size_bytes // block_size_bytes)
    return count * replicated_size(replication, block_size_bytes)

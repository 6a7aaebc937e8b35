"""How many bytes the blocks of a key take on disks: one copy of them, and what is written beyond it.

A container has one replication, and the id of the container says which: the upper bits are the number of the
replication, the lower ones number the containers of a shard. So whoever has the blocks of a version knows what they
take. The figures count the *redundancy*, the bytes beyond one copy, block by block: what a run of blocks adds when it
is written is what it subtracts when it is freed.

Erasure coding writes a block in stripes of ``data`` cells, and adds ``parity`` cells to each stripe. The parity cells
of the last stripe are as long as its longest cell.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from schemas.records import BlockRun, Replication

_SEQUENCE_BITS = 48
_MAX_SEQUENCE = (1 << _SEQUENCE_BITS) - 1
_NUMBERS = {replication: number for number, replication in enumerate(Replication)}
_REPLICATIONS = tuple(Replication)
CELL_BYTES = 1024 * 1024
"""Size of a cell of all erasure codes here."""


@dataclass(frozen=True, slots=True)
class ErasureCode:
    """The number of cells in a stripe."""

    data: int
    parity: int

    def redundancy_bytes(self, size_bytes: int) -> int:
        """Return the bytes of the parity cells of a block."""
        stripes, rest = divmod(size_bytes, self.data * CELL_BYTES)
        return self.parity * (stripes * CELL_BYTES + min(rest, CELL_BYTES))


COPIES = {Replication.RATIS_ONE: 1, Replication.RATIS_THREE: 3}
"""Number of copies of a block that is not erasure-coded."""
CODES = {
    Replication.EC_RS_3_2_1024K: ErasureCode(3, 2),
    Replication.EC_RS_6_3_1024K: ErasureCode(6, 3),
    Replication.EC_RS_10_4_1024K: ErasureCode(10, 4),
    Replication.EC_XOR_2_1_1024K: ErasureCode(2, 1),
}


def container_of(replication: Replication, sequence: int) -> int:
    """Return the id of a container."""
    return _NUMBERS[replication] << _SEQUENCE_BITS | sequence


def sequence_of(container_id: int) -> int:
    """Return the number of a container among those of its replication."""
    return container_id & _MAX_SEQUENCE


def replication_of(container_id: int) -> Replication | None:
    """Return the replication of a container; None for an id that no container has."""
    number = container_id >> _SEQUENCE_BITS
    return _REPLICATIONS[number] if 0 <= number < len(_REPLICATIONS) else None


def redundancy_of_block(replication: Replication | None, size_bytes: int) -> int:
    """Return the bytes that a block takes beyond its size."""
    if replication in CODES:
        return CODES[replication].redundancy_bytes(size_bytes)
    return (COPIES[replication] - 1) * size_bytes if replication in COPIES else 0


def redundancy_bytes(container_id: int, block_count: int, block_size_bytes: int, size_bytes: int) -> int:
    """Return the bytes that a run of blocks takes beyond its size. All blocks but the last are full."""
    if container_id <= _MAX_SEQUENCE:
        return 0
    replication, full = replication_of(container_id), block_count - 1
    last_bytes = size_bytes - full * block_size_bytes
    return full * redundancy_of_block(replication, block_size_bytes) + redundancy_of_block(replication, last_bytes)


def redundancy_of(run: BlockRun | None) -> int:
    """Return ``redundancy_bytes`` of a run; 0 without one."""
    if run is None or run.container_id <= _MAX_SEQUENCE:
        return 0
    return redundancy_bytes(run.container_id, run.block_count, run.block_size_bytes, run.size_bytes)


def replicated_bytes_of(run: BlockRun | None) -> int:
    """Return the bytes that a run takes on disks; 0 without one."""
    return 0 if run is None else run.size_bytes + redundancy_of(run)


def redundancy_of_all(runs: Iterable[BlockRun | None]) -> int:
    """Return the sum of ``redundancy_of``."""
    return sum(map(redundancy_of, runs))

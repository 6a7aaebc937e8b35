"""Blocks as the model of a run knows them: pieces, each a few blocks of one allocation that live and die together.

A piece becomes part of a version, or of a part of an upload, or dies without having been part of anything. Its ids are
learned from the answers of the plane; until then it is known by the command that has allocated it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from schemas.records import BlockRun, Replication
from tests.replicated_sizes import replicated_run

PENDING = 0
"""In place of a birth: blocks of an open key that nobody has seen yet."""


@dataclass(slots=True, eq=False)
class Allocation:
    """What one command has allocated: so many blocks, one after the other."""

    txn: int
    block_count: int
    block_size_bytes: int
    replication: Replication = Replication.RATIS_ONE
    """That of its bucket at the time."""
    base: BlockRun | None = None
    """All of it, as the plane has answered."""
    pieces: dict[int, Piece] = field(default_factory=dict)
    """By the place of their first block."""


@dataclass(slots=True, eq=False)
class Piece:
    """Blocks that live and die together."""

    number: int
    allocation: Allocation
    first: int
    block_count: int
    size_bytes: int
    """As many as were written; the last block may be filled in part, and grow."""
    birth: int = PENDING
    """Txn at which somebody could see it first, or at which it died unseen."""

    @property
    def run(self) -> BlockRun | None:
        """Its blocks, once an answer has named them."""
        base = self.allocation.base
        if base is None:
            return None
        first = base.first_local_id + self.first
        return BlockRun(base.container_id, first, self.block_count, base.block_size_bytes, self.size_bytes)

    @property
    def is_put(self) -> bool:
        """Whether one command has allocated it and shown all of it."""
        return self.birth == self.allocation.txn

    @property
    def replicated_bytes(self) -> int:
        """What its blocks take on disks."""
        return self.replicated_bytes_with(0)

    def replicated_bytes_with(self, more_bytes: int) -> int:
        """What its blocks take on disks with more bytes in the last one."""
        made = self.allocation
        size_bytes = self.size_bytes + more_bytes
        return replicated_run(made.replication, self.block_count, made.block_size_bytes, size_bytes)

    @property
    def room_bytes(self) -> int:
        """What still fits into its last block."""
        return self.block_count * self.allocation.block_size_bytes - self.size_bytes


@dataclass(slots=True)
class Pieces:
    """All pieces of a shard, by number."""

    by_number: dict[int, Piece] = field(default_factory=dict)
    _allocations: dict[int, Allocation] = field(default_factory=dict)
    """By the txn of the command that has allocated."""
    _blocks: dict[int, tuple[Allocation, int]] = field(default_factory=dict)
    """By local id."""

    def allocate(
        self,
        txn: int,
        size_bytes: int,
        block_size_bytes: int,
        number: int | None = None,
        replication: Replication = Replication.RATIS_ONE,
    ) -> Piece | None:
        """Blocks for so many bytes, of which none are written yet; None where there is nothing to write."""
        count = -(-size_bytes // block_size_bytes)
        if not count:
            return None
        allocation = self._allocations[txn] = Allocation(txn, count, block_size_bytes, replication)
        return self._add(allocation, 0, count, number)

    def _add(self, allocation: Allocation, first: int, count: int, number: int | None = None) -> Piece:
        size_bytes = count * allocation.block_size_bytes
        name = -1 - len(self.by_number) if number is None else number
        piece = Piece(name, allocation, first, count, size_bytes)
        self.by_number[name] = allocation.pieces[first] = piece
        return piece

    def split(self, piece: Piece, count: int) -> Piece:
        """Leave a piece its first blocks; what is behind them is a piece of its own."""
        rest = self._add(piece.allocation, piece.first + count, piece.block_count - count)
        piece.block_count = count
        piece.size_bytes = count * piece.allocation.block_size_bytes
        return rest

    def learn(self, txn: int, run: BlockRun) -> str:
        """Take in what the plane answers to the command of a txn; says what is wrong with it, if anything."""
        allocation = self._allocations.get(txn)
        if allocation is None or (allocation.block_count, allocation.block_size_bytes) != (
            run.block_count,
            run.block_size_bytes,
        ):
            return f"txn {txn} was to allocate {allocation}, not {run}"
        if list(Replication)[run.container_id >> 48] is not allocation.replication:
            return f"txn {txn} was to allocate {allocation.replication}, not {run}"
        for place in range(run.block_count):
            known = self._blocks.setdefault(run.first_local_id + place, (allocation, place))
            if known != (allocation, place):
                return f"txns {known[0].txn} and {txn} share blocks: {run}"
        allocation.base = run
        return ""

    def find(self, run: BlockRun) -> Piece | None:
        """The piece that begins with a block; None when no answer has named it."""
        allocation, place = self._blocks.get(run.first_local_id, (None, 0))
        return None if allocation is None else allocation.pieces.get(place)

    def bytes_of(self, numbers: set[int] | frozenset[int]) -> int:
        """The sum of some of them."""
        return sum(self.by_number[number].size_bytes for number in numbers)

    def replicated_bytes_of(self, numbers: set[int] | frozenset[int]) -> int:
        """What some of them take on disks."""
        return sum(self.by_number[number].replicated_bytes for number in numbers)

    def redundancy_of(self, numbers: set[int] | frozenset[int]) -> int:
        """The same without one copy."""
        return self.replicated_bytes_of(numbers) - self.bytes_of(numbers)

"""The blocks of one key or part that is written in steps, as its client knows them: used, and allocated only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from schemas.records import BlockRun
from services.workloads.workload import BLOCK_BYTES


def blocks_of(size_bytes: int) -> int:
    """Return how many blocks a number of bytes fills or begins."""
    return -(-size_bytes // BLOCK_BYTES)


@dataclass(slots=True)
class StreamBlocks:
    """What a stream has got and used. ``number`` is the operation that opened it, ``tag`` its label."""

    number: int
    volume: str
    bucket: str
    tag: str
    used: list[BlockRun] = field(default_factory=list)
    """Runs that belong to a version or a part, in the order of the content."""
    unused: list[BlockRun] = field(default_factory=list)
    refused: list[BlockRun] = field(default_factory=list)
    """Those that were allocated for an operation that was then refused."""
    is_open: bool = True

    @property
    def allocated_blocks(self) -> int:
        """The number of all blocks so far."""
        return sum(run.block_count for run in [*self.used, *self.unused])

    def allocate(self, runs: Iterable[BlockRun | None]) -> None:
        """Add allocated blocks."""
        self.unused += [run for run in runs if run is not None]

    def use_up_to(self, size_bytes: int) -> None:
        """Note that a size in all has become visible: the last block fills up, and further ones are used."""
        left = size_bytes - sum(run.size_bytes for run in self.used)
        if self.used:
            last = self.used[-1]
            added = min(left, last.block_count * BLOCK_BYTES - last.size_bytes)
            self.used[-1], left = replace(last, size_bytes=last.size_bytes + added), left - added
        allocated, self.unused = self.unused, []
        for run in allocated:
            count = min(run.block_count, blocks_of(left))
            taken = min(left, count * BLOCK_BYTES)
            left -= taken
            if count:
                self.used.append(replace(run, block_count=count, size_bytes=taken))
            if rest := run.block_count - count:
                first = run.first_local_id + count
                self.unused.append(replace(run, first_local_id=first, block_count=rest, size_bytes=rest * BLOCK_BYTES))

    def refuse(self, runs: Iterable[BlockRun]) -> None:
        """Note blocks that were got for an operation that was refused."""
        self.refused = list(runs)
        self.unused = [run for run in self.unused if run not in self.refused]

    def groups(self) -> Iterator[tuple[str, list[BlockRun], bool]]:
        """Yield each group of blocks that observations show under one label: the stream's own, and the others.

        With the label, and whether the block store knows of them. A stream that has used none of its blocks has no
        others, but for those of a refused operation.
        """
        own, others = (self.used, self.unused) if self.used else (self.unused, [])
        yield self.tag, own, bool(self.used) or not self.is_open
        yield f"{self.tag}+spare", [*others, *self.refused], not self.is_open

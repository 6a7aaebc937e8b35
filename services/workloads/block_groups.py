"""The groups of blocks that observations show under one label, and which of them are still in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from schemas.records import BlockRun
from services.workloads.stream_blocks import StreamBlocks


@dataclass(frozen=True, slots=True)
class PutVersion:
    """A version that the workload has put, with the blocks from the plane's answer."""

    number: int
    volume: str
    bucket: str
    tag: str
    size_bytes: int
    blocks: BlockRun | None


@dataclass(slots=True)
class BlockGroup:
    """Blocks that observations show under one label."""

    number: int
    volume: str
    bucket: str
    label: str
    runs: list[BlockRun]
    is_known: bool
    """Whether the block store knows of the blocks: it hears of them when they become visible or are freed."""
    existing: list[bool] = field(default_factory=list)

    @property
    def is_reclaimed(self) -> bool:
        """Whether all of the blocks are freed."""
        return bool(self.runs) and not any(self.existing)

    @property
    def existing_bytes(self) -> int:
        """The bytes of versions and parts in blocks that exist."""
        pairs = zip(self.runs, self.existing, strict=True)
        return sum(run.size_bytes for run, is_there in pairs if is_there and self.is_known)


Exist = Callable[[Sequence[tuple[str, BlockRun | None]]], list[bool]]
"""Returns for each run of blocks, with its volume, whether it is in the store."""


def block_groups(versions: Iterable[PutVersion], streams: Iterable[StreamBlocks], exist: Exist) -> list[BlockGroup]:
    """Return all groups of blocks in the order of the operations that first wrote them."""
    groups = [
        BlockGroup(one.number, one.volume, one.bucket, one.tag, [one.blocks], is_known=True)
        for one in versions
        if one.blocks is not None
    ]
    for stream in streams:
        for label, runs, is_known in stream.groups():
            groups.append(BlockGroup(stream.number, stream.volume, stream.bucket, label, runs, is_known))
    existing = iter(exist([(group.volume, run) for group in groups for run in group.runs]))
    for group in groups:
        group.existing = [next(existing) or not group.is_known for _ in group.runs]
    return sorted(groups, key=lambda group: group.number)

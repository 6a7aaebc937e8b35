"""Adding written blocks to a version: a new one, or the one that the same client has synced before.

Pure: from the rows before to the rows after. ``writing`` applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from schemas.error_codes import ErrorCode
from schemas.records import BlockRun, KeyPartRow, OpenRun
from services.domain.refusals import CommandError


@dataclass(frozen=True, slots=True)
class Written:
    """What a client has written since its last sync."""

    last_run: BlockRun | None
    """The last run of the version with the bytes that were added to its last block; None if none were added."""
    runs: tuple[OpenRun, ...]
    """Runs that the version gets."""
    unused: tuple[OpenRun, ...]
    """Allocated blocks that have no bytes yet."""
    room_bytes: int
    """Bytes that still fit into the last block of the version."""


def written(
    last_run: BlockRun | None, room_bytes: int, runs: Sequence[OpenRun], size_bytes: int, new_id: Callable[[], int]
) -> Written:
    """Distribute new bytes over the last block of a version, if it has room, and over allocated blocks.

    Args:
        last_run: The last run of the version, if any.
        room_bytes: Bytes that still fit into its last block.
        runs: Allocated blocks, in the order of the content.
        size_bytes: Bytes to distribute.
        new_id: Returns an objectID for the rest of a run that is used in part.

    Raises:
        CommandError: INVALID_REQUEST, the blocks are too few.
    """
    added = min(size_bytes, room_bytes)
    grown = replace(last_run, size_bytes=last_run.size_bytes + added) if last_run and added else None
    left, room_bytes = size_bytes - added, room_bytes - added
    used, unused = list[OpenRun](), list[OpenRun]()
    for run in runs:
        block = run.blocks.block_size_bytes
        count = min(run.blocks.block_count, -(-left // block))
        if not count:
            unused.append(run)
            continue
        taken = min(left, count * block)
        used.append(OpenRun(run.object_id, replace(run.blocks, block_count=count, size_bytes=taken)))
        left, room_bytes = left - taken, count * block - taken
        if rest := run.blocks.block_count - count:
            first = run.blocks.first_local_id + count
            blocks = replace(run.blocks, first_local_id=first, block_count=rest, size_bytes=rest * block)
            unused.append(OpenRun(new_id(), blocks))
    if left:
        raise CommandError(
            ErrorCode.INVALID_REQUEST, f"{left} bytes have no blocks: allocate blocks for them (AllocateBlocks) first"
        )
    return Written(grown, tuple(used), tuple(unused), room_bytes)


def parts_born(runs: Sequence[OpenRun], birth: int) -> list[KeyPartRow]:
    """Return the rows of further runs that become part of a version at a txn."""
    return [KeyPartRow(run.object_id, birth, run.blocks) for run in runs]

"""Messages about blocks, as tests write them."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.records import BlockGroups
from services.domain.row_columns import NO_GROUPS, BlockGroup


def groups_by_columns(found: Iterable[BlockGroup]) -> BlockGroups:
    """Return groups by columns."""
    fields = [
        (
            *(group.bucket_id, group.object_id, group.birth, group.death, group.blocks.container_id),
            *(group.blocks.first_local_id, group.blocks.block_count),
            *(group.blocks.block_size_bytes, group.blocks.size_bytes),
        )
        for group in found
    ]
    return BlockGroups(*zip(*fields, strict=True)) if fields else NO_GROUPS

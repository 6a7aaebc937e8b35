"""Records of scm.commands and scm.replies."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from dataclasses import dataclass

from schemas.records.shared import Barrier, BlockGroups


@dataclass(frozen=True, slots=True)
class BlocksDeleted:
    """Answer to DeleteBlocks."""

    task: int
    """From the command."""
    attempt: int
    """From the command."""
    failed: tuple[int, ...]
    """Places, from 0, of the groups that were not deleted; every other one is confirmed."""


@dataclass(frozen=True, slots=True)
class BlocksWritten:
    """Versions were committed: their blocks are in the block store now. Each version has its place in all four
    lists, which are as long as each other. Sent by metadata.
    """

    bucket_id: int
    """objectID of the bucket."""
    container_id: int
    """Container that holds the blocks."""
    first_local_ids: tuple[int, ...]
    """Of each version the local id of its first block, rising: the inventory is complete up to the last of them."""
    block_counts: tuple[int, ...]
    """Of each version how many blocks it has."""
    block_sizes_bytes: tuple[int, ...]
    """Of each version the size of every block but the last."""
    sizes_bytes: tuple[int, ...]
    """Of each version the size of all its blocks together."""


@dataclass(frozen=True, slots=True)
class DeleteBlocks:
    """Delete these groups. Sent by key_deletion."""

    task: int
    """The sender's number for this batch, returned in the answer."""
    attempt: int
    """Which try this is, from 1; returned in the answer."""
    groups: BlockGroups
    """Each is deleted as a whole or not at all."""


@dataclass(frozen=True, slots=True)
class ScmReply:
    """What the storage container manager answers. Topic scm.replies."""

    body: BlocksDeleted | Barrier
    """The answer."""


@dataclass(frozen=True, slots=True)
class ScmCommand:
    """Something to do for the storage container manager. Topic scm.commands."""

    body: BlocksWritten | DeleteBlocks | Barrier
    """What to do."""

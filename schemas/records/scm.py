"""Records of scm.commands and scm.replies."""

# Made from schemas/avro by python -m schemas.generate: change the schema, then run that.

from __future__ import annotations

from schemas.frozen import record
from schemas.records.shared import Barrier, BlockGroups


@record
class BlocksDeleted:
    """Answer to DeleteBlocks."""

    task: int
    """From the command."""
    attempt: int
    """From the command."""
    failed: tuple[int, ...]
    """Indexes, from 0, of the groups that were not deleted; every other group is confirmed."""


@record
class BlocksWritten:
    """Versions were committed, and their blocks are in the block store. All four lists have the same length, with
    one place per version. Sent by metadata.
    """

    bucket_id: int
    """objectID of the bucket."""
    container_id: int
    """Container that holds the blocks."""
    first_local_ids: tuple[int, ...]
    """For each version, the local id of its first block, ascending. The inventory is complete up to the last of
    these versions.
    """
    block_counts: tuple[int, ...]
    """For each version, its number of blocks."""
    block_sizes_bytes: tuple[int, ...]
    """For each version, the size of every block but the last."""
    sizes_bytes: tuple[int, ...]
    """For each version, the size of all its blocks together."""
    marks: tuple[int, ...] = ()
    """For each version, the local id up to which the inventory is complete with it. Empty: that of its last block.
    Blocks that an earlier command has allocated have a mark of the command that reports them.
    """


@record
class DeleteBlocks:
    """Delete block groups. Sent by key_deletion."""

    task: int
    """The sender's number for this batch, returned in the answer."""
    attempt: int
    """Number of this try, from 1; returned in the answer."""
    groups: BlockGroups
    """The groups; each is deleted as a whole or not at all."""
    until_local_id: int = 0
    """Local id up to which the inventory must be complete before the groups are deleted, if it is above those of all
    their blocks.
    """


@record
class ScmReply:
    """An answer of the storage container manager. Topic scm.replies."""

    body: BlocksDeleted | Barrier
    """The answer."""


@record
class ScmCommand:
    """A command to the storage container manager. Topic scm.commands."""

    body: BlocksWritten | DeleteBlocks | Barrier
    """The command."""

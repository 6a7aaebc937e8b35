"""Blocks that a batch has written, sent to SCM at its end: consecutive ones of a bucket in one message."""

from __future__ import annotations

from itertools import groupby, islice

from schemas.records import BlockRun, BlocksWritten, ScmCommand
from schemas.topics import SCM_COMMANDS
from services.metadata.state.batch_sums import PresentTxn, undo_notes
from services.runtime.loop.service import Work

MAX_VERSIONS_PER_MESSAGE = 10_000


class WrittenBlocks:
    """The blocks of the versions that a batch has committed, in the order of their ids."""

    def __init__(self, present: PresentTxn) -> None:
        self._present = present
        self._written: list[tuple[int, int, BlockRun]] = []
        """txn, bucket and blocks of each version."""

    def clear(self) -> None:
        """Discard the blocks of an aborted batch."""
        self._written.clear()

    def undo_message(self) -> None:
        """Roll back the blocks of the present message, which was not applied."""
        undo_notes(self._written, self._present.txn)

    def add(self, bucket_id: int, blocks: BlockRun) -> None:
        """Add the blocks of a version that the present message has written."""
        self._written.append((self._present.txn, bucket_id, blocks))

    def send(self, work: Work) -> None:
        """Send all blocks to SCM."""
        for (bucket_id, container_id), group in groupby(self._written, lambda one: (one[1], one[2].container_id)):
            while runs := [blocks for _, _, blocks in islice(group, MAX_VERSIONS_PER_MESSAGE)]:
                written = BlocksWritten(
                    bucket_id,
                    container_id,
                    tuple([run.first_local_id for run in runs]),
                    tuple([run.block_count for run in runs]),
                    tuple([run.block_size_bytes for run in runs]),
                    tuple([run.size_bytes for run in runs]),
                )
                work.send(SCM_COMMANDS, ScmCommand(written))
        self.clear()

"""Blocks that a batch has written, told to SCM at its end: those of a bucket that follow each other in one message."""

from __future__ import annotations

from collections.abc import Iterator
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
        """Of each version the txn, the bucket and the blocks."""

    def clear(self) -> None:
        """Forget: the batch was thrown away."""
        self._written.clear()

    def undo_message(self) -> None:
        """The present message was not applied."""
        undo_notes(self._written, self._present.txn)

    def add(self, bucket_id: int, blocks: BlockRun) -> None:
        """The present message has written the blocks of a version."""
        self._written.append((self._present.txn, bucket_id, blocks))

    def send(self, work: Work) -> None:
        """Tell SCM."""
        for written in self._messages():
            work.send(SCM_COMMANDS, ScmCommand(written))
        self.clear()

    def _messages(self) -> Iterator[BlocksWritten]:
        for (bucket_id, container_id), group in groupby(self._written, lambda one: (one[1], one[2].container_id)):
            while runs := [blocks for _, _, blocks in islice(group, MAX_VERSIONS_PER_MESSAGE)]:
                yield BlocksWritten(
                    bucket_id,
                    container_id,
                    tuple([run.first_local_id for run in runs]),
                    tuple([run.block_count for run in runs]),
                    tuple([run.block_size_bytes for run in runs]),
                    tuple([run.size_bytes for run in runs]),
                )

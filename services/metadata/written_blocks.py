"""Blocks that a batch has written, told to SCM at its end: those of a bucket that follow each other in one message."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, islice

from schemas.records import BlockRun, BlocksWritten, ScmCommand
from schemas.topics import SCM_COMMANDS
from services.runtime.service import Work

MAX_VERSIONS_PER_MESSAGE = 10_000


class WrittenBlocks:
    """The blocks of the versions that a batch has committed, in the order of their ids."""

    def __init__(self) -> None:
        self._message: list[tuple[int, BlockRun]] = []
        self._batch: list[tuple[int, BlockRun]] = []

    def clear(self) -> None:
        """Forget: the batch was thrown away."""
        self._message.clear()
        self._batch.clear()

    def undo_message(self) -> None:
        """The present message was not applied."""
        self._message.clear()

    def add(self, bucket_id: int, blocks: BlockRun) -> None:
        """The present message has written the blocks of a version."""
        self._message.append((bucket_id, blocks))

    def keep_message(self) -> None:
        """The present message was applied."""
        if self._message:
            self._batch += self._message
            self._message.clear()

    def send(self, work: Work) -> None:
        """Tell SCM."""
        for written in self._messages():
            work.send(SCM_COMMANDS, ScmCommand(written))
        self.clear()

    def _messages(self) -> Iterator[BlocksWritten]:
        for (bucket_id, container_id), group in groupby(self._batch, lambda one: (one[0], one[1].container_id)):
            while runs := [blocks for _, blocks in islice(group, MAX_VERSIONS_PER_MESSAGE)]:
                yield BlocksWritten(
                    bucket_id,
                    container_id,
                    tuple([run.first_local_id for run in runs]),
                    tuple([run.block_count for run in runs]),
                    tuple([run.block_size_bytes for run in runs]),
                    tuple([run.size_bytes for run in runs]),
                )

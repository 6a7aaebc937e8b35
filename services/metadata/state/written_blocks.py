"""Blocks that a batch has written, sent to SCM at its end: consecutive ones of a bucket in one message."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, islice

from schemas.records import BlockRun, BlocksWritten, ScmCommand
from schemas.topics import SCM_COMMANDS
from services.domain.errors import InvariantError
from services.domain.table_keys import local_id
from services.metadata.state.batch_sums import PresentTxn, undo_notes
from services.runtime.loop.service import Work

MAX_VERSIONS_PER_MESSAGE = 10_000
MAX_LATE_REPORTS = 65_535
"""Maximum late reports of a txn: its block ids but the first are their marks. A mark of the next txn would hide the
blocks of that one from the block store."""


class WrittenBlocks:
    """The blocks of the versions that a batch has committed, in the order of their ids."""

    def __init__(self, present: PresentTxn) -> None:
        self._present = present
        self._written: list[tuple[int, int, BlockRun]] = []
        """txn, bucket and blocks of each version."""
        self._marks: dict[int, int] = {}
        """For each place in this list with a late report its mark."""
        self._late = (0, 0)
        """txn of the last late report, and the number of them in this txn."""

    def clear(self) -> None:
        """Discard the blocks of an aborted batch."""
        self._written.clear()
        self._marks.clear()
        self._late = (0, 0)

    def undo_message(self) -> None:
        """Roll back the blocks of the present message, which was not applied."""
        undo_notes(self._written, self._present.txn)
        for place in [place for place in self._marks if place >= len(self._written)]:
            del self._marks[place]
        if self._late[0] == self._present.txn:
            self._late = (0, 0)

    def add(self, bucket_id: int, blocks: BlockRun) -> None:
        """Add the blocks of a version that the present message has written."""
        self._written.append((self._present.txn, bucket_id, blocks))

    def add_late(self, shard: int, bucket_id: int, blocks: BlockRun) -> int:
        """Add blocks that an earlier command has allocated, or whose size has changed. Return the mark of the report.

        The ids of these blocks are not in the order of the reports, so the mark is an id of the present txn, which has
        no blocks of its own.
        """
        txn, count = self._late
        count = count + 1 if txn == self._present.txn else 1
        self._late = (self._present.txn, count)
        if count > MAX_LATE_REPORTS:
            raise InvariantError(f"txn {txn} reports more than {MAX_LATE_REPORTS} runs; report it with the log")
        mark = local_id(shard, self._present.txn, count)
        self._marks[len(self._written)] = mark
        self._written.append((self._present.txn, bucket_id, blocks))
        return mark

    def send(self, work: Work) -> None:
        """Send all blocks to SCM."""
        first = 0
        for (bucket_id, container_id), group in groupby(self._written, lambda one: (one[1], one[2].container_id)):
            while runs := [blocks for _, _, blocks in islice(group, MAX_VERSIONS_PER_MESSAGE)]:
                written = BlocksWritten(
                    bucket_id,
                    container_id,
                    tuple([run.first_local_id for run in runs]),
                    tuple([run.block_count for run in runs]),
                    tuple([run.block_size_bytes for run in runs]),
                    tuple([run.size_bytes for run in runs]),
                    self._marks_of(runs, first),
                )
                work.send(SCM_COMMANDS, ScmCommand(written))
                first += len(runs)
        self.clear()

    def _marks_of(self, runs: Sequence[BlockRun], first: int) -> tuple[int, ...]:
        """Return the marks of the runs from a place in the list on; none if no report of the batch is late."""
        if not self._marks:
            return ()
        lasts = [run.first_local_id + run.block_count - 1 for run in runs]
        return tuple([self._marks.get(place, last) for place, last in enumerate(lasts, start=first)])

"""Settling: a request is answered when two rounds in a row have found no work anywhere in the plane.

A round is one barrier, sent after all earlier messages of this service. The barrier passes every service and returns
on two branches; each branch adds the work that the barrier met. A round ends when both branches have returned and the
figures of ``gc.space`` are complete up to both, so that reads after the answer return final figures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from schemas.error_codes import ErrorCode
from schemas.records import Barrier, MetadataProgress, Settle, SettleRow, SnapshotCommand, SnapshotReply
from services.domain.refusals import CommandError
from services.runtime.loop.service import Work
from services.runtime.parts.collection_follower import CollectionFollower
from services.snapshots.metrics import SnapshotsMetrics
from services.snapshots.state.answers import Answers
from services.snapshots.state.commands import send_to_metadata
from services.snapshots.state.tables import RETURNED_BARRIER_TABLE, SETTLE_TABLE, returned_barrier_key
from services.storage.tables import Tables

BRANCHES = ("key_deletion", "directory_deletion")
QUIET_ROUNDS = 2


@dataclass(eq=False, repr=False)
class Settling:
    """All settle requests in progress. Each has its own barrier; work that any barrier met counts for all requests.

    A service reports the work since the last barrier of any request. If that work counted only for the request of the
    barrier, two concurrent requests would each see half of the work.
    """

    _answers: Answers
    _own_work: Callable[[], int]
    _metrics: SnapshotsMetrics
    _collection: CollectionFollower
    _requests: dict[str, SettleRow] = field(default_factory=dict)
    _returned_txns: dict[tuple[str, str], int] = field(default_factory=dict)

    def restore(self, tables: Tables) -> None:
        """Read the requests and the returned barriers from the tables."""
        self._requests = {row.barrier_id: row for _, row in tables.table(SETTLE_TABLE).scan()}
        self._returned_txns.clear()
        for _, progress in tables.table(RETURNED_BARRIER_TABLE).scan():
            barrier = progress.body
            if isinstance(barrier, Barrier):
                self._returned_txns[barrier.barrier_id, barrier.origin] = progress.txn

    def unanswered(self) -> set[tuple[str, int]]:
        """Return client id and number of the commands that have no answer yet."""
        return {(row.client_id, row.number) for row in self._requests.values() if row.client_id}

    def begin(self, command: SnapshotCommand, request: Settle, work: Work) -> None:
        """Send the first barrier of a request.

        Raises:
            CommandError: INVALID_REQUEST.
        """
        if not request.barrier_id or len(request.barrier_id) > 256 or "/" in request.barrier_id:
            raise CommandError(ErrorCode.INVALID_REQUEST, "a barrier id has 1 to 256 characters, none of them a slash")
        if request.barrier_id in self._requests:
            raise CommandError(
                ErrorCode.INVALID_REQUEST, f"barrier {request.barrier_id} is on its way already; choose a new id"
            )
        row = SettleRow(request.barrier_id, command.client_id, command.number, 0, 0, 0, ())
        self._begin_round(row, work)

    def work_was_done(self, work: Work) -> None:
        """Count work of this service: no round in progress is quiet."""
        self._add_work(1, work)

    def barrier_returned(self, progress: MetadataProgress, barrier: Barrier, work: Work) -> None:
        """Record that a barrier has returned on one branch, and count the work that it met."""
        found = barrier.work + self._collection.is_behind(barrier)
        if found:
            self._add_work(found, work)
        row = self._requests.get(barrier.barrier_id)
        if (
            row is None
            or barrier.round != row.round
            or barrier.origin not in BRANCHES
            or barrier.origin in row.returned
        ):
            return
        work.table(RETURNED_BARRIER_TABLE).put(returned_barrier_key(row.barrier_id, barrier.origin), progress)
        self._returned_txns[row.barrier_id, barrier.origin] = progress.txn
        self._put(replace(row, returned=(*row.returned, barrier.origin)), work)

    def end_rounds(self, space_txn: int, work: Work) -> list[str]:
        """End the rounds that are complete. Return the barrier ids of the settled requests."""
        settled = []
        for _, row in sorted(self._requests.items()):  # the order in which a restart reads them
            is_back = len(row.returned) == len(BRANCHES)
            if is_back and space_txn >= max(self._returned_txns[row.barrier_id, branch] for branch in BRANCHES):
                quiet_rounds = 0 if row.work else row.quiet_rounds + 1
                if quiet_rounds < QUIET_ROUNDS:
                    self._begin_round(replace(row, quiet_rounds=quiet_rounds), work)
                else:
                    self._end(row, SnapshotReply(row.client_id, row.number, rounds=row.round), work)
                    self._metrics.commands.labels("settle").inc()
                    settled.append(row.barrier_id)
        return settled

    def give_up(self, error: CommandError, work: Work) -> None:
        """Answer every request with an error."""
        for _, row in sorted(self._requests.items()):
            self._end(row, SnapshotReply(row.client_id, row.number, error.code, str(error), rounds=row.round), work)

    def _begin_round(self, row: SettleRow, work: Work) -> None:
        self._forget_returned(row, work)
        own_work = self._own_work()
        row = replace(row, round=row.round + 1, work=own_work, returned=())
        self._put(row, work)
        self._metrics.settle_rounds.inc()
        known_txn = self._collection.complete_txn
        send_to_metadata(Barrier(row.barrier_id, row.round, own_work, "", known_txn), work)

    def _end(self, row: SettleRow, reply: SnapshotReply, work: Work) -> None:
        self._forget_returned(row, work)
        del self._requests[row.barrier_id]
        work.table(SETTLE_TABLE).delete(row.barrier_id.encode())
        self._answers.answer(reply, work)

    def _forget_returned(self, row: SettleRow, work: Work) -> None:
        for origin in row.returned:
            self._returned_txns.pop((row.barrier_id, origin), None)
            work.table(RETURNED_BARRIER_TABLE).delete(returned_barrier_key(row.barrier_id, origin))

    def _add_work(self, count: int, work: Work) -> None:
        for row in list(self._requests.values()):
            self._put(replace(row, work=row.work + count), work)

    def _put(self, row: SettleRow, work: Work) -> None:
        self._requests[row.barrier_id] = row
        work.table(SETTLE_TABLE).put(row.barrier_id.encode(), row)

"""Deleted directories in progress: each is expanded whatever its verdict, and removed when no snapshot holds it.

A directory is expanded at once, or at the end of the undo window; until then undelete restores its tree as a whole.

While the collection state of a bucket allows no expansion, a directory that waits for it stays in the table and in no
queue, and is not counted as work: undelete can still restore its tree as a whole. An expansion that has begun
continues. While the state allows no claims, the rows of expanded directories wait.

The row of a directory is removed last: metadata keeps it while the row of a sub-directory of the same deletion is
left. The directory is then BLOCKED, and stays in the table as long as a snapshot holds that child. The answer to each
removal names the parent, and a BLOCKED parent is tried again at once. The parent's key consists of the child's bucket
and death and the parent's id, so that a restart loses nothing. A BLOCKED row is not counted as work: the plane can do
nothing about it.

If metadata suspends a removal and no pause is known here, the row waits, longer each time, until the collection state
is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

import structlog

from schemas.records import (
    DeletedKind,
    DirectoryExpanded,
    DirectoryRemoval,
    ExpandDirectory,
    ExpansionOutcome,
    JudgedDirectory,
    MetadataCommand,
    RemovalOutcome,
    RemoveDirectories,
    RowName,
    TreeRow,
)
from schemas.topics import METADATA_COMMANDS
from services.directory_deletion.metrics import UNJUDGEABLE, DirectoryDeletionMetrics
from services.directory_deletion.settings import DirectoryDeletionSettings
from services.directory_deletion.tables import TREE_TABLE, TreeState, tree_row_key
from services.domain.chain_view import ChainView, ChainViewError
from services.domain.collection import WHOLE_SHARD, may_claim, may_expand
from services.domain.durations import backoff_ms
from services.domain.reclaimability import LifetimeError, Verdict
from services.domain.table_keys import bucket_id_prefix
from services.runtime.loop.service import Work
from services.runtime.parts.ahead import WHY_FALSE, AheadOfChain
from services.runtime.parts.collection_follower import CollectionFollower
from services.runtime.parts.counts import count_done
from services.runtime.parts.due import AT_ONCE, UNSET, DueQueue
from services.runtime.parts.undo_window import UndoWindow
from services.storage.store import prefix_end
from services.storage.tables import Tables

logger = structlog.get_logger(__name__)

MAX_NAME_BYTES = 41
"""Most bytes that the name of a row takes in a message, with encoded 64-bit numbers."""
_CLAIMED_NEXT = (TreeState.EXPANDED, TreeState.BLOCKED, TreeState.SUSPENDED)
_OBJECT_ID_DIGITS = 16
"""Length of the object id at the end of a key. Bucket and death precede it."""


def _key(row: TreeRow) -> bytes:
    return tree_row_key(row.bucket_id, row.death, row.object_id)


def _is_work(row: TreeRow) -> bool:
    """Return whether a settle waits for a row: not if it is BLOCKED or SUSPENDED, or in a retry after that."""
    return row.state in (TreeState.WAITING, TreeState.EXPANDING) or (
        row.state not in (TreeState.BLOCKED, TreeState.SUSPENDED) and row.attempt == 1
    )


class Trees:
    """All deleted directories of the shard that are in progress."""

    def __init__(
        self, settings: DirectoryDeletionSettings, metrics: DirectoryDeletionMetrics, collection: CollectionFollower
    ) -> None:
        self._settings = settings
        self._collection = collection
        self._metrics = metrics
        self._states: Counter[str] = Counter()
        self.work = 0
        """Directories for which a settle waits."""
        self._to_expand: DueQueue[bytes] = DueQueue()
        """By the ends of undo windows, which are moments: none may end early, whatever clock looks at it later."""
        self._to_remove: DueQueue[bytes] = DueQueue()
        """By the chain versions of the first judge's verdicts."""
        self._ahead = AheadOfChain()
        self._blocked: DueQueue[bytes] = DueQueue(settings.longest_blocked_ms)
        self._suspended: DueQueue[bytes] = DueQueue(settings.longest_blocked_ms)
        self._timeouts: DueQueue[bytes] = DueQueue(settings.answer_timeout_ms)
        self._unheard_deaths: set[bytes] = set()
        self._window = UndoWindow(settings.undo_window_ms)
        self._must_end_windows = False
        self._queues: dict[str, DueQueue[bytes]] = {
            TreeState.WAITING: self._to_expand,
            TreeState.EXPANDING: self._timeouts,
            TreeState.EXPANDED: self._to_remove,
            TreeState.REMOVING: self._timeouts,
            TreeState.BLOCKED: self._blocked,
            TreeState.SUSPENDED: self._suspended,
        }

    def restore(self, tables: Tables) -> None:
        """Read the state from the tables."""
        self._unheard_deaths.clear()
        self._window.restore(tables)
        self._must_end_windows = False
        self._states.clear()
        self.work = 0
        for queue in self._queues.values():
            queue.clear()
        for _, row in tables.table(TREE_TABLE).scan():
            self._enlist(row)

    def collection_changed(self, bucket_ids: Collection[int], work: Work) -> None:
        """Move the rows of some buckets to the queues that belong to their new collection states.

        SUSPENDED rows of all buckets are tried again: the reason of their suspension may be known now, or over. No
        other row is read.
        """
        prefixes = [bucket_id_prefix(bucket_id) for bucket_id in bucket_ids]
        ranges = [()] if WHOLE_SHARD in bucket_ids else [(prefix, prefix_end(prefix)) for prefix in prefixes]
        for bounds in ranges:
            for key, row in work.table(TREE_TABLE).scan(*bounds):
                self._enlist_again(key, row)
        for key in (*self._suspended.members(), *self._suspended.untimed()):
            waiting = work.table(TREE_TABLE).get(key)
            if waiting is not None:
                self._step(waiting, TreeState.EXPANDED, work, attempt=1)

    def receive(self, judged: JudgedDirectory, chain_version: int, work: Work) -> None:
        """Add a directory that the first judge has judged; update it if it is known."""
        key = tree_row_key(judged.bucket_id, judged.death, judged.object_id)
        row = work.table(TREE_TABLE).get(key)
        if row is None:
            row = TreeRow(
                bucket_id=judged.bucket_id,
                object_id=judged.object_id,
                birth=judged.birth,
                death=judged.death,
                snapshots_before_death=judged.snapshots_before_death,
                chain_version=chain_version,
                is_reclaimable=judged.is_reclaimable,
                state=TreeState.WAITING,
                attempt=1,
                due_ms=UNSET,
            )
            self._put(None, row, work)
        elif row.state == TreeState.BLOCKED:
            self._step(row, TreeState.EXPANDED, work, attempt=1)
        elif judged.is_reclaimable and (not row.is_reclaimable or chain_version < row.chain_version):
            # Of two verdicts the one counts that the chain comes to first: it may never come to the other one.
            told = replace(
                row,
                birth=judged.birth,
                snapshots_before_death=judged.snapshots_before_death,
                chain_version=chain_version,
                is_reclaimable=True,
            )
            self._put(row, told, work)
        count_done(work)

    def expanded(self, answer: DirectoryExpanded, work: Work) -> None:
        """Apply metadata's answer to a page of an expansion. The answer to a repeated request is ignored."""
        row = work.table(TREE_TABLE).get(tree_row_key(answer.bucket_id, answer.death, answer.object_id))
        if row is None or row.state != TreeState.EXPANDING:
            return
        count_done(work)
        self._metrics.moved_directories.inc(answer.moved_directories)
        self._metrics.moved_files.inc(answer.moved_files)
        if answer.outcome is ExpansionOutcome.PARTLY:
            self._expand(row, work)
            return
        self._metrics.expansions.inc()
        if answer.outcome is ExpansionOutcome.EXPANDED and row.is_reclaimable:
            self._step(row, TreeState.EXPANDED, work, attempt=1)
        else:
            # Missing, or held by a snapshot: after the drop of the snapshot a sweep sends the row again.
            self._forget(row, work)

    def removed(self, answer: DirectoryRemoval, work: Work) -> None:
        """Apply metadata's answer to the removal of a row. A parent that waits for the row is tried again at once."""
        self._metrics.removals.labels(answer.outcome.value.lower()).inc()
        if answer.outcome is RemovalOutcome.REMOVED:
            self._wake(tree_row_key(answer.bucket_id, answer.death, answer.parent_id), work)
        row = work.table(TREE_TABLE).get(tree_row_key(answer.bucket_id, answer.death, answer.object_id))
        if row is None:
            return
        if answer.outcome in (RemovalOutcome.HAS_CHILDREN, RemovalOutcome.SUSPENDED):
            if row.state == TreeState.REMOVING:  # else it repeats an answer to an earlier request
                self._put_off(row, answer.outcome, work)
            return
        count_done(work)
        if answer.outcome is RemovalOutcome.UNEXPANDED:
            self._step(row, TreeState.WAITING, work, attempt=1)
            return
        if answer.outcome is RemovalOutcome.MISSING:
            # Removed before, and that answer was lost. Its parent is unknown, but has the same death.
            self._unheard_deaths.add(tree_row_key(answer.bucket_id, answer.death, 0)[:-_OBJECT_ID_DIGITS])
        if answer.outcome is RemovalOutcome.HELD:
            self._metrics.removals_refused.inc()
            logger.error("purge refused, the directory is held: kept", row=row)
        self._forget(row, work)

    def _put_off(self, row: TreeRow, outcome: RemovalOutcome, work: Work) -> None:
        """Park a row: BLOCKED if it has children; if it is suspended, EXPANDED where this service knows of the
        suspension, else SUSPENDED.
        """
        if _is_work(row):
            count_done(work)
        if outcome is RemovalOutcome.HAS_CHILDREN:
            self._step(row, TreeState.BLOCKED, work, attempt=row.attempt + 1)
        elif may_claim(self._collection.of(row.bucket_id)):
            self._step(row, TreeState.SUSPENDED, work, attempt=row.attempt + 1)
        else:
            self._step(row, TreeState.EXPANDED, work, attempt=1)

    def make_due(self, passed_txn: int, work: Work) -> None:
        """End the pauses of BLOCKED rows, and the undo windows of all deaths up to a txn."""
        for key in self._blocked.members():
            row = work.table(TREE_TABLE).get(key)
            if row is not None and row.due_ms != AT_ONCE:
                self._put(row, replace(row, due_ms=AT_ONCE), work)
        self._window.ended(passed_txn, work)
        self._must_end_windows = self._window.window_ms > 0

    def _end_windows(self, now_ms: int, work: Work) -> None:
        """Make the expansions due whose windows have ended, after those that were due before."""
        self._must_end_windows = False
        for key in self._to_expand.members():
            row = work.table(TREE_TABLE).get(key)
            if row is not None and self._window.is_over(row.death) and row.due_ms > now_ms:
                self._put(row, replace(row, due_ms=now_ms), work)

    def tick(self, now_ms: int, view: ChainView, work: Work) -> None:
        """Set due times of changed rows, send late requests again, start expansions and removals that have room."""
        if self._must_end_windows:
            self._end_windows(now_ms, work)
        for queue in self._queues.values():
            for key in queue.to_be_timed(now_ms):
                self._schedule(key, now_ms, work)
        while (late := self._timeouts.pop_due(now_ms)) is not None:
            self._ask_again(late, now_ms, work)
        self._wake_unheard(work)
        self._try_again(now_ms, work)
        while self._states[TreeState.EXPANDING] < self._settings.max_expansions_in_flight:
            waiting = self._to_expand.pop_due(now_ms)
            if waiting is None:
                break
            row = work.table(TREE_TABLE).get(waiting)
            if row is not None:
                self._window.ended(row.death, work)
                self._expand(row, work, now_ms + self._settings.answer_timeout_ms)
        while self._remove_some(view, now_ms, work):
            pass
        if (self._to_remove.next_due_ms() or 0) > view.version and self._ahead.are_false(view, now_ms, work):
            self._give_up(view, work)

    def report(self, shard: str) -> None:
        """Set the gauges."""
        for state in TreeState:
            self._metrics.directories.labels(shard, state.value.lower()).set(self._states[state])

    def _expand(self, row: TreeRow, work: Work, due_ms: int = UNSET) -> None:
        page = ExpandDirectory(
            row.bucket_id, row.object_id, row.death, self._settings.max_page_entries, self._settings.max_page_bytes
        )
        self._send(page, work)
        self._step(row, TreeState.EXPANDING, work, due_ms=due_ms)

    def _remove_some(self, view: ChainView, now_ms: int, work: Work) -> bool:
        """Send one command that removes rows. Return whether rows may be left for another one."""
        in_flight = self._states[TreeState.REMOVING]
        rows: list[TreeRow] = []
        max_rows = max(1, min(self._settings.max_removal_rows, self._settings.max_removal_bytes // MAX_NAME_BYTES))
        while len(rows) < max_rows and in_flight + len(rows) < self._settings.max_removing_rows:
            key = self._to_remove.pop_due(view.version)
            if key is None:
                break
            row = work.table(TREE_TABLE).get(key)
            if row is not None and self._is_judged_again(row, view, work):
                rows.append(row)
        if not rows:
            return False
        # A child is usually younger than its parent: if the child is removed first, it does not block the parent.
        rows.sort(key=lambda row: row.object_id, reverse=True)
        names = tuple(RowName(DeletedKind.DIRECTORY, r.bucket_id, r.object_id, r.birth, r.death) for r in rows)
        self._send(RemoveDirectories(view.version, names), work)
        for row in rows:
            self._step(row, TreeState.REMOVING, work, due_ms=now_ms + self._settings.answer_timeout_ms)
        return len(rows) == max_rows

    def _try_again(self, now_ms: int, work: Work) -> None:
        for paused in (self._blocked, self._suspended):
            while (due := paused.pop_due(now_ms)) is not None:
                row = work.table(TREE_TABLE).get(due)
                if row is not None:
                    self._step(row, TreeState.EXPANDED, work)

    def _is_judged_again(self, row: TreeRow, view: ChainView, work: Work) -> bool:
        """Return whether no snapshot holds a directory in this judge's view. Forget one that is held or cannot be
        judged: metadata keeps its row.
        """
        try:
            verdict = view.judge(row.bucket_id, row.birth, row.death, row.snapshots_before_death)
        except (ChainViewError, LifetimeError) as error:
            self._metrics.rows_judged.labels(UNJUDGEABLE).inc()
            logger.error("directory cannot be judged: kept", row=row, reason=str(error))
        else:
            self._metrics.rows_judged.labels(verdict.value).inc()
            if verdict is Verdict.RECLAIMABLE:
                return True
            logger.error("first judge let a held directory pass: kept", row=row, verdict=verdict.value)
        self._forget(row, work)
        return False

    def _give_up(self, view: ChainView, work: Work) -> None:
        """Forget the directories whose verdicts are ahead of the chain. metadata keeps the rows, for a sweep."""
        for key in self._to_remove.members():
            row = work.table(TREE_TABLE).get(key)
            if row is not None and row.chain_version > view.version:
                self._metrics.rows_judged.labels(UNJUDGEABLE).inc()
                reason = f"{WHY_FALSE} is {row.chain_version}"
                logger.error("directory cannot be judged: kept", row=row, reason=reason, chain_version=view.version)
                self._forget(row, work)

    def _wake(self, parent_key: bytes, work: Work) -> None:
        parent = work.table(TREE_TABLE).get(parent_key)
        if parent is not None and parent.state == TreeState.BLOCKED:
            self._step(parent, TreeState.EXPANDED, work, attempt=1)
        elif parent is not None and parent.state == TreeState.REMOVING:
            # Until now this was only a retry, for which a settle does not wait; now it can succeed and counts as work.
            self._put(parent, replace(parent, attempt=1), work)

    def _wake_unheard(self, work: Work) -> None:
        """Try the BLOCKED directories again whose child may have been removed by a lost answer, in one pass for all."""
        if self._unheard_deaths:
            for key in self._blocked.members():
                if key[:-_OBJECT_ID_DIGITS] in self._unheard_deaths:
                    self._wake(key, work)
            self._unheard_deaths.clear()

    def _ask_again(self, key: bytes, now_ms: int, work: Work) -> None:
        row = work.table(TREE_TABLE).get(key)
        if row is None:
            return
        logger.warning("no answer in time: asked again", row=row)
        self._metrics.asked_again.labels(row.state.lower()).inc()
        if row.state == TreeState.EXPANDING:
            self._expand(row, work, now_ms + self._settings.answer_timeout_ms)
        else:
            self._step(row, TreeState.EXPANDED, work)

    def _schedule(self, key: bytes, now_ms: int, work: Work) -> None:
        row = work.table(TREE_TABLE).get(key)
        if row is None:
            return
        pause_ms = self._settings.answer_timeout_ms
        if row.state == TreeState.WAITING:
            # By arrival: in the order of keys, held directories that sweeps send repeatedly would always come first.
            pause_ms = 0 if self._window.is_over(row.death) else self._window.window_ms
        elif row.state in (TreeState.BLOCKED, TreeState.SUSPENDED):
            pause_ms = backoff_ms(self._settings.first_blocked_ms, self._settings.longest_blocked_ms, row.attempt - 1)
        self._put(row, replace(row, due_ms=now_ms + pause_ms), work)

    def _send(self, body: ExpandDirectory | RemoveDirectories, work: Work) -> None:
        command = MetadataCommand(work.shard, "", 0, body, sender="directory_deletion", wants_reply=False)
        work.send(METADATA_COMMANDS, command)

    def _step(
        self, row: TreeRow, state: TreeState, work: Work, *, attempt: int | None = None, due_ms: int = UNSET
    ) -> None:
        """Move a row to a step. The tick of this unit of work sets the due time, unless ``due_ms`` is given."""
        self._put(row, replace(row, state=state, attempt=attempt or row.attempt, due_ms=due_ms), work)

    def _put(self, before: TreeRow | None, row: TreeRow, work: Work) -> None:
        if before is not None:
            self._delist(before)
        work.table(TREE_TABLE).put(_key(row), row)
        self._enlist(row)

    def _forget(self, row: TreeRow, work: Work) -> None:
        self._delist(row)
        work.table(TREE_TABLE).delete(_key(row))

    def _is_suspended(self, row: TreeRow) -> bool:
        """Return whether a directory stays as it is until its collection state becomes looser."""
        if self._collection.is_running:
            return False
        state = self._collection.of(row.bucket_id)
        if row.state == TreeState.WAITING:
            return not may_expand(state)
        return row.state in _CLAIMED_NEXT and not may_claim(state)

    def _enlist(self, row: TreeRow) -> None:
        self._states[row.state] += 1
        if self._is_suspended(row):
            return
        self.work += _is_work(row)
        if row.state == TreeState.EXPANDED:
            self._to_remove.set(_key(row), row.chain_version)
        elif row.due_ms == UNSET:
            self._queues[row.state].add(_key(row))
        else:
            self._queues[row.state].set(_key(row), row.due_ms)

    def _enlist_again(self, key: bytes, row: TreeRow) -> None:
        """Do as ``_delist`` and ``_enlist``, for a row whose queue was chosen by an earlier collection state."""
        queue = self._queues[row.state]
        if key in queue:
            self.work -= _is_work(row)
            queue.discard(key)
        self._states[row.state] -= 1
        self._enlist(row)

    def _delist(self, row: TreeRow) -> None:
        self._states[row.state] -= 1
        if self._is_suspended(row):
            return
        self.work -= _is_work(row)
        self._queues[row.state].discard(_key(row))

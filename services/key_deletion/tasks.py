"""Tasks: batches of rows that metadata claims, whose blocks SCM deletes, and that metadata then finishes.

SCM gets only blocks that metadata's answer to a claim has named. Metadata finishes only rows whose blocks SCM has
confirmed. An answer that is not for the current step of its task is a repeat, and is ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog

from schemas.records import (
    BlockGroups,
    BlocksDeleted,
    ClaimRows,
    DeleteBlocks,
    FinishRows,
    MetadataCommand,
    RowNames,
    RowsClaimed,
    RowsFinished,
    ScmCommand,
    TaskRow,
)
from schemas.topics import METADATA_COMMANDS, SCM_COMMANDS
from services.domain.durations import backoff_ms
from services.domain.row_columns import (
    NO_GROUPS,
    check_lengths,
    each_once,
    group_columns,
    groups_at,
    names_of_groups,
    row_count,
    row_names,
)
from services.key_deletion.metrics import KeyDeletionMetrics
from services.key_deletion.settings import KeyDeletionSettings
from services.key_deletion.tables import TASK, TASK_TABLE, TaskState, number_key, number_of_key
from services.runtime.loop.service import Work
from services.runtime.parts.counts import count_done, next_number
from services.runtime.parts.due import AT_ONCE, UNSET, DueQueue
from services.storage.tables import Tables

logger = structlog.get_logger(__name__)

MAX_ROW_BYTES = 85
"""Most bytes that a row takes in any message of a task: a block group of encoded 64-bit numbers."""


@dataclass(frozen=True, slots=True)
class _OpenTask:
    """The facts about a task that are kept in memory."""

    state: TaskState
    is_retry: bool
    unconfirmed_bytes: int


class Tasks:
    """All tasks of the shard."""

    def __init__(self, settings: KeyDeletionSettings, metrics: KeyDeletionMetrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._open: dict[int, _OpenTask] = {}
        self._steps: Counter[TaskState] = Counter()
        self._retries_in_flight = 0
        self._unconfirmed_bytes = 0
        self._timeouts: DueQueue[int] = DueQueue(settings.answer_timeout_ms)
        self._retries: DueQueue[int] = DueQueue(settings.longest_retry_ms)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def max_rows(self) -> int:
        """Return the largest number of rows of one task, by both limits."""
        return max(1, min(self._settings.max_task_rows, self._settings.max_task_bytes // MAX_ROW_BYTES))

    @property
    def has_room(self) -> bool:
        """Return whether one more task may be in flight."""
        return len(self._open) - self._steps[TaskState.FAILED] < self._settings.max_tasks_in_flight

    @property
    def claiming(self) -> int:
        """Return the number of tasks whose claim is not answered yet."""
        return self._steps[TaskState.CLAIMING]

    @property
    def are_failing(self) -> bool:
        """Return whether any block group that the block store failed to delete is still not deleted."""
        return self._retries_in_flight > 0 or self._steps[TaskState.FAILED] > 0

    def restore(self, tables: Tables) -> None:
        """Read the state from the tables."""
        self._open.clear()
        self._steps.clear()
        self._retries_in_flight = self._unconfirmed_bytes = 0
        self._timeouts.clear()
        self._retries.clear()
        for key, row in tables.table(TASK_TABLE).scan():
            self._remember(number_of_key(key), row)

    def start(
        self, found: Sequence[RowNames], chain_version: int, now_ms: int, work: Work, first_judge_version: int = 0
    ) -> None:
        """Start a task that claims rows; the chain versions are those of the verdicts here and of the first judge."""
        task = next_number(TASK, work, now_ms)
        rows = each_once(found)
        row = TaskRow(TaskState.CLAIMING, 1, UNSET, chain_version, rows, NO_GROUPS, first_judge_version)
        self._enter(task, row, work)
        self._schedule(task, now_ms, work)

    def claimed(self, answer: RowsClaimed, work: Work) -> int:
        """Apply metadata's answer to a claim: send the claimed blocks to SCM. Return their bytes."""
        row = self._expected(answer.task, TaskState.CLAIMING, work)
        if row is None or not _is_answer_to(answer, row):
            return 0
        for outcome, found in (
            ("claimed", (names_of_groups(answer.groups),)),
            ("removed", answer.removed),
            ("missing", answer.missing),
            ("refused", answer.refused),
            ("suspended", answer.suspended),  # no further step: they are swept after the resume
        ):
            self._metrics.rows_claimed.labels(outcome).inc(row_count(found))
        for name in row_names(answer.refused):
            self._metrics.claims_refused.inc()
            logger.error("claim refused, the row is held: kept", row=name, chain_version=row.chain_version)
        if answer.groups.object_ids:
            deleting = replace(row, state=TaskState.DELETING, rows=(), groups=answer.groups)
            self._enter(answer.task, replace(deleting, reported_local_id=answer.reported_local_id), work)
        else:
            self._end(answer.task, work)
        return sum(answer.groups.sizes_bytes)

    def deleted(self, answer: BlocksDeleted, work: Work) -> None:
        """Apply SCM's answer: finish confirmed groups; failed ones are retried, as a task of their own if need be."""
        row = self._expected(answer.task, TaskState.DELETING, work)
        if row is None or row.attempt != answer.attempt:
            return
        failed, confirmed = _split(row.groups, answer.failed)
        confirmed_count = len(confirmed.object_ids)
        self._metrics.groups.labels("confirmed").inc(confirmed_count)
        self._metrics.groups.labels("failed").inc(len(failed.object_ids))
        self._metrics.confirmed_bytes.inc(sum(confirmed.sizes_bytes))
        retry = replace(row, state=TaskState.FAILED, attempt=row.attempt + 1, groups=failed)
        if not confirmed_count:
            self._enter(answer.task, retry, work)
            return
        names = (names_of_groups(confirmed),)
        self._enter(answer.task, replace(row, state=TaskState.FINISHING, rows=names, groups=NO_GROUPS), work)
        if failed.object_ids:
            self._enter(next_number(TASK, work), retry, work)

    def finished(self, answer: RowsFinished, work: Work) -> None:
        """End a task whose rows metadata has removed."""
        if self._expected(answer.task, TaskState.FINISHING, work) is not None:
            self._end(answer.task, work)

    def make_due(self, work: Work) -> None:
        """End every back-off now."""
        failed = [task for task, open_task in self._open.items() if open_task.state is TaskState.FAILED]
        for task in failed:
            row = work.table(TASK_TABLE).get(number_key(task))
            if row is not None and row.due_ms != AT_ONCE:
                work.table(TASK_TABLE).put(number_key(task), replace(row, due_ms=AT_ONCE))
            self._retries.set(task, AT_ONCE)

    def tick(self, now_ms: int, work: Work) -> None:
        """Set the due times of changed tasks, send late requests again, and retry due failures while there is room."""
        for task in (*self._timeouts.to_be_timed(now_ms), *self._retries.to_be_timed(now_ms)):
            self._schedule(task, now_ms, work)
        while (late := self._timeouts.pop_due(now_ms)) is not None:
            self._ask_again(late, now_ms, work)
        while self.has_room and self._retries_in_flight < self._settings.max_retries_in_flight:
            failed = self._retries.pop_due(now_ms)
            if failed is None:
                break
            row = work.table(TASK_TABLE).get(number_key(failed))
            if row is not None:
                self._enter(failed, replace(row, state=TaskState.DELETING), work)
                self._schedule(failed, now_ms, work)

    def report(self, shard: str) -> None:
        """Set the gauges."""
        self._metrics.unconfirmed_bytes.labels(shard).set(self._unconfirmed_bytes)
        for state in TaskState:
            self._metrics.tasks.labels(shard, state.lower()).set(self._steps[state])

    def _enter(self, task: int, row: TaskRow, work: Work) -> None:
        """Move a task to a step: store its row and send its request. The unit of work's tick sets its due time."""
        row = replace(row, due_ms=UNSET)
        work.table(TASK_TABLE).put(number_key(task), row)
        self._remember(task, row)
        self._ask(task, row, work)
        count_done(work)

    def _ask(self, task: int, row: TaskRow, work: Work) -> None:
        body: ClaimRows | FinishRows
        if row.state == TaskState.CLAIMING:
            body = ClaimRows(task, row.chain_version, row.rows, row.first_judge_version)
        elif row.state == TaskState.FINISHING:
            body = FinishRows(task, row.rows)
        else:
            if row.state == TaskState.DELETING:
                deletion = DeleteBlocks(task, row.attempt, row.groups, row.reported_local_id)
                work.send(SCM_COMMANDS, ScmCommand(deletion))
            return
        command = MetadataCommand(work.shard, "", 0, body, sender="key_deletion", wants_reply=False)
        work.send(METADATA_COMMANDS, command)

    def _ask_again(self, task: int, now_ms: int, work: Work) -> None:
        """Send a request again under the same task number: the first answer counts, later ones are ignored."""
        row = work.table(TASK_TABLE).get(number_key(task))
        if row is None:
            return
        logger.warning("no answer in time: asked again", task=task, step=row.state, attempt=row.attempt)
        self._metrics.asked_again.labels(row.state.lower()).inc()
        self._ask(task, row, work)
        self._schedule(task, now_ms, work)

    def _schedule(self, task: int, now_ms: int, work: Work) -> None:
        row = work.table(TASK_TABLE).get(number_key(task))
        if row is None:
            return
        pause_ms = self._settings.answer_timeout_ms
        if row.state == TaskState.FAILED:
            pause_ms = backoff_ms(self._settings.first_retry_ms, self._settings.longest_retry_ms, row.attempt - 1)
        row = replace(row, due_ms=now_ms + pause_ms)
        work.table(TASK_TABLE).put(number_key(task), row)
        self._queue_of(row).set(task, row.due_ms)

    def _queue_of(self, row: TaskRow) -> DueQueue[int]:
        return self._retries if row.state == TaskState.FAILED else self._timeouts

    def _end(self, task: int, work: Work) -> None:
        work.table(TASK_TABLE).delete(number_key(task))
        self._forget(task)
        count_done(work)

    def _expected(self, task: int, state: TaskState, work: Work) -> TaskRow | None:
        """Return the row of a task that is at this step; None for any other."""
        open_task = self._open.get(task)
        if open_task is None or open_task.state is not state:
            return None
        return work.table(TASK_TABLE).get(number_key(task))

    def _remember(self, task: int, row: TaskRow) -> None:
        self._forget(task)
        state = TaskState(row.state)
        is_retry = state is TaskState.DELETING and row.attempt > 1
        unconfirmed_bytes = sum(row.groups.sizes_bytes)
        self._open[task] = _OpenTask(state, is_retry, unconfirmed_bytes)
        self._steps[state] += 1
        self._retries_in_flight += is_retry
        self._unconfirmed_bytes += unconfirmed_bytes
        if row.due_ms == UNSET:
            self._queue_of(row).add(task)
        else:
            self._queue_of(row).set(task, row.due_ms)

    def _forget(self, task: int) -> None:
        before = self._open.pop(task, None)
        self._timeouts.discard(task)
        self._retries.discard(task)
        if before is not None:
            self._steps[before.state] -= 1
            self._retries_in_flight -= before.is_retry
            self._unconfirmed_bytes -= before.unconfirmed_bytes


def _split(groups: BlockGroups, failed: Sequence[int]) -> tuple[BlockGroups, BlockGroups]:
    """Return the groups at the failed places, and the others."""
    if not failed:
        return NO_GROUPS, groups
    places = set(failed)
    everywhere = range(len(groups.object_ids))
    return (
        groups_at(groups, [place for place in everywhere if place in places]),
        groups_at(groups, [place for place in everywhere if place not in places]),
    )


def _is_answer_to(answer: RowsClaimed, row: TaskRow) -> bool:
    """Return whether an answer names the rows of this claim, each once."""
    check_lengths(*group_columns(answer.groups))
    claimed = names_of_groups(answer.groups)
    # Usually all rows were claimed, in the order of the claim: this comparison is then sufficient, and cheap.
    if row.rows == (claimed,) and not (answer.removed or answer.missing or answer.refused or answer.suspended):
        return True
    named = row_names((claimed, *answer.removed, *answer.missing, *answer.refused, *answer.suspended))
    if len(named) == row_count(row.rows) and set(named) == set(row_names(row.rows)):
        return True
    logger.error("answer to another claim under the number of this one: ignored", task=answer.task)
    return False

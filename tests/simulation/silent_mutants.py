"""Faults that earlier simulations did not notice: what they break was not looked at, or never came about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from schemas import records
from schemas.codec import codec
from schemas.topics import CHANGELOGS
from services.directory_deletion.tables import TREE_TABLE, TreeState
from services.directory_deletion.trees import Trees
from services.domain.coming_back import return_of
from services.domain.row_columns import row_names
from services.key_deletion.purges import WaitingPurges
from services.key_deletion.sweeps import Sweeps
from services.key_deletion.tables import TaskState
from services.key_deletion.tasks import Tasks
from services.metadata import service as metadata_service
from services.metadata.checkpoints import capture_drop, rollback
from services.metadata.collecting import claims, expansion, undelete
from services.metadata.service import MetadataService
from services.metadata.state import orphan_search
from services.metadata.state.tables import DELETED_TABLE
from services.plane.upkeep import trimming
from services.runtime.loop.outbox import Outbox
from services.runtime.loop.probe import Point
from services.runtime.loop.runner import Runner
from services.runtime.parts.ahead import AheadOfChain
from services.runtime.parts.due import DueQueue
from services.runtime.parts.undo_window import UndoWindow
from tests.simulation import silent_scripts as scripts
from tests.simulation.faults import FaultMix
from tests.simulation.mutant import Mutant, scripted
from tests.simulation.mutants import Patch, views_hold_nothing
from tests.simulation.nets import no_forecast, no_third_judge_of_keys_and_renames, together
from tests.simulation.plane import UnitLimits
from tests.simulation.scripts import ONE_A_PAGE, PLAIN, WITH_WINDOW

_NEVER_MS = 1 << 60
_TRIMMED = "is before the beginning|it was trimmed"


def windows_never_end(patch: Patch) -> None:
    """An undo window ends when somebody settles, and never by itself."""

    def tick(self: WaitingPurges, now_ms: int, work: Any) -> None:
        del self, now_ms, work

    patch.setattr(WaitingPurges, "tick", tick)


def tree_windows_never_end(patch: Patch) -> None:
    """A deleted directory is expanded when somebody settles, and never by itself."""
    original = Trees._schedule

    def schedule(self: Trees, key: bytes, now_ms: int, work: Any) -> None:
        row = work.table(TREE_TABLE).get(key)
        is_waiting = row is not None and row.state == TreeState.WAITING
        original(self, key, _NEVER_MS if is_waiting else now_ms, work)

    patch.setattr(Trees, "_schedule", schedule)


def failures_are_not_tried_again(patch: Patch) -> None:
    """What the block store has failed to delete waits for a settle."""
    original = Tasks._schedule

    def schedule(self: Tasks, task: int, now_ms: int, work: Any) -> None:
        original(self, task, _NEVER_MS if self._open[task].state is TaskState.FAILED else now_ms, work)

    patch.setattr(Tasks, "_schedule", schedule)


def waits_do_not_begin_again(patch: Patch) -> None:
    """When the clock is set back, each wait keeps its stored due time, however far away this is now."""

    def to_be_timed(self: DueQueue[Any], now_ms: int) -> list[Any]:
        del now_ms
        return self.untimed()

    patch.setattr(DueQueue, "to_be_timed", to_be_timed)


def ranges_are_not_swept_again(patch: Patch) -> None:
    """A store that was not clean when it was swept is not looked at again, but by a settle."""
    original = Sweeps.queue

    def queue(self: Sweeps, *arguments: Any) -> None:
        bucket_id, snapshot_id, row_range, work, *pause_ms = arguments
        original(self, bucket_id, snapshot_id, row_range, work, _NEVER_MS if pause_ms else 0)

    patch.setattr(Sweeps, "queue", queue)
    # The product's own net: a due time that is further away than the longest wait is set anew.
    patch.setattr(DueQueue, "_is_too_late", lambda *_: False)


def late_sweeps_are_not_begun_again(patch: Patch) -> None:
    """A sweep whose answer was lost waits for it for ever."""
    patch.setattr(Sweeps, "_go_back", lambda *_: None)


def a_full_batch_counts_as_acknowledged(patch: Patch) -> None:
    """What was sent by a unit that others follow at once is not waited for, then or ever."""
    original = Runner.step

    def step(self: Runner, timeout_seconds: float = 0.0) -> int:
        messages = original(self, timeout_seconds)
        if self._outbox._sent:  # it was not waited for
            outbox = self._outbox
            outbox._acknowledged += [one.key for one in outbox._sent]
            outbox._sent.clear()
        return messages

    patch.setattr(Runner, "step", step)


def log_time_goes_back(patch: Patch) -> None:
    """The time of a command is what the broker's clock said, also when that was set back."""
    original = MetadataService.apply

    def apply(self: MetadataService, message: Any, work: Any) -> None:
        counters = self._transaction.counters
        counters.log_time_ms = min(counters.log_time_ms, message.timestamp_ms)
        original(self, message, work)

    patch.setattr(MetadataService, "apply", apply)


def markers_are_not_flushed(patch: Patch) -> None:
    """A marker of the chain is sent off like any other message, and those behind it may arrive before it."""

    def send(self: Outbox, waiting: Any) -> None:
        for run in waiting.row.runs:
            for value in run.values:
                self._sink.send(run.topic, self._shard, value)
                self._probe(Point.MID_PUBLISH)
            if run.topic in {topic.name for topic in CHANGELOGS.values()}:
                self._sink.flush()

    patch.setattr(Outbox, "_send", send)


def a_rollbacks_snapshot_is_dropped(patch: Patch) -> None:
    """The snapshot that a rollback goes to can be dropped meanwhile."""
    patch.setattr(capture_drop, "is_rolled_back_to", lambda *_: False)


def a_rollback_goes_past_a_newer_snapshot(patch: Patch) -> None:
    """Metadata rolls back to whatever snapshot it is asked for."""
    original = rollback._start

    def start(transaction: Any, command: records.RollbackPage) -> Any:
        snapshot = transaction.snapshots.find(transaction.work, command.snapshot_id)
        lists = transaction.snapshots.of(transaction.work, command.bucket_id)
        with type(patch).context() as inner:
            if snapshot is not None and snapshot.is_live:
                inner.setattr(type(lists), "newest_live_txn", property(lambda _: snapshot.txn))
            return original(transaction, command)

    patch.setattr(rollback, "_start", start)


def directories_have_no_third_judge(patch: Patch) -> None:
    """Metadata purges whatever directory it is asked to."""
    patch.setattr(expansion, "is_reclaimable_after", lambda *_: True)


def undo_windows_are_ignored(patch: Patch) -> None:
    """What is deleted is claimed at once."""
    patch.setattr(UndoWindow, "is_over", lambda *_: True)


def a_settle_ends_every_window(patch: Patch) -> None:
    """Also of what died after it."""
    make_due = WaitingPurges.make_due
    patch.setattr(WaitingPurges, "make_due", lambda purges, _txn, work: make_due(purges, 1 << 60, work))


def an_undelete_ignores_rollbacks(patch: Patch) -> None:
    """What died before a rollback comes back as the object that it was, though that may be live again."""

    def return_of_key(row: records.DeletedKeyRow, _rolled_back_txn: int, live: Any) -> Any:
        return return_of(row.key.birth, row.death, live, may_object_be_live=row.is_overwritten)

    patch.setattr(undelete, "return_of_key", return_of_key)


def the_judges_before_metadata_ask_nobody(patch: Patch) -> None:
    """Spark and key_deletion let everything go; metadata alone looks who holds it."""
    views_hold_nothing(patch)


def an_answer_names_the_process(patch: Patch) -> None:
    """What a command is answered hangs on how often the service was started."""
    starts: list[object] = []
    original_init, original_reply = MetadataService.__init__, metadata_service._reply

    def init(self: MetadataService) -> None:
        original_init(self)
        starts.append(self)

    def reply(*arguments: Any) -> bytes:
        answer = codec(records.MetadataReply).decode_message(original_reply(*arguments))
        return codec(records.MetadataReply).encode_message(replace(answer, message=f"after {len(starts)} starts"))

    patch.setattr(MetadataService, "__init__", init)
    patch.setattr(metadata_service, "_reply", reply)


def orphans_are_believed(patch: Patch) -> None:
    """What an audit calls orphaned gets a garbage row, whoever refers to it."""
    patch.setattr(orphan_search, "_owns", lambda *_: False)


def a_finish_believes_its_sender(patch: Patch) -> None:
    """Metadata removes rows that are said to be finished, though nobody has claimed them."""

    def finish(transaction: Any, command: records.FinishRows) -> records.RowsFinished:
        table = transaction.work.table(DELETED_TABLE)
        named = {(row.object_id, row.birth) for row in row_names(command.rows)}
        for key, row in list(table.scan(b"", b"\xff" * 9)):
            if (row.key.object_id, row.key.birth) in named:
                table.delete(key)
        return claims.finish_rows(transaction, command)

    _handle(patch, records.FinishRows, finish)


def a_capture_forgets_earlier_ones(patch: Patch) -> None:
    """A snapshot that there is already is taken once more, at another txn."""

    def capture(transaction: Any, command: records.CaptureSnapshot) -> records.SnapshotCaptured:
        with type(patch).context() as inner:
            inner.setattr(type(transaction.snapshots), "find", lambda *_: None)
            return capture_drop.capture_snapshot(transaction, command)

    _handle(patch, records.CaptureSnapshot, capture)


def trims_forget_what_was_read_last(patch: Patch) -> None:
    """What a start looks for to know the log again is trimmed under it."""
    patch.setattr(trimming, "_needed_from", lambda _, next_offset: next_offset)
    # The product's own net: a source that begins before the log is opened again.
    patch.setattr(Runner, "_read", lambda self, *limits: self._source.poll(*limits))


def a_verdict_waits_for_ever(patch: Patch) -> None:
    """A judge waits for the chain version of a request, whatever it is."""
    patch.setattr(AheadOfChain, "are_false", lambda *_: False)


def trims_forget_backups(patch: Patch) -> None:
    """A backup is as good as none: what follows it is gone."""
    pins = trimming._pins

    def of_readers(*arguments: Any) -> Any:
        return (pin for pin in pins(*arguments) if not pin.who.startswith("backup"))

    patch.setattr(trimming, "_pins", of_readers)


def _handle(patch: Patch, kind: type[Any], handle: Any) -> None:
    """Have a service's command carried out by somebody else."""
    sender, _ = metadata_service._SERVICE_HANDLERS[kind]
    patch.setitem(metadata_service._SERVICE_HANDLERS, kind, (sender, handle))


SILENT = {
    "orphans that are believed": scripted(
        orphans_are_believed,
        scripts.a_forged_orphan,
        "answers",
        "expected txn and error .*INVALID_REQUEST",
        has_forgeries=True,
    ),
    "the judges before metadata ask nobody": Mutant(
        the_judges_before_metadata_ask_nobody, FaultMix(), "refusals", "was refused"
    ),
    "an answer that a rebuild would not give": Mutant(
        an_answer_names_the_process, FaultMix(restore=0.3), "repeats", "says something new"
    ),
    "an undo window that never ends": scripted(
        windows_never_end, scripts.a_quiet_delete, "liveness", "without a settle", WITH_WINDOW
    ),
    "a deleted tree's window that never ends": scripted(
        tree_windows_never_end, scripts.a_quiet_delete, "liveness", "without a settle", WITH_WINDOW
    ),
    "a failed deletion that is never tried again": scripted(
        failures_are_not_tried_again, scripts.a_block_store_that_fails_once, "liveness", "without a settle"
    ),
    "a clock that is set back and lengthens waits": scripted(
        waits_do_not_begin_again, scripts.a_clock_that_is_set_back, "liveness", "without a settle"
    ),
    "a store that is not swept again": scripted(
        ranges_are_not_swept_again, scripts.a_range_that_is_found_unclean, "liveness", "without a settle"
    ),
    "a late sweep that is not begun again": scripted(
        late_sweeps_are_not_begun_again, scripts.a_lost_page, "liveness", "without a settle"
    ),
    "a full batch that counts as acknowledged": Mutant(
        a_full_batch_counts_as_acknowledged,
        FaultMix(),
        "given_away",
        "that no answer has named",
        runs=20,  # what is on its way at a death may arrive all the same
        script=scripts.a_death_under_load,
        limits=replace(PLAIN, units=UnitLimits(batch_messages=6, unit_rows=1)),
    ),
    "log time that goes back": Mutant(log_time_goes_back, FaultMix(clock_back=0.05), "log_time", "went back"),
    "no flush behind a marker": Mutant(
        markers_are_not_flushed,
        FaultMix(),
        "chain_order",
        "before its marker can be read",
        runs=20,  # it depends on what arrives first
        script=scripts.crashes_amid_captures,
        limits=PLAIN,
    ),
    "a rollback's snapshot is dropped": scripted(
        a_rollbacks_snapshot_is_dropped,
        scripts.a_forged_drop,
        "rollback_target",
        "was dropped while",
        ONE_A_PAGE,
        has_forgeries=True,
    ),
    "a rollback past a newer snapshot": scripted(
        a_rollback_goes_past_a_newer_snapshot,
        scripts.a_forged_rollback,
        "listings",
        "active lists .* expected",
        has_forgeries=True,
    ),
    "no third judge of directories": scripted(
        together(no_forecast, directories_have_no_third_judge),
        scripts.a_forged_purge,
        "given_away",
        "holds is removed: .*DIRECTORY",
        has_forgeries=True,
    ),
    "no third judge of renames": scripted(
        together(no_forecast, no_third_judge_of_keys_and_renames),
        scripts.a_forged_purge,
        "given_away",
        "holds is removed: .*RENAME_ENTRY",
        has_forgeries=True,
    ),
    "a key waits for a chain that never is": scripted(
        a_verdict_waits_for_ever,
        scripts.a_key_judged_ahead_of_the_chain,
        "settling",
        "not answered after",
        has_forgeries=True,
    ),
    "a directory waits for a chain that never is": scripted(
        a_verdict_waits_for_ever,
        scripts.a_directory_judged_ahead_of_the_chain,
        "settling",
        "not answered after",
        has_forgeries=True,
    ),
    "a forged finish is believed": Mutant(
        a_finish_believes_its_sender, FaultMix(forgeries=0.3), "accounts", "space matrix"
    ),
    "a forged take is taken": Mutant(
        a_capture_forgets_earlier_ones, FaultMix(forgeries=0.3), "services", "was captured before"
    ),
    "a trim takes what was read last": scripted(
        trims_forget_what_was_read_last, scripts.a_trim_amid_a_start, "services", _TRIMMED
    ),
    "a trim takes what follows a backup": scripted(
        trims_forget_backups, scripts.a_backup_behind_a_trim, "services", _TRIMMED
    ),
    "an undo window that is ignored": scripted(
        undo_windows_are_ignored, scripts.a_quiet_delete, "undo_window", "after its death", WITH_WINDOW
    ),
    "a settle ends the windows of what died after it": scripted(
        a_settle_ends_every_window, scripts.a_settle_that_is_held_up, "undo_window", "after its death", WITH_WINDOW
    ),
    "an undelete that makes an object live twice": scripted(
        an_undelete_ignores_rollbacks, scripts.twice_live, "answers", "makes an object live twice", WITH_WINDOW
    ),
}

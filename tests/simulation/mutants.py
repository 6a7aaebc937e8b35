"""Faults put into the production code by hand, each at one place: what the simulator has to find."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from schemas import records
from schemas.records import DeletedKind, RowName
from schemas.topics import METADATA_COMMANDS, SCM_COMMANDS, SNAPSHOT_CHAIN
from services.domain import chain_view, coming_back
from services.domain.chain_view import Bounds, ChainView
from services.domain.coming_back import Return
from services.domain.row_columns import BlockGroup, Row, names_of_groups, row_names
from services.domain.space_matrix import NOBODY
from services.domain.table_keys import garbage_key, object_txn
from services.key_deletion.garbage_ranges import GarbageRanges
from services.key_deletion.purges import WaitingPurges
from services.key_deletion.tables import TaskState
from services.key_deletion.tasks import Tasks
from services.metadata.checkpoints import capture_drop, rollback
from services.metadata.collecting import claims, expansion, undelete
from services.metadata.namespace.garbage import Death
from services.metadata.state import changed_rows, transaction
from services.metadata.state.changed_rows import note_changes
from services.metadata.state.sent_entries import SentEntries
from services.metadata.state.snapshot_lists import SnapshotList, SnapshotLists
from services.metadata.state.tables import DELETED_DIRECTORY_TABLE, DELETED_TABLE, RECLAIM_TABLE
from services.plane.in_memory.judge import PureJudge
from services.runtime.loop import changelog, changelog_units, runner
from services.runtime.loop.changelog import Changelog
from services.runtime.loop.changelog_units import Base, SentChange
from services.runtime.loop.outbox import OUTBOX, Added, Outbox
from services.runtime.loop.positions import POSITIONS
from services.runtime.loop.service import Message, OutgoingMessage, Work
from services.snapshots.lifecycle.protections import Protections
from services.snapshots.retention import expiry
from services.storage.tables import RowCache
from tests.block_groups import groups_by_columns
from tests.simulation import silent_scripts as scripts
from tests.simulation.faults import FaultMix
from tests.simulation.mutant import Mutant, scripted
from tests.simulation.scripts import ONE_EXPANDED
from tests.simulation.simulator import Simulation

Patch = pytest.MonkeyPatch
"""What puts a fault in and takes it out again."""


def views_hold_nothing(patch: Patch) -> None:
    """A judge knows which deaths there can be, and of no snapshot that holds anything."""
    original = ChainView.bounds
    patch.setattr(ChainView, "bounds", lambda *asked: (0, 0, *original(*asked)[2:]))


def before_previous_for_previous(patch: Patch) -> None:
    """Every judge looks at the snapshot before the previous one."""
    original_bounds = ChainView.bounds

    def bounds(self: ChainView, bucket_id: int, count: int) -> Bounds:
        before_previous, _, last_captured, next_captured = original_bounds(self, bucket_id, count)
        return before_previous, before_previous, last_captured, next_captured

    patch.setattr(ChainView, "bounds", bounds)
    original = SnapshotList.previous

    def previous(self: SnapshotList, death: int) -> int:
        return original(self, original(self, death)) if original(self, death) else 0

    patch.setattr(SnapshotList, "previous", previous)


def first_judge_ignores_the_premise(patch: Patch) -> None:
    """Spark's place judges an entry with whatever it knows of the chain."""
    original = PureJudge.apply

    def apply(self: PureJudge, message: Message, work: Work) -> None:
        if isinstance(message.record, records.DeletedEntries):
            message = message._replace(record=replace(message.record, chain_version=0))
        original(self, message, work)

    patch.setattr(PureJudge, "apply", apply)


def second_judge_ignores_the_premise(patch: Patch) -> None:
    """key_deletion judges a purge with whatever it knows of the chain."""
    original = WaitingPurges.append

    def append(self: WaitingPurges, purge: records.PurgeKeys, work: Work) -> None:
        original(self, replace(purge, chain_version=0), work)

    patch.setattr(WaitingPurges, "append", append)


def a_gap_is_ignored(patch: Patch) -> None:
    """A reader goes on behind a marker that it never saw."""
    patch.setattr(ChainView, "_is_next", lambda self, version, predecessor_version: version > self.version)
    patch.setattr(chain_view._BucketChain, "append", _append_leniently)


def _append_leniently(self: Any, snapshot: records.ChainedSnapshot) -> None:
    self.ever, self.newest_txn = self.ever + 1, snapshot.txn
    self.snapshots.append(snapshot)
    self.ordinals.append(self.ever)
    self.txns.append(snapshot.txn)
    self.by_id[snapshot.snapshot_id] = self.ever


def scm_before_the_claim(patch: Patch) -> None:
    """SCM is told as soon as two judges agree, as Ozone does, and metadata is asked afterwards."""
    simulations: list[Simulation] = []
    original_run, original_ask = Simulation.run, Tasks._ask

    def run(self: Simulation, script: Any = None) -> Any:
        simulations.append(self)
        return original_run(self, script)

    def ask(self: Tasks, task: int, row: records.TaskRow, work: Work) -> None:
        if row.state == TaskState.CLAIMING:
            groups = _groups(simulations[-1], work.shard, row_names(row.rows))
            if groups.object_ids:
                work.send(SCM_COMMANDS, records.ScmCommand(records.DeleteBlocks(task, row.attempt, groups)))
        original_ask(self, task, row, work)

    patch.setattr(Simulation, "run", run)
    patch.setattr(Tasks, "_ask", ask)


def _groups(simulation: Simulation, shard: int, names: Sequence[RowName]) -> records.BlockGroups:
    """The blocks of rows, read behind metadata's back."""
    model = simulation.shards[shard].model
    runs = {model.births[number]: run for number, run in model.runs.items()}
    return groups_by_columns(
        BlockGroup(name.bucket_id, name.object_id, name.birth, name.death, runs[name.birth])
        for name in names
        if name.kind is DeletedKind.KEY and name.birth in runs
    )


def position_before_state(patch: Patch) -> None:
    """The position behind the inputs is written first, the state after it."""
    original = runner.Runner._write

    def write(self: runner.Runner, work: Work, progress: Any) -> Any:
        early = Work(self.shard, self.store, RowCache())
        for topic, next_offset in progress.next_offsets.items():
            row = records.PositionRow(topic, self._topic_ids[topic], next_offset)
            early.table(POSITIONS).put(topic.encode(), row)
        early.write()
        return original(self, work, progress)

    patch.setattr(runner.Runner, "_write", write)


def older_copies_decide_again(patch: Patch) -> None:
    """A service that was put back to an older state takes in its inputs again, in whatever order they come."""
    patch.setattr(Changelog, "catch_up", lambda *_: 0)


def changes_sent_last(patch: Patch) -> None:
    """What a unit of work says may be seen before the log has what it has changed."""

    original = Changelog.messages_of

    def messages_of(self: Changelog, work: Work) -> list[OutgoingMessage]:
        changes = original(self, work)
        work.messages += changes
        return []

    patch.setattr(Changelog, "messages_of", messages_of)


def any_beginning_counts(patch: Patch) -> None:
    """The beginning of a start that is over supersedes the one that is under way, when it arrives late."""
    original = changelog_units.in_force

    def in_force(base: Base, changes: Iterable[SentChange]) -> Iterator[SentChange]:
        seen_all = (
            (replace(one, number=offset) if one.part < 0 else one, value, offset) for one, value, offset in changes
        )
        return original(base, seen_all)

    patch.setattr(changelog, "in_force", in_force)


def outbox_cleared_before_acknowledgement(patch: Patch) -> None:
    """What was handed to the producer counts as sent."""

    original = Outbox.send

    def send(self: Outbox) -> None:
        self._acknowledged += [one.key for one in self._waiting]
        try:
            original(self)
        finally:
            self._sent.clear()
            self._waiting.clear()

    patch.setattr(Outbox, "send", send)


def outbox_not_in_the_batch(patch: Patch) -> None:
    """Messages are sent after the write, but not written with it."""
    original = Outbox.add

    def add(self: Outbox, messages: Sequence[OutgoingMessage], work: Work) -> Added:
        added = original(self, messages, work)
        if added.row is not None:
            work.table(OUTBOX).delete(self._next_number.to_bytes(8, "big"))
        return added

    patch.setattr(Outbox, "add", add)


def death_from_the_message(patch: Patch) -> None:
    """A claim finds its row by object and birth, and judges it by the death that the message tells."""
    original = claims._Claim._key

    def key(self: Any, named: Row, db_key: bytes) -> None:
        bucket_id, object_id, birth, death = named
        prefix = db_key[: db_key.find(b"/", db_key.find(b"/", 1) + 1) + 1]
        for found, row in self._deleted.scan(prefix, prefix + b"\xff"):
            if row.key.birth == birth and row.key.object_id == object_id:
                if not self._is_held(row.key.birth, death):
                    held = type(self)._is_held
                    type(self)._is_held = lambda *_: False
                    try:
                        original(self, (bucket_id, object_id, birth, row.death), found)
                    finally:
                        type(self)._is_held = held
                    return
                break
        original(self, named, db_key)

    patch.setattr(claims._Claim, "_key", key)


def no_third_judge(patch: Patch) -> None:
    """A claim believes those who judged before."""
    patch.setattr(claims._Claim, "_is_held", lambda *_: False)


def no_sweep_after_a_drop(patch: Patch) -> None:
    """What a dropped snapshot held is not looked at again."""
    original = GarbageRanges._rows_of_drop

    def rows_of_drop(self: GarbageRanges, *arguments: Any) -> None:
        original(self, *arguments)

    patch.setattr(GarbageRanges, "_rows_of_drop", rows_of_drop)


def finish_before_confirmation(patch: Patch) -> None:
    """Metadata forgets a row as soon as SCM was told."""
    original = Tasks.claimed

    def claimed(self: Tasks, answer: records.RowsClaimed, work: Work) -> int:
        size_bytes = original(self, answer, work)
        if answer.groups.object_ids:
            finish = records.FinishRows(answer.task, (names_of_groups(answer.groups),))
            work.send(METADATA_COMMANDS, records.MetadataCommand(work.shard, "", 0, finish, "key_deletion", False))
        return size_bytes

    patch.setattr(Tasks, "claimed", claimed)


def late_expansion_dies_late(patch: Patch) -> None:
    """A child of a deleted directory dies when it is expanded, after the snapshots that were taken meanwhile."""
    original = expansion.expand_directory

    def expand(transaction: Any, command: records.ExpandDirectory) -> Any:
        def death(_txn: int, _snapshots_before: int) -> Death:
            ever = transaction.snapshots.of(transaction.work, command.bucket_id).ever
            return Death(transaction.txn, ever)

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(expansion, "Death", death)
            return original(transaction, command)

    patch.setitem(
        __import__("services.metadata.service", fromlist=["_SERVICE_HANDLERS"])._SERVICE_HANDLERS,
        records.ExpandDirectory,
        ("directory_deletion", expand),
    )


def count_at_sending(patch: Patch) -> None:
    """A sweep sends how many snapshots there are now instead of how many there were at the death."""
    from services.metadata.collecting import sweeps

    original = sweeps.sweep_page

    def sweep(transaction: Any, command: records.SweepPage) -> Any:
        add = transaction.entries.add

        def add_counted(kind: Any, entries: Any, *page: int) -> None:
            ever = [transaction.snapshots.of(transaction.work, entry[0]).ever for entry in entries]
            add(kind, [(*entry[:4], count) for entry, count in zip(entries, ever, strict=True)], *page)

        transaction.entries.add = add_counted
        try:
            return original(transaction, command)
        finally:
            del transaction.entries.add

    patch.setitem(
        __import__("services.metadata.service", fromlist=["_SERVICE_HANDLERS"])._SERVICE_HANDLERS,
        records.SweepPage,
        ("key_deletion", sweep),
    )


def ordinals_reused(patch: Patch) -> None:
    """A bucket counts its live snapshots only."""
    patch.setattr(SnapshotList, "ever", property(lambda self: len(self.live_txns)))


def checkpoint_of_a_later_moment(patch: Patch) -> None:
    """A take shares its batch with other commands: its checkpoint lacks those before it."""
    from services.metadata.service import MetadataService

    patch.setattr(MetadataService, "stands_alone", lambda *_: False)


def birth_from_the_object(patch: Patch) -> None:
    """An overwritten key's version is judged by the age of the key."""
    original = SentEntries.add

    def add(self: SentEntries, kind: Any, entries: Any, *page: int) -> None:
        aged = [(bucket_id, one, object_txn(one), *rest) for bucket_id, one, _, *rest in entries]
        original(self, kind, aged, *page)

    patch.setattr(SentEntries, "add", add)


def capture_twice(patch: Patch) -> None:
    """A take that comes twice makes two entries in the bucket's list."""
    original = capture_drop.capture_snapshot

    def capture(transaction: Any, command: records.CaptureSnapshot) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(type(transaction.snapshots), "find", lambda *_: None)
            return original(transaction, command)

    patch.setitem(
        __import__("services.metadata.service", fromlist=["_SERVICE_HANDLERS"])._SERVICE_HANDLERS,
        records.CaptureSnapshot,
        ("snapshots", capture),
    )


def expiry_ignores_consumers(patch: Patch) -> None:
    """What a consumer has still to read expires like all the rest."""
    original = expiry.decide

    def decide(policy: Any, chain: Any, consumers: Any, tags: Any, now_ms: int) -> Any:
        del consumers
        return original(policy, chain, (), tags, now_ms)

    patch.setattr(expiry, "decide", decide)


def expiry_ignores_tags(patch: Patch) -> None:
    """A tagged snapshot expires like all the rest."""
    original = expiry.decide

    def decide(policy: Any, chain: Any, consumers: Any, tags: Any, now_ms: int) -> Any:
        del tags
        return original(policy, chain, consumers, (), now_ms)

    patch.setattr(expiry, "decide", decide)


def deletes_ignore_tags(patch: Patch) -> None:
    """A tagged snapshot can be deleted."""
    patch.setattr(Protections, "tags_on", lambda *_: [])


def moved_directories_unnoticed(patch: Patch) -> None:
    """What happens to directories is not noted among the changes that diffs read."""
    original, letters = note_changes, changed_rows._LETTERS

    def without_directories(work: Work, snapshots: SnapshotLists) -> None:
        with pytest.MonkeyPatch.context() as while_noting:  # who reads asks for all of them
            while_noting.setattr(changed_rows, "_LETTERS", letters[:2])
            original(work, snapshots)

    patch.setattr(transaction, "note_changes", without_directories)


def late_chain(reader: str) -> FaultMix:
    return FaultMix(hold=0.03, held_topics={reader: (SNAPSHOT_CHAIN.name,)})


_CRASHES = FaultMix(crash=0.3)


def rollback_without_fence(patch: Patch) -> None:
    """Commands go on being carried out while a bucket is rolled back."""
    patch.setattr(rollback, "_set_fence", lambda *_: None)


def rollback_drops_what_comes_back_late(patch: Patch) -> None:
    """A rollback leaves the rows of what came back among the garbage: they wait to be freed."""
    original = rollback._Page.restore_keys

    def restore_keys(self: Any, start: bytes) -> Iterator[bytes]:
        table = self._work.table(DELETED_TABLE)
        kept = {key: table.get_encoded(key) for key, *_ in self._garbage(DELETED_TABLE, start)}
        try:
            yield from original(self, start)
        finally:
            for key, row in kept.items():
                if row is not None and table.get_encoded(key) is None:
                    table.put_encoded(key, row)

    phases = tuple((number, restore_keys if one is original else one) for number, one in rollback._PHASES)
    patch.setattr(rollback, "_PHASES", phases)


def undelete_ignores_the_claim(patch: Patch) -> None:
    """What is claimed comes back all the same."""
    original = undelete._undelete_key

    def undelete_key(transaction: Any, bucket: Any, command: records.Undelete) -> Any:
        key = garbage_key(bucket.volume_id, bucket.object_id, command.death, command.object_id)
        claimed = transaction.work.table(RECLAIM_TABLE).get(key)
        if claimed is not None and transaction.work.table(DELETED_TABLE).get(key) is None:
            transaction.work.table(DELETED_TABLE).put(key, claimed.version)
            version = claimed.version.key
            transaction.space.add(bucket.object_id, NOBODY, (version.size_bytes, 1, 1, 0, 0, 0))
        return original(transaction, bucket, command)

    patch.setattr(undelete, "_undelete_key", undelete_key)


def claim_ignores_the_undelete(patch: Patch) -> None:
    """A row stays among the garbage when its version comes back: a claim finds it there."""
    original = undelete._undelete_key

    def undelete_key(transaction: Any, bucket: Any, command: records.Undelete) -> Any:
        key = garbage_key(bucket.volume_id, bucket.object_id, command.death, command.object_id)
        row = transaction.work.table(DELETED_TABLE).get_encoded(key)
        done = original(transaction, bucket, command)
        if row is not None:
            transaction.work.table(DELETED_TABLE).put_encoded(key, row)
        return done

    patch.setattr(undelete, "_undelete_key", undelete_key)


def undelete_ignores_snapshots(patch: Patch) -> None:
    """What comes back takes up its old life, whatever was taken meanwhile."""
    patch.setattr(coming_back, "return_of", lambda *_, **__: Return.ITSELF)


def undelete_ignores_the_expansion(patch: Patch) -> None:
    """A directory comes back when some of its contents are among the garbage already."""
    original = undelete._undelete_directory

    def undelete_directory(transaction: Any, bucket: Any, command: records.Undelete) -> Any:
        key = garbage_key(bucket.volume_id, bucket.object_id, command.death, command.object_id)
        table = transaction.work.table(DELETED_DIRECTORY_TABLE)
        row = table.get(key)
        if row is not None and row.is_expansion_begun:
            table.put(key, replace(row, is_expansion_begun=False))
        return original(transaction, bucket, command)

    patch.setattr(undelete, "_undelete_directory", undelete_directory)


_UNDECIDED = "has tripped without limits|held back for no reason"
"""What metadata itself does when a claim would take from the matrix what is not free."""

MUTANTS = {
    "before-previous for previous": Mutant(
        before_previous_for_previous, FaultMix(), "dead_letters", "streaming has put aside"
    ),
    "the first judge ignores the premise": Mutant(
        first_judge_ignores_the_premise, late_chain("streaming"), "dead_letters", "streaming has put aside"
    ),
    "the second judge ignores the premise": scripted(
        second_judge_ignores_the_premise,
        scripts.a_purge_before_its_marker,
        "inventory_at_rest",
        "held by nobody but still in SCM",
    ),
    "a judge ignores a gap": Mutant(
        *(a_gap_is_ignored, FaultMix(hole="streaming"), "holes", "streaming judged without marker"),
        first_seed=7_002,
    ),
    "SCM before the claim": Mutant(scm_before_the_claim, FaultMix(), "claimed_first", "was not claimed"),
    "a position saved before its state": Mutant(position_before_state, _CRASHES, "services", "does not start"),
    "an outbox cleared before the acknowledgement": Mutant(
        outbox_cleared_before_acknowledgement, FaultMix(unacknowledged=0.3), "answers", "no answer to"
    ),
    "an outbox outside of the batch": Mutant(outbox_not_in_the_batch, _CRASHES, "services", "does not start"),
    "a death taken from the message": scripted(
        death_from_the_message, scripts.a_forged_death, "pauses", _UNDECIDED, has_forgeries=True
    ),
    "no third judge": Mutant(no_third_judge, FaultMix(forgeries=0.3), "pauses", _UNDECIDED),
    "a sweep left out": Mutant(no_sweep_after_a_drop, FaultMix(), "inventory_at_rest", "held by nobody"),
    "finish before SCM has confirmed": Mutant(finish_before_confirmation, FaultMix(), "finish", "finished before"),
    "a late expansion dies late": scripted(
        late_expansion_dies_late, scripts.a_tree_that_is_expanded_late, "at_rest", "deleted(Directory)?Table has"
    ),
    "n counted when sent": Mutant(count_at_sending, FaultMix(), "dead_letters", "streaming has put aside"),
    "ordinals used again": Mutant(ordinals_reused, FaultMix(), "dead_letters", "metadata has put aside"),
    "a checkpoint that shares its batch": Mutant(
        checkpoint_of_a_later_moment, FaultMix(pause=0.05), "listings", "lists|has other directories"
    ),
    "a version judged by the age of its key": Mutant(
        birth_from_the_object, FaultMix(), "inventory_at_rest", "held by nobody but still in SCM"
    ),
    "expiry ignores consumers": Mutant(
        expiry_ignores_consumers, FaultMix(), "protections", "expected|has still to read"
    ),
    "expiry ignores tags": Mutant(expiry_ignores_tags, FaultMix(), "protections", "expected|removed the tagged"),
    "deletes ignore tags": Mutant(deletes_ignore_tags, FaultMix(), "protections", "removed the tagged snapshot"),
    "changes of directories left out": Mutant(moved_directories_unnoticed, FaultMix(), "diffs", "differ in"),
    "a rollback without a fence": Mutant(rollback_without_fence, FaultMix(), "answers", "BUCKET_BUSY"),
    "a rollback that leaves rows behind": scripted(
        rollback_drops_what_comes_back_late, scripts.a_rollback, "at_rest", "deletedTable has too many"
    ),
    "an undelete that ignores the claim": scripted(
        undelete_ignores_the_claim, scripts.an_undelete_behind_the_claim, "claimed_stays", "claimed, and held again"
    ),
    "a claim that ignores an undelete": Mutant(
        claim_ignores_the_undelete, FaultMix(), "space", "the owner of a block|the stage of|is live is"
    ),
    "an undelete that ignores snapshots": Mutant(
        undelete_ignores_snapshots, FaultMix(), "answers", "with a snapshot in between|shares blocks|live twice"
    ),
    "an undelete of half a tree": scripted(
        undelete_ignores_the_expansion,
        scripts.an_undelete_of_half_a_tree,
        "given_away",
        "gives away the blocks of a held version",
        ONE_EXPANDED,
    ),
    "a restored service decides again": Mutant(
        older_copies_decide_again, FaultMix(restore=0.1), "answers", "first SnapshotReply.* then SnapshotReply"
    ),
    "changes told last": scripted(changes_sent_last, scripts.a_decision_that_is_not_sent, "answers", "first|no answer"),
    "any beginning counts": Mutant(
        any_beginning_counts, FaultMix(unacknowledged=0.3, crash=0.2, restore=0.1), "services", "does not start"
    ),
    "a take that counts twice": Mutant(capture_twice, FaultMix(repeat=0.5), "services", "cannot be followed"),
}

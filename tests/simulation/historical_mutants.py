"""Faults that other systems of this kind have had, put into this one by hand: each was how live data got lost there.

``docs/reliability.md`` lists them with their cases. Those that are not here are among the others in ``mutants.py``.
"""

from __future__ import annotations

from typing import Any

from schemas import records
from services.domain import chain_view
from services.domain.chain_view import Bounds, ChainView, ChainViewError
from services.domain.row_columns import Row
from services.domain.table_keys import HIGHEST_TXN
from services.metadata.collecting import claims
from services.metadata.namespace import garbage, keys, tree
from services.metadata.namespace.garbage import death_now, move_key_to_garbage
from services.metadata.state.figures import BucketFigures
from services.metadata.state.snapshot_lists import SnapshotList, SnapshotLists
from services.metadata.state.tables import FILE_TABLE, KEY_TABLE
from services.metadata.state.transaction import Transaction
from services.runtime.loop import runner
from services.runtime.loop.service import Work
from tests.simulation import silent_scripts as scripts
from tests.simulation.faults import FaultMix
from tests.simulation.mutant import Mutant, scripted
from tests.simulation.mutants import Patch, views_hold_nothing

_UNDECIDED = "has tripped without limits|held back for no reason"
OLD_SNAPSHOTS = 2


def sent_before_it_is_durable(patch: Patch) -> None:
    """What a unit of work decides is acted on before the unit is written: a crash takes the decision back."""
    original = runner.Runner._write

    def write(self: runner.Runner, work: Work, batch: Any) -> Any:
        for message in work.messages:
            self._sink.send(message.topic, self.shard, message.value, message.key)
        self._sink.flush()
        return original(self, work, batch)

    patch.setattr(runner.Runner, "_write", write)


def no_judge_asks_the_snapshots(patch: Patch) -> None:
    """Garbage is garbage, whoever still shows it."""
    views_hold_nothing(patch)
    patch.setattr(SnapshotList, "previous", lambda *_: 0)


def a_failed_look_is_an_empty_chain(patch: Patch) -> None:
    """A judge who cannot follow the chain, or does not know a death, goes on as if nobody held anything."""
    original_follow = ChainView.follow
    original_bounds = ChainView.bounds

    def follow(self: ChainView, marker: records.SnapshotChainRecord) -> tuple[int, ...] | None:
        try:
            return original_follow(self, marker)
        except ChainViewError:
            self.version = max(self.version, marker.version)
            return None

    def bounds(self: ChainView, bucket_id: int, count: int) -> Bounds:
        before_previous, previous, *_ = original_bounds(self, bucket_id, count)
        return before_previous, previous, 0, HIGHEST_TXN

    patch.setattr(ChainView, "follow", follow)
    patch.setattr(ChainView, "bounds", bounds)


def two_owners_of_one_block(patch: Patch) -> None:
    """A rename is a copy and a delete: the dead name and the live one own the same blocks."""
    original = garbage.note_rename

    def note_rename(transaction: Transaction, bucket: Any, object_id: int, rename_txn: int, db_key: bytes) -> None:
        original(transaction, bucket, object_id, rename_txn, db_key)
        for table in (KEY_TABLE, FILE_TABLE):
            row = transaction.work.table(table).get_encoded(db_key)
            if row is not None:
                death = death_now(transaction, bucket.object_id)
                move_key_to_garbage(transaction, bucket.volume_id, bucket.object_id, row, death)

    patch.setattr(keys, "note_rename", note_rename)
    patch.setattr(tree, "note_rename", note_rename)


def rows_known_by_their_object_alone(patch: Patch) -> None:
    """A claim takes whatever version of its object is dead: they share a name, not a lifetime."""
    original = claims._Claim._key

    def key(self: Any, named: Row, db_key: bytes) -> None:
        bucket_id, object_id, birth, death = named
        prefix = db_key[: db_key.find(b"/", db_key.find(b"/", 1) + 1) + 1]
        for found, row in self._deleted.scan(prefix, prefix + b"\xff"):
            if row.key.object_id == object_id and not self._is_held(birth, death):
                held = type(self)._is_held
                type(self)._is_held = lambda *_: False
                try:
                    original(self, (bucket_id, object_id, row.key.birth, row.death), found)
                finally:
                    type(self)._is_held = held
                return
        original(self, named, db_key)

    patch.setattr(claims._Claim, "_key", key)


def a_drop_drops_older_ones(patch: Patch) -> None:
    """Who drops a snapshot out of order drops those before it, too."""
    original_view, original_list = chain_view._BucketChain.drop, SnapshotLists.drop

    def drop_in_view(self: Any, ordinal: int) -> None:
        for older in [row.ordinal for row in self.snapshots if row.ordinal <= ordinal]:
            original_view(self, older)

    def drop_in_list(self: SnapshotLists, work: Work, row: records.SnapshotListRow, chain_version: int) -> None:
        for older in [one for one in self.of(work, row.bucket_id).rows if one.ordinal <= row.ordinal]:
            original_list(self, work, older, chain_version)

    patch.setattr(chain_view._BucketChain, "drop", drop_in_view)
    patch.setattr(SnapshotLists, "drop", drop_in_list)


def what_is_old_is_free(patch: Patch) -> None:
    """Age is the only guard: what died before the last few snapshots cannot be wanted any more."""
    original_bounds, original_list = ChainView.bounds, SnapshotList.previous

    def bounds(self: ChainView, bucket_id: int, count: int) -> Bounds:
        found = original_bounds(self, bucket_id, count)
        return (0, 0, *found[2:]) if count <= self.ever(bucket_id) - OLD_SNAPSHOTS else found

    def previous_in_list(self: SnapshotList, death: int) -> int:
        later = sum(row.txn > death for row in self.rows)
        return 0 if later >= OLD_SNAPSHOTS else original_list(self, death)

    patch.setattr(ChainView, "bounds", bounds)
    patch.setattr(SnapshotList, "previous", previous_in_list)


def a_repeated_claim_counts_again(patch: Patch) -> None:
    """A claim that comes twice is booked twice."""
    original = claims._Claim._claimed_before

    def claimed_before(self: Any, named: Row, key: bytes) -> None:
        before = len(self.groups)
        original(self, named, key)
        if len(self.groups) > before:
            self._transaction.figures.claim(named[0], self.groups[-1][-1])

    patch.setattr(claims._Claim, "_claimed_before", claimed_before)


def a_removal_is_subtracted_from_the_live_figures(patch: Patch) -> None:
    """What a delete took off the used names of a bucket, its purge takes off once more."""
    original = BucketFigures.finish

    def finish(self: BucketFigures, bucket_id: int, size_bytes: int, versions: int, **counted: int) -> None:
        original(self, bucket_id, size_bytes, versions, **counted)
        self._used.add(bucket_id, (0, -versions, 0, 0))

    patch.setattr(BucketFigures, "finish", finish)


def renames_are_forgotten(patch: Patch) -> None:
    """Where a renamed object was at the newest snapshot is noted nowhere."""
    for module in (keys, tree):
        patch.setattr(module, "note_rename", lambda *_: None)


HISTORICAL = {
    "sent before it is durable": Mutant(
        sent_before_it_is_durable, FaultMix(crash=0.5), "answers", "answered before it was applied"
    ),
    "no judge asks the snapshots": Mutant(no_judge_asks_the_snapshots, FaultMix(), "pauses", _UNDECIDED),
    "a failed look is an empty chain": Mutant(
        a_failed_look_is_an_empty_chain, FaultMix(hole="streaming"), "holes", "judged without marker"
    ),
    "two owners of one block": Mutant(two_owners_of_one_block, FaultMix(), "accounts", "all that was written"),
    "rows known by their object alone": scripted(
        rows_known_by_their_object_alone, scripts.two_versions_of_an_object, "pauses", _UNDECIDED
    ),
    "a drop takes older ones along": scripted(
        a_drop_drops_older_ones,
        scripts.a_drop_beside_an_older_snapshot,
        "given_away",
        "gives away the blocks of a held version",
    ),
    "what is old is free": Mutant(what_is_old_is_free, FaultMix(), "pauses", _UNDECIDED),
    "a repeated claim counts again": Mutant(
        a_repeated_claim_counts_again, FaultMix(repeat=0.5), "accounts", "all that was written"
    ),
    "a purge is taken off the live figures": Mutant(
        a_removal_is_subtracted_from_the_live_figures, FaultMix(), "figures", "used figures"
    ),
    "renames are forgotten": scripted(
        renames_are_forgotten, scripts.a_held_rename, "at_rest", "snapshotRenamedTable has"
    ),
}

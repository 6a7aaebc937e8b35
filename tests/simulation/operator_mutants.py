"""Faults put by hand into what an operator relies on: pauses that let something through, or keep something for ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from schemas.records import CollectionChanged
from services.directory_deletion.trees import Trees
from services.domain.table_keys import bucket_id_key
from services.key_deletion.garbage_ranges import GarbageRanges
from services.metadata.collecting import breaker, claims
from services.metadata.state.collection_states import CollectionStates
from services.metadata.state.tables import CLAIM_HOUR_TABLE
from services.runtime.parts.collection_follower import CollectionFollower
from tests.simulation import silent_scripts as scripts
from tests.simulation.faults import FaultMix
from tests.simulation.mutant import Mutant, scripted

Patch = pytest.MonkeyPatch


def claim_ignores_a_pause(patch: Patch) -> None:
    """What was asked for before a pause was heard of is claimed behind it."""
    patch.setattr(claims, "is_suspended", lambda *_: False)


def resume_forgets_rows(patch: Patch) -> None:
    """What was held back is not looked at again."""
    patch.setattr(GarbageRanges, "sweep_again", lambda *_: None)


def resume_forgets_trees(patch: Patch) -> None:
    """Trees that have waited go on waiting."""
    original = Trees.collection_changed

    def collection_changed(self: Trees, bucket_ids: Any, work: Any) -> None:
        if self._collection.is_running and self._states:
            return
        original(self, bucket_ids, work)

    patch.setattr(Trees, "collection_changed", collection_changed)


def breaker_forgets_what_was_claimed(patch: Patch) -> None:
    """What was claimed in an hour is known until the service starts again."""
    found = breaker._hour_of
    seen_by: dict[tuple[int, int], Any] = {}

    def hour_of(transaction: Any, bucket_id: int) -> Any:
        place = transaction.shard, bucket_id
        if seen_by.setdefault(place, transaction.collection_states) is not transaction.collection_states:
            seen_by[place] = transaction.collection_states  # the service was made anew
            transaction.work.table(CLAIM_HOUR_TABLE).delete(bucket_id_key(bucket_id))
        return found(transaction, bucket_id)

    patch.setattr(breaker, "_hour_of", hour_of)


def nothing_is_told_again(patch: Patch) -> None:
    """Who has not heard of a change never hears of it."""
    patch.setattr(CollectionStates, "send_all", lambda *_: None)


def whole_state_ends_nothing(patch: Patch) -> None:
    """What all that is told again does not name stays as it was known."""
    original = CollectionFollower.follow
    patch.setattr(CollectionFollower, "follow", lambda self, change, work: original(self, _as_change(change), work))


def _as_change(change: CollectionChanged) -> CollectionChanged:
    return replace(change, previous_txn=0, is_whole=False)


OPERATOR_MUTANTS = {
    "a claim ignores a pause": Mutant(
        claim_ignores_a_pause, FaultMix(), "pauses", "freed while it is paused", runs=120
    ),
    "a resume forgets rows": scripted(
        resume_forgets_rows, scripts.a_pause_that_ends, "inventory_at_rest", "held by nobody but still in SCM"
    ),
    "the breaker forgets what was claimed before a crash": scripted(
        breaker_forgets_what_was_claimed, scripts.a_crash_between_claims, "pauses", "more goes within an hour than may"
    ),
    "a resume forgets trees": scripted(
        resume_forgets_trees, scripts.a_tree_behind_a_pause, "at_rest", "unexpandedTable"
    ),
    "a lost change of the collector is not told again": Mutant(
        nothing_is_told_again, FaultMix(), "settling", "not answered after", runs=120
    ),
    "a lost resume is not known from all that is told": scripted(
        whole_state_ends_nothing, scripts.resumes_that_are_lost, "at_rest", "deletedDirectoryTable has"
    ),
}

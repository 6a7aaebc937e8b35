"""Faults in buckets that keep versions: versions that go too early, never, or come back as what they were not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from schemas.records import BucketVersioning
from services.metadata.checkpoints import rollback
from services.metadata.collecting import undelete
from services.metadata.namespace import garbage, key_versions, keys, tree, versioning
from services.metadata.state.tables import KEY_PART_TABLE
from tests.simulation import versions_scripts as scripts
from tests.simulation.faults import FaultMix
from tests.simulation.mutant import FIRST_SEED, Mutant, scripted
from tests.simulation.mutants import Patch
from tests.simulation.nets import Fault, unshielded

_GIVEN_AWAY = "gives away the blocks of a held version"
_LEFT = "held by nobody but still in SCM"
_NOT_ALL = "all that was written"
_VERSIONS = "has the versions"


def a_deleted_key_forgets_its_versions(patch: Patch) -> None:
    """The current version dies, and the rows of the others stay behind without a key."""
    patch.setattr(garbage, "take_all_versions", lambda *_: [])


def a_deleted_key_drops_its_versions(patch: Patch) -> None:
    """The rows of the other versions go, and nobody frees their blocks."""
    original = key_versions.take_all_versions

    def take(*arguments: Any) -> list[Any]:
        original(*arguments)
        return []

    patch.setattr(garbage, "take_all_versions", take)


def versions_die_as_if_no_snapshot_listed_them(patch: Patch) -> None:
    """The versions of a deleted key are freed whatever snapshots there are, as in Ozone."""
    original = garbage.move_version_to_garbage

    def move(transaction: Any, ids: Any, version: Any, key: Any, death: Any) -> None:
        original(transaction, ids, replace(version, birth=death.txn), key, death)

    patch.setattr(garbage, "move_version_to_garbage", move)


def an_overwrite_ends_every_version(patch: Patch) -> None:
    """Nothing is kept, whatever the bucket says."""
    patch.setattr(garbage, "is_kept", lambda *_: False)


def suspension_ends_what_was_kept(patch: Patch) -> None:
    """While versions are suspended, an overwrite ends whatever it finds."""
    patch.setattr(garbage, "is_kept", lambda bucket, _: bucket.versioning is BucketVersioning.ENABLED)


def the_oldest_version_becomes_current(patch: Patch) -> None:
    """In place of a deleted current version comes the oldest of the others."""
    patch.setattr(versioning, "versions_of", lambda *names: key_versions.versions_of(*names)[::-1])


def runs_stay_behind_when_a_version_becomes_noncurrent(patch: Patch) -> None:
    """The further runs of an overwritten version stay below the key, where those of the next one come."""
    original = key_versions.become_noncurrent

    def become(transaction: Any, ids: Any, key: Any) -> int:
        table = transaction.work.table(KEY_PART_TABLE)
        before = dict(table.scan()) if key.is_composed else {}
        rows = original(transaction, ids, key)
        for row_key, row in before.items():
            table.put(row_key, row)
        return rows

    patch.setattr(key_versions, "become_noncurrent", become)


def rows_of_a_deleted_version_still_count(patch: Patch) -> None:
    """A version is deleted, and its key goes on counting its rows."""
    patch.setattr(versioning, "rows_of_version", lambda *_: 0)


def a_renamed_key_leaves_its_versions_their_name(patch: Patch) -> None:
    """What a renamed key was called is what its versions are called for ever."""
    for room in (keys, tree):
        patch.setattr(room, "rename_versions", lambda *_: None)


def _without_phase(patch: Patch, wanted: Any) -> None:
    def nothing(*_: Any) -> Iterator[bytes]:
        yield from ()

    phases = tuple((number, nothing if one is wanted else one) for number, one in rollback._PHASES)
    patch.setattr(rollback, "_PHASES", phases)


def a_rollback_passes_over_versions(patch: Patch) -> None:
    """Noncurrent versions stay what they are, and those that were written since stay, too."""
    _without_phase(patch, rollback._Page.settle_versions)


def a_rollback_forgets_empty_versions(patch: Patch) -> None:
    """Versions without bytes that were deleted since the snapshot do not come back."""
    patch.setattr(rollback._Page, "_restore_empty_versions", lambda *_: None)


def a_version_comes_back_over_a_snapshot(patch: Patch) -> None:
    """A version comes back to its key although a snapshot was taken since it died."""
    patch.setattr(undelete, "is_itself_as_version", lambda *_: True)


def a_version_is_a_name(patch: Patch) -> None:
    """Each version that is kept counts as a key more."""
    original = key_versions.become_noncurrent

    def become(transaction: Any, ids: Any, key: Any) -> int:
        transaction.figures.put(ids[1], 0, 1)
        return original(transaction, ids, key)

    patch.setattr(key_versions, "become_noncurrent", become)


def _free(fault: Fault, oracle: str, message: str, first_seed: int = FIRST_SEED) -> Mutant:
    return Mutant(fault, FaultMix(), oracle, message, first_seed=first_seed)


VERSIONS_MUTANTS = {
    "a deleted key forgets its versions": _free(a_deleted_key_forgets_its_versions, "inventory_at_rest", _LEFT),
    "a deleted key drops its versions": _free(a_deleted_key_drops_its_versions, "accounts", _NOT_ALL),
    "versions die as if no snapshot listed them, unshielded": _free(
        unshielded(versions_die_as_if_no_snapshot_listed_them), "given_away", _GIVEN_AWAY
    ),
    # In earlier runs it changes a txn first, which the same oracle finds.
    "an overwrite ends every version": _free(an_overwrite_ends_every_version, "given_away", _GIVEN_AWAY, 7_009),
    "suspension ends what was kept": scripted(
        suspension_ends_what_was_kept, scripts.an_overwrite_while_suspended, "given_away", _GIVEN_AWAY
    ),
    "the oldest version becomes current": scripted(
        the_oldest_version_becomes_current, scripts.a_deleted_current_version, "listings", _VERSIONS
    ),
    "a renamed key leaves its versions their name": scripted(
        a_renamed_key_leaves_its_versions_their_name, scripts.a_renamed_key, "listings", "another place"
    ),
    "runs of an overwritten version stay behind": _free(
        runs_stay_behind_when_a_version_becomes_noncurrent, "accounts", _NOT_ALL
    ),
    "rows of a deleted version still count": _free(rows_of_a_deleted_version_still_count, "listings", _VERSIONS),
    "a rollback passes over versions": _free(a_rollback_passes_over_versions, "listings", "."),
    "a rollback forgets empty versions": scripted(
        a_rollback_forgets_empty_versions, scripts.a_rollback_to_an_empty_version, "listings", _VERSIONS
    ),
    "a version comes back over a snapshot": scripted(
        a_version_comes_back_over_a_snapshot,
        scripts.an_undelete_of_a_version_over_a_snapshot,
        "answers",
        "brings back a version of its key that may not",
    ),
    "a version counts as a name": _free(a_version_is_a_name, "figures", "used figures"),
}

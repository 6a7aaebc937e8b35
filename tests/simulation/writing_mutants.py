"""Faults in writing by steps: blocks that go too early, twice or never, and figures that do not see them grow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from schemas.records import KeyPartRow, OpenRun, PartRow
from services.metadata.checkpoints import rollback
from services.metadata.collecting import undelete
from services.metadata.namespace import expired_writes, uploads, writing
from services.metadata.namespace.garbage import BlocksOf, drop_parts, free_runs
from services.metadata.namespace.growing import parts_born
from services.metadata.namespace.key_parts import Ids, part_at, put_parts
from services.metadata.namespace.writing import close_unfinished
from services.metadata.state.transaction import Transaction
from tests.simulation import writing_scripts as scripts
from tests.simulation.faults import FaultMix
from tests.simulation.mutant import Mutant, scripted
from tests.simulation.mutants import Patch
from tests.simulation.nets import Fault, unshielded

_GIVEN_AWAY = "gives away the blocks of a held version"
_LEFT = "held by nobody but still in SCM"
_NOT_ALL = "all that was written"


class _Parts(dict[int, PartRow]):
    """The parts of an upload; some forget what they should not, or keep what they should not."""


class _KeepsJoined(_Parts):
    def pop(self, number: int, *_: Any) -> PartRow:
        return self[number]


class _ForgetsOthers(_Parts):
    def values(self) -> Any:
        return ()


def _with_parts(patch: Patch, kind: type[_Parts]) -> None:
    original = uploads._pop_parts
    patch.setattr(uploads, "_pop_parts", lambda work, upload_id: kind(original(work, upload_id)))


def joined_parts_are_freed(patch: Patch) -> None:
    """A completion frees all parts, those that it has joined with them."""
    _with_parts(patch, _KeepsJoined)


def parts_left_out_are_forgotten(patch: Patch) -> None:
    """A completion frees no part, neither those that it has joined nor the others."""
    _with_parts(patch, _ForgetsOthers)


def a_part_is_freed_twice(patch: Patch) -> None:
    """Parts that are replaced, left out or aborted get two garbage rows each."""

    def free_twice(
        transaction: Transaction, ids: Ids, runs: Sequence[OpenRun], owner: BlocksOf, *, upload_bytes: int = 0
    ) -> None:
        free_runs(transaction, ids, runs, owner, upload_bytes=upload_bytes)
        free_runs(transaction, ids, [OpenRun(transaction.new_object_id(), run.blocks) for run in runs], owner)

    patch.setattr(uploads, "free_runs", free_twice)


def a_replaced_part_leaks(patch: Patch) -> None:
    """A part that is committed again takes the place of the one before, whose blocks nobody frees."""
    patch.setattr(uploads, "_free_parts", lambda *_: None)


def unused_blocks_of_a_commit_leak(patch: Patch) -> None:
    """What a client has allocated and not written is forgotten when the key is closed."""
    patch.setattr(writing, "report_and_free", lambda *_: None)


def an_abandoned_key_leaks(patch: Patch) -> None:
    """An open key goes, and its blocks with it, without anybody who frees them."""
    patch.setattr(writing, "close_unfinished", lambda _, table, key, row: table.delete(key + b"/%d" % row.session))


def what_has_expired_can_be_committed(patch: Patch) -> None:
    """The expiry frees the blocks of an open key and leaves its row: the client comes back and commits."""
    original = close_unfinished

    def close(transaction: Transaction, table: Any, row_key: bytes, row: Any) -> None:
        original(transaction, table, row_key, row)
        table.put(row_key + b"/%d" % row.session, row)

    patch.setattr(expired_writes, "close_unfinished", close)


def a_run_is_born_with_its_version(patch: Patch) -> None:
    """A run that is added to a version gets the birth of the version: snapshots hold it that have never seen it."""
    original = writing._grown_version

    def grown(transaction: Transaction, opened: Any, live: Any, parts: Any, found: Any, grown_bytes: int) -> Any:
        with patch.context() as inside:
            inside.setattr(
                writing, "parts_born", lambda runs, txn: parts_born(runs, live.birth if live.blocks else txn)
            )
            return original(transaction, opened, live, parts, found, grown_bytes)

    patch.setattr(writing, "_grown_version", grown)


def _grown_otherwise(patch: Patch, otherwise: Callable[..., None]) -> None:
    """Before the last run of a version grows, something is done with what it was."""
    original = writing._grown_version

    def grown(transaction: Transaction, opened: Any, live: Any, part_count: int, found: Any, grown_bytes: int) -> Any:
        if found.last_run is None:
            return original(transaction, opened, live, part_count, found, grown_bytes)
        before = KeyPartRow(live.object_id, live.birth, live.blocks)
        if part_count:
            before = part_at(transaction.work, opened.ids, live.object_id, part_count)
        otherwise(transaction, opened.ids, live, before)
        reborn = replace(before, birth=transaction.txn)
        if part_count:
            put_parts(transaction.work, opened.ids, live.object_id, [reborn], part_count)
        else:
            live = replace(live, birth=transaction.txn)
        return original(transaction, opened, live, part_count, found, grown_bytes)

    patch.setattr(writing, "_grown_version", grown)


def a_run_that_grows_is_born_again(patch: Patch) -> None:
    """A sync gives the last run the birth of the sync: a snapshot that has seen its beginning does not hold it."""
    _grown_otherwise(patch, lambda *_: None)


def each_sync_owns_what_it_shows(patch: Patch) -> None:
    """A sync kills the last run as the one before has left it: two rows own one block, and each snapshot holds one."""

    def dies(transaction: Transaction, ids: Ids, live: Any, before: KeyPartRow) -> None:
        drop_parts(transaction, ids, live, [replace(before, object_id=transaction.new_object_id())])

    _grown_otherwise(patch, dies)


def a_rollback_forgets_runs_born_since(patch: Patch) -> None:
    """A version that a rollback shortens loses its newer runs, and nobody frees them."""
    patch.setattr(rollback, "drop_parts", lambda *_, **__: None)


def an_undelete_restores_the_first_run(patch: Patch) -> None:
    """What comes back is the row that was named, and what it names stays behind."""
    patch.setattr(undelete, "_rows_of_parts", lambda *_: [])


def a_sync_adds_to_whatever_is_there(patch: Patch) -> None:
    """A client that has lost its version to another one goes on with that."""
    patch.setattr(writing, "is_version", lambda *_: True)


def snapshots_do_not_hear_of_growth(patch: Patch) -> None:
    """A block grows, and what snapshots reference stays as it was at their capture."""
    patch.setattr(writing, "run_has_grown", lambda *_: None)


def _free(fault: Fault, oracle: str, message: str, runs: int = 60, mix: FaultMix | None = None) -> Mutant:
    return Mutant(fault, mix or FaultMix(), oracle, message, runs)


WRITING_MUTANTS = {
    "joined parts are freed, unshielded": replace(
        _free(unshielded(joined_parts_are_freed), "given_away", _GIVEN_AWAY), first_seed=7_023
    ),
    "what has expired can be committed": scripted(
        what_has_expired_can_be_committed,
        scripts.an_open_key_that_has_expired,
        "answers",
        "expected txn and error .*KEY_NOT_FOUND",
    ),
    "a run that grows is born again, unshielded": scripted(
        unshielded(a_run_that_grows_is_born_again),
        scripts.a_block_that_grows_after_a_snapshot,
        "given_away",
        _GIVEN_AWAY,
    ),
    "each sync owns what it shows, unshielded": _free(
        unshielded(each_sync_owns_what_it_shows), "given_away", "names .*, but these blocks are|" + _GIVEN_AWAY
    ),
    "an undelete restores the first run alone": _free(
        an_undelete_restores_the_first_run, "given_away", _GIVEN_AWAY, runs=120
    ),
    "parts left out of a completion are forgotten": _free(parts_left_out_are_forgotten, "inventory_at_rest", _LEFT),
    "a replaced part leaks": _free(a_replaced_part_leaks, "inventory_at_rest", _LEFT),
    "a rollback forgets runs born since": scripted(
        a_rollback_forgets_runs_born_since, scripts.a_rollback_of_a_key_that_has_grown, "inventory_at_rest", _LEFT
    ),
    "a part is freed twice": _free(a_part_is_freed_twice, "accounts", _NOT_ALL),
    "unused blocks of a commit leak": _free(unused_blocks_of_a_commit_leak, "accounts", _NOT_ALL),
    "an abandoned key leaks its blocks": _free(an_abandoned_key_leaks, "accounts", _NOT_ALL),
    "a run is born with its version": _free(
        a_run_is_born_with_its_version, "at_rest", "deletedTable has too many", runs=120
    ),
    "a sync adds to whatever version is there": replace(
        _free(a_sync_adds_to_whatever_is_there, "answers", "expected txn and error"), first_seed=7_009
    ),
    "snapshots do not hear that a block has grown": _free(snapshots_do_not_hear_of_growth, "space", "a recount gives"),
}

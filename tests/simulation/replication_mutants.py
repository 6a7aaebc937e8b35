"""Faults in what blocks take on disks: figures forget it, and blocks are kept otherwise than their bucket says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schemas.records import BlockRun, SnapshotListRow
from services.metadata.checkpoints import capture_drop
from services.metadata.collecting import claims, undelete
from services.metadata.namespace import garbage, shown_bytes, writing
from services.metadata.state.figures import BucketFigures
from services.metadata.state.transaction import Transaction
from tests.simulation.faults import FaultMix
from tests.simulation.mutant import FIRST_SEED, Mutant
from tests.simulation.mutants import Patch


def _nothing(*_: Any) -> int:
    return 0


def freed_blocks_leave_their_parity(patch: Patch) -> None:
    """Claims and confirmations count the bytes of the blocks, and not what they take beyond."""
    patch.setattr(claims, "redundancy_bytes", _nothing)


def a_deletion_moves_one_copy(patch: Patch) -> None:
    """A version that dies takes one copy of its bytes to the garbage, and leaves the others among the live ones."""
    for name in ("redundancy_of", "redundancy_of_all"):
        patch.setattr(garbage, name, _nothing)


def a_block_grows_on_one_disk(patch: Patch) -> None:
    """A sync counts the bytes that it adds to a block, and not what they take beyond."""
    patch.setattr(writing, "redundancy_of", _nothing)


def snapshots_hear_of_one_copy(patch: Patch) -> None:
    """A snapshot that shows a block hears of the bytes by which it has grown, and not what they take beyond."""
    patch.setattr(shown_bytes, "redundancy_of", _nothing)


def joined_parts_stay_parts_on_disks(patch: Patch) -> None:
    """The bytes of joined parts become those of a version, and what they take beyond stays with the parts."""
    original = BucketFigures.add_redundancy

    def add(figures: BucketFigures, bucket_id: int, live: int = 0, deleted: int = 0, **others: int) -> None:
        if live or deleted or not others.get("upload"):
            original(figures, bucket_id, live, deleted, **others)

    patch.setattr(BucketFigures, "add_redundancy", add)


def an_undelete_brings_one_copy(patch: Patch) -> None:
    """A version that comes back leaves the matrix with what it takes on disks, and is live with one copy."""
    patch.setattr(undelete, "_restore_whole", _restore_one_copy)


def _restore_one_copy(transaction: Transaction, bucket_id: int, version: Any) -> None:
    transaction.figures.restore(bucket_id, version.size_bytes)


def a_snapshot_refers_to_one_copy(patch: Patch) -> None:
    """A snapshot that is captured refers to the bytes of its bucket, as if there were one copy of them."""
    original = SnapshotListRow

    def row(**fields: Any) -> Any:
        return original(**{**fields, "referenced_redundancy_bytes": 0})

    patch.setattr(capture_drop, "SnapshotListRow", row)


def all_blocks_have_one_copy(patch: Patch) -> None:
    """New blocks go into the container of one copy, whatever their bucket says."""
    patch.setattr(Transaction, "container_for", lambda transaction, _: transaction.counters.container_id)


def blocks_are_padded_to_their_size(patch: Patch) -> None:
    """The parity of a block is counted as that of a whole one, however little is in it."""

    def padded(run: BlockRun | None) -> int:
        if run is None or not run.container_id >> 48:
            return 0
        return run.block_count * run.block_size_bytes

    for module in (garbage, writing, undelete):
        patch.setattr(module, "redundancy_of", padded)


def _free(apply: Callable[[Any], None], oracle: str, message: str, first_seed: int = FIRST_SEED) -> Mutant:
    return Mutant(apply, FaultMix(), oracle, message, runs=300, first_seed=first_seed)


_NOT_ALL = "redundancy"
REPLICATION_MUTANTS = {
    "freed blocks leave their parity": _free(freed_blocks_leave_their_parity, "accounts", "space matrix"),
    "a deletion moves one copy": _free(a_deletion_moves_one_copy, "accounts", _NOT_ALL),
    "a block grows on one disk": _free(a_block_grows_on_one_disk, "figures", "used figures"),
    "snapshots hear of one copy": _free(snapshots_hear_of_one_copy, "space", "a recount gives", first_seed=7_140),
    "joined parts stay parts on disks": _free(joined_parts_stay_parts_on_disks, "figures", "used figures"),
    "an undelete brings one copy": _free(an_undelete_brings_one_copy, "figures", "used figures"),
    "a snapshot refers to one copy": _free(a_snapshot_refers_to_one_copy, "space", "a recount gives"),
    "all blocks have one copy": _free(all_blocks_have_one_copy, "answers", "was to allocate"),
    "blocks are padded to their size": _free(blocks_are_padded_to_their_size, "accounts", _NOT_ALL),
}

"""Faults in quotas: what counts that should not, and what does not that should."""

from __future__ import annotations

from typing import Any

from schemas.records import BucketRow
from services.domain.refusals import CommandError
from services.metadata.namespace import keys, writing
from services.metadata.namespace.garbage import note_rename
from services.metadata.namespace.quotas import check_room
from services.metadata.state.figures import BucketFigures
from services.metadata.state.transaction import Transaction
from tests.simulation import quota_scripts as scripts
from tests.simulation.mutant import Mutant, scripted
from tests.simulation.mutants import Patch

_TOO_MANY_REFUSED = r"expected txn and error \[\(\d+, ''\)\], answered .*QUOTA_EXCEEDED"
_TOO_FEW_REFUSED = r"expected txn and error \[\(0, 'QUOTA_EXCEEDED'\)\], answered"


def a_rename_counts(patch: Patch) -> None:
    """A quota counts a key once more when it gets another name."""

    def note(transaction: Transaction, bucket: BucketRow, *rest: Any) -> None:
        note_rename(transaction, bucket, *rest)
        transaction.figures.put(bucket.object_id, 0, 1)

    patch.setattr(keys, "note_rename", note)


def held_bytes_are_forgotten(patch: Patch) -> None:
    """A quota counts what is live, and not what a snapshot holds."""
    patch.setattr(BucketFigures, "counted_by_quotas", lambda self, bucket: self.stated(bucket)[:2])


def a_refused_put_counts(patch: Patch) -> None:
    """A put for which there is no room is counted nevertheless."""

    def check(transaction: Transaction, bucket: BucketRow, size_bytes: int, names: int) -> None:
        try:
            check_room(transaction, bucket, size_bytes, names)
        except CommandError:
            transaction.figures.put(bucket.object_id, size_bytes, names)
            raise

    patch.setattr(keys, "check_room", check)
    patch.setattr(BucketFigures, "undo_message", lambda _: None)


def unseen_blocks_count_twice(patch: Patch) -> None:
    """An open key needs room for the blocks that it has already once more."""
    original = writing._allocated

    def allocated(transaction: Transaction, bucket: BucketRow, *sizes: int) -> Any:
        return original(transaction, bucket, *sizes[:2], *(2 * unseen for unseen in sizes[2:]))

    patch.setattr(writing, "_allocated", allocated)


def unused_blocks_count(patch: Patch) -> None:
    """Blocks that never belonged to a version count until they are freed."""

    def counted(self: BucketFigures, bucket: BucketRow) -> tuple[int, int]:
        live_bytes, live_names, deleted_bytes, deleted_names, _, _, block_rows = self.stated(bucket)[:7]
        return live_bytes + deleted_bytes, live_names + deleted_names - block_rows

    patch.setattr(BucketFigures, "counted_by_quotas", counted)


def a_deleted_directory_has_no_name(patch: Patch) -> None:
    """A directory counts no more when it is deleted, though its row is still there."""
    original = BucketFigures.move_to_garbage

    def move(self: BucketFigures, bucket_id: int, size_bytes: int, *, names: int, rows: int, **more: int) -> None:
        original(self, bucket_id, size_bytes, names=names, rows=rows if size_bytes else 0, **more)

    patch.setattr(BucketFigures, "move_to_garbage", move)


QUOTA_MUTANTS: dict[str, Mutant] = {
    "quotas: a rename counts": scripted(a_rename_counts, scripts.a_renamed_key, "quotas", "2 names, expected"),
    "quotas: held bytes are forgotten": scripted(
        held_bytes_are_forgotten, scripts.bytes_that_a_snapshot_holds, "answers", _TOO_FEW_REFUSED
    ),
    "quotas: may be below what is held": scripted(
        held_bytes_are_forgotten, scripts.a_quota_below_what_is_used, "answers", r"\(0, 'QUOTA_ERROR'\)\], answered"
    ),
    "quotas: a refused put counts": scripted(
        a_refused_put_counts, scripts.room_after_a_refusal, "answers", _TOO_MANY_REFUSED
    ),
    "quotas: unseen blocks count twice": scripted(
        unseen_blocks_count_twice, scripts.blocks_of_an_open_key, "answers", _TOO_MANY_REFUSED
    ),
    "quotas: unused blocks count": scripted(
        unused_blocks_count, scripts.blocks_that_were_not_used, "answers", _TOO_MANY_REFUSED
    ),
    "quotas: a deleted directory has no name": scripted(
        a_deleted_directory_has_no_name, scripts.names_of_a_deleted_directory, "answers", _TOO_FEW_REFUSED
    ),
}

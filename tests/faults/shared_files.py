"""Defects of reading the states of a database from the table files that they share."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streaming.audit import states
from streaming.rocksdb import shared_files, table_file
from streaming.rocksdb.checkpoint_rows import CheckpointFile
from streaming.rocksdb.side_by_side import Marked
from streaming.rocksdb.table_file import Entry, TableFile, UnknownTableFileError
from tests.faults.fault import Fault

_ROWS = "tests/property/test_shared_files.py::test_rows_are_those_that_rocksdb_reads"


def a_deletion_hides_a_row_in_all_states(patch: pytest.MonkeyPatch) -> None:
    """A key that a later state had deleted was missing in earlier ones, too."""
    right = shared_files._visible

    def visible(entries: Sequence[Entry], wanted: int) -> Marked:
        everywhere = [(*one[:3], one[3] if ~one[1] & 255 == table_file.VALUE else -1) for one in entries]
        return right(everywhere, wanted)

    patch.setattr(shared_files, "_visible", visible)


def what_is_older_stays_visible(patch: pytest.MonkeyPatch) -> None:
    """A state had both rows of a key that was overwritten."""
    right = shared_files._visible

    def visible(entries: Sequence[Entry], wanted: int) -> Marked:
        apart = [right([entry], wanted) for entry in entries]
        return [row for rows, _ in apart for row in rows], [mask for _, masks in apart for mask in masks]

    patch.setattr(shared_files, "_visible", visible)


def the_last_block_of_a_range_is_left_out(patch: pytest.MonkeyPatch) -> None:
    """A key of an index was taken for the first one of its block."""
    right = table_file._within
    patch.setattr(table_file, "_within", lambda index, start, end: right(index, start, end)[:-1] or index[:1])


def an_unknown_footer_makes_a_block_empty(patch: pytest.MonkeyPatch) -> None:
    """The upper bits of the number in a block's footer, which mark other forms, were taken for a large number."""
    patch.setattr(
        table_file, "_end_of_entries", lambda content: len(content) - 4 - 4 * int.from_bytes(content[-4:], "little")
    )
    patch.setattr(table_file, "_check_end", lambda at, end: None)


def checksums_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    """A damaged block was read as it was."""

    def unpacked(file: TableFile, block: table_file._Block, read: bytes) -> bytes:
        if read[block.size]:
            raise UnknownTableFileError("compressed")
        return read[: block.size]

    patch.setattr(TableFile, "_unpacked", unpacked)


def all_states_are_read_from_their_files(patch: pytest.MonkeyPatch) -> None:
    """A state that shares nothing took four times as long as before."""
    patch.setattr(states, "sharing_states", dict[int, Sequence[CheckpointFile]])


FAULTS = (
    Fault(a_deletion_hides_a_row_in_all_states, caught_by=_ROWS, message="assert"),
    Fault(what_is_older_stays_visible, caught_by=_ROWS, message="assert"),
    Fault(the_last_block_of_a_range_is_left_out, caught_by=_ROWS, message="assert|Error"),
    Fault(
        an_unknown_footer_makes_a_block_empty,
        caught_by="tests/property/test_shared_files.py::test_what_is_not_known_is_left_to_rocksdb",
        message="DID NOT RAISE",
    ),
    Fault(
        checksums_are_not_compared,
        caught_by="tests/property/test_shared_files.py::test_damage_of_what_is_read_is_noticed",
        message="DID NOT RAISE",
    ),
    Fault(
        all_states_are_read_from_their_files,
        caught_by="tests/integration/test_audit_job.py::test_a_clean_shard_is_clean",
        message="assert|not enough values to unpack",
    ),
)

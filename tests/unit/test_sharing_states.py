"""Which states of a bucket are read from the table files that they share."""

from __future__ import annotations

from streaming.audit.states import LEAST_SHARING, sharing_states
from streaming.rocksdb.checkpoint_rows import CheckpointFile


def file(inode: int, size_bytes: int) -> CheckpointFile:
    return CheckpointFile(0, inode, size_bytes, f"/{inode}.sst", b"", b"\xff")


COMMON = file(1, 1_000)


def test_states_that_share_enough_are_read_from_their_files() -> None:
    few = {state: [COMMON] for state in range(LEAST_SHARING - 1)}
    assert sharing_states(few) == {}
    enough = {state: [COMMON] for state in range(LEAST_SHARING)}
    assert sharing_states(enough) == enough


def test_a_state_with_files_of_its_own_is_left_out_and_others_with_it() -> None:
    others = {state: [COMMON] for state in range(10)}
    alone = {10: [COMMON, file(2, 1_000)]}
    assert sharing_states(others | alone) == others
    # Six states: each has a share of a sixth of what is common. Without the two that have more of their own, a
    # fourth.
    two = {state: [COMMON, file(state, 500)] for state in (4, 5)}
    assert sharing_states({state: [COMMON] for state in range(4)} | two) == {}

"""The rules on single rows of an Ozone Manager's tables."""

from __future__ import annotations

from typing import Any

import pytest

from services.lens.ozone.chain import NEVER, UNKNOWN, SeenTransactions, in_order, index_of, snapshot_of
from services.lens.ozone.key_rows import UNKNOWN_BIRTH, birth_of, is_same_version, replicated_bytes
from services.lens.ozone.messages import KeyInfo, SnapshotInfo
from services.lens.ozone.tables import BucketKeys, end_of
from tests.ozone_databases import add_version, key_info
from tests.ozone_model import object_id

MEBIBYTE = 1 << 20
KEYS = BucketKeys(b"vol", b"b", object_id(1), object_id(2), is_file_system=False)


def coded(data: int, parity: int) -> Any:
    row = KeyInfo(type=4)
    row.ec.data, row.ec.parity, row.ec.cell_bytes = data, parity, MEBIBYTE
    return row


@pytest.mark.parametrize(
    ("size", "three", "rs_3_2", "rs_6_3"),
    [
        (0, 0, 0, 0),
        (1, 3, 3, 4),
        (MEBIBYTE, 3 * MEBIBYTE, 3 * MEBIBYTE, 4 * MEBIBYTE),
        (3 * MEBIBYTE, 9 * MEBIBYTE, 5 * MEBIBYTE, 6 * MEBIBYTE),
        (10 * MEBIBYTE, 30 * MEBIBYTE, 18 * MEBIBYTE, 16 * MEBIBYTE),
    ],
)
def test_bytes_on_disks(size: int, three: int, rs_3_2: int, rs_6_3: int) -> None:
    assert replicated_bytes(size, KeyInfo(type=1, factor=3)) == three
    assert replicated_bytes(size, coded(3, 2)) == rs_3_2
    assert replicated_bytes(size, coded(6, 3)) == rs_6_3
    assert (
        replicated_bytes(size, KeyInfo(type=1, factor=1)) == replicated_bytes(size, KeyInfo(type=2, factor=3)) == size
    )
    assert replicated_bytes(size, KeyInfo(type=77, factor=3)) == size, "an unknown type counts once"


def test_births() -> None:
    assert birth_of(-9223372036854772223) == 14
    assert birth_of(object_id(1 << 40, 255)) == 1 << 40
    assert birth_of((1 << 62) | 5 << 8) == birth_of(5 << 8) == birth_of(0) == UNKNOWN_BIRTH


class TestSameVersion:
    def row(self, *versions: list[tuple[int, int]], hsync: bool = False, **fields: Any) -> Any:
        row = key_info(KEYS, "k", 10, versions[0], **fields)
        for version in versions[1:]:
            add_version(row, version)
        if hsync:
            row.metadata.add(key="hsyncClientId", value="7")
        return row

    def test_object_and_latest_blocks_decide(self) -> None:
        info = self.row([(1, 5), (2, 6)], update_id=99)
        assert is_same_version(self.row([(1, 5), (2, 6)]), info), "the last transaction does not matter"
        assert not is_same_version(None, info)
        assert not is_same_version(self.row([(1, 5), (2, 6)], object_id=object_id(11)), info)
        for others in ([(1, 5)], [(2, 6), (1, 5)], [(1, 5), (2, 7)], [(1, 5), (3, 6)], [(1, 5), (2, 6), (3, 1)]):
            assert not is_same_version(self.row(others), info), others

    def test_offset_commit_sequence_and_version_of_a_block_are_compared(self) -> None:
        info = self.row([(1, 5)])
        for name, value in (("offset", 1), ("create_version", 2)):
            other = self.row([(1, 5)])
            setattr(other.versions[0].locations[0], name, value)
            assert not is_same_version(other, info)
        other = self.row([(1, 5)])
        other.versions[0].locations[0].block.commit_sequence = 9
        assert not is_same_version(other, info)

    def test_the_number_of_versions_is_compared_and_of_the_blocks_the_latest(self) -> None:
        info = self.row([(1, 5)], [(2, 6)])
        latest = self.row([(9, 5)], [(2, 6)])
        latest.versions[1].locations[0].create_version = info.versions[1].locations[0].create_version
        assert is_same_version(latest, info)
        alone = self.row([(2, 6)])
        alone.versions[0].locations[0].create_version = info.versions[1].locations[0].create_version
        assert not is_same_version(alone, info)

    def test_two_hsynced_rows_are_the_same_by_their_object(self) -> None:
        short, long = [(1, 5)], [(1, 9), (2, 6)]
        assert is_same_version(self.row(short, hsync=True), self.row(long, hsync=True))
        assert not is_same_version(self.row(short, hsync=True), self.row(long))
        assert not is_same_version(self.row(short, hsync=True, object_id=1), self.row(long, hsync=True))

    def test_blocks_that_were_never_used_are_nobodys(self) -> None:
        assert not is_same_version(self.row([(1, 5)], object_id=0), self.row([(1, 5)], object_id=0))


class TestSeenTransactions:
    def test_the_own_database_counts_and_the_last_transaction_of_the_row_only_excludes(self) -> None:
        seen = SeenTransactions(own=[20, 30], created=[UNKNOWN, UNKNOWN], last=[90, 95])
        assert seen.is_consistent
        assert [seen.first_with(one) for one in (20, 21, 30, 31)] == [0, 1, 1, 2]
        assert [seen.first_possible(one) for one in (20, 21, 30, 31)] == [0, 1, 1, 2]

    def test_without_an_own_database(self) -> None:
        """What a neighbour has seen is known of the others, too: the log has one order."""
        seen = SeenTransactions(own=[20, UNKNOWN, UNKNOWN], created=[UNKNOWN] * 3, last=[UNKNOWN, UNKNOWN, 50])
        assert [seen.first_with(20), seen.first_with(21)] == [0, 3]
        assert [seen.first_possible(one) for one in (20, 21, 50, 51, NEVER)] == [0, 1, 1, 3, 3]

    def test_a_create_transaction_is_the_first_that_is_not_seen(self) -> None:
        seen = SeenTransactions(own=[UNKNOWN], created=[21], last=[90])
        assert (seen.first_with(20), seen.first_with(21), seen.first_possible(21)) == (0, 1, 1)

    def test_nobody_has_certainly_seen_a_row_that_names_no_transaction(self) -> None:
        seen = SeenTransactions(own=[20, 30], created=[UNKNOWN, UNKNOWN], last=[90, 95])
        assert seen.first_with(KeyInfo().update_id) == 2

    def test_a_contradiction_is_noticed(self) -> None:
        assert not SeenTransactions(own=[40, 30], created=[41, 31], last=[41, 31]).is_consistent
        assert not SeenTransactions(own=[40], created=[31], last=[31]).is_consistent


def snapshot(number: int, previous: int | None, created: int = UNKNOWN) -> Any:
    row = SnapshotInfo(name=f"s{number}")
    row.id.least = number
    if previous is not None:
        row.previous.least = previous
    if created != UNKNOWN:
        row.create_transaction = b"1#%d" % created
    return snapshot_of(row)


@pytest.mark.parametrize(
    ("rows", "order", "problem"),
    [
        ([(3, 2), (1, None), (2, 1)], ["s1", "s2", "s3"], ""),
        ([(1, None), (2, 9)], ["s1", "s2"], "which is not in snapshotInfoTable"),
        ([(1, None), (2, 1), (3, 1)], ["s1", "s2", "s3"], "snapshots s2, s3 all follow s1"),
        ([(1, None), (2, 3), (3, 2)], ["s1", "s2", "s3"], "snapshots s2, s3 follow each other in a circle"),
    ],
)
def test_the_order_is_that_of_the_links(rows: list[tuple[int, int | None]], order: list[str], problem: str) -> None:
    found, problems = in_order(snapshot(*row) for row in rows)
    assert [one.name for one in found] == order
    assert bool(problems) == bool(problem)
    assert problem in "".join(problems)


def test_texts() -> None:
    assert (index_of(b"1#103"), index_of(b""), index_of(b"1#")) == (103, UNKNOWN, UNKNOWN)
    assert end_of(b"/vol/b1/") == b"/vol/b10"

"""A shard's chain: what breaks it, and what makes it whole again."""

from __future__ import annotations

import pytest

from schemas.codec import codec
from schemas.records import ChainCapture, ChainDrop, ChainedBucket, ChainedSnapshot, FullChain, SnapshotChainRecord
from services.domain.full_chain import in_parts
from streaming.reclaiming.shard_chain import ShardChain

BUCKET, OTHER = 256, 512
MARKERS = codec(SnapshotChainRecord)
CAPTURES = [SnapshotChainRecord(n, n - 1, ChainCapture(BUCKET, f"s{n}", n, 100 * n)) for n in range(1, 5)]
GARBAGE = b"\xff"


def full(version: int, snapshots: int | None = None, txn: int = 100) -> SnapshotChainRecord:
    """The whole chain of so many takes, the n-th at n times a txn."""
    listed = [ChainedSnapshot(f"s{n}", n, txn * n, is_live=True) for n in range(1, (snapshots or version) + 1)]
    return SnapshotChainRecord(version, version, FullChain((ChainedBucket(BUCKET, tuple(listed)),)))


class Topic:
    """A chain that is fed message after message."""

    def __init__(self, *sent: SnapshotChainRecord | bytes) -> None:
        self.chain = ShardChain()
        self.send(*sent)

    def send(self, *sent: SnapshotChainRecord | bytes) -> set[int]:
        changed: set[int] = set()
        for one in sent:
            message = one if isinstance(one, bytes) else MARKERS.encode_message(one)
            changed |= self.chain.receive(self.chain.next_offset, message)
        return changed

    def is_whole(self) -> bool:
        return not self.chain.trouble


def test_markers_are_followed_and_repeats_change_nothing() -> None:
    topic = Topic()
    assert topic.send(CAPTURES[0]) == {BUCKET}
    assert topic.send(CAPTURES[0], full(1)) == set()
    assert (topic.is_whole(), topic.chain.view.version, topic.chain.next_offset) == (True, 1, 3)
    assert topic.chain.receive(1, GARBAGE) == set()
    assert topic.is_whole(), "what was read before is not read again"


@pytest.mark.parametrize(
    "healing",
    [[full(3)], [full(4)], [CAPTURES[1], CAPTURES[2]], [full(2), CAPTURES[2]]],
    ids=["same", "later", "resent", "mixed"],
)
def test_a_gap_is_closed_when_every_version_that_was_named_is_reached(healing: list[SnapshotChainRecord]) -> None:
    topic = Topic(CAPTURES[0], CAPTURES[2])
    assert "version 2" in topic.chain.trouble or "missing" in topic.chain.trouble
    assert topic.chain.view.version == 1
    for one in healing[:-1]:
        topic.send(one)
        assert not topic.is_whole()
    topic.send(healing[-1])
    assert topic.is_whole()
    assert topic.chain.view.version >= 3


@pytest.mark.parametrize("healing", [full(1), CAPTURES[1]], ids=["the whole chain", "the next marker"])
def test_what_cannot_be_read_was_no_marker_when_the_numbers_go_on(healing: SnapshotChainRecord) -> None:
    topic = Topic(CAPTURES[0], GARBAGE)
    assert "offset 1 cannot be read" in topic.chain.trouble
    topic.send(CAPTURES[0])
    assert not topic.is_whole(), "a marker that is known already tells nothing"
    topic.send(healing)
    assert topic.is_whole()


def test_a_marker_behind_one_that_cannot_be_read_shows_that_it_was_one() -> None:
    topic = Topic(CAPTURES[0], GARBAGE, CAPTURES[2])
    assert not topic.is_whole()
    topic.send(full(2))
    assert not topic.is_whole(), "a marker above it was named"
    topic.send(full(3))
    assert topic.is_whole()


def test_two_whole_chains_that_differ_are_settled_by_a_later_one() -> None:
    topic = Topic(*CAPTURES[:2])
    assert topic.send(full(2, txn=90)) == {BUCKET}
    assert not topic.is_whole()
    assert not topic.chain.view.knows(BUCKET), "nobody knows which of them is right"
    topic.send(CAPTURES[2])
    assert not topic.is_whole()
    topic.send(full(3))
    assert topic.is_whole()
    assert [topic.chain.view.bounds(BUCKET, n)[1] for n in range(4)] == [0, 100, 200, 300]


def test_a_contradiction_is_settled_by_the_whole_chain() -> None:
    topic = Topic(CAPTURES[0], SnapshotChainRecord(2, 1, ChainDrop(OTHER, "unknown", 5, 1)))
    assert not topic.is_whole()
    topic.send(CAPTURES[2])
    assert not topic.is_whole()
    assert topic.send(full(3)) == {BUCKET}
    assert topic.is_whole()


def test_a_whole_chain_names_the_buckets_that_it_leaves_out() -> None:
    topic = Topic(CAPTURES[0])
    assert topic.send(SnapshotChainRecord(2, 2, FullChain(()))) == {BUCKET}
    assert not topic.chain.view.knows(BUCKET)


def parts_of(version: int) -> list[SnapshotChainRecord]:
    """The whole chain of so many takes, a snapshot in each part."""
    body = full(version).body
    assert isinstance(body, FullChain)
    return [SnapshotChainRecord(version, version, part) for part in in_parts(body.buckets, max_cells=2)]


@pytest.mark.parametrize("version", [3, 4], ids=["as far as it is known", "farther"])
def test_only_the_last_part_of_a_whole_chain_mends_it(version: int) -> None:
    topic = Topic(*CAPTURES[:3], GARBAGE)
    *before, last = parts_of(version)
    assert len(before) == version - 1
    topic.send(last)
    for one in before:
        topic.send(one)
        assert not topic.is_whole(), "a part is missing"
    assert topic.send(last) == ({BUCKET} if version > 3 else set())
    assert topic.is_whole()
    assert topic.chain.view.version == version


def test_a_whole_chain_with_a_part_that_cannot_be_read_mends_nothing() -> None:
    topic = Topic(*CAPTURES[:3], GARBAGE)
    first, _, last = parts_of(3)
    topic.send(first, GARBAGE, last)
    assert not topic.is_whole()
    topic.send(*parts_of(3))
    assert topic.is_whole()


def test_a_topic_that_is_read_again_is_whole_where_it_was_before() -> None:
    topic = Topic(*CAPTURES[:3])
    assert topic.chain.begin_again("it ends at 2") == {BUCKET}
    assert (topic.chain.next_offset, topic.chain.view.version) == (0, 0)
    for one in CAPTURES[:2]:
        topic.send(one)
        assert topic.chain.trouble == "it ends at 2"
    topic.send(CAPTURES[2])
    assert topic.is_whole()

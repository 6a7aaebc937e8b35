"""The view of a shard's chain: its versions, its look-ups, and what it refuses to answer."""

from __future__ import annotations

import pickle

import pytest

from schemas.records import ChainedBucket, ChainedSnapshot
from services.domain.chain_view import (
    ChainGapError,
    ChainOrderError,
    ChainView,
    UnknownDeathError,
)
from services.domain.reclaimability import LifetimeError, Verdict

BUCKET = 7


def chain_of_three() -> ChainView:
    """s1, s2 and s3 at txns 10, 20 and 30."""
    view = ChainView()
    for ordinal in (1, 2, 3):
        assert view.capture(ordinal, ordinal - 1, BUCKET, f"s{ordinal}", ordinal, ordinal * 10)
    return view


def cells(view: ChainView, bucket_id: int) -> list[int]:
    """``previous`` for every n that the bucket has had."""
    return [view.bounds(bucket_id, n)[1] for n in range(view.ever(bucket_id) + 1)]


def ids(snapshots: tuple[ChainedSnapshot, ...]) -> list[str]:
    return [snapshot.snapshot_id for snapshot in snapshots]


def test_cells_name_the_newest_live_snapshot_among_the_first_n() -> None:
    view = chain_of_three()
    assert cells(view, BUCKET) == [0, 10, 20, 30]
    assert view.drop(4, 3, BUCKET, "s2")
    assert cells(view, BUCKET) == [0, 10, 10, 30]
    assert view.drop(5, 4, BUCKET, "s1")
    assert cells(view, BUCKET) == [0, 0, 0, 30]
    assert view.capture(6, 5, BUCKET, "s4", 4, 40)
    assert view.drop(7, 6, BUCKET, "s3")
    assert cells(view, BUCKET) == [0, 0, 0, 0, 40]
    assert view.version == 7


def test_before_previous_skips_dropped_snapshots() -> None:
    view = chain_of_three()
    assert [view.bounds(BUCKET, n)[0] for n in range(4)] == [0, 0, 10, 20]
    view.drop(4, 3, BUCKET, "s2")
    assert [view.bounds(BUCKET, n)[0] for n in range(4)] == [0, 0, 0, 10]


def test_neighbours_of_live_and_of_dropped_snapshots() -> None:
    view = chain_of_three()
    view.drop(4, 3, BUCKET, "s2")
    s1, s3 = view.live(BUCKET)
    assert (view.previous_live(BUCKET, 20), view.next_live(BUCKET, 20)) == (s1, s3)
    assert (view.previous_live(BUCKET, 10), view.next_live(BUCKET, 10)) == (None, s3)
    assert (view.previous_live(BUCKET, 30), view.next_live(BUCKET, 30)) == (s1, None)
    view.drop(5, 4, BUCKET, "s3")
    assert (view.previous_live(BUCKET, 30), view.next_live(BUCKET, 20)) == (s1, None)
    assert ids(view.live(BUCKET)) == ["s1"]
    assert (view.ever(BUCKET), view.newest_txn(BUCKET)) == (3, 30)
    assert view.find(BUCKET, "s1") == s1
    assert view.find(BUCKET, "s3") is None
    assert (ChainView().previous_live(BUCKET, 10), ChainView().next_live(BUCKET, 10)) == (None, None)


def test_a_missing_marker_is_a_gap_and_changes_nothing() -> None:
    view = chain_of_three()
    with pytest.raises(ChainGapError, match="judge nothing"):
        view.capture(5, 4, BUCKET, "s4", 4, 40)
    with pytest.raises(ChainGapError, match="judge nothing"):
        view.drop(5, 2, BUCKET, "s1")
    with pytest.raises(ChainGapError) as raised:
        view.drop(9, 8, BUCKET, "s1")
    assert (raised.value.have, raised.value.got) == (3, 8)
    assert view == chain_of_three()


def test_versions_may_jump_when_the_marker_names_its_predecessor() -> None:
    view = chain_of_three()
    assert view.drop(100, 3, BUCKET, "s1")
    assert view.version == 100


def test_a_marker_that_comes_again_is_ignored() -> None:
    view = chain_of_three()
    assert not view.capture(3, 2, BUCKET, "s3", 3, 30)
    assert not view.drop(2, 1, BUCKET, "s1")
    assert view == chain_of_three()


@pytest.mark.parametrize(
    ("snapshot_id", "ordinal", "txn"),
    [
        pytest.param("s4", 3, 40, id="ordinal used before"),
        pytest.param("s4", 5, 40, id="ordinal left out"),
        pytest.param("s4", 4, 30, id="txn of the one before"),
        pytest.param("s4", 4, 29, id="txn before the one before"),
        pytest.param("s1", 4, 40, id="id of one that lives"),
    ],
)
def test_a_capture_that_is_not_the_next_one_is_refused(snapshot_id: str, ordinal: int, txn: int) -> None:
    view = chain_of_three()
    with pytest.raises(ChainOrderError):
        view.capture(4, 3, BUCKET, snapshot_id, ordinal, txn)
    assert view == chain_of_three()


def test_a_refused_first_capture_leaves_no_bucket() -> None:
    view = ChainView()
    with pytest.raises(ChainOrderError):
        view.capture(1, 0, BUCKET, "s1", 2, 10)
    assert view.bucket_ids() == ()
    assert cells(view, BUCKET) == [0]


def test_a_drop_of_what_is_not_live_is_refused() -> None:
    view = chain_of_three()
    view.drop(4, 3, BUCKET, "s2")
    for bucket_id, snapshot_id in ((BUCKET, "s2"), (BUCKET, "s9"), (8, "s1")):
        with pytest.raises(ChainOrderError):
            view.drop(5, 4, bucket_id, snapshot_id)
    assert view.version == 4


def test_no_snapshot_before_the_death_needs_no_bucket() -> None:
    assert ChainView().bounds(BUCKET, 0)[:2] == (0, 0)
    assert ChainView().judge(BUCKET, 1, 2, 0) is Verdict.RECLAIMABLE


@pytest.mark.parametrize(("bucket_id", "n"), [(BUCKET, 4), (BUCKET, -1), (8, 1)])
def test_an_unknown_death_gets_no_answer(bucket_id: int, n: int) -> None:
    view = chain_of_three()
    with pytest.raises(UnknownDeathError, match="keep the row"):
        view.judge(bucket_id, 1, 45, n)


def test_verdicts_follow_the_drops() -> None:
    view = chain_of_three()
    assert view.judge(BUCKET, 5, 25, 2) is Verdict.SHARED
    view.drop(4, 3, BUCKET, "s1")
    assert view.judge(BUCKET, 5, 25, 2) is Verdict.EXCLUSIVE_TO_PREVIOUS
    view.drop(5, 4, BUCKET, "s2")
    assert view.judge(BUCKET, 5, 25, 2) is Verdict.RECLAIMABLE


@pytest.mark.parametrize(
    ("death", "n"),
    [
        pytest.param(25, 1, id="a snapshot before the death is not counted"),
        pytest.param(20, 1, id="a snapshot at the death"),
        pytest.param(20, 2, id="a snapshot at the death is counted"),
        pytest.param(25, 3, id="a snapshot after the death is counted"),
        pytest.param(25, 0, id="none is counted"),
    ],
)
def test_a_count_that_contradicts_the_death_gets_no_verdict(death: int, n: int) -> None:
    with pytest.raises(LifetimeError, match="keep the row"):
        chain_of_three().judge(BUCKET, 15, death, n)


def test_a_death_is_held_against_what_lives_and_against_the_newest_that_ever_was() -> None:
    """Where a dropped snapshot was is forgotten, but for the newest: it changes no verdict."""
    view = chain_of_three()
    view.drop(4, 3, BUCKET, "s2")
    assert view.judge(BUCKET, 15, 20, 2) is Verdict.RECLAIMABLE
    view.drop(5, 4, BUCKET, "s3")
    for death, n in ((30, 3), (30, 2), (10, 2)):
        with pytest.raises(LifetimeError, match="keep the row"):
            view.judge(BUCKET, 5, death, n)


def test_a_full_record_replaces_an_older_view() -> None:
    source = chain_of_three()
    source.drop(4, 3, BUCKET, "s2")
    for view in (ChainView(), chain_of_three()):
        assert view.full(4, source.buckets())
        assert view == source
        assert view.capture(5, 4, BUCKET, "s4", 4, 40)
        assert cells(view, BUCKET) == [0, 10, 10, 30, 40]


def test_a_full_record_of_the_same_version_has_to_agree() -> None:
    view = chain_of_three()
    assert not view.full(3, view.buckets())
    for buckets in (
        [],
        [ChainedBucket(BUCKET, view.live(BUCKET)[:2])],
        [*view.buckets(), ChainedBucket(8, (ChainedSnapshot("t1", 1, 5, True),))],
    ):
        with pytest.raises(ChainOrderError, match="judge nothing"):
            view.full(3, buckets)
    assert view == chain_of_three()


def test_an_older_full_record_is_ignored() -> None:
    view = chain_of_three()
    assert not view.full(2, [])
    assert view == chain_of_three()


@pytest.mark.parametrize(
    "snapshots",
    [
        pytest.param((ChainedSnapshot("s1", 0, 10, True),), id="ordinals begin at 1"),
        pytest.param((ChainedSnapshot("s1", 2, 10, True), ChainedSnapshot("s2", 2, 20, True)), id="one ordinal twice"),
        pytest.param(
            (ChainedSnapshot("s1", 1, 10, True), ChainedSnapshot("s2", 2, 10, False)), id="txns not ascending"
        ),
        pytest.param((ChainedSnapshot("s1", 1, 10, True), ChainedSnapshot("s1", 2, 20, True)), id="one id twice"),
    ],
)
def test_a_full_record_with_a_broken_list_installs_nothing(snapshots: tuple[ChainedSnapshot, ...]) -> None:
    view = chain_of_three()
    with pytest.raises(ChainOrderError):
        view.full(9, [ChainedBucket(8, ()), ChainedBucket(BUCKET, snapshots)])
    assert view == chain_of_three()


def test_a_full_record_names_a_bucket_once() -> None:
    with pytest.raises(ChainOrderError, match="twice"):
        ChainView().full(1, [ChainedBucket(BUCKET, ()), ChainedBucket(BUCKET, ())])


def test_buckets_do_not_touch_one_another() -> None:
    view = chain_of_three()
    view.capture(4, 3, 8, "t1", 1, 40)
    view.drop(5, 4, BUCKET, "s1")
    assert cells(view, 8) == [0, 40]
    assert view.bucket_ids() == (BUCKET, 8)


def test_ten_thousand_snapshots_of_one_bucket() -> None:
    view = ChainView()
    count = 10_000
    for ordinal in range(1, count + 1):
        view.capture(ordinal, ordinal - 1, BUCKET, str(ordinal), ordinal, ordinal)
    for dropped in range(count, 1, -1):
        view.drop(2 * count - dropped + 1, 2 * count - dropped, BUCKET, str(dropped))
    assert cells(view, BUCKET) == [0] + [1] * count
    assert view.buckets() == [ChainedBucket(BUCKET, view.live(BUCKET), count, count)]


@pytest.mark.parametrize(
    ("ever", "newest_txn"),
    [
        pytest.param(2, 30, id="fewer than the ordinals"),
        pytest.param(3, 31, id="as many, but later"),
        pytest.param(4, 30, id="more, but not later"),
    ],
)
def test_a_full_record_that_contradicts_itself_about_dropped_ones_is_refused(ever: int, newest_txn: int) -> None:
    with pytest.raises(ChainOrderError, match="a full chain gives a bucket"):
        ChainView().full(9, [ChainedBucket(BUCKET, chain_of_three().live(BUCKET), ever, newest_txn)])


def test_a_full_record_of_an_older_writer_names_dropped_snapshots_too() -> None:
    every = tuple(ChainedSnapshot(f"s{n}", n, n * 10, n != 3 and n != 1) for n in (1, 2, 3))
    view, source = ChainView(), chain_of_three()
    source.drop(4, 3, BUCKET, "s3")
    source.drop(5, 4, BUCKET, "s1")
    assert view.full(5, [ChainedBucket(BUCKET, every)])
    assert view == source


def test_what_was_dropped_costs_a_view_nothing() -> None:
    view, count = ChainView(), 300_000
    chain_view = view.capture(1, 0, BUCKET, "first", 1, 1)
    assert chain_view
    for n in range(2, count + 1):
        view.capture(2 * n - 2, view.version, BUCKET, "one", n, n)
        view.drop(2 * n - 1, view.version, BUCKET, "one")
    assert len(pickle.dumps(view)) < 2_000
    assert (view.ever(BUCKET), view.newest_txn(BUCKET)) == (count, count)
    assert view.judge(BUCKET, 2, count + 1, count) is Verdict.RECLAIMABLE
    assert view.judge(BUCKET, 1, count + 1, count) is Verdict.EXCLUSIVE_TO_PREVIOUS

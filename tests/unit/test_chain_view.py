"""The view of a shard's chain: its versions, its look-ups, and what it refuses to answer."""

from __future__ import annotations

import pytest

from schemas.records import ChainedBucket, ChainedSnapshot
from services.domain.chain_view import (
    ChainGapError,
    ChainOrderError,
    ChainView,
    UnknownDeathError,
    UnknownSnapshotError,
)
from services.domain.reclaimability import LifetimeError, Verdict

BUCKET = 7


def chain_of_three() -> ChainView:
    """s1, s2 and s3 at txns 10, 20 and 30."""
    view = ChainView()
    for ordinal in (1, 2, 3):
        assert view.take(ordinal, ordinal - 1, BUCKET, f"s{ordinal}", ordinal, ordinal * 10)
    return view


def ids(snapshots: tuple[ChainedSnapshot, ...]) -> list[str]:
    return [snapshot.snapshot_id for snapshot in snapshots]


def test_cells_name_the_newest_live_snapshot_among_the_first_n() -> None:
    view = chain_of_three()
    assert view.previous_array(BUCKET) == [0, 10, 20, 30]
    assert view.drop(4, 3, BUCKET, "s2")
    assert view.previous_array(BUCKET) == [0, 10, 10, 30]
    assert view.drop(5, 4, BUCKET, "s1")
    assert view.previous_array(BUCKET) == [0, 0, 0, 30]
    assert view.take(6, 5, BUCKET, "s4", 4, 40)
    assert view.drop(7, 6, BUCKET, "s3")
    assert view.previous_array(BUCKET) == [0, 0, 0, 0, 40]
    assert view.version == 7


def test_before_previous_skips_dropped_snapshots() -> None:
    view = chain_of_three()
    assert [view.before_previous(BUCKET, n) for n in range(4)] == [0, 0, 10, 20]
    view.drop(4, 3, BUCKET, "s2")
    assert [view.before_previous(BUCKET, n) for n in range(4)] == [0, 0, 0, 10]


def test_neighbours_of_live_and_of_dropped_snapshots() -> None:
    view = chain_of_three()
    view.drop(4, 3, BUCKET, "s2")
    s1, s3 = view.live(BUCKET)
    assert (view.previous_live(BUCKET, "s2"), view.next_live(BUCKET, "s2")) == (s1, s3)
    assert (view.previous_live(BUCKET, "s1"), view.next_live(BUCKET, "s1")) == (None, s3)
    assert (view.previous_live(BUCKET, "s3"), view.next_live(BUCKET, "s3")) == (s1, None)
    view.drop(5, 4, BUCKET, "s3")
    assert (view.previous_live(BUCKET, "s3"), view.next_live(BUCKET, "s2")) == (s1, None)
    assert ids(view.live(BUCKET)) == ["s1"]
    assert ids(view.ever(BUCKET)) == ["s1", "s2", "s3"]
    dropped = view.find(BUCKET, "s3")
    assert dropped is not None
    assert not dropped.is_live
    assert view.find(BUCKET, "s4") is None


def test_neighbours_of_a_snapshot_that_never_was() -> None:
    with pytest.raises(UnknownSnapshotError):
        chain_of_three().previous_live(BUCKET, "s4")
    with pytest.raises(UnknownSnapshotError):
        ChainView().next_live(BUCKET, "s1")


def test_a_missing_marker_is_a_gap_and_changes_nothing() -> None:
    view = chain_of_three()
    with pytest.raises(ChainGapError, match="judge nothing"):
        view.take(5, 4, BUCKET, "s4", 4, 40)
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
    assert not view.take(3, 2, BUCKET, "s3", 3, 30)
    assert not view.drop(2, 1, BUCKET, "s1")
    assert view == chain_of_three()


@pytest.mark.parametrize(
    ("snapshot_id", "ordinal", "txn"),
    [
        pytest.param("s4", 3, 40, id="ordinal used before"),
        pytest.param("s4", 5, 40, id="ordinal left out"),
        pytest.param("s4", 4, 30, id="txn of the one before"),
        pytest.param("s4", 4, 29, id="txn before the one before"),
        pytest.param("s1", 4, 40, id="id used before"),
    ],
)
def test_a_take_that_is_not_the_next_one_is_refused(snapshot_id: str, ordinal: int, txn: int) -> None:
    view = chain_of_three()
    with pytest.raises(ChainOrderError):
        view.take(4, 3, BUCKET, snapshot_id, ordinal, txn)
    assert view == chain_of_three()


def test_a_refused_first_take_leaves_no_bucket() -> None:
    view = ChainView()
    with pytest.raises(ChainOrderError):
        view.take(1, 0, BUCKET, "s1", 2, 10)
    assert view.bucket_ids() == ()
    assert view.previous_array(BUCKET) == [0]


def test_a_drop_of_what_is_not_live_is_refused() -> None:
    view = chain_of_three()
    view.drop(4, 3, BUCKET, "s2")
    for bucket_id, snapshot_id in ((BUCKET, "s2"), (BUCKET, "s9"), (8, "s1")):
        with pytest.raises(ChainOrderError):
            view.drop(5, 4, bucket_id, snapshot_id)
    assert view.version == 4


def test_no_snapshot_before_the_death_needs_no_bucket() -> None:
    assert ChainView().previous(BUCKET, 0) == 0
    assert ChainView().before_previous(BUCKET, 0) == 0
    assert ChainView().judge(BUCKET, 1, 2, 0) is Verdict.RECLAIMABLE


@pytest.mark.parametrize(("bucket_id", "n"), [(BUCKET, 4), (BUCKET, -1), (8, 1)])
def test_an_unknown_death_gets_no_answer(bucket_id: int, n: int) -> None:
    view = chain_of_three()
    with pytest.raises(UnknownDeathError, match="keep the row"):
        view.previous(bucket_id, n)
    with pytest.raises(UnknownDeathError, match="keep the row"):
        view.before_previous(bucket_id, n)
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


def test_a_dropped_snapshot_at_the_death_contradicts_it_too() -> None:
    view = chain_of_three()
    view.drop(4, 3, BUCKET, "s2")
    with pytest.raises(LifetimeError, match="keep the row"):
        view.judge(BUCKET, 15, 20, 2)


def test_the_count_can_be_worked_out_from_the_death() -> None:
    view = chain_of_three()
    view.drop(4, 3, BUCKET, "s1")
    assert [view.snapshots_before(BUCKET, death) for death in (10, 11, 20, 21, 30, 31)] == [0, 1, 1, 2, 2, 3]
    assert view.snapshots_before(8, 100) == 0


def as_buckets(view: ChainView) -> list[ChainedBucket]:
    return [ChainedBucket(bucket_id, view.ever(bucket_id)) for bucket_id in view.bucket_ids()]


def test_a_full_record_replaces_an_older_view() -> None:
    source = chain_of_three()
    source.drop(4, 3, BUCKET, "s2")
    for view in (ChainView(), chain_of_three()):
        assert view.full(4, as_buckets(source))
        assert view == source
        assert view.take(5, 4, BUCKET, "s4", 4, 40)
        assert view.previous_array(BUCKET) == [0, 10, 10, 30, 40]


def test_a_full_record_of_the_same_version_has_to_agree() -> None:
    view = chain_of_three()
    assert not view.full(3, as_buckets(view))
    for buckets in (
        [],
        [ChainedBucket(BUCKET, view.ever(BUCKET)[:2])],
        [*as_buckets(view), ChainedBucket(8, (ChainedSnapshot("t1", 1, 5, True),))],
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
        pytest.param((ChainedSnapshot("s1", 2, 10, True),), id="does not start at ordinal 1"),
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
    view.take(4, 3, 8, "t1", 1, 40)
    view.drop(5, 4, BUCKET, "s1")
    assert view.previous_array(8) == [0, 40]
    assert view.bucket_ids() == (BUCKET, 8)


def test_the_array_given_out_is_the_callers_own() -> None:
    view = chain_of_three()
    view.previous_array(BUCKET)[1] = 99
    assert view.previous(BUCKET, 1) == 10


def test_ten_thousand_snapshots_of_one_bucket() -> None:
    view = ChainView()
    count = 10_000
    for ordinal in range(1, count + 1):
        view.take(ordinal, ordinal - 1, BUCKET, str(ordinal), ordinal, ordinal)
    for dropped in range(count, 1, -1):
        view.drop(2 * count - dropped + 1, 2 * count - dropped, BUCKET, str(dropped))
    assert view.previous_array(BUCKET) == [0] + [1] * count

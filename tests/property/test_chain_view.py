"""The view's look-ups equal a search in plain lists, after any takes, drops, repeats and full records."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from schemas.records import SnapshotChainRecord
from services.domain.chain_view import ChainView, UnknownDeathError
from services.domain.full_chain import in_parts
from services.domain.reclaimability import LifetimeError, Verdict, judge

BUCKETS = (1, 2)

steps = st.lists(
    st.tuples(
        st.sampled_from(["capture", "capture", "drop", "repeat", "full"]), st.sampled_from(BUCKETS), st.integers(0)
    ),
    max_size=40,
)


class Model:
    """Per bucket the txns of all snapshots ever taken, and those of the live ones."""

    def __init__(self) -> None:
        self.view = ChainView()
        self.ever: dict[int, list[int]] = {bucket: [] for bucket in BUCKETS}
        self.live: dict[int, list[int]] = {bucket: [] for bucket in BUCKETS}
        self.txn = 0

    def play(self, step: str, bucket: int, choice: int) -> None:
        self.txn += 1 + choice % 3
        version = self.view.version
        if step == "capture":
            self.ever[bucket].append(self.txn)
            self.live[bucket].append(self.txn)
            assert self.view.capture(version + 1, version, bucket, str(self.txn), len(self.ever[bucket]), self.txn)
        elif step == "drop" and self.live[bucket]:
            dropped = self.live[bucket].pop(choice % len(self.live[bucket]))
            assert self.view.drop(version + 1, version, bucket, str(dropped))
        elif step == "repeat" and version:
            assert not self.view.capture(version, version - 1, bucket, "again", 99, self.txn)
        elif step == "full":
            fresh = ChainView()
            parts = in_parts(self.view.buckets(), 2 + choice % 5)
            records = [SnapshotChainRecord(version, version, part) for part in parts]
            for record in records[:-1]:
                assert fresh.follow(record) is None
                assert fresh.version == 0
            assert (fresh.follow(records[-1]) is not None) is (version > 0)
            assert all(self.view.follow(record) is None for record in records)
            assert fresh == self.view
            self.view = fresh

    def snapshots_before(self, bucket: int, death: int) -> int:
        """n of a death."""
        return bisect_left(self.ever[bucket], death)


@given(steps)
def test_look_ups_equal_a_search_in_plain_lists(given_steps: list[tuple[str, int, int]]) -> None:
    model = Model()
    for step in given_steps:
        model.play(*step)
    for bucket in BUCKETS:
        ever, live = model.ever[bucket], model.live[bucket]
        expected = []
        for n in range(len(ever) + 1):
            before = bisect_left(live, ever[n]) if n < len(ever) else len(live)
            expected.append(live[before - 1] if before else 0)
            assert model.view.bounds(bucket, n)[0] == (live[before - 2] if before > 1 else 0)
        assert [model.view.bounds(bucket, n)[1] for n in range(len(ever) + 1)] == expected
        assert (model.view.ever(bucket), model.view.newest_txn(bucket)) == (len(ever), max(ever, default=0))
        assert [snapshot.txn for snapshot in model.view.live(bucket)] == live


@given(steps)
def test_neighbours_equal_a_search_in_plain_lists(given_steps: list[tuple[str, int, int]]) -> None:
    model = Model()
    for step in given_steps:
        model.play(*step)
        model.view.live(step[1])  # whatever is remembered here must not outlive the next marker
    for bucket in BUCKETS:
        live = model.live[bucket]
        for txn in model.ever[bucket]:
            previous = model.view.previous_live(bucket, txn)
            following = model.view.next_live(bucket, txn)
            assert (previous.txn if previous else 0) == max((each for each in live if each < txn), default=0)
            assert (following.txn if following else 0) == min((each for each in live if each > txn), default=0)
            found = model.view.find(bucket, str(txn))
            assert (found.txn if found else 0) == (txn if txn in live else 0)
        assert [snapshot.txn for snapshot in model.view.live(bucket)] == live


@given(steps)
def test_the_view_judges_as_the_rule_does(given_steps: list[tuple[str, int, int]]) -> None:
    """For every life that could have been: n is how many snapshots had ever been taken before the death."""
    model = Model()
    for step in given_steps:
        model.play(*step)
    for bucket in BUCKETS:
        ever = model.ever[bucket]
        edges = {each + nudge for each in (1, *ever, model.txn + 2) for nudge in (-1, 0, 1)} - {0, -1}
        for death in edges - set(ever):
            n = model.snapshots_before(bucket, death)
            assert n == sum(each < death for each in ever)
            for birth in (each for each in edges if 0 < each < death):
                assert model.view.judge(bucket, birth, death, n) is judge(birth, death, model.live[bucket])


@given(steps, st.lists(st.tuples(st.sampled_from([0, *BUCKETS]), *[st.integers(-2, 130)] * 2, st.integers(-2, 42))))
def test_many_rows_are_judged_as_each_alone(
    given_steps: list[tuple[str, int, int]], lifetimes: list[tuple[int, int, int, int]]
) -> None:
    """Rows that no bucket can have, too: where a row alone raises an error, nothing is said of it among many."""
    model = Model()
    for step in given_steps:
        model.play(*step)
    # Beside whatever comes, lives that could have been: random ones mostly contradict the chain.
    possible = [
        (bucket, birth, death, model.snapshots_before(bucket, death))
        for bucket in BUCKETS
        for birth, death in pairwise(sorted({each + nudge for each in (1, *model.ever[bucket]) for nudge in (0, 1)}))
    ]
    rows = [*lifetimes, *possible]
    alone: list[Verdict | None] = []
    for row in rows:
        try:
            alone.append(model.view.judge(*row))
        except (UnknownDeathError, LifetimeError):
            alone.append(None)
    assert model.view.judge_columns(*zip(*rows, strict=True)) == alone

"""The rule compares numbers; the truth looks into every snapshot that is left."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from services.domain.reclaimability import Verdict, is_reclaimable_after, judge

BY_HOLDER_COUNT = {0: Verdict.RECLAIMABLE, 1: Verdict.EXCLUSIVE_TO_PREVIOUS}


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "put", "delete", "snapshot", "snapshot", "drop"]), st.integers(0, 2)),
        max_size=60,
    ),
    st.data(),
)
def test_the_rule_equals_a_recount_by_sets(steps: list[tuple[str, int]], data: st.DataObject) -> None:
    """Three keys; a snapshot is a copy of what is live, and a version's holders are the copies that it is in."""
    active: dict[int, int] = {}
    lifetimes: list[tuple[int, int]] = []
    snapshots: dict[int, frozenset[int]] = {}
    for txn, (step, key) in enumerate(steps, start=1):
        if step in ("put", "delete") and key in active:
            lifetimes.append((active.pop(key), txn))
        if step == "put":
            active[key] = txn
        elif step == "snapshot":
            snapshots[txn] = frozenset(active.values())
        elif step == "drop" and snapshots:
            del snapshots[data.draw(st.sampled_from(sorted(snapshots)))]
    for birth, death in lifetimes:
        holder_count = sum(birth in held for held in snapshots.values())
        assert judge(birth, death, sorted(snapshots)) is BY_HOLDER_COUNT.get(holder_count, Verdict.SHARED)


def test_every_small_case() -> None:
    """All lives and all sets of snapshots among seven txns; the verdict outlives drops and later snapshots."""
    txns = range(1, 8)
    for birth, death in combinations(txns, 2):
        for count in range(len(txns) + 1):
            for live in combinations(txns, count):
                holder_count = sum(birth <= snapshot < death for snapshot in live)
                verdict = judge(birth, death, live)
                assert verdict is BY_HOLDER_COUNT.get(holder_count, Verdict.SHARED)
                previous = max((snapshot for snapshot in live if snapshot < death), default=0)
                assert is_reclaimable_after(birth, previous) is (verdict is Verdict.RECLAIMABLE)
                if verdict is Verdict.RECLAIMABLE:
                    assert judge(birth, death, (*live, 8)) is verdict
                    assert all(judge(birth, death, rest) is verdict for rest in combinations(live, max(count - 1, 0)))

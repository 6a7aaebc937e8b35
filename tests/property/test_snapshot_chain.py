"""The linked chains equal plain lists, whatever is added and deleted, and whatever order they are loaded in."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.domain.snapshot_chain import ChainCorruptedError, SnapshotChain

PATHS = ("v/a", "v/b", "w/a")


@dataclass(frozen=True)
class Row:
    snapshot_id: str
    global_previous_snapshot_id: str
    snapshot_path: str
    path_previous_snapshot_id: str


def rows_of(chain: SnapshotChain) -> list[Row]:
    return [Row(each, chain.previous_global(each), chain.path_of(each), chain.previous_in_path(each)) for each in chain]


def assert_equals(chain: SnapshotChain, model: list[tuple[str, str]]) -> None:
    ids = [snapshot_id for snapshot_id, _ in model]
    assert list(chain) == ids
    assert list(reversed(chain)) == ids[::-1]
    assert (chain.oldest_global, chain.latest_global) == (ids[0], ids[-1]) if ids else ("", "")
    assert chain.paths() == sorted({path for _, path in model})
    for path in PATHS:
        on_path = [snapshot_id for snapshot_id, its_path in model if its_path == path]
        assert list(chain.of_path(path)) == on_path
        assert list(chain.of_path(path, latest_first=True)) == on_path[::-1]
        assert (chain.oldest(path), chain.latest(path)) == ((on_path or [""])[0], (on_path or [""])[-1])
        for place, snapshot_id in enumerate(on_path):
            assert chain.next_in_path(snapshot_id) == (on_path[place + 1] if place + 1 < len(on_path) else "")
    for place, snapshot_id in enumerate(ids):
        assert chain.next_global(snapshot_id) == (ids[place + 1] if place + 1 < len(ids) else "")


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(PATHS), st.integers(0)), max_size=40), st.randoms())
def test_chains_equal_plain_lists(steps: list[tuple[bool, str, int]], random: Random) -> None:
    chain, model = SnapshotChain(), list[tuple[str, str]]()
    for number, (is_delete, path, choice) in enumerate(steps):
        if is_delete and model:
            snapshot_id, _ = model.pop(choice % len(model))
            assert chain.delete(snapshot_id)
            assert not chain.delete(snapshot_id)
        elif not is_delete:
            chain.add(str(number), chain.latest_global, path, chain.latest(path))
            model.append((str(number), path))
    assert_equals(chain, model)
    rows = rows_of(chain)
    random.shuffle(rows)
    assert_equals(SnapshotChain.load(rows), model)


@given(st.integers(1, 7).flatmap(lambda count: st.lists(st.integers(-1, count), min_size=count, max_size=count)))
def test_links_load_if_and_only_if_they_make_one_chain(links: list[int]) -> None:
    """-1 stands for none; the number of rows for a snapshot that is not there."""
    rows = [
        Row(str(each), str(link) if link >= 0 else "", "v/a", str(link) if link >= 0 else "")
        for each, link in enumerate(links)
    ]
    order: list[int] = []
    current = -1
    while links.count(current) == 1 and len(order) < len(links):
        current = links.index(current)
        order.append(current)
    if len(order) == len(links):
        assert list(SnapshotChain.load(rows)) == [str(each) for each in order]
    else:
        with pytest.raises(ChainCorruptedError):
            SnapshotChain.load(rows)

"""The linked chains equal plain lists, whatever is added and deleted, and whatever order they are loaded in."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import SnapshotInfo
from services.domain.snapshot_chain import ChainCorruptedError, SnapshotChain
from tests.unit.test_snapshot_chain import followed, row

PATHS = ("v/a", "v/b", "w/a")


def ids_on(path: str, model: list[tuple[str, str]]) -> list[str]:
    return [snapshot_id for snapshot_id, its_path in model if its_path == path]


def rows_of(model: list[tuple[str, str]]) -> list[SnapshotInfo]:
    rows, latest, latest_on_path = [], "", dict.fromkeys(PATHS, "")
    for snapshot_id, path in model:
        rows.append(row(snapshot_id, latest, latest_on_path[path], path))
        latest = latest_on_path[path] = snapshot_id
    return rows


def assert_equals(chain: SnapshotChain, model: list[tuple[str, str]]) -> None:
    ids = [snapshot_id for snapshot_id, _ in model]
    assert followed(chain.next_global, chain.next_global("")) == ids
    assert chain.latest_global == ["", *ids][-1]
    for path in PATHS:
        on_path = ids_on(path, model)
        assert followed(chain.next_in_path, ["", *on_path][min(1, len(on_path))]) == on_path
        assert chain.latest(path) == ["", *on_path][-1]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(PATHS), st.integers(0)), max_size=40), st.randoms())
def test_chains_equal_plain_lists(steps: list[tuple[bool, str, int]], random: Random) -> None:
    chain, model = SnapshotChain(), list[tuple[str, str]]()
    for number, (is_delete, path, choice) in enumerate(steps):
        if is_delete and model:
            snapshot_id, _ = model.pop(choice % len(model))
            chain.delete(snapshot_id)
            with pytest.raises(KeyError):
                chain.delete(snapshot_id)
        elif not is_delete:
            chain.add(row(str(number), chain.latest_global, chain.latest(path), path))
            model.append((str(number), path))
    assert_equals(chain, model)
    rows = rows_of(model)
    random.shuffle(rows)
    assert_equals(SnapshotChain.load(rows), model)


@given(st.integers(1, 7).flatmap(lambda count: st.lists(st.integers(-1, count), min_size=count, max_size=count)))
def test_links_load_if_and_only_if_they_make_one_chain(links: list[int]) -> None:
    """-1 stands for none; the number of rows for a snapshot that is not there."""
    rows = [
        row(str(each), str(link) if link >= 0 else "", str(link) if link >= 0 else "", "v/a")
        for each, link in enumerate(links)
    ]
    order: list[int] = []
    current = -1
    while links.count(current) == 1 and len(order) < len(links):
        current = links.index(current)
        order.append(current)
    if len(order) == len(links):
        chain = SnapshotChain.load(rows)
        assert followed(chain.next_global, chain.next_global("")) == [str(each) for each in order]
    else:
        with pytest.raises(ChainCorruptedError):
            SnapshotChain.load(rows)

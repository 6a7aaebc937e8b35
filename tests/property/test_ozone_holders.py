"""The search of holders finds what looking into every snapshot finds, and looks into few of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from math import log2
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from services.lens.ozone.holders import (
    HeldBlocks,
    HeldGarbage,
    Names,
    Places,
    holders_of_garbage,
    holders_of_live_row,
)
from services.lens.ozone.key_rows import blocks_of
from tests.ozone_model import OzoneModel

NAMES = st.sampled_from("abc")
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), NAMES, st.integers(1, 2)),
        st.tuples(st.just("write_on"), NAMES),
        st.tuples(st.just("touch"), NAMES),
        st.tuples(st.just("rename"), NAMES, NAMES),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("create_snapshot")),
        st.tuples(st.just("create_snapshot")),
        st.tuples(st.just("delete_snapshot"), st.integers(0, 9)),
        st.tuples(st.just("purge")),
    ),
    max_size=40,
)


def played(operations: list[tuple[Any, ...]], **layout: bool) -> OzoneModel:
    model = OzoneModel(**layout)
    for operation, *arguments in operations:
        getattr(model, operation)(*arguments)
    return model


def run(search: Generator[int, Any, Any], rows: Mapping[int, Any] | Callable[[int], Any]) -> Any:
    """Run one search to its end."""
    look_up = rows if callable(rows) else rows.get
    try:
        place = next(search)
        while True:
            place = search.send(look_up(place))
    except StopIteration as end:
        return end.value


class Counted:
    """Answers a search from the model, and counts what it asks."""

    def __init__(self, model: OzoneModel, names: Names) -> None:
        self._model, self._names, self.asked = model, names, list[int]()

    def __call__(self, place: int) -> Any:
        number = self._model.held_numbers()[place]
        self.asked.append(place)
        return self._model.snapshots[number].live.get(self._names.in_store(number))


def searched_live(model: OzoneModel, places: Places, key: bytes, row: Any) -> tuple[list[HeldBlocks], list[int]]:
    rows = Counted(model, model.names(key, row.object_id, len(model.snapshots)))
    return run(holders_of_live_row(places, row), rows), rows.asked


def searched_garbage(model: OzoneModel, places: Places, number: int, info: Any) -> tuple[HeldGarbage, list[int]]:
    rows = Counted(model, model.names(model.keys.key_of(info.name, info.parent_id), info.object_id, number))
    last = sum(1 for held in model.held_numbers() if held < number) - 1
    return run(holders_of_garbage(places, info, last), rows), rows.asked


@given(OPERATIONS, st.booleans(), st.booleans(), st.booleans())
@example([("put", "a", 1), ("create_snapshot",), ("rename", "a", "b"), ("create_snapshot",), ("rename", "b", "a"),
          ("create_snapshot",), ("delete", "a"), ("delete_snapshot", 1)], False, False, True)  # fmt: skip
@example(
    [("put", "a", 1), ("create_snapshot",), ("write_on", "a"), ("create_snapshot",), ("touch", "a")], True, False, False
)
@example(
    [("create_snapshot",), ("put", "a", 1), ("create_snapshot",), ("write_on", "a"), ("create_snapshot",)],
    False, False, False,
)  # fmt: skip
def test_holders_are_those_of_every_look_up(
    operations: list[tuple[Any, ...]], is_file_system: bool, is_versioned: bool, are_transactions_known: bool
) -> None:
    model = played(operations, is_file_system=is_file_system, is_versioned=is_versioned)
    places = model.places(are_transactions_known=are_transactions_known)
    for key, row in model.active.live.items():
        held, asked = searched_live(model, places, key, row)
        assert sorted(block for one in held for block in one.blocks) == sorted(blocks_of(row.versions))
        for one in held:
            for block in one.blocks:
                assert set(range(one.first, places.active)) == model.true_holders_of_block(block)
            assert one.last == places.active
        assert len(set(asked)) == len(asked)
    for number, info in model.garbage():
        found, _ = searched_garbage(model, places, number, info)
        assert set(range(found.first, found.last + 1)) == model.true_holders_of_garbage(number, info)
        if found.first > found.last:
            readers = {block for block in blocks_of(info.versions) if found.last in model.true_holders_of_block(block)}
            assert readers == found.lost


@given(st.integers(1, 200), st.integers(0, 199), st.booleans(), st.booleans())
def test_look_ups_grow_with_the_logarithm_of_the_snapshots(
    count: int, born_after: int, is_touched: bool, are_transactions_known: bool
) -> None:
    """Also if the row is written again before each snapshot, and if no snapshot names its transaction."""
    model = OzoneModel()
    model.put("other", 1)
    for number in range(count):
        if number == born_after:
            model.put("a", 1)
        if is_touched:
            model.touch("a")
        model.create_snapshot()
    if born_after >= count:
        model.put("a", 1)
    model.delete("a")
    places = model.places(are_transactions_known=are_transactions_known)
    ((number, info),) = model.garbage()
    found, asked = searched_garbage(model, places, number, info)
    assert (found.first, found.last) == (min(born_after, count), count - 1)
    assert len(asked) <= 2 * log2(count) + 2
    if are_transactions_known and not is_touched:
        assert len(asked) <= 1


def test_a_version_that_was_written_over_is_not_taken_for_the_newer_one() -> None:
    model = played([("put", "a", 1), ("create_snapshot",), ("put", "a", 1), ("create_snapshot",), ("delete", "a")])
    places = model.places(are_transactions_known=True)
    held = [searched_garbage(model, places, number, info)[0] for number, info in model.garbage()]
    assert [(one.first, one.last) for one in held] == [(0, 0), (1, 1)]

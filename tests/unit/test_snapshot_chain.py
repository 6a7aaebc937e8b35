"""The two chains of snapshots: Ozone's cases, and every way in which links can be wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schemas.records import SnapshotInfo, SnapshotStatus
from services.domain.snapshot_chain import ChainCorruptedError, ChainLinkError, SnapshotChain

PATH = "vol1/bucket1"


def row(
    snapshot_id: str,
    global_previous: str,
    path_previous: str,
    path: str = PATH,
    creation_time_ms: int = 0,
) -> SnapshotInfo:
    return SnapshotInfo(
        snapshot_id=snapshot_id,
        name=snapshot_id,
        volume="vol1",
        bucket="bucket1",
        status=SnapshotStatus.SNAPSHOT_ACTIVE,
        creation_time_ms=creation_time_ms,
        path_previous_snapshot_id=path_previous,
        global_previous_snapshot_id=global_previous,
        snapshot_path=path,
    )


def info(snapshot_id: str, previous: str, creation_time_ms: int) -> SnapshotInfo:
    return row(snapshot_id, previous, previous, creation_time_ms=creation_time_ms)


def chain_of(*snapshot_ids: str) -> SnapshotChain:
    chain = SnapshotChain()
    for snapshot_id in snapshot_ids:
        chain.add(row(snapshot_id, chain.latest_global, chain.latest(PATH)))
    return chain


def followed(next_one: Callable[[str], str], first: str) -> list[str]:
    found = [first] if first else []
    while following := next_one(found[-1]) if found else "":
        found.append(following)
    return found


def assert_order(chain: SnapshotChain, *snapshot_ids: str) -> None:
    """Both chains, each from its oldest to its latest."""
    expected = list(snapshot_ids)
    first = chain.next_global("")
    assert followed(chain.next_global, first) == followed(chain.next_in_path, first) == expected
    assert chain.latest_global == chain.latest(PATH) == ["", *expected][-1]


def test_c1_the_order_is_that_of_the_links_not_of_the_times() -> None:
    assert_order(SnapshotChain.load([info("1", "", 1), info("2", "1", 2), info("3", "2", 0)]), "1", "2", "3")


def test_c2_the_neighbours_of_a_deleted_one_are_linked() -> None:
    chain = chain_of("1", "2", "3")
    chain.delete("2")
    assert_order(chain, "1", "3")


def test_c3_a_deleted_one_can_be_added_at_the_end() -> None:
    chain = chain_of("1", "2", "3")
    chain.delete("2")
    chain.delete("1")
    chain.add(row("2", "3", "3"))
    assert_order(chain, "3", "2")


@pytest.mark.parametrize("times", [(1, 2), (2, 1)])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_c4_two_rows_make_the_same_chain_whatever_their_times_and_order(
    times: tuple[int, int], is_reversed: bool
) -> None:
    rows = [info("1", "", times[0]), info("2", "1", times[1])]
    assert_order(SnapshotChain.load(rows[::-1] if is_reversed else rows), "1", "2")


def test_c5_the_ends_have_no_neighbour_and_unknown_snapshots_no_answer() -> None:
    chain = chain_of("1", "2")
    assert chain.next_global("2") == chain.next_in_path("2") == ""
    for ask in (chain.next_global, chain.next_in_path, chain.delete):
        with pytest.raises(KeyError):
            ask("3")
    assert_order(chain, "1", "2")


def test_c6_adding_and_deleting_after_a_load() -> None:
    chain = SnapshotChain.load([row("1", "", ""), row("2", "1", "1")])
    chain.add(row("3", "2", "2"))
    chain.delete("1")
    assert_order(chain, "2", "3")
    with pytest.raises(KeyError):
        chain.next_global("1")


@pytest.mark.parametrize("count", [0, 1, 2, 5, 10])
def test_c7_rows_are_loaded_in_their_order(count: int) -> None:
    rows = [
        row(str(number), str(number - 1) if number else "", str(number - 1) if number else "")
        for number in range(count)
    ]
    assert_order(SnapshotChain.load(rows), *(one.snapshot_id for one in rows))


BROKEN = {
    "c8 disconnected": (["", "0", "1", "", "3"], "fork.*0, 3 name none"),
    "c9 full circle": (["4", "0", "1", "2", "3"], "circle.*each of its 5"),
    "c10 partial circle": (["3", "0", "1", "2", "3"], "circle.*each of its 5"),
    "c11 diverged": (["", "0", "1", "2", "2"], "fork.*3, 4 name 2"),
    "gap": (["", "0", "gone", "2", "3"], "gap.*2 names gone"),
    "circle beside a chain": (["", "0", "4", "2", "3"], "circle.*2, 3, 4 cannot be reached.*to 1"),
    "names itself": (["", "0", "2", "1", "3"], "circle.*2 cannot be reached.*to 4"),
}
LINEAR = ["", "0", "1", "2", "3"]


@pytest.mark.parametrize(("links", "reason"), BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("broken", ["both", "global", "path"])
def test_c8_to_c12_broken_links_are_found(links: list[str], reason: str, broken: str) -> None:
    """C12: the global links alone, the path's alone, and both."""
    global_links = LINEAR if broken == "path" else links
    path_links = LINEAR if broken == "global" else links
    rows = [row(str(number), *both) for number, both in enumerate(zip(global_links, path_links, strict=True))]
    name = f"chain of path {PATH}" if broken == "path" else "global chain"
    for each in (rows, rows[::-1]):
        with pytest.raises(ChainCorruptedError, match=name) as raised:
            SnapshotChain.load(each)
        if each is rows:
            assert raised.match(reason)


def test_many_broken_rows_are_not_all_named() -> None:
    with pytest.raises(ChainCorruptedError, match="and 3 more name none"):
        SnapshotChain.load([row(str(number), "", "") for number in range(8)])


def test_a_row_that_is_there_twice_is_found() -> None:
    with pytest.raises(ChainCorruptedError, match="two rows have the id 1"):
        SnapshotChain.load([row("1", "", ""), row("1", "", "", "vol1/bucket2")])


def test_a_previous_one_on_another_path_is_found() -> None:
    with pytest.raises(ChainCorruptedError, match="gap in the chain of path vol1/bucket2"):
        SnapshotChain.load([row("1", "", ""), row("2", "1", "1", "vol1/bucket2")])


def test_two_orders_that_contradict_one_another_are_found() -> None:
    with pytest.raises(ChainCorruptedError, match="different orders"):
        SnapshotChain.load([row("1", "", "2"), row("2", "1", "")])


@pytest.mark.parametrize(
    ("snapshot_id", "global_previous", "path_previous", "reason"),
    [
        pytest.param("2", "3", "3", "already", id="there already"),
        pytest.param("4", "", "3", "names none before it", id="second head"),
        pytest.param("4", "9", "3", "not in the global", id="unknown previous"),
        pytest.param("4", "2", "3", "already followed by 3", id="fork"),
        pytest.param("4", "3", "", "names none before it", id="second head of the path"),
        pytest.param("4", "3", "9", "not in the chain of path", id="unknown previous on the path"),
        pytest.param("4", "3", "2", "already followed by 3", id="fork of the path"),
        pytest.param("", "3", "3", "without an id", id="no id"),
    ],
)
def test_a_refused_add_changes_nothing(snapshot_id: str, global_previous: str, path_previous: str, reason: str) -> None:
    chain = chain_of("1", "2", "3")
    with pytest.raises(ChainLinkError, match=reason):
        chain.add(row(snapshot_id, global_previous, path_previous))
    assert_order(chain, "1", "2", "3")


def test_a_first_snapshot_of_a_path_names_none_on_it() -> None:
    chain = chain_of("1")
    with pytest.raises(ChainLinkError):
        chain.add(row("2", "1", "1", "vol1/bucket2"))
    assert chain.latest("vol1/bucket2") == ""
    chain.add(row("2", "1", "", "vol1/bucket2"))
    assert (chain.latest("vol1/bucket2"), chain.latest(PATH), chain.latest_global) == ("2", "1", "2")
    assert (chain.next_global("1"), chain.next_in_path("1")) == ("2", "")


def test_a_path_goes_with_its_last_snapshot() -> None:
    chain = chain_of("1")
    chain.add(row("2", "1", "", "vol1/bucket2"))
    chain.delete("2")
    assert chain.latest("vol1/bucket2") == ""
    assert_order(chain, "1")
    chain.delete("1")
    assert_order(chain)

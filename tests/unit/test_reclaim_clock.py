"""How long a freed version took: from the moment when nothing held it any more, by log times alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from schemas.records import (
    BucketLayout,
    CollectionState,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteKey,
    DeleteKeys,
    DeleteSnapshot,
    PutKey,
    ReclaimClockRow,
    SetBreaker,
    SetCollection,
    Settle,
)
from services.domain import reclaim_clock
from services.domain.purge_hours import MINUTES_PER_DAY, PurgeHours, purge_hours
from services.domain.reclaim_clock import NEVER, Held, death_times, with_drop
from services.log.clock import VirtualClock
from services.metadata.metrics import MetadataMetrics
from services.metadata.settings import MetadataSettings
from services.metadata.state.reclaim_clocks import Freed, FreedVersions
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.plane.stack.settings import purge_hours_settings

HOUR_MS = 3_600_000


class Watched(NamedTuple):
    """A plane in memory whose freed versions are noted."""

    client: InMemoryClient
    clock: VirtualClock
    freed: Counter[Freed]

    def do(self, *commands: object) -> None:
        for command in commands:
            if isinstance(command, CreateSnapshot | DeleteSnapshot | Settle):
                assert self.client.request(0, command).error == ""
            else:
                assert self.client.answer(0, self.client.submit(0, command)).error == ""  # type: ignore[arg-type]

    def waited_ms(self) -> list[int]:
        """Of each version that was freed since it was asked last, without undo windows and purge hours."""
        waited = [one.finished_ms - max(one.deletion_ms, one.since_ms) for one in self.freed.elements()]
        self.freed.clear()
        return sorted(waited)


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch) -> Watched:
    freed: Counter[Freed] = Counter()
    clear: Callable[[FreedVersions], None] = FreedVersions.clear

    def clear_and_keep(noted: FreedVersions) -> None:
        freed.update(noted.pop())
        clear(noted)

    monkeypatch.setattr(FreedVersions, "clear", clear_and_keep)
    clock = VirtualClock(1_000 * HOUR_MS)
    watched = Watched(InMemoryClient(InMemoryPlane(clock=clock)), clock, freed)
    watched.do(CreateVolume("vol"), CreateBucket("vol", "tree", BucketLayout.FILE_SYSTEM_OPTIMIZED))
    watched.do(*(PutKey("vol", "tree", name, 10) for name in ("a", "b", "c", "d")))
    return watched


def finish(plane: Watched) -> list[int]:
    plane.do(Settle(f"settled at {plane.clock.now_ms()}"), PutKey("vol", "tree", "next unit", 0))
    return plane.waited_ms()


def test_it_counts_from_the_death_when_nobody_held_it(plane: Watched) -> None:
    plane.do(DeleteKeys("vol", "tree", ("a", "b")))
    plane.clock.advance(HOUR_MS)
    waited = finish(plane)
    assert [one // 1_000 for one in waited] == [HOUR_MS // 1_000] * 2, "both, but for the plane's own milliseconds"


def test_it_counts_from_the_drop_of_the_last_holder(plane: Watched) -> None:
    plane.do(CreateSnapshot("vol", "tree", "one"), CreateSnapshot("vol", "tree", "two"), DeleteKey("vol", "tree", "a"))
    assert finish(plane) == []
    for name in ("one", "two"):
        plane.clock.advance(48 * HOUR_MS)
        plane.do(DeleteSnapshot("vol", "tree", name))
    (waited,) = finish(plane)
    assert waited < HOUR_MS, "the days for which snapshots held it do not count"


def test_it_counts_from_the_end_of_a_pause(plane: Watched) -> None:
    for volume, bucket in (("vol", "tree"), ("", "")):
        plane.do(SetCollection(volume, bucket, CollectionState.PAUSED, "holiday"))
        plane.do(DeleteKey("vol", "tree", "a" if volume else "b"))
        assert finish(plane) == []
        plane.clock.advance(48 * HOUR_MS)
        plane.do(SetCollection(volume, bucket, CollectionState.RUNNING, ""))
        (waited,) = finish(plane)
        assert waited < HOUR_MS, "what was held back was not late"


def test_what_does_not_end_a_pause_does_not_begin_again(plane: Watched) -> None:
    plane.do(SetBreaker("vol", "tree", None), SetCollection("vol", "tree", CollectionState.RUNNING, "as it was"))
    store = plane.client.plane.processes["metadata", 0].store
    assert not list(store.scan("reclaimClockTable", b"", b"\xff"))


def test_the_newest_drops_are_kept_and_older_ones_are_not_forgotten_altogether(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reclaim_clock, "MAX_DROPS", 2)
    row = NEVER
    for txn, time_ms in ((10, 100), (30, 200), (20, 300), (40, 400)):
        row = with_drop(row, txn, time_ms)
    assert row == ReclaimClockRow((20, 40), (300, 400), forgotten_txn=30, forgotten_time_ms=200, running_since_ms=0)
    held = Held(row)
    assert held.until_ms(15, 25) == 300
    assert held.until_ms(15, 45) == 400, "the last one counts"
    assert held.until_ms(25, 35) == 200, "held by one that is not listed any more: from then at the latest"
    assert held.until_ms(41, 50) == 0, "no snapshot held it"
    assert held.until_ms(20, 21) == 300, "a birth at the snapshot is held"


@given(st.dictionaries(st.integers(1, 300), st.integers(0, 700), max_size=80))
def test_few_times_of_deaths_are_looked_up_and_none_is_said_too_late(gaps: dict[int, int]) -> None:
    times, now = dict[int, int](), 5_000
    for death in sorted(gaps):
        now += gaps[death]
        times[death] = now
    found = death_times(times, times.__getitem__)
    assert found.keys() == times.keys()
    assert all(0 <= times[one] - found[one] < reclaim_clock.DEATHS_APART_MS for one in times)


def test_deaths_at_one_time_are_looked_up_twice_at_most() -> None:
    asked: list[int] = []

    def time_of(death: int) -> int:
        asked.append(death)
        return 7

    assert set(death_times(range(1, 1_001), time_of).values()) == {7}
    assert asked == [1, 1_000]


@pytest.mark.parametrize(
    ("hours", "start", "end", "expected"),
    [
        ("", 5.0, 8.0, 3.0),
        ("6-8", 5.0, 9.0, 2.0),
        ("22-6", 20.0, 31.0, 8.0),
        ("22-6", 8.0, 20.0, 0.0),
        ("12-13,12:30-14", 0.0, 240.0, 20.0),
        ("6-8", 6.5, 7.25, 0.75),
        ("6-8", 9.0, 5.0, 0.0),
    ],
)
def test_only_open_hours_count(hours: str, start: float, end: float, expected: float) -> None:
    day_ms = 24 * HOUR_MS
    moments = [20_000 * day_ms + round(hour * HOUR_MS) for hour in (start, end)]
    assert purge_hours(hours).open_ms(moments[0], moments[1]) == round(expected * HOUR_MS)


def test_hours_are_counted_once_for_any_number_of_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    are_open = PurgeHours.are_open

    def counted(self: PurgeHours, now_ms: int) -> bool:
        nonlocal looks
        looks += 1
        return are_open(self, now_ms)

    monkeypatch.setattr(PurgeHours, "are_open", counted)
    metrics = MetadataMetrics(CollectorRegistry())
    freed = {Freed(3, 1_000 * number, 0, 90 * HOUR_MS): 1 for number in range(1, 1_001)}
    metrics.freed(freed, MetadataSettings(purge_hours="21:07-5:49"))
    assert looks <= MINUTES_PER_DAY + 2 * len(freed)


def test_the_histogram_leaves_out_what_is_no_delay() -> None:
    registry = CollectorRegistry()
    metrics = MetadataMetrics(registry)
    settings = MetadataSettings(undo_window_ms=60_000, purge_hours="6-8")
    day_ms = 20_000 * 24 * HOUR_MS
    died_ms, noted_ms = day_ms + 5 * HOUR_MS, day_ms + 6 * HOUR_MS + 10_000
    metrics.freed({Freed(3, died_ms, 0, noted_ms): 1_000, Freed(3, 0, 0, noted_ms): 7}, settings)
    later = Freed(3, noted_ms, 0, noted_ms + 90_000)
    metrics.freed({later: 1, Freed(3, died_ms, noted_ms, noted_ms + 4_000): 2}, settings)

    def count(bound: str) -> float | None:
        return registry.get_sample_value("deepclean_metadata_freed_seconds_bucket", {"shard": "3", "le": bound})

    assert [count(bound) for bound in ("5.0", "15.0", "60.0", "+Inf")] == [2, 1_002, 1_003, 1_003]
    total = registry.get_sample_value("deepclean_metadata_freed_seconds_sum", {"shard": "3"})
    assert total == 1_000 * 10 + 30 + 2 * 4


def test_a_plane_that_is_started_passes_the_hours_to_metadata() -> None:
    own, repeated = "DEEPCLEAN_KEY_DELETION_PURGE_HOURS", "DEEPCLEAN_METADATA_PURGE_HOURS"
    assert purge_hours_settings({}) == {}
    assert purge_hours_settings({own: "22-6"}) == {repeated: "22-6"}
    assert purge_hours_settings({own: "22-6", repeated: "1-2"}) == {}

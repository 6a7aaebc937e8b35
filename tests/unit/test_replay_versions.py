"""Workloads on buckets that keep versions: a plane in memory says what the model of full copies says, line by line."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.records import BucketLayout
from services.workloads.workload import (
    CommitKey,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteDirectory,
    DeleteKey,
    DeleteSnapshot,
    DeleteVersion,
    Observe,
    OpenKey,
    Operation,
    PutKey,
    RenameKey,
    RollBack,
    Settle,
    SetVersioning,
    SyncKey,
)
from tests.played import PLACE, play


@pytest.mark.parametrize("layout", [BucketLayout.OBJECT_STORE, BucketLayout.FILE_SYSTEM_OPTIMIZED])
def test_a_snapshot_keeps_the_versions_that_it_lists_when_the_key_is_deleted(layout: BucketLayout) -> None:
    """Ozone deletes the blocks of all versions then."""
    *_, held, freed = play(
        [
            CreateVolume("v"),
            CreateBucket(*PLACE, layout, versioning=True),
            PutKey(*PLACE, "k", 10, "one"),
            CreateSnapshot(*PLACE, "s1"),
            PutKey(*PLACE, "k", 20, "two"),
            CreateSnapshot(*PLACE, "s2"),
            PutKey(*PLACE, "k", 40, "three"),
            DeleteKey(*PLACE, "k"),
            Settle(),
            Observe("held"),
            DeleteSnapshot(*PLACE, "s2"),
            Settle(),
            Observe("freed"),
        ]
    )
    assert held["reclaimed"] == ["three"]
    shown = held["buckets"]["v/b"]["snapshots"]
    sizes = {name: (one["referenced_bytes"], one["exclusive_bytes"]) for name, one in shown.items()}
    assert sizes == {"s1": (10, 0), "s2": (30, 20)}
    assert freed["reclaimed"] == ["two", "three"]


class _Random:
    """Random operations on one bucket."""

    def __init__(self, random: Random) -> None:
        self.random, self.number = random, 0
        self.tags, self.snapshots, self.handles = ["none"], ["none"], list[str]()

    def _key(self) -> str:
        return self.random.choice(("a", "b", "d/a"))

    def _tag(self) -> str:
        self.tags.append(f"t{self.number}")
        return self.tags[-1]

    def next(self) -> list[Operation]:
        """Some operations that follow."""
        self.number += 1
        kinds: list[tuple[int, Callable[[], list[Operation]]]] = [
            (10, lambda: [PutKey(*PLACE, self._key(), self.random.choice((0, 5, 5_000)), self._tag())]),
            (5, lambda: [DeleteVersion(*PLACE, self._key(), self.random.choice(self.tags[-6:]))]),
            (2, lambda: [DeleteKey(*PLACE, self._key())]),
            (2, lambda: [RenameKey(*PLACE, self._key(), self.random.choice(("a", "c", "e")))]),
            (1, lambda: [DeleteDirectory(*PLACE, "d")]),
            (2, lambda: [SetVersioning(*PLACE, self.random.random() < 0.7)]),
            (3, self._snapshot),
            (2, lambda: [Settle(), DeleteSnapshot(*PLACE, self.random.choice(self.snapshots[-4:])), Settle()]),
            (1, lambda: [Settle(), RollBack(*PLACE, self.random.choice(self.snapshots[-2:])), Settle()]),
            (3, self._stream),
            (2, lambda: [Settle(), Observe(f"at {self.number}")]),
        ]
        weights = [weight for weight, _ in kinds]
        return self.random.choices([make for _, make in kinds], weights)[0]()

    def _snapshot(self) -> list[Operation]:
        self.snapshots.append(f"s{self.number}")
        return [CreateSnapshot(*PLACE, self.snapshots[-1])]

    def _stream(self) -> list[Operation]:
        handle, sizes = f"h{self.number}", sorted(self.random.choice((0, 3, 4_096, 9_000)) for _ in range(2))
        opened = OpenKey(*PLACE, self._key(), 9_000, self._tag(), handle)
        return [opened, SyncKey(*PLACE, handle, sizes[0]), CommitKey(*PLACE, handle, sizes[1])]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_plane_keeps_versions_as_the_model_does(seed: int) -> None:
    random = Random(seed)
    layout = random.choice((BucketLayout.OBJECT_STORE, BucketLayout.FILE_SYSTEM_OPTIMIZED))
    made, operations = _Random(random), list[Operation]()
    for _ in range(random.randint(5, 60)):
        operations += made.next()
    is_versioned = random.random() < 0.7
    start: list[Operation] = [CreateVolume("v"), CreateBucket(*PLACE, layout, versioning=is_versioned)]
    play([*start, *operations, Settle(), Observe("end")])

"""Workloads with a bucket whose blocks are replicated: its used figures count what the blocks take on disks."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.records import BucketLayout, Replication
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.workloads.replay import Replay
from services.workloads.workload import (
    BLOCK_BYTES,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteKey,
    DeleteSnapshot,
    Observe,
    Operation,
    PutKey,
    Settle,
    WhatIf,
    WorkloadError,
    has_wide_observations,
    parse_line,
    to_json,
)
from tests.replicated_sizes import replicated_size

PLACE = ("v", "b")


def play(operations: list[Operation]) -> list[Any]:
    numbered = [(number, parse_line(to_json(one), number)) for number, one in enumerate(operations)]
    assert [one for _, one in numbered] == operations
    return list(Replay(InMemoryClient(InMemoryPlane()), is_wide=has_wide_observations(numbered)).run(numbered))


@pytest.mark.parametrize("replication", [None, *Replication])
def test_used_bytes_are_those_on_disks(replication: Replication | None) -> None:
    size_bytes = BLOCK_BYTES + 904
    sizes = [replicated_size(replication or Replication.RATIS_ONE, one) for one in (BLOCK_BYTES, 904)]
    *_, live, held, foretold, freed = play(
        [
            CreateVolume("v"),
            CreateBucket(*PLACE, BucketLayout.OBJECT_STORE, versioning=True, replication=replication),
            PutKey(*PLACE, "k", size_bytes, "one"),
            CreateSnapshot(*PLACE, "s1"),
            Observe("live"),
            DeleteKey(*PLACE, "k"),
            Settle(),
            Observe("held"),
            WhatIf(*PLACE, ("s1",)),
            DeleteSnapshot(*PLACE, "s1"),
            Settle(),
            Observe("freed"),
        ]
    )
    shown = [line["buckets"]["v/b"] for line in (live, held, freed)]
    used = [(one["used_bytes"], one["snapshot_used_bytes"]) for one in shown]
    assert used == [(sum(sizes), 0), (0, sum(sizes)), (0, 0)]
    assert foretold["freed_bytes"] == size_bytes


def test_a_replication_alone_makes_observations_wide() -> None:
    layout = BucketLayout.FILE_SYSTEM_OPTIMIZED
    (line,) = play(
        [
            CreateVolume("v"),
            CreateBucket(*PLACE, layout, replication=Replication.RATIS_THREE),
            PutKey(*PLACE, "a/k", 10, "one"),
            Observe("now"),
        ]
    )
    assert line["buckets"]["v/b"]["used_bytes"] == 30


def test_an_unknown_replication_is_named() -> None:
    line = to_json(CreateBucket(*PLACE, BucketLayout.OBJECT_STORE, replication=Replication.RATIS_THREE))
    with pytest.raises(WorkloadError, match="unknown replication 'RATIS_FOUR'; known are RATIS_ONE"):
        parse_line(line.replace("THREE", "FOUR"), 0)

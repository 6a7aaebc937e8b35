"""Workloads with a bucket whose blocks are replicated: its used figures count what the blocks take on disks."""

from __future__ import annotations

import pytest

from schemas.records import BucketLayout, Replication
from services.workloads.workload import (
    BLOCK_BYTES,
    NO_LIMIT,
    CommitKey,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteKey,
    DeleteSnapshot,
    InitiateUpload,
    Observe,
    OpenKey,
    PutKey,
    PutPart,
    SetQuota,
    Settle,
    SyncKey,
    WorkloadError,
    parse_line,
    to_json,
)
from tests.played import PLACE, play
from tests.replicated_sizes import replicated_size


@pytest.mark.parametrize("replication", [None, *Replication])
def test_used_bytes_are_those_on_disks(replication: Replication | None) -> None:
    size_bytes = BLOCK_BYTES + 904
    sizes = [replicated_size(replication or Replication.RATIS_ONE, one) for one in (BLOCK_BYTES, 904)]
    *_, live, held, freed = play(
        [
            CreateVolume("v"),
            CreateBucket(*PLACE, BucketLayout.OBJECT_STORE, versioning=True, replication=replication),
            PutKey(*PLACE, "k", size_bytes, "one"),
            CreateSnapshot(*PLACE, "s1"),
            Settle(),
            Observe("live"),
            DeleteKey(*PLACE, "k"),
            Settle(),
            Observe("held"),
            DeleteSnapshot(*PLACE, "s1"),
            Settle(),
            Observe("freed"),
        ]
    )
    shown = [line["buckets"]["v/b"] for line in (live, held, freed)]
    used = [(one["used_bytes"], one["snapshot_used_bytes"]) for one in shown]
    assert used == [(sum(sizes), 0), (0, sum(sizes)), (0, 0)]


@pytest.mark.parametrize("replication", Replication)
def test_quotas_and_writing_in_steps_count_them(replication: Replication) -> None:
    taken = replicated_size(replication, BLOCK_BYTES)
    *_, observed = play(
        [
            CreateVolume("v"),
            CreateBucket(*PLACE, BucketLayout.FILE_SYSTEM_OPTIMIZED, replication=replication),
            SetQuota("v", "b", 3 * taken, NO_LIMIT),
            PutKey(*PLACE, "a/k", 10, "one"),
            OpenKey(*PLACE, "a/l", BLOCK_BYTES, "two", "h"),
            SyncKey(*PLACE, "h", 10),
            CommitKey(*PLACE, "h", BLOCK_BYTES + 20),
            PutKey(*PLACE, "m", BLOCK_BYTES, "three"),
            InitiateUpload(*PLACE, "n", "u"),
            PutPart(*PLACE, "u", 1, 100, "part"),
            Settle(),
            Observe("full"),
        ]
    )
    used = replicated_size(replication, 10) + taken + replicated_size(replication, 20)
    assert used <= observed["buckets"]["v/b"]["used_bytes"] <= 3 * taken


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

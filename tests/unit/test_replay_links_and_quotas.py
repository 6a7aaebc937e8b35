"""Workloads with links and quotas: the lines of a plane are those of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from schemas.records import BucketLayout, CollectionState
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.workloads.replay import Replay
from services.workloads.workload import (
    AbandonKey,
    AbortUpload,
    CommitKey,
    CompleteUpload,
    CreateBucket,
    CreateLink,
    CreateSnapshot,
    CreateVolume,
    DeleteBucket,
    DeleteDirectory,
    DeleteKey,
    DeleteSnapshot,
    Diff,
    ExpireOpenKeys,
    Explain,
    InitiateUpload,
    MakeDirectory,
    Observe,
    OpenKey,
    Operation,
    Plan,
    PutKey,
    PutPart,
    RollBack,
    SetQuota,
    Settle,
    SyncKey,
    TagSnapshot,
    WhatIf,
)
from tests.model_lines import lines_of

PLACE, LINK = ("v", "b"), ("w", "l")
BLOCK = 4_096
SHOWN = (Settle(), Observe("shown"))
FSO = BucketLayout.FILE_SYSTEM_OPTIMIZED
START: list[Operation] = [CreateVolume("v"), CreateBucket(*PLACE, FSO)]
LINKED = [*START, CreateVolume("w"), CreateLink(*LINK, *PLACE)]


def play(operations: Sequence[Operation]) -> list[Any]:
    """The lines of a plane, which are those of the model."""
    lines = list(Replay(InMemoryClient(InMemoryPlane())).run(enumerate(operations)))
    assert lines == lines_of(enumerate(operations))
    return lines


def put(key: str, size: int, place: tuple[str, str] = PLACE, **more: Any) -> PutKey:
    return PutKey(*place, key, size, f"{key}-{size}", **more)


def refusals(operations: Sequence[Operation]) -> list[tuple[int, str]]:
    """Number and code of each refusal."""
    return [(line["op"], line["error"]) for line in play([*operations, *SHOWN]) if "error" in line]


class TestLinks:
    def test_what_is_written_and_snapshotted_through_a_link_is_of_the_bucket(self) -> None:
        (shown,) = play(
            [
                *LINKED,
                put("k", 10, LINK),
                CreateSnapshot(*LINK, "s1"),
                TagSnapshot(*LINK, "s1", "kept"),
                put("k", 20, if_generation="k-10"),
                put("k", 30, LINK, if_generation="k-20"),
                OpenKey(*LINK, "open", 100, "o", "h"),
                SyncKey(*PLACE, "h", 100),
                InitiateUpload(*LINK, "big", "u"),
                PutPart(*PLACE, "u", 1, 5, "part"),
                *SHOWN,
            ]
        )
        bucket = shown["buckets"]["v/b"]
        assert shown["links"] == {
            "w/l": {
                "link": "v/b",
                "listing": {"k": 30, "open": 100},
                "snapshots": ["s1"],
                "in_snapshots": {"s1": {"k": 10}},
            }
        }
        assert (bucket["chain"], bucket["uploads"]) == (["s1"], {"u": {"1": "part"}})
        assert bucket["unreclaimed_bytes"] == 10 + 30 + 100 + 5
        assert shown["reclaimed"] == ["k-20"]

    def test_questions_and_a_rollback_through_a_link_are_about_the_bucket(self) -> None:
        operations = [*LINKED, put("k", 10), CreateSnapshot(*PLACE, "s1"), put("k", 20), put("l", 5, LINK), Settle()]
        client = InMemoryClient(InMemoryPlane())
        asked = [WhatIf(*LINK, ("s1",)), Plan(*LINK, 1), Explain(*LINK, path="k"), Diff(*LINK, "s1", "active")]
        direct = [WhatIf(*PLACE, ("s1",)), Plan(*PLACE, 1), Explain(*PLACE, path="k"), Diff(*PLACE, "s1", "active")]
        lines = list(Replay(client).run(enumerate([*operations, *asked, *direct])))
        for through, of_bucket in zip(lines[:4], lines[4:], strict=True):
            assert {**through, "op": 0} == {**of_bucket, "op": 0}
        assert lines[0]["freed_bytes"] == 10
        *_, shown = play([*operations, RollBack(*LINK, "s1"), *SHOWN])
        assert shown["links"]["w/l"]["listing"] == {"k": 10}

    def test_a_link_may_lead_over_others_and_nowhere(self) -> None:
        lines = play(
            [
                *LINKED,
                CreateLink("v", "second", *LINK),
                put("k", 7, ("v", "second")),
                CreateLink("v", "lost", "v", "none"),
                put("k", 1, ("v", "lost")),  # 7
                CreateLink("v", "x", "v", "y"),
                CreateLink("v", "y", "v", "x"),
                put("k", 1, ("v", "x")),  # 10
                CreateLink("v", "b", "v", "c"),  # 11
                Settle(),
                Observe("links"),
                DeleteBucket("v", "second"),
                put("k", 1, ("v", "second")),  # 15
                *SHOWN,
            ]
        )
        assert [(line["op"], line["error"]) for line in lines if "error" in line] == [
            (7, "BUCKET_NOT_FOUND"),
            (10, "DETECTED_LOOP_IN_BUCKET_LINKS"),
            (11, "BUCKET_ALREADY_EXISTS"),
            (15, "BUCKET_NOT_FOUND"),
        ]
        links = next(line["links"] for line in lines if line.get("label") == "links")
        assert links["v/second"] == {"link": "w/l", "listing": {"k": 7}, "snapshots": [], "in_snapshots": {}}
        assert links["v/lost"] == {"link": "v/none", "error": "BUCKET_NOT_FOUND"}
        assert links["v/x"]["error"] == "DETECTED_LOOP_IN_BUCKET_LINKS"
        assert "v/second" not in lines[-1]["links"]

    def test_volumes_between_which_links_lead_are_in_one_shard(self) -> None:
        operations: list[Operation] = [
            *(CreateVolume(name) for name in "vwxyz"),
            CreateLink("x", "l", "w", "b"),
            CreateLink("z", "l", "y", "b"),
            CreateLink("y", "l", "x", "b"),
        ]
        replay = Replay(InMemoryClient(InMemoryPlane(shards=3)))
        assert not list(replay.run(enumerate(operations)))
        assert replay.shards == {"v": 0, "w": 1, "x": 1, "y": 1, "z": 1}

    def test_a_new_volume_is_where_its_name_belongs_and_stays_there(self) -> None:
        client = InMemoryClient(InMemoryPlane(shards=3))
        assert client.place_volume("v", 2) == 2
        replay = Replay(client, is_placing=True)
        assert not list(replay.run(enumerate([CreateVolume("v"), CreateVolume("w")])))
        assert replay.shards == {"v": 2, "w": 1}
        assert client.place_volume("w", 0) == 1


class TestQuotas:
    def test_what_is_deleted_counts_until_the_next_settle(self) -> None:
        full = [*START, SetQuota(*PLACE, 2 * BLOCK), put("k", 2 * BLOCK), DeleteKey(*PLACE, "k"), put("l", BLOCK)]
        assert refusals(full) == [(5, "QUOTA_EXCEEDED")]
        assert refusals([*full, Settle(), put("m", BLOCK), put("n", BLOCK + 1), put("n", BLOCK)]) == [
            (5, "QUOTA_EXCEEDED"),
            (8, "QUOTA_EXCEEDED"),
        ]

    def test_what_a_snapshot_holds_counts_until_it_is_dropped_and_settled(self) -> None:
        held = [
            *START,
            SetQuota(*PLACE, BLOCK),
            put("k", 100),
            CreateSnapshot(*PLACE, "s1"),
            DeleteKey(*PLACE, "k"),
            Settle(),
            put("l", 1),  # 7
            DeleteSnapshot(*PLACE, "s1"),
            put("l", 1),  # 9
            Settle(),
            put("l", 1),
        ]
        assert refusals(held) == [(7, "QUOTA_EXCEEDED"), (9, "QUOTA_EXCEEDED")]

    def test_names_are_keys_and_directories(self) -> None:
        named = [
            *START,
            SetQuota(*PLACE, quota_namespace=4),
            put("d/e/k", 1),
            put("d/e/k", 1),  # overwritten: the old one counts
            MakeDirectory(*PLACE, "f"),  # 5
            DeleteDirectory(*PLACE, "d"),
            Settle(),
            put("a/b/c/k", 1),
            put("a/l", 1),  # 9
        ]
        assert refusals(named) == [(5, "QUOTA_EXCEEDED"), (9, "QUOTA_EXCEEDED")]

    def test_parts_and_open_keys_need_room_and_spare_blocks_do_not(self) -> None:
        steps = [
            *START,
            SetQuota(*PLACE, 3 * BLOCK),
            InitiateUpload(*PLACE, "big", "u"),
            *(PutPart(*PLACE, "u", 1, 2 * BLOCK - 1, f"part{number}") for number in range(2)),  # the second: 5
            AbortUpload(*PLACE, "u"),
            OpenKey(*PLACE, "k", 3 * BLOCK, "k", "h"),
            CommitKey(*PLACE, "h", 10),
            put("l", 2 * BLOCK),
            put("m", 1),  # 10
        ]
        assert refusals(steps) == [(5, "QUOTA_EXCEEDED"), (10, "QUOTA_EXCEEDED")]
        shown = play([*steps, *SHOWN])[-1]["buckets"]["v/b"]
        assert shown["open_keys"] == [{"key": "big", "tag": "part1", "handle": None}]
        *_, shown = play([*steps, ExpireOpenKeys(), *SHOWN])
        assert shown["buckets"]["v/b"]["open_keys"] == []

    def test_a_refused_allocation_gives_the_handle_up(self) -> None:
        grown = [*START, SetQuota(*PLACE, 2 * BLOCK), OpenKey(*PLACE, "k", BLOCK, "k", "h"), SyncKey(*PLACE, "h", 1)]
        assert refusals([*grown, SyncKey(*PLACE, "h", 2 * BLOCK + 1)]) == [(5, "QUOTA_EXCEEDED")]
        committed = [*grown, CommitKey(*PLACE, "h", BLOCK + 1)]
        assert refusals(committed) == []

    def test_an_overwriting_completion_needs_a_name(self) -> None:
        joined = [
            *START,
            put("big", 1),
            InitiateUpload(*PLACE, "big", "u"),
            PutPart(*PLACE, "u", 1, 5, "part"),
            SetQuota(*PLACE, quota_namespace=1),
            CompleteUpload(*PLACE, "u", (1,), "joined"),  # 6
            SetQuota(*PLACE, quota_namespace=2),
            CompleteUpload(*PLACE, "u", (1,), "joined"),
        ]
        assert refusals(joined) == [(6, "QUOTA_EXCEEDED")]

    def test_a_link_has_no_quota_and_its_bucket_s_counts(self) -> None:
        linked = [*LINKED, SetQuota(*LINK, 10), SetQuota(*PLACE, BLOCK), put("k", BLOCK, LINK), put("l", 1, LINK)]
        assert refusals(linked) == [(4, "NOT_SUPPORTED_OPERATION"), (7, "QUOTA_EXCEEDED")]

    def test_quotas_of_a_volume(self) -> None:
        of_volume = [
            *START,
            SetQuota("v", "", 100),  # 2: b has no quota
            SetQuota(*PLACE, 60),
            SetQuota("v", "", 50),  # 4
            SetQuota("v", "", 100, 2),
            SetQuota(*PLACE, 101),  # 6
            SetQuota(*PLACE),  # 7
            CreateBucket("v", "c", FSO),  # 8: it has no quota
            SetQuota("v", "", -1, 1),
            CreateBucket("v", "c", FSO),  # 10
            SetQuota("w", "", 1),  # 11
            SetQuota(*PLACE, 0),  # 12
        ]
        assert refusals(of_volume) == [
            (2, "QUOTA_ERROR"),
            (4, "QUOTA_EXCEEDED"),
            (6, "QUOTA_EXCEEDED"),
            (7, "QUOTA_ERROR"),
            (8, "QUOTA_ERROR"),
            (10, "QUOTA_EXCEEDED"),
            (11, "VOLUME_NOT_FOUND"),
            (12, "QUOTA_ERROR"),
        ]

    def test_collection_runs_again_when_the_workload_has_ended(self) -> None:
        plane = InMemoryPlane()
        client = InMemoryClient(plane)
        operations = [*START, SetQuota(*PLACE, BLOCK), put("k", 1), DeleteKey(*PLACE, "k"), AbandonKey(*PLACE, "none")]
        with pytest.raises(Exception, match="'none' is not open"):
            list(Replay(client).run(enumerate(operations)))
        (*_, bucket) = client.metadata(0).collection("volume-v", "bucket-b")
        assert bucket.effective_state is CollectionState.RUNNING

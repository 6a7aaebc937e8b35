"""The client of a workload that writes in steps: what it allocates, reports and gives up, and what is shown of that."""

from __future__ import annotations

import pytest

from schemas.records import BucketLayout
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.workloads.replay import Replay
from services.workloads.workload import (
    AbandonKey,
    CommitKey,
    CreateBucket,
    CreateVolume,
    DeleteKey,
    ExpireOpenKeys,
    InitiateUpload,
    Observe,
    OpenKey,
    Operation,
    PutKey,
    PutPart,
    RenameKey,
    Settle,
    SyncKey,
    WorkloadError,
)
from tests.played import PLACE, play

SHOWN = (Settle(), Observe("shown"))


@pytest.fixture(params=["OBS", "FSO"])
def start(request: pytest.FixtureRequest) -> list[Operation]:
    layout = BucketLayout.OBJECT_STORE if request.param == "OBS" else BucketLayout.FILE_SYSTEM_OPTIMIZED
    return [CreateVolume("v"), CreateBucket(*PLACE, layout)]


def test_blocks_that_a_key_never_used_are_shown_apart(start: list[Operation]) -> None:
    *_, shown = play([*start, OpenKey(*PLACE, "k", 9_000, "p", "h"), CommitKey(*PLACE, "h", 9_000), *SHOWN])
    assert shown["reclaimed"] == []
    assert shown["buckets"]["v/b"]["unreclaimed_bytes"] == 9_000
    opened = [*start, OpenKey(*PLACE, "k", 9_000, "p", "h"), SyncKey(*PLACE, "h", 100), *SHOWN]
    with pytest.raises(WorkloadError, match="line 2"):
        play([*start, AbandonKey(*PLACE, "h")])
    assert play(opened)[-1]["reclaimed"] == []
    *_, shown = play([*opened, AbandonKey(*PLACE, "h"), ExpireOpenKeys(), *SHOWN])
    assert shown["reclaimed"] == ["p+spare"]
    assert shown["buckets"]["v/b"]["unreclaimed_bytes"] == 100


def test_a_key_that_nobody_has_synced_is_freed_as_a_whole(start: list[Operation]) -> None:
    opened = [*start, OpenKey(*PLACE, "k", 9_000, "p", "h"), AbandonKey(*PLACE, "h")]
    assert play([*opened, *SHOWN])[-1]["reclaimed"] == []
    *_, shown = play([*opened, ExpireOpenKeys(), *SHOWN])
    assert shown["reclaimed"] == ["p"]
    assert shown["buckets"]["v/b"]["open_keys"] == []


def test_a_refused_sync_gives_the_handle_up_and_its_blocks_are_spare(start: list[Operation]) -> None:
    refused = [
        *start,
        OpenKey(*PLACE, "k", 100, "p", "h"),
        SyncKey(*PLACE, "h", 100),
        DeleteKey(*PLACE, "k"),
        SyncKey(*PLACE, "h", 5_000),
    ]
    error, shown = play([*refused, *SHOWN])
    assert error == {"op": 5, "error": "KEY_NOT_FOUND"}
    assert shown["buckets"]["v/b"]["open_keys"] == [{"key": "k", "tag": "p", "handle": "h", "taken_away": True}]
    assert shown["reclaimed"] == ["p"]
    assert play([*refused, ExpireOpenKeys(), *SHOWN])[-1]["reclaimed"] == ["p", "p+spare"]
    with pytest.raises(WorkloadError, match="given up"):
        list(Replay(InMemoryClient(InMemoryPlane())).run(enumerate([*refused, CommitKey(*PLACE, "h", 5_000)])))


def test_a_sync_within_a_block_is_not_reported(start: list[Operation]) -> None:
    sizes = []
    for size in (10, 4_096, 4_097, 8_192):
        synced = [*start, OpenKey(*PLACE, "k", 0, "p", "h"), SyncKey(*PLACE, "h", 10), SyncKey(*PLACE, "h", size)]
        *_, shown = play([*synced, *SHOWN])
        sizes.append(shown["buckets"]["v/b"]["listing"]["active"]["k"]["bytes"])
    assert sizes == [10, 10, 4_097, 8_192]


def test_a_generation_is_that_of_the_version_with_the_tag(start: list[Operation]) -> None:
    def put(size: int, tag: str, generation: str) -> PutKey:
        return PutKey(*PLACE, "k", size, tag, if_generation=generation)

    lines = play(
        [
            *start,
            PutKey(*PLACE, "k", 1, "one"),
            put(2, "two", "one"),
            put(3, "three", "one"),  # 4: not any more
            put(4, "four", "three"),  # 5: this version was never written
            put(5, "five", "two"),
            RenameKey(*PLACE, "k", "other"),
            RenameKey(*PLACE, "other", "k"),
            put(6, "six", "five"),  # 9: a rename counts as a change
            PutKey(*PLACE, "k", 7, "seven", if_absent=True),  # 10
            *SHOWN,
        ]
    )
    assert lines[:-1] == [
        *({"op": op, "error": "KEY_NOT_FOUND"} for op in (4, 5, 9)),
        {"op": 10, "error": "KEY_ALREADY_EXISTS"},
    ]
    assert lines[-1]["buckets"]["v/b"]["listing"]["active"] == {"k": {"tag": "five", "bytes": 5}}
    assert lines[-1]["reclaimed"] == ["one", "two"]


def test_an_unknown_upload_is_an_error_of_the_workload(start: list[Operation]) -> None:
    lines = play([*start, InitiateUpload(*PLACE, "k", "u"), PutPart(*PLACE, "u", 3, 5, "p"), *SHOWN])
    assert lines[-1]["buckets"]["v/b"]["uploads"] == {"u": {"3": "p"}}
    with pytest.raises(WorkloadError, match="'w' was never initiated"):
        list(Replay(InMemoryClient(InMemoryPlane())).run(enumerate([*start, PutPart(*PLACE, "w", 1, 5, "p")])))

"""Recorded cases, and questions about space, through the real thing: broker, five services as processes, Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from schemas.records import RetentionPolicy
from services.client.errors import PlaneError
from services.client.replay import Replay
from services.client.workload import RollBack, Settle, parse_line
from services.plane.in_memory import InMemoryPlane
from services.plane.in_memory_client import InMemoryClient
from services.plane.stack import Stack
from tests import retention_workload
from tests.rollback_workload import lines_of_model, random_workload

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]
CASES = sorted((Path(__file__).parent / "cases").glob("h*.ops.jsonl"))

PLACE = {"volume": "space", "bucket": "tree"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("plane"), shards=2, is_rename_allowed=True) as started:
        yield started


def _lines(file: Path, volume: str) -> list[str]:
    """Lines of a case, with a volume of its own: all cases share one plane."""
    text = file.read_text("utf-8").replace('"v1"', f'"{volume}"').replace('"v1/', f'"{volume}/')
    return text.splitlines()


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 8


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: CASES[number].name.split(".")[0])
def test_the_real_plane_answers_as_ozone_did(stack: Stack, number: int) -> None:
    case = CASES[number]
    volume = case.name.split("_")[0]
    operations = [(place, parse_line(line, place)) for place, line in enumerate(_lines(case, volume))]
    expected: list[Any] = [
        json.loads(line) for line in _lines(case.with_name(case.name.replace(".ops.", ".expected.")), volume)
    ]
    with stack.client() as plane:
        replay = Replay(plane, first_shard=number % plane.shards)
        lines = [json.loads(json.dumps(line)) for line in replay.run(operations)]
    assert lines == expected


def test_the_real_plane_retains_and_expires(stack: Stack) -> None:
    """The same lines as in memory; and whoever reads what has gone learns where to go on."""
    place = ("retained", "tree")
    with stack.client() as plane:
        lines = list(Replay(plane, first_shard=1).run(retention_workload.OPERATIONS))
        assert lines == retention_workload.LINES
        snapshots, metadata = plane.snapshots(1), plane.metadata(1)
        rows = {row.name.removeprefix("snap-"): row for row in snapshots.snapshots(*place)}
        assert list(rows) == retention_workload.CHAIN
        assert rows["s5"].creation_time_ms == 50_000
        assert metadata.space(*place).held_bytes == retention_workload.HELD_BYTES
        preview = snapshots.retention_preview(*place, policy=RetentionPolicy(1, 0, 0), now_ms=10**7)
        assert [one.snapshot for one in preview.expired] == ["snap-s5", "snap-s6"]
        assert preview.freed_bytes == retention_workload.HELD_BYTES
        with pytest.raises(PlaneError) as caught:
            snapshots.snapshot(*place, "snap-s3")
        assert (caught.value.code, caught.value.next_snapshot) == ("SNAPSHOT_EXPIRED", "snap-s5")


def _questions(random: Random) -> Iterator[dict[str, Any]]:
    """A random history that asks about space all the time, waits for nothing, and deletes what it asked about last."""
    yield {"op": "create_volume", "volume": PLACE["volume"]}
    yield {"op": "create_bucket", **PLACE, "layout": "FSO"}
    names: list[str] = []
    for step in range(60):
        path, some = f"{random.choice('ab')}/{random.choice('xyz')}", random.sample(names, min(len(names), 2))
        size = random.choice((0, 10, 4_000))
        yield {"op": "put_key", **PLACE, "key": path, "size": size, "tag": f"p{step}"}
        if step % 9 == 0:
            yield {"op": "delete_dir", **PLACE, "dir": path[0]}
        if step % 12 == 0:
            names.append(f"s{len(names)}")
            yield {"op": "create_snapshot", **PLACE, "snapshot": names[-1]}
        if step % 30 == 29:
            yield {"op": "delete_snapshot", **PLACE, "snapshot": names.pop(random.randrange(len(names)))}
        if step % 5 == 0:
            yield {"op": "what_if", **PLACE, "snapshots": some}
            yield {"op": "plan", **PLACE, "free_bytes": random.choice((1, 5_000, 50_000))}
            yield {"op": "explain", **PLACE, "path": path}
            yield {"op": "explain", **PLACE, "snapshot": random.choice(names or ["none"])}
    yield {"op": "settle"}
    yield {"op": "what_if", **PLACE, "snapshots": names[1::2]}
    yield from ({"op": "delete_snapshot", **PLACE, "snapshot": name} for name in names[1::2])
    yield {"op": "settle"}


def test_both_planes_say_the_same_about_space_and_then_free_it(stack: Stack) -> None:
    lines = [json.dumps(operation) for operation in _questions(Random(11))]
    operations = [(number, parse_line(line, number)) for number, line in enumerate(lines)]
    in_memory = list(Replay(InMemoryClient(InMemoryPlane())).run(operations))
    with stack.client() as plane:
        replay = Replay(plane)
        settled = next(number for number, operation in operations if isinstance(operation, Settle))
        answers = list(replay.run(operations[: settled + 1]))
        before = plane.metadata(0).space(*PLACE.values())
        answers += replay.run(operations[settled + 1 :])
        after = plane.metadata(0).space(*PLACE.values())
        inventory = plane.scm(0).totals().inventory_bytes
        others = [row for volume in plane.metadata(0).volumes() for row in plane.metadata(0).buckets(volume.volume)]
        spaces = [plane.metadata(0).space(row.volume, row.bucket) for row in others]
    assert answers == in_memory
    assert len([line for line in answers if "held_by" in line]) >= 20
    freed = (after.freed_bytes - before.freed_bytes, after.freed_versions - before.freed_versions)
    assert freed == (answers[-1]["freed_bytes"], answers[-1]["freed_versions"])
    assert after.pending_bytes == after.claimed_bytes == 0
    accounted = sum(space.live_bytes + space.held_bytes + space.pending_bytes + space.claimed_bytes for space in spaces)
    assert accounted == inventory


@pytest.mark.parametrize("seed", [1, 5, 14])
def test_the_real_plane_rolls_back_as_the_model(stack: Stack, seed: int) -> None:
    operations = random_workload(seed, f"rolled-{seed}")
    assert sum(isinstance(operation, RollBack) for _, operation in operations) >= 3
    with stack.client() as plane:
        lines = [json.loads(json.dumps(line)) for line in Replay(plane).run(operations)]
    assert lines == lines_of_model(operations)

"""Recorded cases, and questions about space, through the real thing: broker, five services as processes, Spark.

What a run is to compare is played beside one another, on volumes of their own: a settle waits for Spark, whose batches
all share.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

from schemas.records import RetentionPolicy
from services.client.errors import PlaneError
from services.plane.in_memory.client import InMemoryClient
from services.plane.in_memory.plane import InMemoryPlane
from services.plane.stack.stack import Stack
from services.workloads.replay import Replay
from services.workloads.workload import Operation, RollBack, Settle, parse_line
from tests import retention_workload
from tests.model_lines import lines_of
from tests.recorded_cases import expected_lines
from tests.rollback_workload import random_workload

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]
CASES = sorted((Path(__file__).parent / "cases").glob("h*.ops.jsonl"))
IN_STEPS = (
    "e310",
    "e345",
    "m01_parts_snapshot_complete",
    "m03_complete_over_held_key",
    "m05_hsync_snapshot_commit",
    "m06_abandoned_open_keys",
    "m07_quota_bytes_and_snapshot",
    "m10_through_a_link",
    "n04_parts_without_their_directory",
    "n06_deleted_twice_with_snapshots",
    "x104",
    "x322",
    "y432",
)
"""Cases that write in steps, with quotas, links, conditions, copies and erasure codes."""

PLACE = {"volume": "space", "bucket": "tree"}
ROLLBACK_SEEDS = (1, 5, 14)
RETENTION = "retention"
TOGETHER_SECONDS = 300.0
"""For an answer among so many clients."""
Operations = list[tuple[int, Operation]]
Played = dict[object, Future[list[Any]]]
"""By the parameter of the test that compares it."""


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    return shared_stack


def _lines(file: Path, volume: str) -> list[str]:
    """Lines of a case, with a volume of its own: all cases share one plane."""
    return _renamed(file.read_text("utf-8"), volume).splitlines()


def _renamed(text: str, volume: str) -> str:
    for name, own in (("v1", volume), ("v2", f"{volume}-2")):
        text = text.replace(f'"{name}"', f'"{own}"').replace(f'"{name}/', f'"{own}/')
    return text


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 8


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest, stack: Stack) -> Played:
    """What was seen of the workload about retention, and of all cases and rollbacks that this run has tests of."""
    workloads: dict[object, tuple[int, Operations]] = {
        **{seed: (0, random_workload(seed, f"rolled-{seed}")) for seed in ROLLBACK_SEEDS},
        **{case: (number % stack.shards, _operations(case)) for number, case in enumerate(CASES)},
        **{case: (number % stack.shards, _operations(_file(case))) for number, case in enumerate(IN_STEPS)},
    }
    compared = _parameters(request.session.items)
    wanted = {key: one for key, one in workloads.items() if key in compared}
    wanted[RETENTION] = (1, retention_workload.OPERATIONS)
    with ThreadPoolExecutor(len(wanted)) as pool:
        return {key: pool.submit(_play, stack, *one) for key, one in wanted.items()}


def _parameters(items: list[pytest.Item]) -> set[object]:
    """The parameters of all tests of this file that are run."""
    own = [item for item in items if item.path == Path(__file__) and isinstance(item, pytest.Function)]
    return {value for item in own if hasattr(item, "callspec") for value in item.callspec.params.values()}


def _file(case: str) -> Path:
    return CASES[0].with_name(f"{case}.ops.jsonl")


def _operations(case: Path) -> Operations:
    return [(place, parse_line(line, place)) for place, line in enumerate(_lines(case, _volume(case)))]


def _volume(case: Path) -> str:
    return case.name.split(".")[0].split("_")[0]


def _play(stack: Stack, first_shard: int, operations: Operations) -> list[Any]:
    with stack.client(answer_seconds=TOGETHER_SECONDS) as plane:
        return [json.loads(json.dumps(line)) for line in Replay(plane, first_shard=first_shard).run(operations)]


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.split(".")[0])
def test_the_real_plane_answers_as_ozone_did(played: Played, case: Path) -> None:
    expected = _lines(case.with_name(case.name.replace(".ops.", ".expected.")), _volume(case))
    assert played[case].result() == [json.loads(line) for line in expected]


@pytest.mark.long
@pytest.mark.parametrize("case", IN_STEPS)
def test_the_real_plane_answers_as_ozone_did_or_as_a_recount(played: Played, case: str) -> None:
    expected, _ = expected_lines(case)
    assert played[case].result() == json.loads(_renamed(json.dumps(expected), _volume(_file(case))))


def test_the_real_plane_retains_and_expires(stack: Stack, played: Played) -> None:
    """The same lines as in memory; and whoever reads what has gone learns where to go on."""
    place = ("retained", "tree")
    assert played[RETENTION].result() == retention_workload.LINES
    with stack.client() as plane:
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


@pytest.mark.long
@pytest.mark.usefixtures("played")  # nobody else may be at work: what the shard has in all is compared
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
        spaces = [plane.metadata(0).space(row.volume, row.bucket) for row in others if not row.source_bucket]
    assert answers == in_memory
    assert len([line for line in answers if "held_by" in line]) >= 20
    freed = (after.freed_bytes - before.freed_bytes, after.freed_versions - before.freed_versions)
    assert freed == (answers[-1]["freed_bytes"], answers[-1]["freed_versions"])
    assert after.pending_bytes == after.claimed_bytes == 0
    accounted = sum(space.live_bytes + space.held_bytes + space.pending_bytes + space.claimed_bytes for space in spaces)
    assert accounted == inventory


@pytest.mark.long
@pytest.mark.parametrize("seed", ROLLBACK_SEEDS)
def test_the_real_plane_rolls_back_as_the_model(played: Played, seed: int) -> None:
    operations = random_workload(seed, f"rolled-{seed}")
    assert sum(isinstance(operation, RollBack) for _, operation in operations) >= 3
    assert played[seed].result() == lines_of(operations)

"""Recorded cases through the real thing: broker, five services as processes, Spark; two shards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.records import RetentionPolicy
from services.client.errors import PlaneError
from services.client.replay import Replay
from services.client.workload import parse_line
from services.plane.stack import Stack
from tests import retention_workload

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(900)]
CASES = sorted((Path(__file__).parent / "cases").glob("h*.ops.jsonl"))


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

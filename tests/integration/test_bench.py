"""Every benchmark, very small: figures come out and everything is stopped. How large they are is nobody's business."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.plane.bench.conditions import Conditions
from services.plane.bench.run import BENCHMARKS

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

EXPECTED = {
    "ceilings": ["ceilings/kafka-produce", "ceilings/kafka-consume", "ceilings/rocksdb-puts"],
    "metadata-commands": ["metadata-commands/puts", "metadata-commands/deletes", "metadata-commands/tree-puts"],
    "deletions": ["deletions", "deletions/20-snapshots"],
    "verdicts": ["verdicts"],
    "snapshot-time": [
        "snapshot-time/request-at-300-keys",
        "snapshot-time/request-at-3000-keys",
        "snapshot-time/checkpoint-at-300-keys",
        "snapshot-time/checkpoint-at-3000-keys",
    ],
    "rule-cost": [f"rule-cost/{kind}-at-{n}-snapshots" for kind in ("judge", "spark") for n in (10, 1_000, 10_000)],
    "diff": ["diff/flat-3000-keys", "diff/tree-3000-keys"],
}
NEEDS_SPARK = ("deletions", "verdicts", "rule-cost")


def children() -> set[str]:
    listed = (Path("/proc") / str(os.getpid()) / "task").glob("*/children")
    return {pid for file in listed for pid in file.read_text().split()}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.spark] * (name in NEEDS_SPARK)) for name in BENCHMARKS]
)
def test_figures_come_out_and_nothing_stays_behind(name: str, tmp_path: Path) -> None:
    before, said = children(), list[str]()
    conditions = Conditions(tmp_path, seconds=0.02, small_bucket_keys=300, large_bucket_keys=3_000, say=said.append)
    figures = BENCHMARKS[name].measure(conditions)
    assert [figure.name for figure in figures] == EXPECTED[name]
    assert all(figure.value > 0 for figure in figures)
    assert said
    assert children() <= before

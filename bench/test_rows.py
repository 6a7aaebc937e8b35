"""Runs every benchmark with very small sizes: it must return figures and stop all processes. Values are not checked.

``make figures`` runs these tests first: they test the bench, and start as many processes as it does. A run draws one in
``SHARE`` of them (``tests/drawn.py``), since all take eight minutes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.conditions import Conditions
from bench.run import BENCHMARKS
from bench.sizes import Sizes

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

SMALL = Sizes(
    few_keys=300,
    many_keys=3_000,
    most_keys=4_000,
    deleted_entries=300,
    held_versions=400,
    held_snapshots=10,
    followed_buckets=30,
    tree_files=120,
    offered_per_second=500,
)
SERVICES = ("metadata", "snapshots", "key_deletion", "directory_deletion", "mock_scm")
EXPECTED = {
    "ceilings": ["ceilings/kafka-produce", "ceilings/kafka-consume", "ceilings/rocksdb-puts"],
    "metadata-commands": [f"metadata-commands/{kind}" for kind in ("puts", "deletes", "bulk-deletes", "tree-puts")],
    "library": ["library/puts", "library/deletes"],
    "verdicts": ["verdicts", "verdicts/beside-a-copy"],
    "rule-cost": [f"rule-cost/{kind}-at-{n}-snapshots" for kind in ("judge", "spark") for n in (10, 1_000, 10_000)],
    "chain-follow": [f"chain-follow/{what}" for what in ("table", "judged", "python-memory", "heap-memory")],
    "rule-lookup": ["rule-lookup/services", "rule-lookup/spark"],
    "snapshot-time": [
        *(f"snapshot-time/at-{n}-keys" for n in (300, 3_000, 4_000)),
        *(f"snapshot-time/flat-at-{n}-keys" for n in (3_000, 4_000)),
    ],
    "snapshot-disk": [
        *(f"snapshot-disk/{what}{when}" for when in ("before", "after") for what in ("", "checkpoints-")),
        *("snapshot-disk/first-half", "snapshot-disk/second-half"),
    ],
    "diff": ["diff/flat-3000-keys", "diff/tree-3000-keys"],
    "deletions": [
        *("deletions", "deletions/20-snapshots"),
        *("deletions/bulk", "deletions/bulk-20-snapshots"),
    ],
    "latency": ["latency/verdict-p50", "latency/verdict-p99", "latency/freed-p50", "latency/freed-p99"],
    "sustained": ["sustained", "sustained/backlog"],
    "sustained-bulk": ["sustained-bulk", "sustained-bulk/backlog"],
    "tree-delete": ["tree-delete/answer", "tree-delete/freed"],
    "shards": [
        *("shards/1-process", "shards/2-processes", "shards/2-processes-beside-model"),
        *("shards/4-by-model", "shards/4-deletions-by-model"),
    ],
    "scale": [f"scale/{n}-shards/{kind}" for n in (1, 2, 4) for kind in ("puts", "deletions")],
    "memory": [f"memory/{name}" for name in (*SERVICES, "streaming")],
    "disk": ["disk/held-version", "disk/checkpoint"],
    "what-if": ["what-if"],
    "explain": ["explain"],
    "snapshot-among-many": ["snapshot-among-many"],
    "drop": ["drop/nothing-alone", "drop/sweeps-for-nothing", "drop/much-alone"],
    "longest-apply": ["longest-apply"],
}
NEEDS_NO_SPARK = ("ceilings", "metadata-commands", "library", "snapshot-time", "snapshot-disk", "diff")
MAY_BE_ZERO = ("chain-follow/python-memory", "chain-follow/heap-memory", "disk/checkpoint", "drop/sweeps-for-nothing")


def children() -> set[str]:
    listed = (Path("/proc") / str(os.getpid()) / "task").glob("*/children")
    return {pid for file in listed for pid in file.read_text().split()}


@pytest.fixture(scope="module")
def conditions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conditions]:
    """Conditions of all rows, which share a plane as in a run; after ``close`` no process is left."""
    before, said = children(), list[str]()
    directory = tmp_path_factory.mktemp("bench")
    shared = Conditions(directory, seconds=0.02, sizes=SMALL, is_one_plane=True, say=said.append)
    try:
        yield shared
    finally:
        shared.close()
    assert said
    assert children() <= before


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.spark] * (name not in NEEDS_NO_SPARK)) for name in BENCHMARKS]
)
def test_figures_come_out(name: str, conditions: Conditions) -> None:
    before = children()
    figures = BENCHMARKS[name].measure(conditions)
    assert [figure.name for figure in figures] == EXPECTED[name]
    assert all(figure.value > 0 for figure in figures if figure.name not in MAY_BE_ZERO)
    if conditions.plane is None:
        assert children() <= before

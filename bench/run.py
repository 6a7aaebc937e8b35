"""All measurements by name, run one after the other in a scratch directory.

The directory is removed at the end. It is kept, with the logs, if a process did not start or made no progress.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.ceilings import measure_ceilings
from bench.chain_follow import measure_chain_follow
from bench.conditions import Benchmark, Conditions
from bench.deletions import measure_deletions
from bench.diff import measure_diff
from bench.drops import measure_drops
from bench.figures import Figure
from bench.footprint import measure_disk, measure_memory
from bench.latency import measure_latency
from bench.library_writes import measure_library
from bench.longest_apply import measure_longest_apply
from bench.metadata_commands import measure_metadata_commands
from bench.rule_cost import measure_rule_cost
from bench.rule_lookup import measure_rule_lookup
from bench.scale import measure_scale
from bench.shards import measure_shards
from bench.sizes import Sizes
from bench.snapshot_disk import measure_snapshot_disk
from bench.snapshot_time import measure_snapshot_among_many, measure_snapshot_time
from bench.space_reads import measure_explain, measure_what_if
from bench.sustained import measure_sustained, measure_sustained_bulk
from bench.tree_delete import measure_tree_delete
from bench.verdicts import measure_verdicts
from services.plane.machine.errors import StackError

BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark("ceilings", measure_ceilings),
        Benchmark("metadata-commands", measure_metadata_commands),
        Benchmark("library", measure_library),
        Benchmark("verdicts", measure_verdicts),
        Benchmark("rule-cost", measure_rule_cost),
        Benchmark("chain-follow", measure_chain_follow),
        Benchmark("rule-lookup", measure_rule_lookup),
        Benchmark("snapshot-time", measure_snapshot_time),
        Benchmark("snapshot-disk", measure_snapshot_disk),
        Benchmark("diff", measure_diff),
        # Runs before the shared plane starts, whose processes would compete for the cores.
        Benchmark("shards", measure_shards),
        Benchmark("scale", measure_scale),
        Benchmark("deletions", measure_deletions),
        Benchmark("latency", measure_latency),
        Benchmark("sustained", measure_sustained),
        Benchmark("sustained-bulk", measure_sustained_bulk),
        Benchmark("tree-delete", measure_tree_delete),
        # Rows about millions of held versions: the first row makes the versions, the last two rows free some.
        Benchmark("memory", measure_memory),
        Benchmark("disk", measure_disk),
        Benchmark("what-if", measure_what_if),
        Benchmark("explain", measure_explain),
        Benchmark("snapshot-among-many", measure_snapshot_among_many),
        Benchmark("drop", measure_drops),
        Benchmark("longest-apply", measure_longest_apply),
    )
}


def run_benchmarks(
    names: Sequence[str], seconds: float, say: Callable[[str], None], sizes: Sizes | None = None
) -> Iterator[Figure]:
    """Measure, and yield the figures of each measurement when it is done; stop all processes at the end.

    The order is that of ``BENCHMARKS``, not of ``names``: the last rows that share versions free some of them.
    """
    with prepared(seconds, say, sizes or Sizes()) as conditions:
        for benchmark in BENCHMARKS.values():
            if benchmark.name in names:
                yield from benchmark.measure(conditions)


@contextmanager
def prepared(seconds: float, say: Callable[[str], None], sizes: Sizes) -> Iterator[Conditions]:
    """Yield the conditions of a run in a scratch directory."""
    directory = Path(tempfile.mkdtemp(prefix="deepclean-bench-"))
    conditions, is_kept = Conditions(directory, seconds, sizes, say=say), False
    try:
        yield conditions
    except StackError:
        is_kept = True
        raise
    finally:
        conditions.close()
        if not is_kept:
            shutil.rmtree(directory, ignore_errors=True)

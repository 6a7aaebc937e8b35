"""All measurements by name, run one after the other in a scratch directory.

It is removed at the end; only when something did not start or did not go on is it kept, with the logs that say why.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from services.plane.bench.ceilings import measure_ceilings
from services.plane.bench.conditions import Benchmark, Conditions
from services.plane.bench.deletions import measure_deletions
from services.plane.bench.diff import measure_diff
from services.plane.bench.figures import Figure
from services.plane.bench.metadata_commands import measure_metadata_commands
from services.plane.bench.rule_cost import measure_rule_cost
from services.plane.bench.snapshot_time import measure_snapshot_time
from services.plane.bench.verdicts import measure_verdicts
from services.plane.errors import StackError

BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark("ceilings", measure_ceilings),
        Benchmark("metadata-commands", measure_metadata_commands),
        Benchmark("deletions", measure_deletions),
        Benchmark("verdicts", measure_verdicts),
        Benchmark("snapshot-time", measure_snapshot_time),
        Benchmark("rule-cost", measure_rule_cost),
        Benchmark("diff", measure_diff),
    )
}


def run_benchmarks(names: Sequence[str], seconds: float, say: Callable[[str], None]) -> Iterator[Figure]:
    """Measure, and hand out the figures of each as soon as it is done; whatever was started is stopped."""
    directory = Path(tempfile.mkdtemp(prefix="deepclean-bench-"))
    is_kept = False
    try:
        conditions = Conditions(directory, seconds, say=say)
        for name in names:
            yield from BENCHMARKS[name].measure(conditions)
    except StackError:
        is_kept = True
        raise
    finally:
        if not is_kept:
            shutil.rmtree(directory, ignore_errors=True)

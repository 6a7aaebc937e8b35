"""A schedule on two hosts that share the shards, with three brokers and Spark on a cluster; then an audit.

``make chaos HOSTS=1`` plays more of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.__main__ import chaos_stack
from tests.chaos.counts import Counts
from tests.chaos.hosts_stack import HOSTS, host_of
from tests.chaos.keeper import Keeper
from tests.chaos.run import audit, run_schedules
from tests.chaos.schedule import draw_schedule

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(1_500), pytest.mark.long]


def test_what_crashes_on_either_host_ends_as_if_nothing_had_happened(tmp_path: Path, seed: int) -> None:
    counts = Counts()
    with chaos_stack(tmp_path, is_shared=True) as stack, Keeper(stack, counts) as keeper:
        run_schedules(stack, keeper, [draw_schedule(seed, is_shared=True)])
        audit(stack)
        assert {host_of(name) for name in keeper.struck} & set(HOSTS), keeper.struck
        assert counts.kills.total(), counts.lines()
        print("\n".join(counts.lines()))

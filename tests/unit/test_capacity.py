"""``deepclean size``: the model grows as its parts do, and the page that shows it shows what it says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from services.cli.main import app
from services.domain.capacity import MEASURED, Workload, capacity_of, rate_of_shards, years_of_ids
from services.domain.table_keys import LAST_TXN_WITH_BLOCKS, MOST_SHARDS

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
SMALL = Workload(
    keys=1e6, deletes_per_day=1e6, snapshots=10, held_days=7, peak=3, log_days=7, replicas=3, is_followed=True
)
WORKLOADS = st.builds(
    Workload,
    keys=st.floats(0, 1e12),
    deletes_per_day=st.floats(0, 1e11),
    snapshots=st.integers(0, 10**6),
    held_days=st.floats(0, 365),
    peak=st.floats(1, 20),
    log_days=st.floats(0, 30),
    replicas=st.integers(1, 5),
    is_followed=st.booleans(),
)


@given(work=WORKLOADS)
def test_no_part_of_a_plane_is_busier_than_it_may_be(work: Workload) -> None:
    found = capacity_of(work, MEASURED)
    of_metadata = MEASURED.put_microseconds["metadata"] + MEASURED.deletion_microseconds["metadata"]
    each = found.peak_deletes_per_second / found.shards
    assert each * of_metadata / 1e6 <= work.busy * 1.000_001
    assert found.cores["metadata"] <= found.shards * (2 if work.is_followed else 1) * 1.000_001
    limits = {limit.name: limit for limit in found.limits}
    assert limits["block ids"].share <= 1
    assert limits["snapshots"].share <= 1
    assert [limit.share for limit in found.limits] == sorted((one.share for one in found.limits), reverse=True)


@given(work=WORKLOADS, times=st.floats(1, 100))
def test_more_work_never_needs_less(work: Workload, times: float) -> None:
    less, more = (
        capacity_of(work, MEASURED),
        capacity_of(replace(work, deletes_per_day=work.deletes_per_day * times), MEASURED),
    )
    assert more.shards >= less.shards
    assert sum(more.cores.values()) >= sum(less.cores.values())
    assert more.disk_bytes >= less.disk_bytes
    assert more.log_bytes >= less.log_bytes


def test_a_standby_doubles_what_metadata_takes() -> None:
    alone, followed = (capacity_of(replace(SMALL, is_followed=one), MEASURED) for one in (False, True))
    assert followed.cores["metadata"] == 2 * alone.cores["metadata"]
    assert followed.cores["streaming"] == alone.cores["streaming"]
    assert followed.disk_bytes == 2 * alone.disk_bytes


def test_shards_are_bounded_by_cores_and_by_their_single_threads() -> None:
    costs = {"metadata": 30e-6, "streaming": 20e-6, "broker": 10e-6}
    assert rate_of_shards(costs, processes=1, cores=2) == pytest.approx(2 / 60e-6)
    assert rate_of_shards(costs, processes=1, cores=100) == pytest.approx(1 / 30e-6)
    assert rate_of_shards(costs, processes=4, cores=100) == pytest.approx(4 / 30e-6)


def test_what_grows_a_hundredfold_breaks_first_where_hosts_do_not_help() -> None:
    first = capacity_of(replace(SMALL, deletes_per_day=1e11, keys=1e11, snapshots=100_000), MEASURED).limits[0]
    assert first.share > 1
    assert first.used > first.most


def test_ids_last_as_long_as_txns_do() -> None:
    assert years_of_ids(LAST_TXN_WITH_BLOCKS / 365.25) == pytest.approx(1)
    assert capacity_of(SMALL, MEASURED).shards == 1
    assert capacity_of(replace(SMALL, deletes_per_day=1e12), MEASURED).shards > MOST_SHARDS


def test_the_page_shows_what_the_command_says() -> None:
    blocks = [block.removeprefix("console\n") for block in PAGE.read_text().split("```")[1::2]]
    shown = [block.strip("\n").split("\n", 1) for block in blocks if block.startswith("$ deepclean size")]
    assert shown
    for line, output in shown:
        result = CliRunner().invoke(app, line.removeprefix("$ deepclean ").split(), env={"COLUMNS": "120"})
        assert result.exit_code == 0, result.output
        assert [line.rstrip() for line in result.output.rstrip().splitlines()] == output.rstrip().splitlines()


def test_json_has_every_figure_in_bytes_and_cores() -> None:
    words = ["size", "--keys", "1e9", "--deletes-per-day", "1e9", "--snapshots", "1000", "--json"]
    found = json.loads(CliRunner().invoke(app, words).output)
    assert found["memory_bytes"]["metadata"] == 2 * found["shards"] * 265e6
    assert {limit["name"] for limit in found["limits"]} >= {"shards", "snapshots", "block ids"}


@pytest.mark.parametrize("number", ["inf", "nan", "-1"])
def test_a_number_of_keys_is_finite(number: str) -> None:
    result = CliRunner().invoke(app, ["size", "--keys", number, "--deletes-per-day", "1", "--snapshots", "1"])
    assert result.exit_code == 2

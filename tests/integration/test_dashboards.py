"""Every query of every dashboard returns data: of a real plane with datanodes, by a real Prometheus with the rules."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from deploy.grafana.boards import BOARDS
from schemas.records import (
    BucketLayout,
    CreateBucket,
    CreateSnapshot,
    CreateVolume,
    DeleteDirectory,
    DeleteKey,
    DeleteSnapshot,
    PutKey,
    Settle,
)
from services.client.kafka_plane import KafkaPlane
from services.client.plane import accepted
from services.plane.stack.plane_file import running_plane
from services.plane.stack.stack import Stack
from services.plane.upkeep.found_owners import urls_of
from tests import prometheus
from tests.audit_at_scale import execute
from tests.metric_catalogue import ROOT
from tests.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]
PATIENCE_SECONDS = 240
MAY_BE_SILENT = {
    'count(up{job=~"deepclean.*"} == 0) or vector(0)',
    "sum by (service, topic) (increase(deepclean_dead_letters_total[1h])) > 0 or vector(0)",
    'max by (service) (deepclean_standby_lag_messages{shard=~"$shard"}) or vector(0)',
}
"""Nothing is down or dead-lettered, and no standby follows."""
VOLUME, TREE = "watched", "tree"


def configuration(directory: Path, urls: dict[str, str]) -> Path:
    """One that scrapes the processes each second, with the rules."""
    targets = [{"targets": [urlsplit(url).netloc], "labels": {"process": name}} for name, url in urls.items()]
    described = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ROOT / "deploy" / "prometheus" / "rules.yml")],
        "scrape_configs": [{"job_name": "deepclean", "static_configs": targets}],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(described), "utf-8")
    return directory / "prometheus.yml"


def work(plane: KafkaPlane, number: int) -> None:
    """Something for each station: overwritten and deleted keys, a deleted directory, a snapshot that goes."""
    execute(
        plane,
        *(PutKey(VOLUME, TREE, f"d{number}/{key}", 1_000) for key in range(5)),
        PutKey(VOLUME, TREE, "key", 10),
        DeleteKey(VOLUME, TREE, "key"),
    )
    accepted(plane.request(0, CreateSnapshot(VOLUME, TREE, f"snap-{number}")))
    execute(plane, DeleteDirectory(VOLUME, TREE, f"d{number}"))
    if number:
        accepted(plane.request(0, DeleteSnapshot(VOLUME, TREE, f"snap-{number - 1}")))
    accepted(plane.request(0, Settle(f"round {number}")))


def silent_targets(url: str) -> set[str]:
    """The expressions that return no series now."""
    panels = [panel for board in BOARDS for row in board.rows for panel in row.panels]
    expressions = {expression for panel in panels for expression, _ in panel.targets}
    return {expression for expression in expressions if not has_series(url, expression)}


def has_series(url: str, expression: str) -> bool:
    """Whether a query returns something, without what it would return if its metrics were missing."""
    query = expression.replace("$__rate_interval", "1m").replace("$shard", ".*").replace(" or vector(0)", "")
    return bool(prometheus.series(url, query))


def is_answering(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def test_every_query_of_every_panel_returns_data(tmp_path: Path) -> None:
    prometheus.program("prometheus")  # before a plane is started in vain
    with (
        Stack(tmp_path / "home", 1, datanodes=1) as stack,
        prometheus.started(configuration(tmp_path, urls_of(running_plane(stack.home))), tmp_path) as (url, _),
        stack.client() as plane,
    ):
        eventually(lambda: is_answering(url))
        execute(plane, CreateVolume(VOLUME), CreateBucket(VOLUME, TREE, BucketLayout.FILE_SYSTEM_OPTIMIZED))
        rounds = iter(range(1_000))
        silent: set[str] = set()

        def is_complete() -> bool:
            work(plane, next(rounds))
            silent.clear()
            silent.update(silent_targets(url) - MAY_BE_SILENT)
            return not silent

        try:
            eventually(is_complete, PATIENCE_SECONDS)
        except AssertionError:
            pytest.fail(f"no data: {silent}")

"""Every panel of every dashboard returns data: of a real plane with datanodes, by a real Prometheus with the rules."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from deploy.grafana.board import Board
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
from services.plane.machine.ports import free_ports
from services.plane.stack.plane_file import running_plane
from services.plane.stack.stack import Stack
from services.plane.upkeep.observed import urls_of
from tests.audit_at_scale import execute
from tests.metric_catalogue import ROOT
from tests.waiting import eventually

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]
PATIENCE_SECONDS = 240
VOLUME, TREE = "watched", "tree"


@contextmanager
def prometheus(directory: Path, urls: dict[str, str]) -> Iterator[str]:
    """Scrape the processes each second; yield the address."""
    directory.mkdir()
    targets = [{"targets": [urlsplit(url).netloc], "labels": {"process": name}} for name, url in urls.items()]
    described = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ROOT / "deploy" / "prometheus" / "rules.yml")],
        "scrape_configs": [{"job_name": "deepclean", "static_configs": targets}],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(described), "utf-8")
    address = f"127.0.0.1:{free_ports(1)[0]}"
    options = [f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/data"]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            ["prometheus", *options, f"--web.listen-address={address}"], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(30)


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


def silent_panels(address: str) -> list[str]:
    """The panels of which no query returns a series now."""
    with httpx.Client(base_url=address, timeout=30) as http:
        return [
            f"{board.title}: {panel.title}"
            for board in BOARDS
            for row in board.rows
            for panel in row.panels
            if not any(series_of(http, board, expression) for expression, _ in panel.targets)
        ]


def series_of(http: httpx.Client, board: Board, expression: str) -> bool:
    """Whether a query is valid and returns something."""
    query = expression.replace("$__rate_interval", "1m").replace("$shard", ".*")
    answer = http.get("/api/v1/query", params={"query": query})
    assert answer.status_code == 200, (board.title, expression, answer.text)
    return bool(answer.json()["data"]["result"])


def is_answering(address: str) -> bool:
    try:
        return httpx.get(f"{address}/-/ready").status_code == 200
    except httpx.HTTPError:
        return False


def test_every_panel_returns_data(tmp_path: Path) -> None:
    if shutil.which("prometheus") is None:
        if os.environ.get("DEEPCLEAN_REQUIRE_PROMETHEUS") == "1":
            pytest.fail("prometheus is not installed: apt-get install prometheus")
        pytest.skip("prometheus is not installed: apt-get install prometheus")
    with (
        Stack(tmp_path / "home", 1, datanodes=1) as stack,
        prometheus(tmp_path / "prometheus", urls_of(running_plane(stack.home))) as address,
        stack.client() as plane,
    ):
        eventually(lambda: is_answering(address))
        execute(plane, CreateVolume(VOLUME), CreateBucket(VOLUME, TREE, BucketLayout.FILE_SYSTEM_OPTIMIZED))
        rounds = iter(range(1_000))
        silent: list[str] = []

        def is_complete() -> bool:
            work(plane, next(rounds))
            silent[:] = silent_panels(address)
            return not silent

        try:
            eventually(is_complete, PATIENCE_SECONDS)
        except AssertionError:
            pytest.fail(f"no data: {silent}")

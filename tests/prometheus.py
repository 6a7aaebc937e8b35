"""Prometheus' own programs for tests: they are skipped without them, unless DEEPCLEAN_REQUIRE_PROMETHEUS is 1."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.plane.machine.ports import free_ports

INSTALL = "apt-get install prometheus"


def program(name: str) -> str:
    """The path of ``prometheus`` or ``promtool``."""
    found = shutil.which(name)
    if found is None and os.environ.get("DEEPCLEAN_REQUIRE_PROMETHEUS") == "1":
        pytest.fail(f"{name} is not installed: {INSTALL}")
    return found or pytest.skip(f"{name} is not installed: {INSTALL}")


@contextmanager
def started(configuration: Path, directory: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start Prometheus, with its data and its ``prometheus.log`` in a directory; yield its URL and its process."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [program("prometheus"), f"--config.file={configuration}", f"--storage.tsdb.path={directory / 'data'}"]
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={address}", *options], stdout=log, stderr=log)
    try:
        yield f"http://{address}", process
    finally:
        process.terminate()
        process.wait(30)


class InvalidQueryError(Exception):
    """Prometheus refuses a query."""


def series(url: str, expression: str) -> list[dict[str, Any]]:
    """What an expression returns now."""
    answer = httpx.get(f"{url}/api/v1/query", params={"query": expression}, trust_env=False, timeout=30)
    if answer.status_code == httpx.codes.BAD_REQUEST:
        raise InvalidQueryError(f"{expression}: {answer.text}")
    found: list[dict[str, Any]] = answer.raise_for_status().json()["data"]["result"]
    return found

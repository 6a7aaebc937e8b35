"""What ``import deepclean`` offers, and what it leaves alone."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import deepclean
from services.cli.main import app

ROOT = Path(__file__).parents[2]


def test_the_library_loads_no_database_no_spark_and_no_plane() -> None:
    loaded = subprocess.check_output(
        [sys.executable, "-c", "import sys, deepclean; print(*sys.modules)"], text=True, cwd=ROOT
    ).split()
    assert "services.client.kafka_plane" in loaded
    for place in ("rocksdict", "pyspark", "services.plane", "services.runtime", "services.storage", "typer"):
        assert place not in loaded


def test_its_names_are_there() -> None:
    assert sorted(deepclean.__all__) == deepclean.__all__
    assert all(hasattr(deepclean, name) for name in deepclean.__all__)


def test_a_plane_that_does_not_run_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(deepclean.DeepcleanError, match="deepclean up"):
        deepclean.connect(home=tmp_path)


def test_the_version_is_that_of_the_project() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert deepclean.__version__ == wanted
    assert CliRunner().invoke(app, ["--version"]).output == f"deepclean {wanted}\n"

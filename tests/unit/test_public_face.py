"""What ``import deepclean`` offers, and what it leaves alone."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
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


WITHOUT_THE_PLANE = """
import sys
from importlib.abc import MetaPathFinder
missing = sys.argv.pop(1).split(",")
class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
import deepclean, deepclean.filesystem
from services.plane.stack.stack import running_client
from services.cli.main import run
run()
"""


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["--version"], "deepclean "),
        (["bucket", "list", "vol1"], "No plane runs on"),
        (["tables", "list"], "is not installed, and this command needs it: pip install 'deepclean[plane]'"),
    ],
)
def test_the_library_is_installed_without_what_a_plane_needs(tmp_path: Path, command: list[str], expected: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    heavy = {re.split(r"[=<>]", one)[0] for one in project["optional-dependencies"]["plane"]}
    modules = {module for module, names in packages_distributions().items() if heavy & set(names)}
    assert {"pyspark", "rocksdict", "pyarrow"} <= modules
    answer = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_PLANE, ",".join(modules), "--home", str(tmp_path), *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert expected in answer.stdout + answer.stderr
    assert "Traceback" not in answer.stderr


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

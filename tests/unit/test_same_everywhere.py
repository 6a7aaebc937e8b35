"""A run of the tests does the same on a CI service and on a desk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

CASE = """
from hypothesis import given, settings, strategies as st

def test_lists():
    assert list(range(10_000)) == list(range(5_000, 15_000))

@given(st.integers())
def test_a_draw(number):
    assert settings().deadline is None
    print(number)
"""


def run(case: Path, seed: int) -> str:
    """What pytest prints where a CI service has set its variables."""
    arguments = ["-n", "0", "-s", "--confcutdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
    arguments += ["-p", "tests.conftest", f"--hypothesis-seed={seed}", str(case)]
    environment = {**os.environ, "CI": "true", "BUILD_NUMBER": "1"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        check=False,
        cwd=ROOT,
        env=environment,
        text=True,
        capture_output=True,
    ).stdout


def test_a_ci_service_changes_neither_the_examples_nor_how_long_a_difference_takes(tmp_path: Path) -> None:
    case = tmp_path / "test_case.py"
    case.write_text(CASE)
    first, again, other = run(case, 1), run(case, 1), run(case, 2)
    assert "At index 0 diff: 0 != 5000" in first
    assert "Full diff" not in first
    assert "1 failed, 1 passed" in first
    drawn = [[line for line in output.splitlines() if line.lstrip("-").isdecimal()] for output in (first, again, other)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]

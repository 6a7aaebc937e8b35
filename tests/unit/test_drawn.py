"""Long tests are drawn: each by one of ``SHARE`` runs, a file as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import drawn
from tests.drawn import EXAMPLES_SHARE, SHARE, left_out

pytest_plugins = ["pytester"]

PLUGIN = ("-p", "tests.drawn")
FILES = {
    "test_short": "def test_one(): pass\ndef test_two(): pass\n",
    "test_file": "import pytest\npytestmark = pytest.mark.long\ndef test_one(): pass\ndef test_two(): pass\n",
    "test_each": "import pytest\n@pytest.mark.long\n@pytest.mark.parametrize('n', range(7))\ndef test_n(n): pass\n",
}


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10])
def test_each_is_played_by_one_run(count: int) -> None:
    names = [f"test_{number}" for number in range(count)]
    for first in (0, 17):
        played = [set(names) - left_out(names, first + run) for run in range(SHARE)]
        assert sorted(name for one in played for name in one) == names


def test_a_file_is_played_as_a_whole_and_what_is_short_always(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmarkers = long: drawn\n")
    pytester.makepyfile(**FILES)
    files, cases = 0, 0
    for seed in range(SHARE):
        lines = pytester.runpytest_inprocess(*PLUGIN, "--drawn", f"--seed={seed}", "--collect-only", "-q").outlines
        assert sum(line.startswith("test_short.py") for line in lines) == 2
        of_file = sum(line.startswith("test_file.py") for line in lines)
        assert of_file in (0, 2)
        files += of_file
        cases += sum(line.startswith("test_each.py") for line in lines)
    assert (files, cases) == (2, 7)
    undrawn = pytester.runpytest_inprocess(*PLUGIN, "--seed=1", "--collect-only", "-q").outlines
    assert sum("::" in line for line in undrawn) == 2 + 2 + 7


EXAMPLES = """
import pytest
from hypothesis import given, settings, strategies

numbers = dict(few=[], many=[])

@settings(max_examples=40)
@given(strategies.integers())
def test_few(number):
    numbers["few"].append(number)

class TestMany:
    @pytest.mark.parametrize("name", ["first", "second"])
    @given(strategies.integers())
    def test_many(self, name, number):
        numbers["many"].append(number)

def test_last():
    assert [len(played) for played in numbers.values()] == {counts}
"""


@pytest.mark.parametrize(("options", "share"), [(["--drawn"], EXAMPLES_SHARE), ([], 1)])
def test_a_run_that_draws_plays_fewer_examples(pytester: pytest.Pytester, options: list[str], share: int) -> None:
    pytester.makeini("[pytest]\nmarkers = long: drawn\n")
    pytester.makepyfile(EXAMPLES.replace("{counts}", str([40 // share, 2 * (100 // share)])))
    pytester.runpytest_inprocess(*PLUGIN, *options, "--seed=1").assert_outcomes(passed=4)


def test_all_processes_of_a_run_draw_the_same_tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else pytest-xdist ends the run: a run without a seed draws one, and each process would draw its own."""
    monkeypatch.setenv("PYTHONPATH", str(Path(drawn.__file__).parents[1]))
    pytester.makeini("[pytest]\nmarkers = long: drawn\n")
    cases = f"@pytest.mark.long\n@pytest.mark.parametrize('n', range({4 * SHARE}))\ndef test_one(n):\n    pass\n"
    pytester.makepyfile(f"import pytest\n\n{cases}")
    pytester.runpytest_subprocess(*PLUGIN, "-p", "xdist", "-n", "2", "--drawn").assert_outcomes(passed=4)

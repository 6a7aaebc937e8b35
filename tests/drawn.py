"""Which of the long tests a run plays: one in 24, by its seed. ``make test`` draws; with ``ALL=1`` it plays each.

What is marked ``long`` is one of many of its kind, or takes minutes beside tests that look at the same rule in seconds.
A file with the mark is drawn as a whole, since its tests share what they start; else each test is drawn by itself. Of
24 runs with seeds in a row each long test is played by one. Of Hypothesis' examples a run that draws plays a quarter.

A plugin of pytest for ``tests`` and ``bench``, named in pyproject.toml.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

LONG = "long"
SHARE = 24
"""A run plays one long test of so many."""
EXAMPLES_SHARE = 4
"""And one of so many examples."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("deepclean")
    group.addoption("--seed", type=int, default=None, help="replay a run from its seed")
    group.addoption("--drawn", action="store_true", help=f"play one in {SHARE} of the long tests, by the seed")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # a process of pytest-xdist, which does not get the options of the leading one
        config.option.seed = config.workerinput["seed"]
    elif config.option.seed is None:
        config.option.seed = secrets.randbelow(2**31)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Have all processes of pytest-xdist draw the same tests."""
    node.workerinput["seed"] = node.config.option.seed


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.option.seed} (the same target with SEED={config.option.seed} replays this run)"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not drawn."""
    if config.option.drawn:
        config.hook.pytest_deselected(items=draw(items, config.option.seed))
        _play_fewer_examples(items)


def left_out(names: Sequence[str], seed: int) -> set[str]:
    """Return which of these a run does not play: neighbours, which take about as long, are played by different runs."""
    return {name for number, name in enumerate(dict.fromkeys(names)) if (number + seed) % SHARE}


def draw(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """Remove the long tests that a run does not play, and return them."""
    names = {item: _drawn_as(item) for item in items}
    out = left_out([name for name in names.values() if name], seed)
    removed = [item for item, name in names.items() if name in out]
    items[:] = [item for item, name in names.items() if name not in out]
    return removed


def _play_fewer_examples(items: Sequence[pytest.Item]) -> None:
    tests = {getattr(item.obj, "__func__", item.obj) for item in items if isinstance(item, pytest.Function)}
    for test in tests:
        # There is no other way to change a test's settings from outside; Hypothesis' own plugin reads them so, too.
        # State machines, which have theirs elsewhere, are played whole.
        if is_hypothesis_test(test) and hasattr(test, "_hypothesis_internal_use_settings"):
            chosen: settings = test._hypothesis_internal_use_settings or settings()
            fewer = max(1, chosen.max_examples // EXAMPLES_SHARE)
            test._hypothesis_internal_use_settings = settings(chosen, max_examples=fewer)


def _drawn_as(item: pytest.Item) -> str:
    """What an item is drawn as: its file, or itself; empty when it is played by each run."""
    if item.get_closest_marker(LONG) is None:
        return ""
    module = item.getparent(pytest.Module)
    is_of_file = module is not None and any(mark.name == LONG for mark in module.own_markers)
    return item.path.as_posix() if is_of_file else item.nodeid

"""Alert rules and dashboards speak of metrics and labels that the code has; promtool plays the alerts."""

from __future__ import annotations

import json
import re
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from deploy.grafana.board import Board
from deploy.grafana.boards import BOARDS
from deploy.grafana.generate import generated
from services.metadata import metrics
from tests import prometheus
from tests.metric_catalogue import PROCESS_METRICS, ROOT, SCRAPE_LABELS, all_metrics

RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
RULE_TESTS = sorted((ROOT / "tests" / "contract").glob("alert_rules*.test.yml"))
PLAY_SECONDS = 600
DASHBOARDS = ROOT / "deploy" / "grafana"
ALERTS = ROOT / "docs" / "operations" / "alerts.md"
SERIES = {name: metric for metric in all_metrics().values() for name in metric.series}
COLUMNS = 24

_SELECTOR = re.compile(r"\b((?:deepclean|process|node)_\w+|up)\b(?:\{([^}]*)\})?")
_RECORDED = re.compile(r"\bdeepclean(?::\w+)+")


def _expressions() -> list[str]:
    text = RULES.read_text("utf-8")
    rules = re.findall(r"^ +expr: (?:>\n((?: {10,}.+\n)+)|(.+)\n)", text, re.MULTILINE)
    return [folded or line for folded, line in rules] + [
        expression for board in BOARDS for row in board.rows for panel in row.panels for expression, _ in panel.targets
    ]


def _panels(board: Board) -> list[dict[str, Any]]:
    panels: list[dict[str, Any]] = json.loads((DASHBOARDS / f"{board.uid}.json").read_text("utf-8"))["panels"]
    return panels


def test_the_dashboards_are_what_is_generated() -> None:
    for board in BOARDS:
        assert (DASHBOARDS / f"{board.uid}.json").read_text("utf-8") == generated(board), "run make reference"
    assert {path.stem for path in DASHBOARDS.glob("*.json")} == {board.uid for board in BOARDS}


def test_there_are_as_many_expressions_as_rules_and_targets() -> None:
    targets = sum(len(panel.get("targets", ())) for board in BOARDS for panel in _panels(board))
    rules = re.findall(r"- (?:alert|record):", RULES.read_text("utf-8"))
    assert len(_expressions()) == len(rules) + targets


def test_what_is_recorded_is_used_and_what_is_used_is_recorded() -> None:
    recorded = re.findall(r"- record: (\S+)", RULES.read_text("utf-8"))
    assert len(recorded) == len(set(recorded))
    assert {name for expression in _expressions() for name in _RECORDED.findall(expression)} == set(recorded)


@pytest.mark.parametrize("expression", _expressions())
def test_metrics_and_labels_exist(expression: str) -> None:
    used = _SELECTOR.findall(expression)
    assert used or _RECORDED.findall(expression)
    known_labels = set(SCRAPE_LABELS)
    for name, matchers in used:
        assert name in SERIES or name in PROCESS_METRICS, f"no process serves {name}"
        labels = {*SERIES[name].labels, *SCRAPE_LABELS} if name in SERIES else SCRAPE_LABELS
        assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= labels
        known_labels |= labels
    grouped = re.findall(r"\b(?:by|on) \(([^)]*)\)", expression)
    assert {label.strip() for labels in grouped for label in labels.split(",")} <= known_labels


@pytest.mark.parametrize("expression", _expressions())
def test_counters_are_looked_at_as_counters(expression: str) -> None:
    """A counter's rate is taken, or its highest value: a bare one is cleared by a restart, and the alert with it."""
    for name, _ in _SELECTOR.findall(expression):
        metric = SERIES.get(name)
        if metric is None or not name.endswith(("_total", "_bucket", "_count")):
            continue
        assert re.search(rf"(?:rate|increase|max_over_time)\({name}", expression), name


@pytest.mark.parametrize("expression", _expressions())
def test_what_was_so_all_the_time_was_there_all_the_time(expression: str) -> None:
    """The lowest of one sample is that sample: a process that has just begun would page."""
    for metric, span in re.findall(r"min_over_time\(([\w:]+)\[(\w+)\]\) >", expression):
        assert re.search(rf"{metric}(\[{span}\])? offset {span}", expression), metric


def test_every_alert_is_played() -> None:
    alerts = set(re.findall(r"- alert: (\w+)", RULES.read_text("utf-8")))
    played = set(re.findall(r"\bDeepclean\w+", "".join(played.read_text("utf-8") for played in RULE_TESTS)))
    assert alerts <= played, "each one in its bad case and in its good one"


def test_the_objective_is_a_bound_of_the_histogram() -> None:
    bounds = {str(bound) for bound in metrics.FREED_SECONDS}
    used = re.findall(r'freed_seconds_bucket\{le="([^"]+)"\}', RULES.read_text("utf-8"))
    assert used
    assert set(used) <= bounds


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_panels_say_what_they_show_and_do_not_overlap(board: Board) -> None:
    panels = _panels(board)
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel.get("description") for panel in panels if panel["type"] != "row")
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= COLUMNS for place in places)
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or apart, (one, other)


def test_every_alert_says_what_to_do() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text("utf-8"))
    sections = re.findall(r"^## (Deepclean\w+)\n(.*?)(?=^## |\Z)", ALERTS.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert sorted(name for name, _ in sections) == sorted(alerts)
    for name, text in sections:
        assert f"<!-- generated: {name} -->" in text
        assert re.findall(r"^\*\*(.+)\.\*\* \S", text, re.MULTILINE) == ["Meaning", "First look", "Action"], name


def _promtool(*arguments: str) -> None:
    program = prometheus.program("promtool")
    run = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=PLAY_SECONDS, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_promtool_accepts_the_rules() -> None:
    _promtool("check", "rules", str(RULES))


@pytest.mark.long
@pytest.mark.timeout(PLAY_SECONDS + 60)
@pytest.mark.parametrize("file", RULE_TESTS, ids=lambda file: file.name)
def test_promtool_plays_the_rules(file: Path) -> None:
    _promtool("test", "rules", str(file))

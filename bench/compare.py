"""Two reports of ``python -m bench`` side by side.

Machines are shared and differ: where both reports have a ceiling of their own run, what counts is how the ratios to it
have changed, and only otherwise how the values have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figures import number_text
from services.domain.errors import DeepcleanError

NOISE = 1.05
"""A factor within which nothing is said, where a report does not know its own noise: machines are shared."""
COLUMNS = ("what", "unit", "before", "after", "value", "ratio", "")


class ReportError(DeepcleanError):
    """A file is no report of ``python -m bench``."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row that both reports have."""

    name: str
    unit: str
    before: float
    after: float
    ratio_before: float | None
    ratio_after: float | None
    is_less_better: bool
    noise: float = NOISE
    """A factor by which runs of the same commit differ."""

    @property
    def value_change(self) -> float | None:
        """After by before; None when nothing was before."""
        return self.after / self.before if self.before else None

    @property
    def ratio_change(self) -> float | None:
        """The ratio to the ceiling after by that before; None without both."""
        if not self.ratio_before or self.ratio_after is None:
            return None
        return self.ratio_after / self.ratio_before

    @property
    def gain(self) -> float | None:
        """How many times as good: above 1 is better, whatever the figure measures."""
        change = self.value_change if self.ratio_change is None else self.ratio_change
        return 1 / change if change and self.is_less_better else change

    @property
    def verdict(self) -> str:
        """Better or worse, by more than noise; else empty."""
        if self.gain is None or 1 / self.noise <= self.gain <= self.noise:
            return ""
        return "better" if self.gain > 1 else "worse"


def measured(figure: Mapping[str, Any]) -> float:
    """What counts of a row: its ratio to its ceiling if it has one, else its value."""
    return float(figure["value"] if figure["ratio"] is None else figure["ratio"])


def read_report(file: Path) -> Mapping[str, Any]:
    """A report that ``python -m bench --json`` has written.

    Raises:
        ReportError: it cannot be read, or is something else.
    """
    try:
        report = json.loads(file.read_text("utf-8"))
        {figure["name"]: (figure["value"], figure["unit"], figure["ratio"]) for figure in report["figures"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReportError(
            f"{file} is no report, name a file that python -m bench --json has written ({error})"
        ) from error
    found: Mapping[str, Any] = report
    return found


def compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Comparison]:
    """The rows that both reports have, in the order of the second."""
    earlier = {figure["name"]: figure for figure in before["figures"]}
    return [
        Comparison(
            figure["name"],
            figure["unit"],
            earlier[figure["name"]]["value"],
            figure["value"],
            earlier[figure["name"]]["ratio"],
            figure["ratio"],
            _is_less_better(figure),
            max(NOISE, earlier[figure["name"]].get("noise", NOISE), figure.get("noise", NOISE)),
        )
        for figure in after["figures"]
        if figure["name"] in earlier and figure["unit"] == earlier[figure["name"]]["unit"]
    ]


def _is_less_better(figure: Mapping[str, Any]) -> bool:
    """A target says it; without one, what is not a rate is a cost."""
    target = figure.get("target")
    return bool(target["is_upper"]) if target else "/s" not in figure["unit"]


def unmatched(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Names of rows that only one report has."""
    return sorted({one["name"] for one in before["figures"]} ^ {one["name"] for one in after["figures"]})


def table_rows(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """The comparisons as cells for people, under ``COLUMNS``: changes as factors."""
    return [
        (
            one.name,
            one.unit,
            number_text(one.before),
            number_text(one.after),
            _factor(one.value_change),
            _factor(one.ratio_change),
            one.verdict,
        )
        for one in comparisons
    ]


def _factor(change: float | None) -> str:
    return "" if change is None else f"× {change:.2f}"

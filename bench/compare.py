"""Two reports of ``python -m bench`` side by side.

Machines are shared and differ. Therefore rows are compared by their ratios to the ceilings of their own runs, and by
their values only if a report has no ceiling for the row.
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
"""Changes within this factor get no verdict, if a report does not contain its own noise: machines are shared."""
COLUMNS = ("what", "unit", "before", "after", "value", "ratio", "")


class ReportError(DeepcleanError):
    """A file is not a report of ``python -m bench``."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A row that both reports have."""

    name: str
    unit: str
    before: float
    after: float
    ratio_before: float | None
    ratio_after: float | None
    is_less_better: bool
    noise: float = NOISE
    """The factor by which runs of the same commit differ."""

    @property
    def value_change(self) -> float | None:
        """Return the value after divided by that before; None if the value before is 0."""
        return self.after / self.before if self.before else None

    @property
    def ratio_change(self) -> float | None:
        """Return the ratio to the ceiling after divided by that before; None without both ratios."""
        if not self.ratio_before or self.ratio_after is None:
            return None
        return self.ratio_after / self.ratio_before

    @property
    def gain(self) -> float | None:
        """Return the factor of the improvement: above 1 is better, for rates and for costs."""
        change = self.value_change if self.ratio_change is None else self.ratio_change
        return 1 / change if change and self.is_less_better else change

    @property
    def verdict(self) -> str:
        """Return whether the row is better or worse by more than noise; else empty."""
        if self.gain is None or 1 / self.noise <= self.gain <= self.noise:
            return ""
        return "better" if self.gain > 1 else "worse"


def measured(figure: Mapping[str, Any]) -> float:
    """Return a row's ratio to its ceiling if it has one, else its value."""
    return float(figure["value"] if figure["ratio"] is None else figure["ratio"])


def read_report(file: Path) -> Mapping[str, Any]:
    """Return a report that ``python -m bench --json`` has written.

    Raises:
        ReportError: the file cannot be read or is not a report.
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
    """Return the rows that both reports have, in the order of the second report."""
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
    """Return the direction of the target; without a target, whether the figure is a cost, not a rate."""
    target = figure.get("target")
    return bool(target["is_upper"]) if target else "/s" not in figure["unit"]


def unmatched(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the names of rows that only one report has."""
    return sorted({one["name"] for one in before["figures"]} ^ {one["name"] for one in after["figures"]})


def table_rows(comparisons: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """Return the comparisons as cells of a table with the headings ``COLUMNS``; changes are factors."""
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

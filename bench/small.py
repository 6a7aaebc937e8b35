"""The bench in about a minute: few rows with small sizes, for a gate that reports changes and fails for no figure.

Its figures are comparable only with one another: starts and first batches dominate small sizes, and machines differ.
Therefore compare the ratios to the ceilings of the same run, and the spread of these ratios over several runs of one
commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from statistics import median_low
from typing import Any

from bench.compare import ReportError, measured
from bench.sizes import Sizes

NAMES = ("ceilings", "metadata-commands", "verdicts", "diff")
SECONDS = 1.0
SIZES = Sizes(few_keys=1_000, many_keys=20_000, most_keys=20_000)
"""Rows of the whole plane are left out: its start takes as long as all of these rows together."""


def merged(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge several runs of one commit into one report: for each row the median run and the spread of the runs.

    Raises:
        ReportError: there are fewer than two reports, or they are of different commits.
    """
    if len(reports) < 2:
        raise ReportError("two runs or more are wanted: by how much they differ is what noise is")
    commits = {report.get("commit", "") for report in reports}
    if len(commits) > 1:
        raise ReportError(
            f"these are runs of different commits ({', '.join(sorted(commits))}): measure one several times"
        )
    rows = {figure["name"]: figure for figure in reports[0]["figures"]}
    for report in reports[1:]:
        rows = {name: row for name, row in rows.items() if name in {figure["name"] for figure in report["figures"]}}
    figures = [_middle(name, reports) for name in rows]
    return {**reports[-1], "runs": len(reports), "figures": figures}


def _middle(name: str, reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ones = [figure for report in reports for figure in report["figures"] if figure["name"] == name]
    values = [measured(one) for one in ones]
    middle = ones[values.index(median_low(values))]
    noise = max(values) / min(values) if min(values) > 0 else 1.0
    return {**middle, "noise": ceil(noise * 1_000) / 1_000}

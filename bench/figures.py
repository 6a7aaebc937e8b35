"""The result of a measurement: a value, its target and a ceiling of the same run; as a table and as JSON."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ANSWER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Target:
    """A lower or upper bound of a figure's value, or of its ratio to the ceiling."""

    bound: float
    is_of_ratio: bool = False
    is_upper: bool = False

    def __str__(self) -> str:
        sign = "≤" if self.is_upper else "≥"
        return f"ratio {sign} {self.bound:g}" if self.is_of_ratio else f"{sign} {number_text(self.bound)}"


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The rate of a simpler program on the same machine in the same run."""

    value: float
    what: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the results."""

    name: str
    value: float
    unit: str
    target: Target | None = None
    ceiling: Ceiling | None = None
    details: Mapping[str, float] = field(default_factory=dict)
    """Further measured values, by names that end in their unit."""

    @property
    def ratio(self) -> float | None:
        """Return the value divided by the ceiling; None without a ceiling."""
        return self.value / self.ceiling.value if self.ceiling is not None and self.ceiling.value else None

    @property
    def is_met(self) -> bool | None:
        """Return whether the target is reached; None without a target."""
        measured = self.ratio if self.target is not None and self.target.is_of_ratio else self.value
        if self.target is None or measured is None:
            return None
        return measured <= self.target.bound if self.target.is_upper else measured >= self.target.bound

    def to_json(self) -> dict[str, Any]:
        """Return the figure with its ratio and whether the target is reached."""
        return {**asdict(self), "details": dict(self.details), "ratio": self.ratio, "is_met": self.is_met}


COLUMNS = ("what", "value", "unit", "target", "ceiling", "ratio", "")


def table_row(figure: Figure) -> tuple[str, ...]:
    """Return the figure as cells of a table with the headings ``COLUMNS``."""
    ceiling = f"{number_text(figure.ceiling.value)} ({figure.ceiling.what})" if figure.ceiling else ""
    verdict = {True: "met", False: "missed", None: ""}[figure.is_met]
    return (
        figure.name,
        number_text(figure.value),
        figure.unit,
        str(figure.target or ""),
        ceiling,
        "" if figure.ratio is None else f"{figure.ratio:.2f}",
        verdict,
    )


def details_text(figure: Figure) -> str:
    """Return the details of a figure on one line."""
    return ", ".join(f"{name} {number_text(value)}" for name, value in figure.details.items())


def number_text(value: float) -> str:
    """Return a number with three or four significant digits."""
    if abs(value) >= 1_000 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 100 else f"{value:.3g}"


def report(figures: Sequence[Figure], machine: Mapping[str, Any]) -> dict[str, Any]:
    """Return all figures of a run as an object for JSON."""
    return {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": dict(machine),
        "figures": [figure.to_json() for figure in figures],
    }


def machine_description() -> dict[str, Any]:
    """Return a description of the machine; call it before the measurements start, because it contains the load."""
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cpu": _first_line("/proc/cpuinfo", lambda line: line.startswith("model name")).partition(":")[2].strip(),
        "cpu_count": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_before": os.getloadavg()[0],
    }


def commit(directory: Path | None = None) -> str:
    """Return the checked-out commit of the working directory, with ``+`` if files differ; empty without git."""
    answers = []
    for arguments in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no")):
        try:
            run = subprocess.run(
                ["git", *arguments], cwd=directory, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True
            )
        except (OSError, subprocess.SubprocessError):
            return ""
        answers.append(run.stdout.strip())
    head, changes = answers
    return f"{head}+" if changes else head


def _first_line(path: str, is_wanted: Callable[[str], bool]) -> str:
    with suppress(OSError, StopIteration):
        return next(line for line in Path(path).read_text().splitlines() if is_wanted(line))
    return ""

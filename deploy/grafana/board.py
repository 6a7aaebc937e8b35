"""What a dashboard is: rows of panels, each with what it asks of Prometheus. ``generate`` makes JSON of it."""

from __future__ import annotations

from dataclasses import dataclass

RATE = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. ``unit`` is Grafana's name of it."""

    title: str
    description: str
    targets: tuple[tuple[str, str], ...]
    """Expressions of PromQL, each with the legend of its series."""
    unit: str = "short"
    red_from: float | None = None
    """One number, of now, red from this value on; None: series over time."""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    has_shards: bool = False
    """Whether the reader chooses shards, as ``$shard``."""


def must_be_zero(title: str, description: str, expression: str, legend: str) -> Panel:
    """Return a panel of one number, red from 1 on."""
    return Panel(title, description, ((expression, legend),), unit="none", red_from=1)


def rate(metric: str, by: str = "", where: str = "") -> str:
    """Return the rate of a counter, summed up by a label."""
    grouped = f" by ({by}) " if by else ""
    return f"sum{grouped}(rate({metric}{where}{RATE}))"


def half_and_most(histogram: str, where: str = "") -> tuple[tuple[str, str], ...]:
    """Return the series of a panel that shows how long half and nearly all of what a histogram observes take."""
    return (quantile(0.5, histogram, where=where), "half"), (quantile(0.99, histogram, where=where), "99 %")


def quantile(share: float, histogram: str, by: str = "", where: str = "") -> str:
    """Return a quantile of a histogram by a label, over the time between two points."""
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({share:g}, sum by ({labels}) (rate({histogram}_bucket{where}{RATE})))"

"""Make Grafana's JSON of the dashboards: ``python -m deploy.grafana.generate`` (part of ``make reference``)."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from grafana_foundation_sdk.builders import common, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as models
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    GridPos,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
)

from deploy.grafana.board import Board, Panel
from deploy.grafana.boards import BOARDS

FOLDER = Path(__file__).parent
COLUMNS = 24
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
STAT_HEIGHT, SERIES_HEIGHT, ROW_HEIGHT = 4, 8, 1
STAT_WIDTH, SERIES_WIDTH = 4, 8


def generated(board: Board) -> str:
    """Return the JSON of a dashboard, as Grafana imports it and provisions it from a file."""
    built = (
        builders.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags(["deepclean"])
        .timezone("utc")
        .refresh("30s")
        .time("now-6h", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(
            builders.DashboardLink("deepclean").type(DashboardLinkType.DASHBOARDS).tags(["deepclean"]).keep_time(True)
        )
        .with_variable(builders.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    if board.has_shards:
        shards = builders.QueryVariable("shard").label("Shard").datasource(SOURCE).multi(True).include_all(True)
        shards.query("label_values(deepclean_last_step_timestamp_seconds, shard)").all_value(".*")
        built.with_variable(shards.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED))
    ids, y = count(1), 0
    for row in board.rows:
        built.with_row(builders.Row(row.title).id(next(ids)).grid_pos(GridPos(h=ROW_HEIGHT, w=COLUMNS, x=0, y=y)))
        y += ROW_HEIGHT
        x = 0
        for panel in row.panels:
            width, height = _size(panel)
            if x + width > COLUMNS:
                x, y = 0, y + height
            built.with_panel(_built(panel).id(next(ids)).grid_pos(GridPos(h=height, w=width, x=x, y=y)))
            x += width
        y += _size(row.panels[-1])[1]
    return JSONEncoder(sort_keys=True, indent=2).encode(built.build()) + "\n"


def _size(panel: Panel) -> tuple[int, int]:
    return (SERIES_WIDTH, SERIES_HEIGHT) if panel.red_from is None else (STAT_WIDTH, STAT_HEIGHT)


def _built(panel: Panel) -> timeseries.Panel | stat.Panel:
    if panel.red_from is None:
        made: timeseries.Panel | stat.Panel = (
            timeseries.Panel()
            .legend(
                common.VizLegendOptions()
                .display_mode(models.LegendDisplayMode.LIST)
                .placement(models.LegendPlacement.BOTTOM)
                .show_legend(True)
            )
            .tooltip(common.VizTooltipOptions().mode(models.TooltipDisplayMode.MULTI).sort(models.SortOrder.DESCENDING))
        )
    else:
        steps = [Threshold(color="green", value=None), Threshold(color="red", value=panel.red_from)]
        made = (
            stat.Panel()
            .color_mode(models.BigValueColorMode.BACKGROUND)
            .graph_mode(models.BigValueGraphMode.NONE)
            .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
            .thresholds(builders.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
        )
    made.title(panel.title).description(panel.description).unit(panel.unit).datasource(SOURCE)
    for letter, (expression, legend) in zip("ABCDEFGH", panel.targets, strict=False):
        target = prometheus.Dataquery().ref_id(letter).expr(expression).legend_format(legend).datasource(SOURCE)
        # One number is that of now: the last one of a range would show what a process said before it died.
        made.with_target(target.range() if panel.red_from is None else target.instant())
    return made


def main() -> None:
    """Write the files."""
    for board in BOARDS:
        (FOLDER / f"{board.uid}.json").write_text(generated(board), "utf-8")


if __name__ == "__main__":
    main()

"""A board as the JSON that Grafana imports.

Must not know: which boards there are.
"""

from __future__ import annotations

import json

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    BigValueGraphMode,
    BigValueTextMode,
    LegendDisplayMode,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    VariableRefresh,
    VariableSort,
)

from chiasm_dashboards.board import Board, Panel

TAG = "chiasm"
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_HEIGHT = 8
_WIDTH = 8  # of 24: three beside each other
_EVERYTHING = ".*"
# Each is chosen among what the ones before it leave.
_CHOSEN = (
    ("namespace", "label_values(chiasm_sidecar_ready, namespace)"),
    ("resource", 'label_values(chiasm_sidecar_ready{namespace=~"$namespace"}, resource)'),
    (
        "pod",
        'label_values(chiasm_sidecar_ready{namespace=~"$namespace", resource=~"$resource"}, pod)',
    ),
)


def to_json(board: Board) -> str:
    """The file's text."""
    built = (
        builders.Dashboard(board.title)
        .uid(f"chiasm-{board.name.replace('_', '-')}")
        .description(board.about)
        .tags([TAG])
        .time("now-1h", "now")
        .refresh("30s")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(_to_the_others())
        .with_variable(builders.DatasourceVariable("datasource").type("prometheus"))
    )
    for name, query in _CHOSEN:
        built = built.with_variable(_variable(name, query))
    for row in board.rows:
        built = built.with_row(builders.Row(row.title))
        for panel in row.panels:
            built = built.with_panel(_panel(panel))
    whole = built.build()
    for number, made in enumerate(whole.panels or [], 1):
        made.id_val = number
    return json.dumps(whole, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _to_the_others() -> builders.DashboardLink:
    return (
        builders.DashboardLink("Chiasm")
        .type(DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )


def _variable(name: str, query: str) -> builders.QueryVariable:
    return (
        builders.QueryVariable(name)
        .datasource(_SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(_EVERYTHING)
    )


def _panel(panel: Panel) -> stat.Panel | timeseries.Panel:
    made = _words() if panel.kind == "number" else _lines(panel)
    made = (
        made.title(panel.title)
        .description(panel.about)
        .datasource(_SOURCE)
        .unit(panel.unit)
        .height(_HEIGHT)
        .span(_WIDTH)
    )
    for index, query in enumerate(panel.queries):
        target = (
            prometheus.Dataquery()
            .expr(query.expr)
            .legend_format(query.legend or "__auto")
            .ref_id(chr(ord("A") + index))
            .exemplar(panel.exemplars)
        )
        target = target.instant() if panel.kind == "number" else target.range()
        made = made.with_target(target)
    return made


def _words() -> stat.Panel:
    """What is always 1: its name says all, and only what it is now."""
    last = common_builders.ReduceDataOptions().calcs(["lastNotNull"])
    made = stat.Panel().reduce_options(last)
    return made.text_mode(BigValueTextMode.NAME).graph_mode(BigValueGraphMode.NONE)


def _lines(panel: Panel) -> timeseries.Panel:
    tooltip = (
        common_builders.VizTooltipOptions()
        .mode(TooltipDisplayMode.MULTI)
        .sort(SortOrder.DESCENDING)
    )
    legend = common_builders.VizLegendOptions().display_mode(LegendDisplayMode.LIST)
    made = timeseries.Panel().min(panel.lowest).line_width(1)
    made = made.tooltip(tooltip).legend(legend.show_legend(True))
    if panel.kind == "stacked":
        normal = common_builders.StackingConfig().mode(StackingMode.NORMAL)
        made = made.stacking(normal).fill_opacity(30)
    return made

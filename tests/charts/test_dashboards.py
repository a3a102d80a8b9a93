"""Dashboards: of metrics that exist, and of each that exists; the files are what the code says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chiasm_contract.metric_specs import METRIC_SPECS
from chiasm_dashboards.board import Board, Panel, filled_in
from chiasm_dashboards.boards import BOARDS
from chiasm_dashboards.grafana import to_json

from tests.charts.test_alerts import OF_SCRAPES, RECORDED, SPECS, misread, names_in

FOLDER = Path(__file__).resolve().parents[2] / "charts" / "chiasm" / "dashboards"
PANELS = [(board, panel) for board in BOARDS for panel in board.panels()]
VARIABLES = dict.fromkeys(("namespace", "resource", "pod"), ".*") | {"__rate_interval": "1m"}
every_panel = pytest.mark.parametrize(
    ("board", "panel"), PANELS, ids=[f"{b.name}: {p.title}" for b, p in PANELS]
)


@every_panel
def test_a_panel_asks_for_metrics_and_labels_that_there_are(board: Board, panel: Panel) -> None:
    assert board.title
    assert panel.queries
    for query in panel.queries:
        asked = names_in(query.expr)
        assert asked
        assert asked <= set(SPECS) | RECORDED
        known = OF_SCRAPES.union({"le"}, *(SPECS[name].labels for name in asked - RECORDED))
        known |= {"modality"} if asked & RECORDED else set()
        assert misread(query.expr) == set()
        used = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
        for labels in re.findall(r"\b(?:on|by) \(([^)]*)\)", query.expr):
            used |= {name.strip() for name in labels.split(",") if name.strip()}
        used |= set(re.findall(r"[{,]\s*(\w+)\s*[=!]~?\"", query.expr))
        assert used <= known, query
        assert "$" not in filled_in(query.expr, VARIABLES).replace("${1}", "")


@every_panel
def test_a_panel_says_what_it_shows(board: Board, panel: Panel) -> None:
    assert panel.about.endswith(".")
    assert panel.unit
    legends = [query.legend for query in panel.queries]
    assert all(legends)
    assert len(set(legends)) == len(legends) or board.name == "engine"


def test_every_metric_is_on_a_panel() -> None:
    """A figure that nobody sees is of no use; histograms count once."""
    asked = {
        name for _, panel in PANELS for query in panel.queries for name in names_in(query.expr)
    }
    unseen = {spec.name for spec in METRIC_SPECS if not asked & set(spec.sample_names)}
    assert unseen <= {
        # in others, by modality or as a share
        "vllm:time_to_first_token_seconds",
        "vllm:inter_token_latency_seconds",
        # not shown: sizes of files of which there are few
        "chiasm_sidecar_video_bytes",
        "chiasm_sidecar_audio_bytes",
    }


def test_boards_are_the_files_of_the_chart() -> None:
    assert {path.name for path in FOLDER.glob("*")} == {f"{board.name}.json" for board in BOARDS}
    for board in BOARDS:
        assert (FOLDER / f"{board.name}.json").read_text() == to_json(board), board.name


def targets(panels: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for panel in panels:
        yield from panel.get("targets", ())
        yield from targets(panel.get("panels", []))


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_grafana_is_told_all_of_it(board: Board) -> None:
    written = json.loads(to_json(board))
    queries = [query for panel in board.panels() for query in panel.queries]
    assert [t["expr"] for t in targets(written["panels"])] == [q.expr for q in queries]
    names = [variable["name"] for variable in written["templating"]["list"]]
    assert names == ["datasource", "namespace", "resource", "pod"]
    ids = [panel["id"] for panel in written["panels"]]
    assert len(set(ids)) == len(ids)
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in written["panels"]]
    assert len(set(places)) == len(places)
    for panel in written["panels"]:
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
    assert written["uid"].startswith("chiasm-")


def test_an_unknown_variable_is_no_silent_hole() -> None:
    with pytest.raises(KeyError, match="cluster"):
        filled_in('up{cluster="$cluster"}', VARIABLES)


def drawn(board: Board) -> dict[str, Any]:
    return {each["title"]: each for each in json.loads(to_json(board))["panels"]}


def test_what_may_be_below_0_is_not_cut_off_there() -> None:
    """A condition that is unknown is -1."""
    (rollout,) = (board for board in BOARDS if board.name == "rollout")
    panels = drawn(rollout)
    assert panels["Conditions"]["fieldConfig"]["defaults"]["min"] == -1
    assert panels["Pods"]["fieldConfig"]["defaults"]["min"] == 0


def test_what_is_always_1_shows_its_words() -> None:
    """Of a single pod Grafana shows the number alone; and what is over is not so any more."""
    names = [
        panel for board in BOARDS for panel in drawn(board).values() if panel["type"] == "stat"
    ]
    assert names
    for panel in names:
        assert panel["options"]["textMode"] == "name"
        assert panel["options"]["graphMode"] == "none"
        assert all(target["instant"] and not target["range"] for target in panel["targets"])


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_a_board_leads_to_the_others_with_what_was_chosen(board: Board) -> None:
    (link,) = json.loads(to_json(board))["links"]
    assert (link["type"], link["tags"]) == ("dashboards", ["chiasm"])
    assert link["includeVars"]
    assert link["keepTime"]

"""Every panel and every alert against a real Prometheus that scraped a loaded cluster.

On a local cluster of its own: the installed chart and a resource of the demo model with memory,
disk and Valkey as tiers, whose secrets come from a real OpenBao; then a canary of it, to which a
part of the conversations goes and which is compared with it. Clients ask about the demo's pictures.
Prometheus finds operator and pods through the API server as the chart's PodMonitors say, with the
chart's rules loaded. Then

    panels                   of all dashboards
    panels_without_data      of which a query gave nothing, with their names
    alerts                   whose expression Prometheus takes
    alerts_tested_both_ways  by promtool: firing at one time, silent at another
    pods                     that it scraped, all of them without a fault

and each dashboard's data is drawn to docs/dashboards.

Needs Prometheus, which is built from its Go module the first time (11 minutes of one core).
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from chiasm_cluster.build.prometheus import PROGRAM, PROMTOOL
from chiasm_cluster.settings import Settings
from chiasm_contract import names
from chiasm_dashboards.board import Board, Query, filled_in
from chiasm_dashboards.boards import BOARDS
from chiasm_tour import tour
from chiasm_tour.clusters import LocalCluster
from reporting import publish
from rotating import site
from watched import cluster, promtool
from watched.discovery import documented, scrape_configs
from watched.drawing import draw
from watched.load import Load
from watched.prometheus import Prometheus, Series

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "dashboards"
PAGE = ROOT / "docs" / "observability.md"
INTERVAL = "1s"
PATIENCE_SECONDS = 60
RATE = "20s"
VARIABLES = {"namespace": ".*", "resource": ".*", "pod": ".*", "__rate_interval": RATE}


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def without_data(prometheus: Prometheus, board: Board) -> list[str]:
    """Panels of which a query gives no number."""
    found = []
    for panel in board.panels():
        exprs = [filled_in(query.expr, VARIABLES) for query in panel.queries]
        empty = [expr for expr in exprs if not prometheus.query(expr)]
        if empty:
            found.append(f"{board.name}: {panel.title}")
            print(f"without data: {found[-1]}: {empty}", flush=True)
    return found


def accepted(prometheus: Prometheus) -> list[str]:
    """Alerts whose expression is evaluated, and so are those that Prometheus loaded itself."""
    known = []
    for name, rule in promtool.alerts().items():
        prometheus.query(rule["expr"])  # raises with Prometheus' words
        known.append(name)
    groups = prometheus.get("rules")["groups"]
    ill = [r for g in groups for r in g["rules"] if r["health"] not in ("ok", "unknown")]
    if ill:
        raise SystemExit(
            f"Prometheus cannot evaluate: {[(r['name'], r['lastError']) for r in ill]}"
        )
    return known


def tested(tool: Path) -> list[str]:
    """Alerts that promtool saw firing and silent, as their tests expect."""
    tests = sorted(promtool.TESTS.glob("*.yaml"))
    with tempfile.TemporaryDirectory() as folder:
        wrong = {
            name: words
            for name, words in promtool.run_tests(tool, tests, Path(folder)).items()
            if words
        }
    if wrong:
        raise SystemExit(f"promtool: {wrong}")
    return sorted(promtool.tested_both_ways(tests) & set(promtool.alerts()))


@dataclass(frozen=True)
class Site:
    """A cluster, and the folders in which Prometheus keeps its data and is itself."""

    stand: site.Stand
    folder: Path
    programs: Path

    @contextlib.contextmanager
    def scraping(self, name: str, configs: Sequence[Mapping[str, Any]]) -> Iterator[Prometheus]:
        """A Prometheus with the chart's rules."""
        rules = sorted(promtool.RULES.glob("*.yaml"))
        prometheus = Prometheus(
            self.programs / PROGRAM.name, self.folder / name, free_port(), configs, rules, INTERVAL
        )
        with prometheus.running():
            yield prometheus

    def monitored(self) -> list[dict[str, Any]]:
        """How the chart's PodMonitors have pods found."""
        kubeconfig = self.stand.cluster.kubeconfig()
        monitors = cluster.monitors(self.stand, INTERVAL)
        return [job for monitor in monitors for job in scrape_configs(monitor, kubeconfig)]

    def documented(self) -> list[dict[str, Any]]:
        """How a page of the docs has them found."""
        return documented(PAGE.read_text(), self.stand.cluster.kubeconfig())


def scraped(prometheus: Prometheus, num_pods: int) -> list[str]:
    """What Prometheus found, once it is as much as it should be, without a fault."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        found, down = prometheus.targets(), prometheus.targets_down()
        if len(found) == num_pods and not down:
            return found
        if time.monotonic() > until:
            raise SystemExit(
                f"Prometheus should find {num_pods} pods; it scrapes {found}, in vain: {down}"
            )
        time.sleep(1)


def measure(where: Site, seconds: float, pictures: Path | None) -> dict[str, Any]:
    """Load the cluster, begin a canary, look."""
    stand = where.stand
    with contextlib.ExitStack() as stack:
        cluster.serve(stand)
        prometheus = stack.enter_context(where.scraping("monitored", where.monitored()))
        url = stack.enter_context(stand.cluster.endpoint(tour.NAMESPACE, site.NAME, names.API_PORT))
        load = Load(url, site.NAME, stand.key)
        began = time.time()
        with load.running():
            cluster.begin_canary(stand)
            time.sleep(seconds)
            ended = time.time()
            empty = [name for board in BOARDS for name in without_data(prometheus, board)]
            known = accepted(prometheus)
            targets = scraped(prometheus, cluster.num_pods(stand))
        with where.scraping("documented", where.documented()) as other:
            scraped(other, len(targets))

        def ask(query: Query) -> list[Series]:
            expr = filled_in(query.expr, VARIABLES)
            return prometheus.query_range(expr, began, ended, 2)

        if pictures is not None:
            for board in BOARDS:
                draw(board, ask, pictures / f"{board.name}.png")
        return {
            "panels": sum(len(list(board.panels())) for board in BOARDS),
            "panels_without_data": len(empty),
            "empty_panels": empty,
            "queries": sum(len(p.queries) for board in BOARDS for p in board.panels()),
            "alerts": len(known),
            "pods": len(targets),
            "series": int(prometheus.query('count({job!=""})')[0].points[0][1]),
            "requests": dict(sorted(load.statuses.items())),
            "prometheus": PROGRAM.version,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="Ask a real Prometheus every panel and alert.")
    parser.add_argument("--seconds", type=float, default=90, help="of load")
    parser.add_argument("--name", default="chiasm-dashboards", help="of the cluster")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    parser.add_argument("--no-pictures", action="store_true", help="leave docs/dashboards alone")
    arguments = parser.parse_args()
    say = partial(print, flush=True)
    programs = PROGRAM.ensure(Settings().cache_dir, say).parent
    both_ways = tested(programs / PROMTOOL)
    local = LocalCluster(arguments.name)
    try:
        stand = site.bring_up(arguments.name)
        with tempfile.TemporaryDirectory(prefix="dashboards-") as folder:
            pictures = None if arguments.no_pictures else PICTURES
            figures = measure(Site(stand, Path(folder), programs), arguments.seconds, pictures)
    finally:
        if not arguments.keep:
            local.down()
    publish("dashboards", {**figures, "alerts_tested_both_ways": len(both_ways)})


if __name__ == "__main__":
    main()

"""Every panel and every alert against a real Prometheus that scraped pods under load.

Two revisions of the demo model, each a worker and a sidecar with memory, disk and Valkey as tiers,
secrets from a real OpenBao, conversations divided between them; beside them an operator's port with
a resource in a roll-out. Clients ask about the demo's pictures, and Prometheus scrapes them all
with the chart's rules loaded. Then

    panels                   of all dashboards
    panels_without_data      of which a query gave nothing, with their names
    alerts                   whose expression Prometheus takes
    alerts_tested_both_ways  by promtool: firing at one time, silent at another

and each dashboard's data is drawn to docs/dashboards.

Needs Prometheus, which is built from its Go module the first time (6 minutes on 2 cores).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from chiasm_cluster.build.prometheus import PROGRAM, PROMTOOL
from chiasm_cluster.settings import Settings
from chiasm_dashboards.board import Board, Query, filled_in
from chiasm_dashboards.boards import BOARDS
from reporting import publish
from watched import fleet, operator, promtool
from watched.drawing import draw
from watched.load import Load
from watched.prometheus import Prometheus, Series

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "dashboards"
SHARE_PERCENT = "25"
# Of the plan's whole, which is 10,000.
SHARE = 2500
RATE = "20s"
VARIABLES = {"namespace": ".*", "resource": ".*", "pod": ".*", "__rate_interval": RATE}


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextlib.contextmanager
def secrets(folder: Path) -> Iterator[fleet.Secrets]:
    """A real OpenBao that lends users of a real Valkey; the tests' own."""
    sys.path.insert(0, str(ROOT))
    baos: Any = importlib.import_module("tests.sidecar.configuration.baos")
    valkeys: Any = importlib.import_module("tests.sidecar.kv.valkeys")
    token = folder / "account-token"
    token.write_text(baos.ACCOUNT_TOKEN)
    with valkeys.new_server() as valkey, baos.new_bao() as bao:
        bao.lends(valkey.port, ttl="60s", longest="600s")
        bao.put(greeting="one")
        yield fleet.Secrets(bao.address, token, valkey.port)


def pods(folder: Path, found: fleet.Secrets) -> tuple[fleet.Pod, fleet.Pod]:
    """One of each revision, which follow one plan."""
    plan = folder / "traffic.json"
    made = tuple(
        fleet.Pod(name, revision, folder / name, (free_port(), free_port()), plan, found)
        for name, revision in (("reader-stable", fleet.STABLE), ("reader-canary", fleet.CANARY))
    )
    stable, canary = made
    fleet.write_plan(plan, stable, canary, SHARE)
    return stable, canary


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
    names = []
    for name, rule in promtool.alerts().items():
        prometheus.query(rule["expr"])  # raises with Prometheus' words
        names.append(name)
    groups = prometheus.get("rules")["groups"]
    ill = [r for g in groups for r in g["rules"] if r["health"] not in ("ok", "unknown")]
    if ill:
        raise SystemExit(
            f"Prometheus cannot evaluate: {[(r['name'], r['lastError']) for r in ill]}"
        )
    return names


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


def measure(folder: Path, programs: Path, seconds: float, pictures: Path | None) -> dict[str, Any]:
    """Bring everything up, load it, look."""
    with contextlib.ExitStack() as stack:
        both = pods(folder, stack.enter_context(secrets(folder)))
        port = free_port()
        stack.enter_context(operator.running(port, operator.resource(SHARE_PERCENT)))
        stack.enter_context(fleet.running(*both))
        targets = {pod.metrics: pod.labels for pod in both}
        targets[f"127.0.0.1:{port}"] = {"namespace": "chiasm-system", "pod": "chiasm-operator"}
        rules = sorted(promtool.RULES.glob("*.yaml"))
        prometheus = Prometheus(
            programs / PROGRAM.name, folder / "prometheus", free_port(), targets, rules
        )
        stack.enter_context(prometheus.running())
        load = Load(both[0].url)
        began = time.time()
        with load.running():
            time.sleep(seconds)
            ended = time.time()
            empty = [name for board in BOARDS for name in without_data(prometheus, board)]
            down = prometheus.targets_down()
            names = accepted(prometheus)
        if down:
            raise SystemExit(f"Prometheus could not scrape: {down}")

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
            "alerts": len(names),
            "series": int(prometheus.query('count({job="chiasm"})')[0].points[0][1]),
            "requests": dict(sorted(load.statuses.items())),
            "prometheus": PROGRAM.version,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="Ask a real Prometheus every panel and alert.")
    parser.add_argument("--seconds", type=float, default=90, help="of load")
    parser.add_argument("--no-pictures", action="store_true", help="leave docs/dashboards alone")
    arguments = parser.parse_args()
    say = partial(print, flush=True)
    programs = PROGRAM.ensure(Settings().cache_dir, say).parent
    both_ways = tested(programs / PROMTOOL)
    with tempfile.TemporaryDirectory(prefix="dashboards-") as folder:
        pictures = None if arguments.no_pictures else PICTURES
        figures = measure(Path(folder), programs, arguments.seconds, pictures)
    publish("dashboards", {**figures, "alerts_tested_both_ways": len(both_ways)})


if __name__ == "__main__":
    main()

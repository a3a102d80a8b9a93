"""The operator killed: at random, at every transition of every rollout, and between any two writes.

On a real Kubernetes: test_chaos.py (ten resources come, change and go while the operator is killed
at random moments) and test_rollout.py (rollouts of every kind, killed whenever the state has become
another). In a made-up cluster: every_kill.py, which kills before each single write of each pass
that ended in another state. Reported: `transitions` at which it was killed on the real cluster,
`divergent_end_states` and `orphans` over all of it, and what each part counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from reporting import publish

ROOT = Path(__file__).resolve().parent.parent
TESTS = (
    "tests/operator/cluster/test_chaos.py",
    "tests/operator/cluster/test_rollout.py::test_killed_at_every_transition_the_end_is_the_same",
)
EVERY_KILL = ROOT / "tests" / "operator" / "rollout" / "made_up" / "every_kill.py"


def on_a_cluster() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-q", f"--junitxml={report}", "-o", "junit_family=xunit1"]
        options += ["-m", "cluster or kills"]
        command = [sys.executable, "-m", "pytest", *TESTS, *options]
        subprocess.run(command, cwd=ROOT, check=False)
        if not report.exists():
            return {}
        return {
            item.attrib["name"]: float(item.attrib["value"])
            for item in ElementTree.parse(report).iter("property")
        }


def made_up() -> dict[str, int]:
    ran = subprocess.run(
        [sys.executable, str(EVERY_KILL)], cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True
    )
    if ran.returncode != 0:
        raise SystemExit("operator_chaos: the made-up cluster was not measured; see above")
    counted: dict[str, int] = json.loads(ran.stdout.splitlines()[-1])
    return counted


def main() -> None:
    simulated = made_up()
    counted = on_a_cluster()
    if not {"differences", "transitions"} <= counted.keys():
        raise SystemExit("operator_chaos: nothing was measured; pytest's words are above")
    divergent = counted["divergent_end_states"] + simulated["simulated_divergent_end_states"]
    orphans = counted["orphans"] + counted.pop("rollout_orphans")
    figures: dict[str, Any] = {
        name: int(value) if value.is_integer() and not name.endswith("seconds") else value
        for name, value in counted.items()
    }
    figures["divergent_end_states"] = int(divergent + (counted["differences"] > 0))
    figures["orphans"] = int(orphans + simulated["simulated_orphans"])
    publish("operator_chaos", {**figures, **simulated})


if __name__ == "__main__":
    main()

"""The operator killed at random while ten resources come, change and go, on a real Kubernetes.

Runs tests/operator/cluster/test_chaos.py, which tells the same story with a calm and with a killed
operator, and reports what it counted: `num_kills`, `num_resources`, `num_children`, `differences`
(of children and statuses between both end states), `orphans`, and how long the story took.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from reporting import publish

ROOT = Path(__file__).resolve().parent.parent
TEST = "tests/operator/cluster/test_chaos.py"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        options = ["-q", f"--junitxml={report}", "-o", "junit_family=xunit1"]
        command = [sys.executable, "-m", "pytest", TEST, *options]
        subprocess.run(command, cwd=ROOT, check=False)
        if not report.exists():
            raise SystemExit("operator_chaos: nothing was measured; pytest's words are above")
        counted = {
            item.attrib["name"]: float(item.attrib["value"])
            for item in ElementTree.parse(report).iter("property")
        }
    if not counted:
        raise SystemExit("operator_chaos: nothing was measured; pytest's words are above")
    figures: dict[str, Any] = {
        name: int(value) if value.is_integer() and not name.endswith("seconds") else value
        for name, value in counted.items()
    }
    publish("operator_chaos", figures)


if __name__ == "__main__":
    main()

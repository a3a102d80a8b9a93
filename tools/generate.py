"""`make generate`: write every derived file anew; `--check` says which ones are not current.

One list of outputs; each is a function of the sources alone. Golden files are the rendered
manifests that tests compare with: review their diff like code.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import alert_files  # noqa: E402 - tools is a folder of scripts, not a package
import api_files  # noqa: E402
import builtin_files  # noqa: E402
import chart_files  # noqa: E402
import chart_renders  # noqa: E402
import crd_files  # noqa: E402
import dashboard_files  # noqa: E402
import decay_files  # noqa: E402
import golden_files  # noqa: E402
import metrics_files  # noqa: E402
import settings_files  # noqa: E402
import vector_files  # noqa: E402
from chiasm_contract.builtin_models import builtin_models  # noqa: E402

OUTPUTS: list[Callable[[Path], dict[Path, str]]] = [
    builtin_files.outputs,  # first: the CRD and the golden files are made with it
    crd_files.outputs,
    chart_files.outputs,
    alert_files.outputs,  # before the chart's renders, which hold them
    dashboard_files.outputs,
    golden_files.outputs,
    chart_renders.outputs,
    metrics_files.outputs,
    decay_files.outputs,
    settings_files.outputs,
    api_files.outputs,
    vector_files.outputs,
]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write every derived file anew.")
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail when not current"
    )
    check = parser.parse_args().check
    stale = []
    for outputs in OUTPUTS:
        builtin_models.cache_clear()  # an earlier output may have written it anew
        for path, text in outputs(ROOT).items():
            before = path.read_text() if path.exists() else ""
            if before == text:
                continue
            name = str(path.relative_to(ROOT))
            stale.append(name)
            if check:
                diff = difflib.unified_diff(before.splitlines(), text.splitlines(), name, name, "")
                print("\n".join(list(diff)[:20]))
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
                print(f"generate: wrote {name}")
    if check and stale:
        raise SystemExit(f"generate: not current: {', '.join(stale)}; run make generate")
    if not stale:
        print("generate: everything is current")


if __name__ == "__main__":
    main()

"""What the tests of rendering look at in a target's children."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from chiasm_contract import names
from chiasm_operator import render
from chiasm_operator.render import Target
from chiasm_operator.resource import Manifest

ROOT = Path(__file__).resolve().parents[3]


def load_tool(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def child(target: Target, kind: str) -> Manifest:
    """The one of that kind; of ConfigMaps that of the revision."""
    return next(
        item
        for item in render.children(target)
        if item["kind"] == kind
        and (kind != "ConfigMap" or names.LABEL_REVISION in item["metadata"]["labels"])
    )


def pod_spec(target: Target) -> dict[str, Any]:
    found: dict[str, Any] = child(target, "Deployment")["spec"]["template"]["spec"]
    return found

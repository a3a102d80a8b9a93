"""The CRD, its copy in the chart, and its reference, from the contract's models."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from chiasm_contract import names
from chiasm_contract.api.crd import crd

NOTE = "# Generated from contract/chiasm_contract/api by `make generate`; do not edit.\n"

INTRODUCTION = """# MultimodalInference ({api_version})

Generated from `contract/chiasm_contract/api` by `make generate`. `kubectl explain mmi.spec` shows \
the same text. Examples: `crds/examples`.
"""


def outputs(root: Path) -> dict[Path, str]:
    definition = crd()
    text = NOTE + yaml.safe_dump(definition, sort_keys=False, width=100)
    file_name = f"{names.GROUP}_{names.PLURAL}.yaml"
    return {
        root / "crds" / file_name: text,
        root / "charts" / "chiasm" / "crds" / file_name: text,
        root / "docs" / "reference" / "crd.md": reference(definition),
    }


def reference(definition: dict[str, Any]) -> str:
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    parts = [INTRODUCTION.format(api_version=names.API_VERSION)]
    for section in ("spec", "status"):
        parts += [
            f"## {section}\n",
            "| Field | Type | Default | Meaning |\n| --- | --- | --- | --- |",
        ]
        parts += [
            _row(path, node, needed) for path, node, needed in _walk(section, schema[section])
        ]
        parts.append("")
    parts += ["## Rules\n", "Checked by the API server, also while the operator is down.\n"]
    parts += [f"- `{path}` {message}" for path, message in _rules(definition)]
    return "\n".join(parts) + "\n"


def _walk(path: str, node: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], bool]]:
    for name, child in node.get("properties", {}).items():
        needed = name in node.get("required", [])
        yield f"{path}.{name}", child, needed
        yield from _walk(f"{path}.{name}", child)
        if "properties" in child.get("items", {}):
            yield from _walk(f"{path}.{name}[]", child["items"])


def _row(path: str, node: dict[str, Any], needed: bool) -> str:
    default = "required" if needed else _default(node)
    meaning = " ".join(node.get("description", "").split()).replace("|", "\\|")
    return f"| `{path}` | {_type(node)} | {default} | {meaning} |"


def _type(node: dict[str, Any]) -> str:
    if "enum" in node:
        return ", ".join(f"`{value}`" for value in node["enum"])
    if node.get("x-kubernetes-int-or-string"):
        return "number or share" if "%" in node.get("pattern", "") else "quantity"
    kind = str(node.get("type", "any"))
    if kind == "array":
        return f"list of {_type(node['items'])}"
    if "additionalProperties" in node:
        return f"map of {_type(node['additionalProperties'])}"
    low, high = node.get("minimum"), node.get("maximum")
    if kind in {"integer", "number"} and low is not None:
        return f"{kind}, {low} to {high}" if high is not None else f"{kind}, from {low}"
    return kind


def _default(node: dict[str, Any]) -> str:
    if "default" not in node or "properties" in node:
        return ""
    text = json.dumps(node["default"])
    return f"`{text}`" if text not in {'""', "{}", "[]"} and len(text) <= 80 else ""


def _rules(definition: dict[str, Any]) -> Iterator[tuple[str, str]]:
    def walk(path: str, node: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for rule in node.get("x-kubernetes-validations", []):
            yield f"{path}{rule.get('fieldPath', '')}".lstrip(".") or "metadata", rule["message"]
        for name, child in node.get("properties", {}).items():
            yield from walk(f"{path}.{name}", child)

    root = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    yield from walk("", root)

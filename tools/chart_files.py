"""values.schema.json and the reference of the chart's options, both from values.yaml.

The sentence above a key is its description, its default gives its type; what a default cannot say
(an enum, the items of an empty list) stands in REFINEMENTS. The schema is closed: a misspelt
option is an error of `helm install`, not a silence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from chiasm_contract.api.addresses import OPTIONAL_BASE_PATTERN
from chiasm_contract.metric_spec import FIRST_TOKEN_BUCKETS

CHART = "charts/chiasm"
_STRINGS = {"type": "array", "items": {"type": "string", "minLength": 1}}
_OPEN: dict[str, Any] = {"type": "object"}
_WORDS = {"type": "object", "additionalProperties": {"type": "string"}}
_DIGEST = {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"}
_QUANTITIES = {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}
# Only where a histogram has a bucket's border is it known how many were slower.
_BOUNDS = [str(bound) for bound in FIRST_TOKEN_BUCKETS]
REFINEMENTS: dict[str, dict[str, Any]] = {
    "images.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
    "images.pullSecrets": _STRINGS,
    "images.operator.digest": _DIGEST,
    "images.worker.digest": _DIGEST,
    "images.sidecar.digest": _DIGEST,
    "images.sidecarPeers.digest": _DIGEST,
    "images.agent.digest": _DIGEST,
    "replicas": {"type": "integer", "minimum": 0, "maximum": 10},
    "leaseSeconds": {"type": "integer", "minimum": 3, "maximum": 300},
    "watchNamespaces": _STRINGS,
    "logLevel": {"enum": ["DEBUG", "INFO", "WARNING", "ERROR"]},
    "logFormat": {"enum": ["plain", "json"]},
    "resyncSeconds": {"type": "number", "minimum": 1, "maximum": 3600},
    "stallSeconds": {"type": "number", "minimum": 10, "maximum": 3600},
    "tracing.endpoint": {"type": "string", "pattern": OPTIONAL_BASE_PATTERN},
    "tracing.sampleRatio": {"type": "number", "minimum": 0, "maximum": 1},
    "serviceAccount.annotations": _WORDS,
    "networkPolicy.apiServerPorts": {
        "type": "array",
        "items": {"type": "integer", "minimum": 1, "maximum": 65535},
        "minItems": 1,
    },
    "resources.requests": _QUANTITIES,
    "resources.limits": _QUANTITIES,
    "alerts.labels": _WORDS,
    "alerts.runbookBase": {"type": "string", "pattern": "^(.*/)?$"},
    "alerts.firstTokenSeconds": {"enum": _BOUNDS},
    "alerts.tokenGapSeconds": {"enum": _BOUNDS},
    "dashboards.labels": _WORDS,
    "podMonitors.labels": _WORDS,
    "podMonitors.interval": {"type": "string", "pattern": "^[1-9][0-9]*(s|m)$"},
    "podLabels": _WORDS,
    "podAnnotations": _WORDS,
    "nodeSelector": _WORDS,
    "tolerations": {"type": "array", "items": {"type": "object"}},
    "affinity": _OPEN,
}
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number"}


def outputs(root: Path) -> dict[Path, str]:
    text = (root / CHART / "values.yaml").read_text()
    values, sentences = yaml.safe_load(text), descriptions(text)
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_schema("", values, sentences),
    }
    # Helm hands these to every chart.
    schema["properties"]["global"] = {"type": "object", "description": "Helm's own."}
    return {
        root / CHART / "values.schema.json": json.dumps(schema, indent=2) + "\n",
        root / "docs" / "reference" / "values.md": _reference(values, sentences),
    }


def descriptions(text: str) -> dict[str, str]:
    """Dotted key -> the comment directly above it."""
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("#"):
            comment.append(bare.lstrip("# "))
        elif not bare:
            comment = []
        elif ":" in bare and not bare.startswith("-"):
            indent = len(line) - len(line.lstrip())
            while path and path[-1][0] >= indent:
                path.pop()
            path.append((indent, bare.split(":", 1)[0]))
            found[".".join(name for _, name in path)] = " ".join(comment)
            comment = []
    return found


def _schema(path: str, value: Any, sentences: dict[str, str]) -> dict[str, Any]:
    described = {"description": sentences[path]} if path else {}
    if path in REFINEMENTS:
        return described | REFINEMENTS[path]
    if isinstance(value, dict):
        children = {
            name: _schema(f"{path}.{name}".lstrip("."), child, sentences)
            for name, child in value.items()
        }
        return {
            **described, "type": "object", "additionalProperties": False, "properties": children,
        }  # fmt: skip
    return described | {"type": _TYPES[type(value)]}


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value and path not in REFINEMENTS:
        for name, child in value.items():
            yield from _leaves(f"{path}.{name}".lstrip("."), child)
    else:
        yield path, value


def _reference(values: dict[str, Any], sentences: dict[str, str]) -> str:
    lines = [
        "# Options of the Helm chart",
        "",
        f"Generated from `{CHART}/values.yaml` by `make generate`.",
        "",
        "| Option | Default | Meaning |",
        "| --- | --- | --- |",
    ]
    for path, value in _leaves("", values):
        lines.append(f"| `{path}` | `{json.dumps(value)}` | {sentences[path]} |")
    return "\n".join(lines) + "\n"

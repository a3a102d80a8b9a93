"""The CustomResourceDefinition as data, from the pydantic models.

Kubernetes wants a *structural* schema: no $ref, no additionalProperties beside properties, no
null. Objects whose fields all have defaults get them as a default of their own, so that the stored
resource shows what is in force (`{}` would do, but CEL rules are checked on defaults too); those
that are off when absent (`| None = None`) get none.

Nothing within a list has one. Tools that apply manifests compare a list as a whole: what the API
server filled in would be a difference that no sync ends. Descriptions tell such defaults instead,
and the models apply them when a spec is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from chiasm_contract import names
from chiasm_contract.api.v1alpha1 import MultimodalInference

Schema = dict[str, Any]

_DROPPED = {"title", "$defs"}


def _resolve(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """`node` with its $ref and its `X or null` replaced by X; its own keys win."""
    merged = dict(node)
    if "$ref" in merged:
        target = definitions[merged.pop("$ref").rsplit("/", 1)[1]]
        merged = {**target, **merged}
    if "x-kubernetes-int-or-string" in merged:
        return merged
    options = [option for option in merged.get("anyOf", []) if option.get("type") != "null"]
    if "anyOf" in merged and len(options) == 1:
        del merged["anyOf"]
        merged = {**_resolve(options[0], definitions), **merged}
    return merged


def structural(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """`node` of a JSON schema as Kubernetes accepts it."""
    schema = {
        key: value for key, value in _resolve(node, definitions).items() if key not in _DROPPED
    }
    if "const" in schema:
        schema["enum"] = [schema.pop("const")]
    is_off_when_absent = schema.get("default", ...) is None
    if is_off_when_absent:
        del schema["default"]
    extra = schema.pop("additionalProperties", None)
    if "properties" in schema:
        schema["properties"] = {
            name: structural(child, definitions) for name, child in schema["properties"].items()
        }
        for name in schema.get("required", ()):
            schema["properties"][name].pop("default", None)  # it has to be said
        schema.pop("default", None)
        if not is_off_when_absent and not schema.get("required"):
            schema["default"] = {
                name: child["default"]
                for name, child in schema["properties"].items()
                if "default" in child
            }
    elif isinstance(extra, dict):
        schema["additionalProperties"] = structural(extra, definitions)
    elif extra is True:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    if "items" in schema:
        schema["items"] = _said(structural(schema["items"], definitions))
    return schema


def _said(schema: Schema) -> Schema:
    """`schema` with each default in words instead."""
    default = schema.pop("default", None)
    if default and "properties" not in schema:
        words = default if isinstance(default, str) else json.dumps(default)
        schema["description"] = f"{schema['description']} Absent means {words}."
    for child in schema.get("properties", {}).values():
        _said(child)
    return schema


def _root() -> Schema:
    document = MultimodalInference.model_json_schema(by_alias=True)
    root = structural(document, document["$defs"])
    properties = root["properties"]
    # Kubernetes knows these three itself and allows no schema for them.
    properties["apiVersion"] = {"type": "string"}
    properties["kind"] = {"type": "string"}
    properties["metadata"] = {"type": "object"}
    _without_default(properties["status"])
    root["required"] = ["spec"]
    return root


def _without_default(schema: Schema) -> None:
    schema.pop("default", None)
    for child in schema.get("properties", {}).values():
        _without_default(child)
    if "items" in schema:
        _without_default(schema["items"])


def _column(name: str, path: str, kind: str = "string", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, **more}


def _columns() -> list[dict[str, Any]]:
    ready = '.status.conditions[?(@.type=="Ready")]'
    identity = '.status.conditions[?(@.type=="IdentityVerified")]'
    return [
        _column("Ready", f"{ready}.status"),
        _column("Phase", ".status.phase"),
        _column("Model", ".status.model"),
        _column("Replicas", ".status.ready"),
        _column("URL", ".status.url"),
        _column("Weight", ".status.rollout.weight"),
        _column("Revision", ".status.revision"),
        _column("Environment", ".status.config.environment", priority=1),
        _column("Reason", f"{ready}.reason", priority=1),
        _column("Identity", f"{identity}.status", priority=1),
        _column("Age", ".metadata.creationTimestamp", "date"),
    ]


def crd() -> dict[str, Any]:
    """The CustomResourceDefinition to install."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.KIND.lower(),
                "shortNames": [names.SHORT_NAME],
                "categories": ["all", "chiasm"],
            },
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _root()},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": _columns(),
                }
            ],
        },
    }

"""The CRD as data: it is current, closed to drift, and says everything a user needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from chiasm_contract.api.crd import crd
from chiasm_contract.api.v1alpha1 import Spec
from pydantic import ValidationError

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "crds" / "examples"
SCHEMA: dict[str, Any] = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def nodes(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")


ALL = [
    item for section in ("spec", "status") for item in nodes(SCHEMA["properties"][section], section)
]


def test_generated_files_are_current() -> None:
    command = [sys.executable, str(ROOT / "tools" / "generate.py"), "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_field_is_described() -> None:
    silent = [path for path, node in ALL if not node.get("description") and "[]" not in path]
    assert not silent


def test_a_field_of_the_reference_is_a_row() -> None:
    """A description of two paragraphs ended the table."""
    lines = (ROOT / "docs" / "reference" / "crd.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| `")]
    assert [row for row in rows if not row.endswith(" |")] == []
    (bounded,) = (row for row in rows if "maxFirstTokenRatio" in row)
    assert "number, 1 to 1000" in bounded


def test_the_schema_is_structural() -> None:
    for path, node in ALL:
        assert "$ref" not in node, path
        assert not {"properties", "additionalProperties"} <= node.keys(), path
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path


def test_nothing_within_a_list_has_a_default() -> None:
    """Argo CD compares a list of a custom resource as a whole: what the API server filled in there
    kept the resource out of sync for ever (kserve #5353)."""
    assert [path for path, node in ALL if "[]" in path and "default" in node] == []
    tolerations = dict(ALL)["spec.podTemplate.tolerations[].operator"]
    assert tolerations["description"].endswith("Absent means Equal.")


def test_subresources_columns_and_names() -> None:
    definition = crd()["spec"]
    (version,) = definition["versions"]
    assert version["subresources"]["status"] == {}
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.replicas"
    assert definition["names"]["shortNames"] == ["mmi"]
    columns = [column["name"] for column in version["additionalPrinterColumns"]]
    assert columns[:5] == ["Ready", "Phase", "Model", "Replicas", "URL"]
    assert columns[-1] == "Age"


def leaves(node: Any, path: str = "spec") -> Iterator[str]:
    if isinstance(node, dict):
        for name, child in node.items():
            yield path
            yield from leaves(child, f"{path}.{name}")
    elif isinstance(node, list):
        for child in node:
            yield from leaves(child, f"{path}[]")
    yield path


def test_the_examples_use_every_field() -> None:
    used = set(leaves(yaml.safe_load((EXAMPLES / "complete.yaml").read_text())["spec"]))
    for name in (
        "claim",
        "minimal",
        "autoscaled",
        "environments",
    ):  # where a field excludes another
        used |= set(leaves(yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())["spec"]))
    assert {path for path, _ in ALL if path.startswith("spec")} <= used


def test_variables_that_decide_how_the_worker_computes_are_named() -> None:
    """By the rule, as the real API server is asked with this example in test_api_server.py."""
    (rule,) = dict(ALL)["spec.podTemplate.env[].name"]["x-kubernetes-validations"]
    whole, _, starts = rule["message"].partition(" and names that start with ")
    prefixes = tuple(starts.partition(" decide ")[0].split(", "))
    spec = yaml.safe_load((EXAMPLES / "invalid-our-variable.yaml").read_text())["spec"]
    for name in (item["name"] for item in spec["podTemplate"]["env"]):
        assert name in whole.split(", ") or name.startswith(prefixes), name


def test_the_complete_example_uses_no_default() -> None:
    spec = yaml.safe_load((EXAMPLES / "complete.yaml").read_text())["spec"]
    for path, node in ALL:
        value: Any = spec
        for part in path.split(".")[1:]:
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None and "default" in node:
            assert value != node["default"], path


@pytest.mark.parametrize(
    "name", ["minimal", "complete", "claim", "autoscaled", "sharing", "environments"]
)
def test_valid_examples_parse(name: str) -> None:
    Spec.model_validate(yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())["spec"])


def test_the_models_are_closed() -> None:
    with pytest.raises(ValidationError, match="visionCompression"):
        Spec.model_validate(
            yaml.safe_load((EXAMPLES / "invalid-unknown-field.yaml").read_text())["spec"]
        )

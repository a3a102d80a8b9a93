"""The chart's files: values, their schema and descriptions agree, and nothing more is allowed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "chiasm"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
ALL_OPTIONS: dict[str, Any] = yaml.safe_load((CHART / "ci" / "all-options.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())


def leaves(values: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        here = f"{path}.{name}".lstrip(".")
        if isinstance(value, dict) and value:
            yield from leaves(value, here)
        else:
            yield here, value


def objects(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from objects(child, f"{path}.{name}".lstrip("."))


def test_defaults_and_all_options_are_valid() -> None:
    jsonschema.validate(VALUES, SCHEMA)
    jsonschema.validate(ALL_OPTIONS, SCHEMA)


def test_every_option_has_a_sentence() -> None:
    for path, node in objects(SCHEMA):
        if path:
            assert node["description"].endswith("."), path


def test_the_schema_is_closed() -> None:
    for path, node in objects(SCHEMA):
        if "properties" in node:
            assert node["additionalProperties"] is False, path


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"image": {}}, "'image' was unexpected"),
        ({"images": {"worker": {"tga": "1"}}}, "'tga' was unexpected"),
        ({"images": {"worker": {"digest": "latest"}}}, "does not match"),
        ({"logLevel": "loud"}, "is not one of"),
        ({"watchNamespaces": "vision"}, "is not of type 'array'"),
        ({"resyncSeconds": 0}, "less than the minimum"),
        ({"networkPolicy": {"apiServerPorts": []}}, "non-empty|too short"),
        ({"tracing": {"endpoint": "http://collector:99999"}}, "does not match"),
        ({"alerts": {"runbookBase": "https://host/chiasm"}}, "does not match"),
    ],
)
def test_mistakes_are_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(jsonschema.ValidationError, match=words):
        jsonschema.validate(values, SCHEMA)


def test_all_options_holds_every_option() -> None:
    options = dict(leaves(ALL_OPTIONS))
    # Where a digest is given the tag does not show, and the other way round.
    either = {"images.operator.digest", "images.worker.tag"}
    for path, _ in leaves(VALUES):
        used = path in options or any(other.startswith(f"{path}.") for other in options)
        assert used or path in either, path


def test_all_options_uses_no_default() -> None:
    defaults = dict(leaves(VALUES))
    switches = {"serviceAccount.create", "rbac.create", "networkPolicy.enabled", "webhook.enabled"}
    for path, value in leaves(ALL_OPTIONS):
        if path not in switches:
            assert value != defaults.get(path, ...), path


def test_every_option_is_read_by_a_template() -> None:
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    for path, _ in leaves(VALUES):
        parts = path.split(".")
        # Images are handed to one helper as a whole; resources are written as they are.
        known = (
            path,
            *([f"images.{parts[1]}"] if path.startswith("images.") and len(parts) == 3 else []),
            *(["resources"] if path.startswith("resources.") else []),
        )
        assert any(re.search(rf"\.Values\.{re.escape(name)}\b", templates) for name in known), path


def test_the_crd_is_the_generated_one() -> None:
    (copy,) = (CHART / "crds").iterdir()
    assert copy.read_text() == (ROOT / "crds" / copy.name).read_text()


def test_the_version_is_the_projects() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert project is not None
    assert chart["appVersion"] == chart["version"] == project[1]

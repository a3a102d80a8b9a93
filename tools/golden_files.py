"""Golden renders: what the operator makes of each example, as tests compare and people review."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from chiasm_operator.render import Target, children
from chiasm_operator.resource import Images, from_manifest, parse_spec

EXAMPLES = ("minimal", "complete", "claim", "autoscaled", "sharing")
IMAGES = Images("example.com/worker:1", "example.com/sidecar:1", "example.com/sidecar-peers:1")
IDENTITY = {"namespace": "vision", "uid": "11111111-2222-3333-4444-555555555555"}


def outputs(root: Path) -> dict[Path, str]:
    return {
        root / "tests" / "golden" / f"children-{name}.yaml": rendered(
            yaml.safe_load((root / "crds" / "examples" / f"{name}.yaml").read_text())
        )
        for name in EXAMPLES
    }


def rendered(manifest: dict[str, Any]) -> str:
    body = {**manifest, "metadata": {**manifest["metadata"], **IDENTITY}}
    resource = from_manifest(body)
    target = Target(resource, parse_spec(resource.spec), IMAGES)
    return yaml.dump_all(children(target), Dumper=_Dumper, sort_keys=False, width=100)


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks; no anchors for lists that appear twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)

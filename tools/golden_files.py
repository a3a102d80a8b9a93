"""Golden renders: what the operator makes of each example, as tests compare and people review."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from chiasm_operator.render import Target, children, delivery
from chiasm_operator.resource import Images, Manifest, from_manifest, kind_of, parse_spec

EXAMPLES = ("minimal", "complete", "claim", "autoscaled", "sharing", "environments")
# Ways by which the environment of the last one may bring its secrets, beside its own.
DELIVERIES = ("agent", "injector", "csi", "external-secrets", "vso")
IMAGES = Images(
    "example.com/worker:1",
    "example.com/sidecar:1",
    "example.com/sidecar-peers:1",
    agent="example.com/openbao:1",
)
IDENTITY = {"namespace": "vision", "uid": "11111111-2222-3333-4444-555555555555"}


def outputs(root: Path) -> dict[Path, str]:
    golden, examples = root / "tests" / "golden", root / "crds" / "examples"
    whole = {
        golden / f"children-{name}.yaml": _text_of(
            rendered(yaml.safe_load((examples / f"{name}.yaml").read_text()))
        )
        for name in EXAMPLES
    }
    travelling = yaml.safe_load((examples / "environments.yaml").read_text())
    delivered = {
        golden / f"delivery-{name}.yaml": _text_of(
            [item for item in rendered(by(travelling, name)) if _tells_of_delivery(item)]
        )
        for name in DELIVERIES
    }
    return whole | delivered


def by(manifest: dict[str, Any], delivery: str) -> dict[str, Any]:
    """`manifest` with its chosen environment's secrets brought in another way."""
    changed = copy.deepcopy(manifest)
    config = changed["spec"]["config"]
    chosen = next(e for e in config["environments"] if e["name"] == config["environment"])
    chosen["vault"]["delivery"] = delivery
    if delivery in {"csi", "vso"}:  # they know authorities of their own only
        del chosen["vault"]["caConfigMap"]
    if delivery in {"external-secrets", "vso"}:  # which make a Secret that a kubelet reads
        registry = next(source for source in chosen["sources"] if source["name"] == "registry")
        del registry["secret"]
        registry["kv"] = {"mount": "kv", "path": "travelling/registry"}
    if delivery == "csi":
        tenants = next(source for source in chosen["sources"] if source["name"] == "tenants")
        tenants["keys"] = [{"key": "library"}]
    return changed


def rendered(manifest: dict[str, Any]) -> Sequence[Manifest]:
    body = {**manifest, "metadata": {**manifest["metadata"], **IDENTITY}}
    resource = from_manifest(body)
    return children(Target(resource, parse_spec(resource.spec), IMAGES))


def _tells_of_delivery(item: Manifest) -> bool:
    return kind_of(item) in {"Deployment", *delivery.KINDS} or (
        item["kind"] == "ConfigMap" and "sidecar.json" in item["data"]
    )


def _text_of(manifests: Sequence[Manifest]) -> str:
    return yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, width=100)


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks; no anchors for lists that appear twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)

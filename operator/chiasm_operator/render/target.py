"""What every renderer gets: the resource, its spec, the images, and the revision they make.

The revision names what is served. It changes exactly when pods must change: it hashes the spec
without what decides how many pods there are, how they are replaced and what running pods are told
(retired namespaces), fields at their defaults left out, so that a newer operator with more fields
restarts nothing, and what is known of a built-in model, so that other weights under the same name
never meet pods of the old ones. Of the environments only the chosen one is in it, without its
weight; its images are in it as those of the pods.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from chiasm_contract import names
from chiasm_contract.api.environments import Environment
from chiasm_contract.api.fields import CANONICAL
from chiasm_contract.api.rollout import BESIDE_REVISIONS, TOLD_TO_PODS, Rollout
from chiasm_contract.api.v1alpha1 import Spec
from chiasm_contract.builtin_models import builtin_identity, builtin_models
from chiasm_contract.fingerprint import Value

from chiasm_operator.resource import Images, Resource

REVISION_VERSION = "v1"

NOT_SERVING: Any = {
    **dict.fromkeys(BESIDE_REVISIONS, True),
    "tiers": {"retired_namespaces"},
    "rollout": set(Rollout.model_fields) - TOLD_TO_PODS,
    # The chosen one is put back, without what is only of its way through a rollout.
    "config": {"environment", "environments"},
}
NOT_OF_A_REVISION = {"weight"}


def revision(spec: Spec, images: Images) -> str:
    """`v1-` and ten hex digits; usable as a label value and in names."""
    serving = spec.model_dump(exclude=NOT_SERVING, exclude_defaults=True, context=CANONICAL)
    # A section of which only left-out fields were set is a section at its defaults.
    serving = {name: section for name, section in serving.items() if section != {}}
    content: dict[str, Any] = {
        "spec": serving,
        "worker": worker_image(spec, images),
        "sidecar": sidecar_image(spec, images),
    }
    chosen = spec.config.chosen
    if chosen is not None:
        content["environment"] = chosen.model_dump(
            exclude={*NOT_OF_A_REVISION, "images"}, exclude_defaults=True, context=CANONICAL
        )
    if runs_agent(spec):
        content["agent"] = agent_image(spec, images)
    known = _known_identity(spec)
    if known:
        content["builtin"] = dict(known)
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(f"{REVISION_VERSION}:{canonical}".encode()).hexdigest()
    return f"{REVISION_VERSION}-{digest[:10]}"


def has_peers(spec: Spec) -> bool:
    """Whether pods read each other's memory."""
    return spec.tiers is not None and spec.tiers.peers is not None


def has_nixl(spec: Spec) -> bool:
    """Whether they do so through NIXL's own port."""
    return (
        spec.tiers is not None
        and spec.tiers.peers is not None
        and spec.tiers.peers.transport == "nixl"
    )


def worker_image(spec: Spec, images: Images) -> str:
    """The environment's, else the chart's."""
    return _of_environment(spec, "worker") or images.worker


def sidecar_image(spec: Spec, images: Images) -> str:
    """The environment's, else the chart's: the one with NIXL only for those who use it, for it is
    much larger."""
    charts = images.sidecar_peers if has_nixl(spec) else images.sidecar
    return _of_environment(spec, "sidecar") or charts


def agent_image(spec: Spec, images: Images) -> str:
    """That of a server's agent, where pods have one: the environment's, else the chart's."""
    chosen = spec.config.chosen
    own = chosen.vault.agent_image if chosen is not None and chosen.vault is not None else None
    return own or images.agent


def runs_agent(spec: Spec) -> bool:
    """Whether the operator puts a server's agent into pods."""
    chosen = spec.config.chosen
    if chosen is None or chosen.vault is None or chosen.vault.delivery != "agent":
        return False
    return any(source.in_vault for source in chosen.sources)


def _of_environment(spec: Spec, container: Literal["worker", "sidecar"]) -> str | None:
    chosen = spec.config.chosen
    image: str | None = getattr(chosen.images, container) if chosen is not None else None
    return image


def _known_identity(spec: Spec) -> Mapping[str, Value]:
    """What is known of the built-in model; nothing of one that is not there, which render names."""
    builtin = spec.model.source.builtin
    if builtin is None or builtin not in builtin_models():
        return {}
    return builtin_identity(builtin, spec.engine.dtype)


@dataclass(frozen=True)
class Target:
    """One resource to render."""

    resource: Resource
    spec: Spec
    images: Images

    @property
    def name(self) -> str:
        """Name of the resource and of what its revisions share."""
        return self.resource.name

    @cached_property
    def revision(self) -> str:
        """See `revision`."""
        return revision(self.spec, self.images)

    def revision_name(self, revision: str) -> str:
        """Name of each object that one revision has for itself; at most 63 characters."""
        return f"{self.name}-{revision}"

    @property
    def traffic_name(self) -> str:
        """Name of the ConfigMap with the traffic plan."""
        return f"{self.name}-traffic"

    @property
    def environment(self) -> Environment | None:
        """The environment that the spec is in."""
        return self.spec.config.chosen

    @property
    def worker_image(self) -> str:
        """See `worker_image`."""
        return worker_image(self.spec, self.images)

    @property
    def sidecar_image(self) -> str:
        """See `sidecar_image`."""
        return sidecar_image(self.spec, self.images)

    @property
    def agent_image(self) -> str:
        """See `agent_image`."""
        return agent_image(self.spec, self.images)

    @property
    def model_id(self) -> str:
        """Name in the API's `model` field."""
        return self.spec.model.name or self.name

    @property
    def selector(self) -> dict[str, str]:
        """Labels that pick the resource's pods; they never change."""
        return {names.LABEL_APP: names.APP, names.LABEL_OWNER: self.name}

    def revision_selector(self, revision: str) -> dict[str, str]:
        """Labels that pick the pods of one revision."""
        return {**self.selector, names.LABEL_REVISION: revision}

    @property
    def labels(self) -> dict[str, str]:
        """Labels of every child."""
        return {
            **self.selector,
            names.LABEL_INSTANCE: self.name,
            names.LABEL_MANAGED_BY: names.FIELD_MANAGER,
        }

    def revision_metadata(self, revision: str) -> dict[str, Any]:
        """`metadata` of a child that belongs to one revision."""
        return self.metadata(self.revision_name(revision), labels={names.LABEL_REVISION: revision})

    def metadata(
        self,
        name: str | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """`metadata` of a child: deleted with its owner, found by its labels."""
        return {
            "name": name or self.name,
            "namespace": self.resource.namespace,
            "labels": {**self.labels, **(labels or {})},
            **({"annotations": dict(annotations)} if annotations else {}),
            "ownerReferences": [
                {
                    "apiVersion": names.API_VERSION,
                    "kind": names.KIND,
                    "name": self.name,
                    "uid": self.resource.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        }

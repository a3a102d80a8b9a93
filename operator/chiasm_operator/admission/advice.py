"""What is allowed and still worth a word at the moment of the apply.

Advice is given once: when what it is about is new or changed, not with every later apply.

Must not know: Kubernetes clients, clocks, which revision is served.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chiasm_contract import names
from chiasm_contract.api import identity_fields
from chiasm_contract.builtin_models import builtin_models

from chiasm_operator.resource import Manifest

_FLUX = "kustomize-controller"
# Between the worker's end and the pod's, see spec.rollout.terminationGracePeriodSeconds.
_SIDECAR_SECONDS = 5


def advice(old: Manifest | None, new: Manifest) -> Iterator[str]:
    """One sentence for each thing that is new and may surprise."""
    for rule in (
        _flux_takes_it_away,
        _steps_are_passed_over,
        _mirror_doubles_load,
        _answers_are_cut,
        _nobody_left_to_answer,
        _image_may_change,
        _other_builtin,
    ):
        said = rule(new)
        if said and (old is None or rule(old) != said):
            yield said
    if old is not None and _action_stays(old, new):
        yield (
            f"{names.ANNOTATION_ROLLOUT_ACTION}={_action(new)} was given for an earlier spec and "
            "may be done again for this one; take it away unless that is meant: kubectl annotate "
            f"{names.SHORT_NAME} {new['metadata']['name']} {names.ANNOTATION_ROLLOUT_ACTION}-"
        )


def _annotations(manifest: Manifest) -> dict[str, str]:
    return manifest["metadata"].get("annotations") or {}


def _action(manifest: Manifest) -> str | None:
    return _annotations(manifest).get(names.ANNOTATION_ROLLOUT_ACTION)


def _action_stays(old: Manifest, new: Manifest) -> bool:
    """One that names a revision is done for no other."""
    verb, _, revision = (_action(new) or "").partition(":")
    given = bool(verb and not revision) and _action(new) == _action(old)
    return given and old.get("spec") != new.get("spec")


def _at(manifest: Manifest, *path: str, default: Any) -> Any:
    node: Any = manifest.get("spec") or {}
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
        if node is None:
            return default
    return node


def _flux_takes_it_away(manifest: Manifest) -> str | None:
    """Flux undoes what kubectl wrote, unless it is written under another name."""
    writers = {
        entry.get("manager", ""): entry for entry in manifest["metadata"].get("managedFields", ())
    }
    if _FLUX not in writers:
        return None
    for manager, entry in writers.items():
        fields = entry.get("fieldsV1", {}).get("f:metadata", {}).get("f:annotations", {})
        if manager.startswith("kubectl") and f"f:{names.ANNOTATION_CANARY_WEIGHT}" in fields:
            return (
                f"Flux manages this resource and takes {names.ANNOTATION_CANARY_WEIGHT} away with "
                "its next look; annotate with --field-manager=flux-client-side-apply to keep it."
            )
    return None


def _steps_are_passed_over(manifest: Manifest) -> str | None:
    weight = _annotations(manifest).get(names.ANNOTATION_CANARY_WEIGHT, "auto")
    if weight == "auto" or not _at(manifest, "rollout", "steps", default=()):
        return None
    return (
        f"{names.ANNOTATION_CANARY_WEIGHT}={weight} holds the weight; spec.rollout.steps go on "
        "when it is auto."
    )


def _mirror_doubles_load(manifest: Manifest) -> str | None:
    steps = _at(manifest, "rollout", "steps", default=())
    shares = [step["mirror"].get("percent") for step in steps if "mirror" in step]
    if not shares:
        return None
    most = max(shares, key=float)
    return (
        f"spec.rollout.steps mirror {most} % of requests: each of those is computed twice, so the "
        "new revision needs room for them beside its own."
    )


def _answers_are_cut(manifest: Manifest) -> str | None:
    drain = _at(manifest, "rollout", "drainSeconds", default=5)
    grace = _at(manifest, "rollout", "terminationGracePeriodSeconds", default=620)
    longest = _at(manifest, "config", "requestTimeoutSeconds", default=600)
    needed = drain + longest + _SIDECAR_SECONDS
    if grace >= needed:
        return None
    return (
        f"spec.rollout.terminationGracePeriodSeconds is {grace}: an answer that takes longer than "
        f"{grace - drain - _SIDECAR_SECONDS} s is cut when its pod goes; {needed} cuts none."
    )


def _nobody_left_to_answer(manifest: Manifest) -> str | None:
    replicas = _at(manifest, "replicas", default=1)
    missing = _at(manifest, "rollout", "maxUnavailable", default=0)
    if isinstance(missing, str):  # Kubernetes rounds this share down
        share = int(missing.removesuffix("%")) if missing.removesuffix("%").isdigit() else 0
        missing = replicas * share // 100
    if not replicas or missing < replicas:
        return None
    return (
        f"spec.rollout.maxUnavailable lets all {replicas} replicas be away at once, so a rollout "
        "may leave nobody to answer."
    )


def _image_may_change(manifest: Manifest) -> str | None:
    reference = _at(manifest, "model", "source", "image", "reference", default="")
    if not reference or "@sha256:" in reference:
        return None
    return (
        f"spec.model.source.image.reference {reference!r} is no digest: what it names can change "
        "without a new revision, and then pods of one revision differ; write NAME@sha256:DIGEST."
    )


def _other_builtin(manifest: Manifest) -> str | None:
    """A pinned value may mean a worker image of one's own, so it is no fault."""
    builtin = _at(manifest, "model", "source", "builtin", default="")
    dtype = _at(manifest, "engine", "dtype", default="float32")
    known = builtin_models().get(builtin, {}).get(dtype, {})
    pinned = _at(manifest, "model", "expectedIdentity", default={})
    for name, value in known.items():
        if name in pinned and not _same(name, pinned[name], value):
            return (
                f"spec.model.expectedIdentity[{name}] is {pinned[name]!r}, but the built-in model "
                f"{builtin!r} is known to have {identity_fields.to_text(value)!r}: only pods of a "
                "worker image of your own can become ready."
            )
    return None


def _same(name: str, text: str, value: object) -> bool:
    try:
        return identity_fields.parse({name: text})[name] == value
    except ValueError:
        return False  # CEL has refused it

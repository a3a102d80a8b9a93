"""The revisions that are kept: which number each has, and what its children are made from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from chiasm_contract import names
from chiasm_contract.api.v1alpha1 import Spec

from chiasm_operator.reconcile.observed import Observed, revision_of
from chiasm_operator.render import Record, Target
from chiasm_operator.render import revision as rendering
from chiasm_operator.resource import InvalidSpec, Manifest, parse_spec

MAX_KEPT = 10


@dataclass(frozen=True)
class Kept:
    """A revision and its number: the highest is the one that was asked for last."""

    record: Record
    number: int


def kept(target: Target, fresh: Record, observed: Observed) -> Mapping[str, Kept]:
    """Every revision that is known, with the target's; `fresh` serves when that is new.

    A revision whose ControllerRevision was deleted is read from its Deployment: what was rendered
    for its pods must not change only because a newer operator would render something else.
    """
    found: dict[str, Kept] = {}
    for live in observed.children:
        if live["kind"] == "ControllerRevision":
            record = rendering.parse(live)
            if record is not None:
                found[record.revision] = Kept(record, live.get("revision", 0))
    for live in observed.children:
        revision = revision_of(live) if live["kind"] == "Deployment" else None
        ours = revision and live["metadata"]["name"] == target.revision_name(revision)
        if revision and ours and revision not in found:
            config = observed.child("ConfigMap", target.revision_name(revision))
            record = rendering.recovered(revision, live, config)
            if revision == target.revision:
                record = Record(
                    revision, fresh.spec, fresh.images, record.template,
                    record.files or fresh.files, fresh.objects,
                )  # fmt: skip
            found[revision] = Kept(record, 0)
    highest = max((item.number for item in found.values()), default=0)
    present = found.get(target.revision, Kept(fresh, 0))
    newest = present.number == highest and highest > 0
    found[target.revision] = present if newest else Kept(present.record, highest + 1)
    return found


def specs(target: Target, known: Mapping[str, Kept], standing: Collection[str]) -> dict[str, Spec]:
    """The target's spec, and of each other revision that stands the one that it was made from."""
    found = {target.revision: target.spec}
    for revision in standing:
        if revision != target.revision:
            try:
                found[revision] = parse_spec(known[revision].record.spec)
            except InvalidSpec:
                continue  # its record was lost, or is of a schema that is gone
    return found


def standing(target: Target, observed: Observed) -> list[str]:
    """Revisions with a Deployment of their own."""
    return sorted(
        {
            revision
            for live in observed.children
            if live["kind"] == "Deployment"
            and (revision := revision_of(live))
            and live["metadata"]["name"] == target.revision_name(revision)
        }
    )


def restarts(
    target: Target, revision: str, observed: Observed, *, present: bool, config: str | None
) -> dict[str, str]:
    """What its pods were last replaced for, as annotations of their template.

    An annotation of the resource that is gone restarts nothing, nor does one that is there a
    revision that is not `present`: whose pods only end their answers, or wait for a way back.
    `config` is what configuration asks for; None: nothing new.
    """
    live = observed.child("Deployment", target.revision_name(revision)) or {}
    template = live.get("spec", {}).get("template", {})
    stored = template.get("metadata", {}).get("annotations", {})
    asked = target.resource.annotations.get(names.ANNOTATION_RESTARTED_AT) if present else None
    wanted = {names.ANNOTATION_RESTARTED_AT: asked, names.ANNOTATION_CONFIG_RESTART: config}
    said = {name: value or stored.get(name) for name, value in wanted.items()}
    return {name: value for name, value in said.items() if value is not None}


def too_old(observed: Observed, standing: set[str]) -> set[str]:
    """Names of ControllerRevisions beyond `MAX_KEPT`, the oldest, of revisions without pods."""
    history = sorted(
        (item for item in observed.children if item["kind"] == "ControllerRevision"),
        key=_number,
        reverse=True,
    )
    return {
        item["metadata"]["name"] for item in history[MAX_KEPT:] if revision_of(item) not in standing
    }


def _number(live: Manifest) -> int:
    number: int = live.get("revision", 0)
    return number

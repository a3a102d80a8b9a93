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
                    record.files or fresh.files,
                )  # fmt: skip
            found[revision] = Kept(record, 0)
    highest = max((item.number for item in found.values()), default=0)
    present = found.get(target.revision, Kept(fresh, 0))
    newest = present.number == highest and highest > 0
    found[target.revision] = present if newest else Kept(present.record, highest + 1)
    return found


def specs(target: Target, known: Mapping[str, Kept], standing: Collection[str]) -> tuple[Spec, ...]:
    """The target's spec, and of each other revision that stands the one that it was made from."""
    found = [target.spec]
    for revision in standing:
        if revision != target.revision:
            try:
                found.append(parse_spec(known[revision].record.spec))
            except InvalidSpec:
                continue  # its record was lost, or is of a schema that is gone
    return tuple(found)


def restarted_at(target: Target, revision: str, observed: Observed, *, present: bool) -> str | None:
    """When its pods were last to be restarted.

    An annotation that is gone restarts nothing, nor does one that is there a revision that is not
    `present`: whose pods only end their answers, or wait for a way back.
    """
    asked = target.resource.annotations.get(names.ANNOTATION_RESTARTED_AT)
    if asked is not None and present:
        return asked
    live = observed.child("Deployment", target.revision_name(revision)) or {}
    template = live.get("spec", {}).get("template", {})
    stored: str | None = (
        template.get("metadata", {}).get("annotations", {}).get(names.ANNOTATION_RESTARTED_AT)
    )
    return stored


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

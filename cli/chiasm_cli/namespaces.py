"""`chiasm namespaces`: what the tiers of a cluster hold, and how it is ended.

There is no way back from `retire`: a tombstone is what keeps out a writer that comes late, and
nobody knows of all writers of a shared store. docs/tiers.md says how a person who does may remove
tombstones by hand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer
from chiasm_contract import names
from chiasm_contract.messages import HeldNamespaces
from chiasm_contract.tiers import NAMESPACE_PREFIX, begins, release_prefix
from pydantic import ValidationError

from chiasm_cli.errors import CliError
from chiasm_cli.kubectl import RESOURCES, ContextOption, Kubectl, KubectlFailed, NamespaceOption
from chiasm_cli.pods import RunningPod, running

# A namespace is as far as the pod that is least far with it.
_STATES = ("live", "draining", "retired", "swept")
_MAX_RETIRED = 256
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")

app = typer.Typer(
    help="What the memory tiers of a cluster hold, and how to end it.", no_args_is_help=True
)

ResourceOption = Annotated[str, typer.Option(help="Name of the MultimodalInference.")]


@dataclass
class Row:
    """One namespace of one resource, or all tenants' of one release."""

    resource: str
    name: str
    states: set[str] = field(default_factory=set)
    revisions: set[str] = field(default_factory=set)
    tier_bytes: Counter[str] = field(default_factory=Counter)
    num_pods: int = 0

    @property
    def state(self) -> str:
        """As the pod says that is least far; retired before any pod says so."""
        return min(self.states, key=_STATES.index, default="retired")


@dataclass(frozen=True)
class Pod:
    """A pod and what it says; None: it could not be asked."""

    revision: str
    held: HeldNamespaces | None


@app.command("list")
def show(
    resource: ResourceOption = "", namespace: NamespaceOption = "", context: ContextOption = ""
) -> None:
    """Show each namespace: its state, which revision serves it, and the bytes that pods hold."""
    kubectl = Kubectl(context, namespace)
    found = kubectl.get(RESOURCES, *([resource] if resource else []))
    table = [row for each in found for row in rows(each, _pods(kubectl, each))]
    if not table:
        print("No pod holds anything in a tier, and nothing is retired.")
        return
    for line in lines(table):
        print(line)


@app.command()
def retire(
    name: Annotated[
        str,
        typer.Argument(help="As `list` shows it, or its first 16 digits: all of that model."),
    ],
    resource: ResourceOption = "",
    namespace: NamespaceOption = "",
    context: ContextOption = "",
    served: Annotated[
        bool, typer.Option("--served", help="Also if the resource serves it now.")
    ] = False,
) -> None:
    """End NAME for good: no tier gives or takes its blocks, and what they hold is removed."""
    if not re.fullmatch(NAMESPACE_PREFIX, name):
        raise CliError(
            f"{name!r} is no namespace; give 16 lower-case hex digits each of compute_fp, repr_fp "
            "and scope_fp with - between them, or the beginning of that. `chiasm namespaces list` "
            "shows those that pods hold."
        )
    kubectl = Kubectl(context, namespace)
    chosen = _one(kubectl.get(RESOURCES, *([resource] if resource else [])))
    patch = retiring(chosen, _pods(kubectl, chosen), name, served=served)
    where = chosen["metadata"]["name"]
    if patch is None:
        print(f"{name} is retired in {where} already.")
        return
    kubectl.merge(RESOURCES, where, patch)
    print(
        f"{name} is retired in {where}. Its pods hear of it within about a minute, and none is "
        "restarted; chiasm namespaces list says when it is swept. There is no way back."
    )


def served_name(resource: Mapping[str, Any]) -> str:
    """What the namespaces begin with that a resource's pods use; empty before one has reported."""
    identity = resource.get("status", {}).get("identity")
    if not identity:
        return ""
    return release_prefix(identity["computeFingerprint"], identity["reprFingerprint"])


def serving(resource: Mapping[str, Any], pods: Sequence[Pod], name: str) -> str | None:
    """What is served now and `name` would end, as its pods say: two revisions may have two."""
    live = [row.name for row in rows(resource, pods) if "live" in row.states]
    return next(
        (each for each in (served_name(resource), *live) if each and _overlap(each, name)), None
    )


def _overlap(one: str, other: str) -> bool:
    return begins(one, other) or begins(other, one)


def retiring(
    resource: Mapping[str, Any], pods: Sequence[Pod], name: str, *, served: bool
) -> dict[str, Any] | None:
    """The patch that retires a namespace; None when nothing is to change.

    It holds the version that was looked at: one that was changed meanwhile is refused, not undone.
    """
    metadata, tiers = resource["metadata"], resource["spec"].get("tiers")
    where = metadata["name"]
    if not tiers:
        raise CliError(f"{where} has no spec.tiers, so nothing is kept that could be retired.")
    before = tiers.get("retiredNamespaces", [])
    if name in before:
        return None
    serves = serving(resource, pods, name)
    if serves and not served:
        raise CliError(
            f"{where} serves {serves} now, and would compute every request of {name} anew; give "
            "--served if that is meant, or let it serve another model or configuration first."
        )
    if len(before) == _MAX_RETIRED:
        raise CliError(
            f"{where} lists {_MAX_RETIRED} retired namespaces, and no more are allowed; remove "
            "from spec.tiers.retiredNamespaces what is swept everywhere: its tombstones stay."
        )
    version = {"resourceVersion": metadata["resourceVersion"]}
    return {"metadata": version, "spec": {"tiers": {"retiredNamespaces": [*before, name]}}}


def rows(resource: Mapping[str, Any], pods: Sequence[Pod]) -> list[Row]:
    """What a resource's pods hold, and what it lists as retired, by name."""
    where = resource["metadata"]["name"]
    listed = (resource["spec"].get("tiers") or {}).get("retiredNamespaces", [])
    table = {name: Row(where, name) for name in listed}
    for pod in pods:
        told = pod.held.namespaces if pod.held else ()
        for name in set(listed) - {held.name for held in told}:
            # It has not heard yet, or cannot be asked: whoever has heard names it.
            table[name].states.add("retired")
        for held in told:
            row = table.setdefault(held.name, Row(where, held.name))
            row.states.add(held.state)
            row.tier_bytes.update(held.tier_bytes)
            row.num_pods += 1
            if held.state == "live":
                row.revisions.add(pod.revision)
    serves = served_name(resource)
    if serves in table:
        table[serves].revisions.add(resource["status"]["identity"]["revision"])
    return [table[name] for name in sorted(table)]


def lines(table: Iterable[Row]) -> Iterator[str]:
    """The table for a person."""
    cells = [("NAMESPACE", "STATE", "RESOURCE", "REVISION", "PODS", "BYTES")]
    for row in table:
        sizes = ", ".join(f"{tier} {size(count)}" for tier, count in sorted(row.tier_bytes.items()))
        revisions = ",".join(sorted(row.revisions)) or "-"
        known = sizes or ("-" if row.num_pods else "unknown")
        cells.append((row.name, row.state, row.resource, revisions, str(row.num_pods), known))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for each in cells:
        yield "  ".join(word.ljust(w) for word, w in zip(each, widths, strict=True)).rstrip()


def size(num_bytes: int) -> str:
    """A size as a person reads it."""
    amount, unit = float(num_bytes), 0
    while amount >= 1024 and unit < len(_SIZES) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.1f} {_SIZES[unit]}" if unit else f"{num_bytes} B"


def _pods(kubectl: Kubectl, resource: Mapping[str, Any]) -> list[Pod]:
    found = running(kubectl, resource)
    return [Pod(pod.revision, _held(kubectl, pod)) for pod in found]


def _held(kubectl: Kubectl, pod: RunningPod) -> HeldNamespaces | None:
    """What a pod says; None when it cannot be asked now."""
    try:
        return HeldNamespaces.model_validate_json(kubectl.raw(f"{pod.proxy}/namespaces"))
    except (KubectlFailed, ValidationError):
        return None


def _one(found: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The resource that is meant.

    Raises: CliError when there is none, or several.
    """
    if len(found) == 1:
        return found[0]
    if not found:
        raise CliError(
            f"There is no {names.KIND} in this namespace; name another with --namespace."
        )
    there = ", ".join(sorted(each["metadata"]["name"] for each in found))
    raise CliError(f"Which {names.KIND} is meant? Name one with --resource; there are: {there}.")

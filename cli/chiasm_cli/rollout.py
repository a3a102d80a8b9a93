"""`chiasm rollout`: where a rollout is, what was before, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any
from uuid import uuid4

import typer
from chiasm_contract import names
from chiasm_contract.api.rollout import BESIDE_REVISIONS, TOLD_TO_PODS
from pydantic.alias_generators import to_camel

from chiasm_cli.errors import CliError
from chiasm_cli.kubectl import RESOURCES, ContextOption, Kubectl, NamespaceOption

Object = Mapping[str, Any]

app = typer.Typer(
    help="Follow and steer the rollout of a MultimodalInference.", no_args_is_help=True
)

NameArgument = Annotated[str, typer.Argument(help="Name of the MultimodalInference.")]
_TOLD = {to_camel(name) for name in TOLD_TO_PODS}
# Of an environment; decided on its way, and no part of a revision.
_SHARE = ("weight",)


@app.command()
def status(
    name: NameArgument,
    namespace: NamespaceOption = "",
    context: ContextOption = "",
) -> None:
    """Say where the rollout is and what it waits for."""
    resource = _resource(Kubectl(context, namespace), name)
    print("\n".join(described(resource)))


@app.command()
def history(
    name: NameArgument,
    namespace: NamespaceOption = "",
    context: ContextOption = "",
) -> None:
    """List the revisions that undo can bring back."""
    cluster = Kubectl(context, namespace)
    print("\n".join(listed(_resource(cluster, name), _records(cluster, name))))


@app.command()
def undo(
    name: NameArgument,
    to_revision: Annotated[
        int, typer.Option(min=0, help="Number in the history; 0 is the one before.")
    ] = 0,
    namespace: NamespaceOption = "",
    context: ContextOption = "",
) -> None:
    """Write the spec of an earlier revision."""
    cluster = Kubectl(context, namespace)
    resource = _resource(cluster, name)
    record = chosen(resource, _records(cluster, name), to_revision)
    spec = restored(resource["spec"], record["data"]["spec"])
    version = resource["metadata"]["resourceVersion"]
    # Nothing is written over what somebody changed meanwhile.
    unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    cluster.change(RESOURCES, name, [unchanged, {"op": "replace", "path": "/spec", "value": spec}])
    print(f"{name} goes back to revision {_revision(record)} (number {record['revision']}).")


def _resource(cluster: Kubectl, name: str) -> Object:
    return cluster.get(RESOURCES, name)[0]


def _records(cluster: Kubectl, name: str) -> list[Object]:
    return cluster.get("controllerrevisions.apps", f"--selector={names.LABEL_OWNER}={name}")


def _act(name: str, verb: str, cluster: Kubectl) -> None:
    rollout = _rollout(_resource(cluster, name))
    canary = rollout.get("canaryRevision")
    if not canary:
        raise CliError(
            f"{name} has no rollout under way that could be told to {verb}; see: "
            f"chiasm rollout status {name}"
        )
    # Another value each time: what was done once is not done again.
    value = f"{verb}:{canary}:{uuid4().hex[:8]}"
    cluster.annotate(RESOURCES, name, names.ANNOTATION_ROLLOUT_ACTION, value)
    print(f"{name}: {verb} for revision {canary}.")


_ACTIONS = {
    "promote": "Pass over the steps that remain and make the new revision the stable one.",
    "abort": "Take all traffic from the new revision.",
    "retry": "Begin an aborted rollout again.",
    "pause": "Hold the rollout where it is.",
    "resume": "Go on behind a pause.",
}


def _offer(verb: str, words: str) -> None:
    """A command that tells the operator one of its actions."""

    @app.command(verb, help=words)
    def act(
        name: NameArgument, namespace: NamespaceOption = "", context: ContextOption = ""
    ) -> None:
        _act(name, verb, Kubectl(context, namespace))


for _verb, _words in _ACTIONS.items():
    _offer(_verb, _words)


def _rollout(resource: Object) -> Object:
    """`status.rollout`.

    Raises: CliError when no operator has written one.
    """
    rollout: Object | None = resource.get("status", {}).get("rollout")
    if rollout is None:
        name = resource["metadata"]["name"]
        raise CliError(
            f"{name} has no status.rollout yet: no operator has looked at it; is one running?"
        )
    return rollout


def described(resource: Object) -> Iterator[str]:
    """The lines of `chiasm rollout status`."""
    status, rollout = resource["status"], _rollout(resource)
    steps = resource["spec"].get("rollout", {}).get("steps", [])
    yield f"Phase:    {status['phase']}"
    yield f"State:    {rollout['state']}" + (
        f": {rollout['message']}" if rollout["message"] else ""
    )
    yield f"Stable:   {rollout['stableRevision'] or '-'}"
    canary = rollout.get("canaryRevision")
    if canary:
        yield f"Canary:   {canary}"
        manual = rollout.get("manualWeight")
        origin = f" (annotation says {manual} %)" if manual is not None else ""
        yield f"Weight:   {rollout['weight']} %{origin}"
        if steps and manual is None:
            yield f"Step:     {rollout['currentStep']} of {len(steps)} done"
    yield f"Pods:     {status['ready']} of {status['revision']} ready, {status['replicas']} in all"
    for item in rollout.get("leaving", ()):
        yield f"Leaving:  {item['revision']} ({item['why']} until {item['until']})"


def _revision(record: Object) -> str:
    revision: str = record["metadata"]["labels"][names.LABEL_REVISION]
    return revision


def _by_number(records: Sequence[Object]) -> list[Object]:
    return sorted(records, key=lambda record: int(record["revision"]))


def listed(resource: Object, records: Sequence[Object]) -> Iterator[str]:
    """The lines of `chiasm rollout history`, the latest last."""
    rollout = _rollout(resource)
    yield f"{'NUMBER':<8}{'REVISION':<16}{'CREATED':<22}{'ROLE':<9}CHANGED"
    before: Object | None = None
    for record in _by_number(records):
        revision = _revision(record)
        roles = {rollout["stableRevision"]: "stable", rollout.get("canaryRevision"): "canary"}
        created = record["metadata"].get("creationTimestamp", "")
        changed = ", ".join(_changed(before, record)) if before else "-"
        role = roles.get(revision, "-")
        yield f"{record['revision']:<8}{revision:<16}{created:<22}{role:<9}{changed}"
        before = record


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict) and node:
        for key, value in node.items():
            yield from _leaves(value, f"{path}.{key}".lstrip("."))
    else:
        yield path, node


def _changed(before: Object, after: Object) -> list[str]:
    """Fields and images that are not as they were in the revision before."""
    old, new = (
        dict(_leaves({"spec": each["data"]["spec"], "images": each["data"]["images"]}))
        for each in (before, after)
    )
    return sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))


def chosen(resource: Object, records: Sequence[Object], number: int) -> Object:
    """The record to go back to; with number 0 what serves now, or served before.

    Raises: CliError when there is no such revision.
    """
    name, rollout = resource["metadata"]["name"], _rollout(resource)
    ordered = _by_number(records)
    if number:
        found = next((each for each in ordered if each["revision"] == number), None)
        if found is None:
            known = ", ".join(str(each["revision"]) for each in ordered)
            raise CliError(f"{name} has no revision number {number}; there are: {known}.")
        return found
    if rollout.get("canaryRevision"):
        stable = rollout["stableRevision"]
        found = next((each for each in ordered if _revision(each) == stable), None)
    else:
        present = resource["status"]["revision"]
        earlier = [each for each in ordered if _revision(each) != present]
        found = earlier[-1] if earlier else None
    if found is None:
        raise CliError(f"{name} has no earlier revision; see: chiasm rollout history {name}")
    return found


def restored(spec: Object, recorded: Object) -> dict[str, Any]:
    """The spec of an earlier revision; what makes no revision stays as it is now: how many pods,
    what scales them and leads to them, how they are replaced, which namespaces are retired, what
    other environments are and which share each gives.

    Raises: CliError when the record holds no spec.
    """
    if not recorded:
        raise CliError("the spec of that revision is not known; its record was deleted once.")
    now = {key: value for key, value in spec.get("rollout", {}).items() if key not in _TOLD}
    rollout = {**now, **recorded.get("rollout", {})}
    kept = {section: spec[section] for section in BESIDE_REVISIONS if section in spec}
    retired = spec.get("tiers", {}).get("retiredNamespaces")
    if retired and "tiers" in recorded:
        kept["tiers"] = {**recorded["tiers"], "retiredNamespaces": retired}
    config = _config(spec.get("config", {}), recorded.get("config", {}))
    return {
        **recorded,
        **kept,
        **({"rollout": rollout} if rollout else {}),
        **({"config": config} if config else {}),
    }


def _config(now: Object, recorded: Object) -> dict[str, Any]:
    """Of a revision's environment its record holds all but the weight; the others are only kept
    beside it. A revision of before there were any leaves no place for them."""
    if "environment" not in recorded:
        return dict(recorded)
    (back,) = recorded["environments"]
    environments = {each["name"]: each for each in now.get("environments", [])}
    share = {key: environments.get(back["name"], {}).get(key) for key in _SHARE}
    environments[back["name"]] = {
        **back, **{key: value for key, value in share.items() if value is not None},
    }  # fmt: skip
    return {**recorded, "environments": list(environments.values())}

"""The chart through the real helm: golden renders, permissions, a locked-down pod, the notes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from chiasm_operator.cluster import PERMISSIONS
from chiasm_operator.own_objects import OWN_PERMISSIONS, WEBHOOK_NAME

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
CHART = str(ROOT / "charts" / "chiasm")
Helm = Callable[..., subprocess.CompletedProcess[str]]
NAMESPACE = ("-n", "chiasm-system")


@pytest.fixture
def render(helm: Helm) -> Callable[..., list[dict[str, Any]]]:
    """Manifests of the chart under some options."""

    def run(*options: str) -> list[dict[str, Any]]:
        ran = helm("template", "chiasm", CHART, *NAMESPACE, *options)
        assert ran.returncode == 0, ran.stderr
        return [item for item in yaml.safe_load_all(ran.stdout) if item]

    return run


Render = Callable[..., list[dict[str, Any]]]


def of_kind(manifests: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in manifests if item["kind"] == kind]


@pytest.mark.parametrize(
    ("name", "options"),
    [("defaults", ()), ("all-options", ("--values", f"{CHART}/ci/all-options.yaml"))],
)
def test_golden_renders_are_current(name: str, options: tuple[str, ...], helm: Helm) -> None:
    ran = helm("template", "chiasm", CHART, *NAMESPACE, *options)
    golden = ROOT / "tests" / "golden" / f"chart-{name}.yaml"
    assert ran.stdout == golden.read_text(), f"{golden.name} is not current; run make generate"


def test_lint(helm: Helm) -> None:
    ran = helm("lint", "--strict", CHART, "--values", f"{CHART}/ci/all-options.yaml")
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize("options", [(), ("--set", "watchNamespaces={a,b}")])
def test_the_permissions_are_exactly_what_is_called(
    options: tuple[str, ...], render: Render
) -> None:
    kind = "Role" if options else "ClusterRole"
    roles = [
        role for role in of_kind(render(*options), kind) if role["metadata"]["name"] == "chiasm"
    ]
    assert [role["metadata"].get("namespace") for role in roles] == (
        ["a", "b"] if options else [None]
    )
    for role in roles:
        granted = {
            (group, resource): tuple(rule["verbs"])
            for rule in role["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
        }
        assert granted == dict(PERMISSIONS)


def test_the_operators_own_objects_are_named(render: Render) -> None:
    """What the operator may do beside the passes, it may do with one object of each kind only."""
    granted: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {}
    named = {("", "secrets"): "chiasm-webhook"}
    for role in (*of_kind(render(), "Role"), *of_kind(render(), "ClusterRole")):
        if role["metadata"]["name"] == "chiasm":
            continue
        for rule in role["rules"]:
            key = (rule["apiGroups"][0], rule["resources"][0])
            assert len(rule["apiGroups"]) == len(rule["resources"]) == 1
            verbs = tuple(rule["verbs"])
            with_name, without = granted.get(key, ((), ()))
            if "resourceNames" in rule:
                assert rule["resourceNames"] == [named.get(key, "chiasm")]
                granted[key] = (verbs, without)
            else:
                granted[key] = (with_name, verbs)
    assert granted == dict(OWN_PERMISSIONS)


def test_the_webhook_stops_nobody(render: Render) -> None:
    (configuration,) = of_kind(render(), "ValidatingWebhookConfiguration")
    (webhook,) = configuration["webhooks"]
    # Another name in another version would leave the former entry where several write the list.
    assert webhook["name"] == WEBHOOK_NAME == "multimodalinferences.chiasm.dev"
    assert webhook["failurePolicy"] == "Ignore"
    assert webhook["rules"][0]["resources"] == ["multimodalinferences"], "and not its status"
    assert [item["name"] for item in webhook["matchConditions"]] == [
        "is-not-being-deleted",
        "is-not-the-operator",
    ]
    assert "namespaceSelector" not in webhook
    (limited,) = of_kind(render("--set", "watchNamespaces={a,b}"), "ValidatingWebhookConfiguration")
    (expression,) = limited["webhooks"][0]["namespaceSelector"]["matchExpressions"]
    assert expression["values"] == ["a", "b"]


def test_the_release_says_where_everything_is(helm: Helm) -> None:
    """Namespaces were written into another chart (kserve #5325)."""
    options = ("--values", f"{CHART}/ci/all-options.yaml")
    here = helm("template", "chiasm", CHART, *NAMESPACE, *options).stdout
    there = helm("template", "chiasm", CHART, "-n", "elsewhere", *options).stdout
    assert "chiasm-system" in here
    assert there == here.replace("chiasm-system", "elsewhere")
    kinds = {item["kind"] for item in yaml.safe_load_all(here) if item}
    assert "CustomResourceDefinition" not in kinds, "no release owns it"


def test_without_the_webhook_nothing_is_left_of_it(helm: Helm) -> None:
    ran = helm("template", "chiasm", CHART, *NAMESPACE, "--set", "webhook.enabled=false")
    assert "webhook" not in ran.stdout


def test_the_operators_pod_is_locked_down(render: Render) -> None:
    (deployment,) = of_kind(render(), "Deployment")
    # Two at once are safe: only the holder of the Lease writes.
    assert deployment["spec"]["strategy"]["type"] == "RollingUpdate"
    assert deployment["spec"]["replicas"] == 1
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_an_unknown_option_is_an_error(helm: Helm) -> None:
    ran = helm("template", "chiasm", CHART, "--set", "image.tag=1")
    assert ran.returncode != 0
    assert "image" in ran.stderr


@pytest.mark.parametrize(
    ("options", "absent"),
    [
        (("--set", "rbac.create=false"), "ClusterRole"),
        (("--set", "serviceAccount.create=false"), "ServiceAccount"),
        (("--set", "networkPolicy.enabled=false"), "NetworkPolicy"),
    ],
)
def test_parts_can_be_left_out(options: tuple[str, ...], absent: str, render: Render) -> None:
    assert of_kind(render(), absent)
    assert not of_kind(render(*options), absent)


def test_everything_is_taken_by_the_api_server(
    helm: Helm, kubectl: Callable[..., str], namespace: str
) -> None:
    rendered = helm("template", "chiasm", CHART, "-n", namespace).stdout
    said = kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=rendered)
    assert "deployment.apps/chiasm created" in said


def test_the_notes_say_the_next_command(helm: Helm, kubeconfig: Path) -> None:
    ran = helm(
        "install", "notes", CHART, "-n", "default", "--dry-run=server", "--skip-crds",
        "--set", "watchNamespaces={vision}", kubeconfig=kubeconfig,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "kubectl apply -n vision -f - <<YAML" in ran.stdout
    assert "kubectl get -n vision mmi" in ran.stdout

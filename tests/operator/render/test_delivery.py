"""What other projects are handed is what they document: fields that they know, and those they need.

The tables are written after their schemas, at the commits named. A field that is not in one is a
field that those projects would ignore or refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml
from chiasm_operator.cluster import _BY_KIND, DELIVERY_KINDS, PERMISSIONS, PRUNED_KINDS
from chiasm_operator.render import Target, delivery
from chiasm_operator.render.configuration.agent import CONFIG_KEY
from chiasm_operator.render.revision import record_of
from chiasm_operator.resource import Manifest, kind_of

from tests.operator.render.rendered import child, load_tool, pod_spec

Load = Callable[[str], dict[str, Any]]
Make = Callable[..., Target]

# github.com/external-secrets/external-secrets, cc5bfbc2: config/crds/bases. `!` is required.
VAULT = {
    *("server!", "namespace", "caProvider.type!", "caProvider.name!", "caProvider.key"),
    *("auth.kubernetes.mountPath!", "auth.kubernetes.role!"),
    *("auth.kubernetes.serviceAccountRef.name!", "auth.kubernetes.serviceAccountRef.audiences"),
}
# github.com/hashicorp/vault-secrets-operator, 9b840a5a: config/crd/bases.
DESTINATION = {
    *("destination.name!", "destination.create", "destination.transformation.excludeRaw"),
    "destination.type",
}
FIELDS: dict[str, set[str]] = {
    "SecretStore": {f"provider.vault.{each}" for each in {*VAULT, "path", "version"}},
    "ExternalSecret": {
        *("refreshInterval", "secretStoreRef.kind", "secretStoreRef.name"),
        *("dataFrom.extract.key!", "dataFrom.sourceRef.generatorRef.apiVersion"),
        *("dataFrom.sourceRef.generatorRef.kind!", "dataFrom.sourceRef.generatorRef.name!"),
        *("target.name", "target.creationPolicy", "target.deletionPolicy", "target.template.type"),
    },
    "VaultDynamicSecret.generators.external-secrets.io": {
        *("path!", "method", "parameters.common_name", "parameters.ttl"),
        *(f"provider.{each}" for each in VAULT),
    },
    "VaultConnection": {"address!", "skipTLSVerify!"},
    "VaultAuth": {
        *("vaultConnectionRef", "method", "mount", "namespace", "kubernetes.role"),
        *("kubernetes.serviceAccount", "kubernetes.audiences"),
        "kubernetes.tokenExpirationSeconds",
    },
    "VaultStaticSecret": {
        *("vaultAuthRef", "mount!", "path!", "type!", "refreshAfter", "hmacSecretData"),
        *DESTINATION,
    },
    "VaultDynamicSecret": {
        *("vaultAuthRef", "mount!", "path!", "renewalPercent", "revoke"),
        *DESTINATION,
    },
    "VaultPKISecret": {
        *("vaultAuthRef", "mount!", "role!", "commonName", "ttl", "expiryOffset"),
        *DESTINATION,
    },
    # github.com/kubernetes-sigs/secrets-store-csi-driver: config/crd/bases; parameters are those of
    # internal/config in github.com/openbao/openbao-csi-provider, 1fcff229, and
    # github.com/hashicorp/vault-csi-provider.
    "SecretProviderClass": {
        *("provider", "parameters.roleName!", "parameters.audience", "parameters.objects!"),
        *(
            f"parameters.{prefix}{name}"
            for prefix in ("bao", "vault")
            for name in ("Address", "AuthMountPath", "Namespace")
        ),
    },
}


def paths(node: Any, path: str = "") -> Iterator[str]:
    if isinstance(node, Mapping):
        for name, value in node.items():
            yield from paths(value, f"{path}.{name}".lstrip("."))
    elif isinstance(node, list):
        for value in node:
            yield from paths(value, path)
    else:
        yield path


@pytest.fixture
def made(make_target: Make, load_example: Load) -> Callable[..., tuple[Manifest, ...]]:
    """The objects of the example by a delivery, `more` set in its server."""

    def make(by: str, **more: Any) -> tuple[Manifest, ...]:
        body = load_tool("golden_files").by(load_example("environments"), by)
        config = body["spec"]["config"]
        (chosen,) = (e for e in config["environments"] if e["name"] == config["environment"])
        chosen["vault"] |= more
        target = make_target("environments", **body["spec"])
        return delivery.render(target, target.revision, record_of(target).objects)

    return make


@pytest.mark.parametrize("by", ["external-secrets", "vso", "csi"])
@pytest.mark.parametrize("more", [{}, {"namespace": "teams", "flavor": "vault"}], ids=str)
def test_objects_have_fields_that_are_documented(
    by: str, more: dict[str, Any], made: Callable[..., tuple[Manifest, ...]]
) -> None:
    found = made(by, **more)
    assert found
    for manifest in found:
        known = FIELDS[kind_of(manifest)]
        there = set(paths(manifest["spec"]))
        assert there <= {name.rstrip("!") for name in known}, kind_of(manifest)
        for name in (each.rstrip("!") for each in known if each.endswith("!")):
            parent = name.rpartition(".")[0]
            inside = any(each.startswith(f"{parent}.") for each in there) if parent else True
            assert name in there or not inside, (kind_of(manifest), name)
        api = _BY_KIND[kind_of(manifest)]
        assert manifest["apiVersion"] == api.api_version
        assert "delete" in PERMISSIONS[api.group, api.plural]
    if by != "csi" and more:
        assert "teams" in str(found)


def test_each_kind_of_a_delivery_is_known_and_pruned() -> None:
    assert set(delivery.KINDS) == {kind.key for kind in DELIVERY_KINDS} == set(FIELDS)
    assert set(delivery.KINDS) <= PRUNED_KINDS
    assert all(kind.optional for kind in DELIVERY_KINDS)


@pytest.mark.parametrize("by", ["external-secrets", "vso"])
def test_each_source_becomes_the_secret_that_pods_mount_or_are_pulled_with(
    by: str, made: Callable[..., tuple[Manifest, ...]], make_target: Make, load_example: Load
) -> None:
    *written, registry = [
        manifest["spec"][section]
        for manifest in made(by)
        for section in ("target", "destination")
        if section in manifest["spec"]
    ]
    body = load_tool("golden_files").by(load_example("environments"), by)
    target = make_target("environments", **body["spec"])
    pod = pod_spec(target)
    mounted = [
        volume["secret"]["secretName"]
        for volume in pod["volumes"]
        if volume["name"].startswith("source-") and "secret" in volume
    ]
    assert [each["name"] for each in written] == mounted
    assert [{"name": registry["name"]}] == pod["imagePullSecrets"]
    assert all(name.startswith(f"travelling-{target.revision}-") for name in mounted)
    # A kubelet takes a Secret of this type alone; all others may be of any.
    assert registry.get("template", registry)["type"] == "kubernetes.io/dockerconfigjson"
    assert not any("template" in each or "type" in each for each in written)


def test_both_halves_of_a_lease_are_read_by_one_path(
    made: Callable[..., tuple[Manifest, ...]],
) -> None:
    (store, identity, *_) = (
        yaml.safe_load(each["spec"]["parameters"]["objects"]) for each in made("csi")
    )
    assert [each["objectName"] for each in store] == ["password", "username"]
    assert {each["secretPath"] for each in store} == {"database/creds/travelling-blocks"}
    assert {each["secretArgs"]["common_name"] for each in identity} == {"travelling.vision.svc"}


@pytest.mark.parametrize(
    ("flavor", "program", "variable"),
    [("openbao", "bao", "BAO_NAMESPACE"), ("vault", "vault", "VAULT_NAMESPACE")],
)
def test_one_agent_logs_in_before_the_sidecar_starts(
    flavor: str, program: str, variable: str, make_target: Make, load_example: Load
) -> None:
    body = load_tool("golden_files").by(load_example("environments"), "agent")
    vault = body["spec"]["config"]["environments"][1]["vault"]
    vault |= {"flavor": flavor, "namespace": "teams"}
    target = make_target("environments", **body["spec"])
    agent, sidecar = pod_spec(target)["initContainers"]
    assert (agent["name"], sidecar["name"]) == ("agent", "sidecar")
    assert agent["restartPolicy"] == "Always"
    assert agent["command"] == [program, "agent", "-config=/etc/chiasm/agent.json"]
    assert agent["env"] == [{"name": variable, "value": "teams"}]
    assert agent["image"] == target.images.agent
    config = yaml.safe_load(child(target, "ConfigMap")["data"][CONFIG_KEY])
    # One list of one method: as an object it is read as several.
    (method,) = config["auto_auth"]["method"]
    assert method["namespace"] == "teams"
    assert method["config"] == {"role": "travelling", "token_path": "/run/chiasm-vault/token"}
    written = [each["destination"] for each in config["template"]]
    assert agent["startupProbe"]["exec"]["command"] == ["ls", *written]
    assert "configuration" not in str(agent["volumeMounts"])
    assert all(each["perms"] == "0600" for each in config["template"])


def test_the_agent_s_image_makes_a_revision_only_where_it_runs(
    make_target: Make, load_example: Load
) -> None:
    tool = load_tool("golden_files")
    body = tool.by(load_example("environments"), "agent")

    def revision(agent: str, **sections: Any) -> str:
        images = replace(tool.IMAGES, agent=agent)
        return make_target("environments", images=images, **sections).revision

    assert revision("agent:1", **body["spec"]) != revision("agent:2", **body["spec"])
    assert revision("agent:1") == revision("agent:2"), "by itself the example asks directly"


# github.com/hashicorp/vault-k8s, fbc5b1f0: agent-inject/agent/annotations.go.
INJECTOR = {
    *("agent-inject", "agent-init-first", "agent-pre-populate", "agent-inject-containers"),
    *("agent-run-as-user", "agent-run-as-group", "agent-service-account-token-volume-name"),
    *("service", "auth-type", "auth-path", "role", "namespace", "ca-cert"),
    *("template-static-secret-render-interval", "agent-json-patch", "agent-init-json-patch"),
}
OF_A_SECRET = (
    *("agent-inject-secret-", "agent-inject-file-", "agent-inject-perms-"),
    *("agent-inject-template-", "error-on-missing-key-"),
)


def test_the_injector_is_asked_with_annotations_that_it_documents(
    make_target: Make, load_example: Load
) -> None:
    body = load_tool("golden_files").by(load_example("environments"), "injector")
    body["spec"]["config"]["environments"][1]["vault"]["namespace"] = "teams"
    target = make_target("environments", **body["spec"])
    template = child(target, "Deployment")["spec"]["template"]
    prefix = "vault.hashicorp.com/"
    written = {
        name.removeprefix(prefix): value
        for name, value in template["metadata"]["annotations"].items()
        if name.startswith(prefix)
    }
    secrets = {name for name in written if name.startswith(OF_A_SECRET)}
    assert written.keys() - secrets == INJECTOR
    sources = ("store", "identity", "shared", "tenants")
    assert secrets == {f"{name}{source}" for name in OF_A_SECRET for source in sources}
    assert all(len(name) <= 63 for name in written), "else the API server refuses the pod"
    (token,) = (
        volume["projected"]["sources"][0]["serviceAccountToken"]
        for volume in template["spec"]["volumes"]
        if volume["name"] == written["agent-service-account-token-volume-name"]
    )
    assert token == {
        "audience": "https://openbao.vault.svc:8200",
        "expirationSeconds": 600,
        "path": "token",
    }

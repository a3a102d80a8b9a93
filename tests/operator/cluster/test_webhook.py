"""The webhook behind the real API server, with the chart's own objects and permissions.

Operators run beside the cluster, so the Service gets their addresses by hand; all else, the keys
too, is as the chart and the operators make it.
"""

from __future__ import annotations

import base64
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml
from chiasm_operator.admission.certificates import AUTHORITY_LIFE, Keys, step
from cryptography import x509

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("crd")]

ROOT = Path(__file__).resolve().parents[3]
WEIGHT = "chiasm.dev/canary-weight"
ENTRIES = ("ca.crt", "ca.key", "tls.crt", "tls.key")
Eventually = Callable[..., None]


def shown_on(host: str, port: int) -> str | None:
    """The certificate that is shown there; None when nobody listens."""
    try:
        return ssl.get_server_certificate((host, port), timeout=2)
    except OSError:
        return None


class Installed:
    """The chart's webhook in a namespace, and operators that serve it."""

    def __init__(
        self, api: httpx.Client, namespace: str, make: Callable[[int], Any], wait: Eventually
    ) -> None:
        self.api = api
        self._wait = wait
        self.namespace = namespace
        self.name = f"chiasm-{namespace}"
        self._make = make
        self._secret = f"/api/v1/namespaces/{namespace}/secrets/{self.name}-webhook"

    def start(self, host: str) -> Any:
        """One more replica behind the Service."""
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        operator = self._make(port)
        operator.start()
        self._wait(lambda: shown_on(host, port), "the webhook should listen")
        slices = f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices"
        body = {
            "metadata": {
                "generateName": "replica-",
                "labels": {"kubernetes.io/service-name": f"{self.name}-webhook"},
            },
            "addressType": "IPv4",
            "ports": [{"name": "webhook", "port": port, "protocol": "TCP"}],
            "endpoints": [{"addresses": [host]}],
        }
        assert self.api.post(slices, json=body).is_success
        operator.webhook_port = port
        return operator

    def bundle(self) -> bytes:
        path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        (webhook,) = self.api.get(f"{path}/{self.name}").json()["webhooks"]
        return base64.b64decode(webhook["clientConfig"].get("caBundle", ""))

    def keys(self) -> Keys | None:
        data = self.api.get(self._secret).json().get("data") or {}
        if not data:
            return None
        return Keys(*(base64.b64decode(data[entry]) for entry in ENTRIES))

    def put_keys(self, keys: Keys | None) -> None:
        values = (
            (keys.authorities, keys.authority_key, keys.certificate, keys.key)
            if keys
            else (b"",) * 4
        )
        data = {
            entry: base64.b64encode(value).decode()
            for entry, value in zip(ENTRIES, values, strict=True)
        }
        response = self.api.patch(
            self._secret,
            headers={"Content-Type": "application/merge-patch+json"},
            json={"data": data},
        )
        assert response.is_success, response.text

    def create(self, name: str, annotations: dict[str, str], **spec: Any) -> httpx.Response:
        body = {
            "apiVersion": "chiasm.dev/v1alpha1",
            "kind": "MultimodalInference",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"model": {"source": {"builtin": "demo"}}, "replicas": 0, **spec},
        }
        path = f"/apis/chiasm.dev/v1alpha1/namespaces/{self.namespace}/multimodalinferences"
        return self.api.post(path, params={"dryRun": "All"}, json=body)

    def refuses(self) -> bool:
        """Whether the webhook is asked and believed; when not, the API server passes it over."""
        return any(self.create("wrong", {WEIGHT: "500"}).status_code == 422 for _ in range(3))


@pytest.fixture
def host(kubeconfig: Path) -> str:
    """This machine's address as the API server sees it."""
    server = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((urlsplit(server).hostname, 1))
        address: str = probe.getsockname()[0]
    return address


@pytest.fixture
def installed(
    api: httpx.Client,
    helm: Callable[..., subprocess.CompletedProcess[str]],
    kubectl: Callable[..., str],
    kubeconfig: Path,
    make_operator: Callable[..., Any],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Installed]:
    namespace: str = request.getfixturevalue("namespace")
    eventually: Eventually = request.getfixturevalue("eventually")
    release = f"chiasm-{namespace}"
    shown = ("webhook", "rbac", "serviceaccount")
    rendered = helm(
        "template", release, str(ROOT / "charts" / "chiasm"), "-n", namespace,
        "--set", f"watchNamespaces={{{namespace}}}",
        *(part for name in shown for part in ("--show-only", f"templates/{name}.yaml")),
    )  # fmt: skip
    kubectl("apply", "-f", "-", stdin=rendered.stdout)
    without_selector = '[{"op": "remove", "path": "/spec/selector"}]'
    patch = ("--type=json", "-p", without_selector)
    kubectl("patch", "service", f"{release}-webhook", "-n", namespace, *patch)
    token = kubectl("create", "token", release, "-n", namespace).strip()
    config = yaml.safe_load(kubeconfig.read_text())
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    limited = tmp_path / "kubeconfig"
    limited.write_text(yaml.safe_dump(config))

    def make(port: int) -> Any:
        return make_operator(
            limited, namespace, namespace=namespace, lease_name=release, webhook_port=port,
            webhook_name=f"{release}-webhook", webhook_configuration=release,
        )  # fmt: skip

    yield Installed(api, namespace, make, eventually)
    for kind in ("validatingwebhookconfiguration", "clusterrole", "clusterrolebinding"):
        name = release if kind.startswith("validating") else f"{release}-webhook"
        kubectl("delete", kind, name)


def test_what_cel_cannot_see_is_refused_with_its_path(
    installed: Installed, host: str, eventually: Eventually
) -> None:
    operator = installed.start(host)
    eventually(installed.refuses, "the webhook should refuse a wrong weight")
    said = installed.create("wrong", {"chiasm.dev/canary-wieght": "5"}).json()["message"]
    assert "metadata.annotations[chiasm.dev/canary-wieght]: Nothing reads this" in said
    allowed = installed.create(
        "right", {WEIGHT: "5"}, rollout={"terminationGracePeriodSeconds": 60}
    )
    assert allowed.status_code == 201
    assert "an answer that takes longer than 50 s is cut" in allowed.headers["Warning"]
    assert "forbidden" not in operator.log.lower()


def test_a_dead_operator_blocks_neither_apply_nor_deletion(
    installed: Installed, host: str, eventually: Eventually
) -> None:
    operator = installed.start(host)
    eventually(installed.refuses, "the webhook should refuse a wrong weight")
    operator.kill()
    eventually(
        lambda: installed.create("wrong", {WEIGHT: "500"}).status_code == 201,
        "nobody is there to refuse it",
    )
    refused = installed.create("wrong", {}, engine={"blockSize": 7})
    assert refused.status_code == 422, "the CRD's own rules hold"
    path = f"/apis/chiasm.dev/v1alpha1/namespaces/{installed.namespace}/multimodalinferences"
    body = {
        "apiVersion": "chiasm.dev/v1alpha1",
        "kind": "MultimodalInference",
        "metadata": {"name": "stays", "annotations": {WEIGHT: "500"}},
        "spec": {"model": {"source": {"builtin": "demo"}}, "replicas": 0},
    }
    assert installed.api.post(path, json=body).status_code == 201
    assert installed.api.delete(f"{path}/stays").is_success
    assert installed.api.get(f"{path}/stays").status_code == 404


def test_a_wrong_resource_can_be_changed_and_its_finalizers_taken_off(
    installed: Installed, host: str, eventually: Eventually
) -> None:
    path = f"/apis/chiasm.dev/v1alpha1/namespaces/{installed.namespace}/multimodalinferences"
    metadata = {"name": "old", "annotations": {WEIGHT: "500"}, "finalizers": ["example.com/f"]}
    body = {
        "apiVersion": "chiasm.dev/v1alpha1",
        "kind": "MultimodalInference",
        "metadata": metadata,
        "spec": {"model": {"source": {"builtin": "demo"}}, "replicas": 0},
    }
    assert installed.api.post(path, json=body).status_code == 201
    installed.start(host)
    eventually(installed.refuses, "the webhook should refuse a wrong weight")

    def patch(change: dict[str, Any]) -> httpx.Response:
        headers = {"Content-Type": "application/merge-patch+json"}
        return installed.api.patch(f"{path}/old", headers=headers, json=change)

    scaled = patch({"spec": {"replicas": 1}})
    assert scaled.is_success, "what was wrong before does not stop another change"
    assert "stored like this before" in scaled.headers["Warning"]
    assert patch({"metadata": {"annotations": {WEIGHT: "501"}}}).status_code == 422
    assert installed.api.delete(f"{path}/old").is_success
    wrong = {"annotations": {WEIGHT: "502"}, "finalizers": []}
    assert patch({"metadata": wrong}).is_success, "a deletion is never in its way"
    assert installed.api.get(f"{path}/old").status_code == 404


def test_keys_change_under_two_replicas_without_a_gap(
    installed: Installed, host: str, eventually: Eventually
) -> None:
    """First an authority that is due, then its successor old enough to sign: what is wrong is
    refused at every moment, so the API server believed whoever answered."""
    now = datetime.now(UTC)
    hosts = [f"{installed.name}-webhook.{installed.namespace}.svc"]
    made = now - AUTHORITY_LIFE * 0.7
    old = step(None, hosts, made, published=True)
    serving = step(old, hosts, now - timedelta(days=10), published=True)  # its first one expired
    installed.put_keys(serving)
    installed.start(host)
    installed.start(host)

    def num_trusted() -> int:
        bundle = installed.bundle()
        return len(x509.load_pem_x509_certificates(bundle)) if bundle else 0

    eventually(lambda: num_trusted() == 2, "the successor should be trusted beside the old one")
    eventually(installed.refuses, "the old certificate should be believed")
    both = installed.keys()
    assert both is not None
    assert both.certificate == serving.certificate, "the successor signs nothing yet"

    moment = now - timedelta(minutes=30)
    ready = step(serving, hosts, moment, published=True)  # the same, half an hour ago
    installed.put_keys(ready)
    third = installed.start(host)

    def signed_by_successor() -> bool:
        assert installed.refuses(), "there must be no moment in which nobody is believed"
        keys = installed.keys()
        return keys is not None and serving.certificate != keys.certificate == shown(third)

    def shown(replica: Any) -> bytes:
        return (shown_on(host, replica.webhook_port) or "").encode()

    eventually(signed_by_successor, "the successor should sign")
    assert num_trusted() == 2


def test_an_emptied_secret_is_filled_again(
    installed: Installed, host: str, eventually: Eventually
) -> None:
    installed.put_keys(None)
    installed.start(host)
    installed.start(host)
    eventually(installed.refuses, "the webhook should refuse a wrong weight")
    keys = installed.keys()
    assert keys is not None
    eventually(lambda: installed.bundle() == keys.authorities, "both replicas agree")

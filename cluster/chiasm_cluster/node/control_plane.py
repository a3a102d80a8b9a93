"""The control plane: its certificates, its programs' command lines, its DNS.

It runs in the first node's namespaces. etcd does not sync to disk: this cluster is thrown away.
"""

from __future__ import annotations

from pathlib import Path

from chiasm_cluster.node.certificates import (
    Authority,
    private_key,
    write_key,
    write_kubeconfig,
    write_public_key,
)
from chiasm_cluster.node.component import Component
from chiasm_cluster.state import Cluster

_COREFILE = """\
cluster.local:53 in-addr.arpa:53 ip6.arpa:53 {{
    bind {address}
    errors
    ready {address}:8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
    }}
    cache 5
}}
.:53 {{
    bind {address}
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""


def pki_dir(cluster: Cluster) -> Path:
    """Where the cluster's certificates lie."""
    return cluster.state_dir / "pki"


def kubeconfig_of(cluster: Cluster, user: str) -> Path:
    """The kubeconfig of one of the cluster's own programs."""
    return pki_dir(cluster) / f"{user}.kubeconfig"


def write_credentials(cluster: Cluster) -> None:
    """Make every certificate, key and kubeconfig of the cluster."""
    folder = pki_dir(cluster)
    folder.mkdir(parents=True)
    authority = Authority(folder, "ca")
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc",
             "kubernetes.default.svc.cluster.local", "localhost", "127.0.0.1",
             cluster.api_service_address, cluster.api_address]  # fmt: skip
    authority.server("apiserver", "kube-apiserver", names)
    authority.client("apiserver-kubelet", "kube-apiserver-kubelet-client", "system:masters")
    Authority(folder, "front-proxy-ca").client("front-proxy", "front-proxy-client")
    service_accounts = private_key()
    write_key(service_accounts, folder / "sa.key")
    write_public_key(service_accounts, folder / "sa.pub")
    users: dict[str, tuple[str, str | None]] = {
        "controller-manager": ("system:kube-controller-manager", None),
        "scheduler": ("system:kube-scheduler", None),
        "proxy": ("system:kube-proxy", None),
        "coredns": ("system:coredns", None),
    }
    for node in cluster.nodes:
        user = f"system:node:{node.name}"
        users[node.name] = (user, "system:nodes")
        authority.server(f"{node.name}-server", user, [node.name, node.address], "system:nodes")
    users["admin"] = ("admin", "system:masters")  # the last: its file says that all are there
    for name, (user, group) in users.items():
        pair = authority.client(name, user, group)
        path = cluster.kubeconfig if name == "admin" else kubeconfig_of(cluster, name)
        context = f"chiasm-{cluster.name}"
        write_kubeconfig(path, cluster.api_url, authority.pair.certificate, pair, context)


def dns_ready_url(cluster: Cluster) -> str:
    """Answers with success once CoreDNS knows every Service."""
    return f"http://{cluster.api_address}:8181/ready"


def write_corefile(cluster: Cluster) -> Path:
    """Write CoreDNS's configuration; every name outside the cluster does not exist."""
    path = cluster.state_dir / "Corefile"
    kubeconfig = kubeconfig_of(cluster, "coredns")
    path.write_text(_COREFILE.format(address=cluster.api_address, kubeconfig=kubeconfig))
    return path


def components(cluster: Cluster) -> list[Component]:
    """The programs of the control plane."""
    api = f"{cluster.api_url}/readyz"
    corefile = write_corefile(cluster)
    binaries = cluster.binaries
    return [
        Component("etcd", _etcd(cluster)),
        Component("kube-apiserver", _api_server(cluster), ["tcp://127.0.0.1:2379"]),
        Component("kube-controller-manager", _controller_manager(cluster), [api]),
        Component("kube-scheduler", _scheduler(cluster), [api]),
        Component("coredns", [f"{binaries}/coredns", "-conf", str(corefile)], [api]),
    ]


def _etcd(cluster: Cluster) -> list[str]:
    return [
        f"{cluster.binaries}/etcd",
        "--name=etcd",
        f"--data-dir={cluster.state_dir}/etcd",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=etcd=http://127.0.0.1:2380",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _api_server(cluster: Cluster) -> list[str]:
    pki = pki_dir(cluster)
    return [
        f"{cluster.binaries}/kube-apiserver",
        f"--advertise-address={cluster.api_address}",
        "--secure-port=6443",
        "--allow-privileged=true",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        "--etcd-servers=http://127.0.0.1:2379",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet.key",
        # Else exec and logs would look the node's name up in DNS.
        "--kubelet-preferred-address-types=InternalIP",
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={pki}/front-proxy.crt",
        f"--proxy-client-key-file={pki}/front-proxy.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki}/sa.pub",
        f"--service-account-signing-key-file={pki}/sa.key",
        f"--service-cluster-ip-range={cluster.service_network}",
    ]


def _controller_manager(cluster: Cluster) -> list[str]:
    pki = pki_dir(cluster)
    kubeconfig = kubeconfig_of(cluster, "controller-manager")
    return [
        f"{cluster.binaries}/kube-controller-manager",
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        "--horizontal-pod-autoscaler-sync-period=5s",  # nobody watches a demo for 15 s
        f"--service-account-private-key-file={pki}/sa.key",
        f"--root-ca-file={pki}/ca.crt",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        f"--service-cluster-ip-range={cluster.service_network}",
    ]


def _scheduler(cluster: Cluster) -> list[str]:
    kubeconfig = kubeconfig_of(cluster, "scheduler")
    return [
        f"{cluster.binaries}/kube-scheduler",
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
    ]

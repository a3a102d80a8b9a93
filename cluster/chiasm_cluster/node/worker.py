"""A node's own parts: container runtime, kubelet, kube-proxy, pod network; and their configuration.

Differences from a production node, each because this one lives inside a machine that is not ours:
the kubelet evicts nothing and deletes no image (the disk is the user's), its control groups hang
below one group of the node, and what it must find at fixed paths is bound there in the node's
mount namespace only. Network policies are accepted by the API server and enforced by nobody.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from chiasm_cluster.node import control_plane
from chiasm_cluster.node.component import Bind, Component, NodePlan
from chiasm_cluster.state import Cluster, Node

PAUSE_IMAGE = "chiasm.dev/pause:1"
# Paths compiled into the kubelet, the container runtime's shims and the CNI library.
FIXED_PATHS = ("/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers")

_CONTAINERD = """\
version = 3
root = "{image_dir}"
state = "{state_dir}/containerd"
oom_score = 0
disabled_plugins = [
  "io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
address = "{socket}"

[plugins.'io.containerd.cri.v1.images']
snapshotter = "overlayfs"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{pause}"

[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true # lowering a score needs CAP_SYS_RESOURCE, which root may lack
disable_apparmor = true # its parser need not be installed
netns_mounts_under_state_dir = true

[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = "runc"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "{binaries}/runc"
SystemdCgroup = false

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{binaries}"]
conf_dir = "{state_dir}/cni"
"""


def images_ready_file(node: Node) -> Path:
    """The kubelet starts once this exists: without the pause image it would hang in a pull."""
    return node.run_dir / "images-ready"


def write_configuration(cluster: Cluster, node: Node) -> None:
    """Write the configuration of every part of `node`."""
    for folder in ("cni", "kubelet", "logs", "pods", "volume-plugins"):
        (node.state_dir / folder).mkdir(parents=True, exist_ok=True)
    node.image_dir.mkdir(parents=True, exist_ok=True)
    (node.state_dir / "containerd.toml").write_text(
        _CONTAINERD.format(
            image_dir=node.image_dir,
            state_dir=node.state_dir,
            socket=node.containerd_socket,
            pause=PAUSE_IMAGE,
            binaries=cluster.binaries,
        )
    )
    (node.state_dir / "cni" / "10-pods.conflist").write_text(json.dumps(_cni(node), indent=2))
    (node.state_dir / "resolv.conf").write_text("")  # pods ask the cluster's DNS and nothing else
    (node.state_dir / "kubelet.yaml").write_text(yaml.safe_dump(_kubelet(cluster, node)))
    (node.state_dir / "kube-proxy.yaml").write_text(yaml.safe_dump(_proxy(cluster, node)))


def fresh_binds(node: Node) -> list[Bind]:
    """An empty folder of the node's own for each fixed path, as after a reboot."""
    binds = []
    for target in FIXED_PATHS:
        source = node.run_dir / "at" / target.strip("/").replace("/", "-")
        if target == "/var/lib/kubelet":
            source = node.state_dir / "fixed-kubelet"
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir(parents=True)
        binds.append(Bind(str(source), target))
    shutil.rmtree(node.state_dir / "containerd", ignore_errors=True)
    return binds


def plan(cluster: Cluster, node: Node) -> NodePlan:
    """What the supervisor of `node` runs."""
    parts = components(cluster, node)
    if node.number == 1:
        parts += control_plane.components(cluster)
    return NodePlan(
        components=parts,
        binds=fresh_binds(node),
        log_dir=str(node.state_dir / "logs"),
        status_file=str(node.run_dir / "status.json"),
        ctr=ctr(cluster, node),
    )


def ctr(cluster: Cluster, node: Node) -> list[str]:
    """The command that speaks to the node's container runtime, without its subcommand."""
    return [f"{cluster.binaries}/ctr", "-a", str(node.containerd_socket), "-n", "k8s.io"]


def components(cluster: Cluster, node: Node) -> list[Component]:
    """The node's own programs."""
    binaries, state = cluster.binaries, node.state_dir
    api = f"tcp://{cluster.api_address}:6443"
    path = {"PATH": f"{binaries}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    runtime = f"unix://{node.containerd_socket}"
    kubelet = [
        f"{binaries}/kubelet",
        f"--config={state}/kubelet.yaml",
        f"--kubeconfig={control_plane.kubeconfig_of(cluster, node.name)}",
        f"--root-dir={state}/kubelet",
        f"--cert-dir={state}/kubelet/pki",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
    ]
    waits = [api, runtime, f"file://{images_ready_file(node)}"]
    return [
        Component("containerd", [f"{binaries}/containerd", "-c", f"{state}/containerd.toml"],
                  environment=path),
        Component("kubelet", kubelet, waits, path),
        Component("kube-proxy", [f"{binaries}/kube-proxy", f"--config={state}/kube-proxy.yaml"],
                  [f"{cluster.api_url}/readyz"], path),
    ]  # fmt: skip


def _cni(node: Node) -> dict[str, Any]:
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": node.pod_network}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, portmap]}


def _kubelet(cluster: Cluster, node: Node) -> dict[str, Any]:
    pki, state = control_plane.pki_dir(cluster), node.state_dir
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{node.containerd_socket}",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{pki}/{node.name}-server.crt",
        "tlsPrivateKeyFile": f"{pki}/{node.name}-server.key",
        "address": node.address,
        "clusterDomain": "cluster.local",
        "clusterDNS": [cluster.dns_service_address],
        "resolvConf": f"{state}/resolv.conf",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "podLogsDir": f"{state}/pods",
        "volumePluginDir": f"{state}/volume-plugins",
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,  # never: images stay for the next start
        "imageGCLowThresholdPercent": 99,
    }


def _proxy(cluster: Cluster, node: Node) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {
            "kubeconfig": str(control_plane.kubeconfig_of(cluster, "proxy")),
        },
        "hostnameOverride": node.name,
        "bindAddress": node.address,
        "healthzBindAddress": f"{node.address}:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "clusterCIDR": cluster.pod_network,
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s",
                      "tcpCloseWaitTimeout": "0s"},  # the connection table is the whole machine's
        "oomScoreAdj": 0,
    }  # fmt: skip

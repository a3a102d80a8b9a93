"""The command line: `python -m chiasm_cluster up|down|status|load|images|kubectl|helm|...`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from chiasm_cluster import state, status, teardown
from chiasm_cluster.errors import ClusterError
from chiasm_cluster.images import load, requirements
from chiasm_cluster.settings import Settings
from chiasm_cluster.up import up

_DEFAULT_NAME = "chiasm"


def parser() -> argparse.ArgumentParser:
    """The arguments that are understood."""
    top = argparse.ArgumentParser(
        prog="python -m chiasm_cluster", description="A real, small, local Kubernetes."
    )
    commands = top.add_subparsers(dest="command", required=True)

    def command(name: str, words: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=words, description=words)
        added.add_argument("--name", default=_DEFAULT_NAME, help="the cluster's name")
        return added

    command("up", "start it, or repair it").add_argument(
        "--nodes", type=int, choices=(1, 2), default=1, help="how many nodes"
    )
    command("down", "stop it and remove every trace").add_argument(
        "--purge", action="store_true", help="delete its images too"
    )
    command("status", "show nodes, parts, addresses, versions")
    command("load", "bring images to its nodes").add_argument(
        "images",
        nargs="+",
        metavar="IMAGE",
        help="operator, worker, sidecar, sidecar-peers, or an archive.tar",
    )
    command("images", "print the digests of our images on its first node, as JSON")
    written = commands.add_parser("archive", help="write one of our images as an OCI archive")
    written.add_argument(
        "image", metavar="IMAGE", help="operator, worker, sidecar or sidecar-peers"
    )
    written.add_argument("file", type=Path, help="the archive to write")
    commands.add_parser("requirements", help="write the images' lists of packages anew")
    command("kubeconfig", "print the path of its kubeconfig")
    command("programs", "print the folder of its kubectl and helm")
    for program in ("kubectl", "helm"):
        passed_on = command(program, f"run {program} on it")
        passed_on.add_argument("arguments", nargs=argparse.REMAINDER)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    options = parser().parse_args(arguments)
    try:
        _run(options)
    except ClusterError as error:
        print(f"chiasm_cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("chiasm_cluster: stopped; run the same command again to go on.", file=sys.stderr)
        return 130
    return 0


def _run(options: argparse.Namespace) -> None:
    cache_dir = Settings().cache_dir
    match options.command:
        case "up":
            _up(options)
        case "down":
            teardown.down(options.name, cache_dir, _say, purge=options.purge)
        case "status":
            _say(status.describe(state.required(options.name)))
        case "load":
            load.load(state.required(options.name), options.images, cache_dir, _say)
        case "images":
            print(json.dumps(load.digests(state.required(options.name))))
        case "archive":
            load.write_archive(options.image, options.file, cache_dir, _say)
        case "requirements":
            for path in requirements.write_all(load.PROJECT):
                _say(f"{path} is new.")
        case "kubeconfig":
            print(state.required(options.name).kubeconfig)
        case "programs":
            print(state.required(options.name).binaries)
        case "kubectl" | "helm":
            _pass_on(options)


def _up(options: argparse.Namespace) -> None:
    began = time.monotonic()
    cluster = up(options.name, options.nodes, Settings().cache_dir, _say)
    _say(
        f"Cluster {cluster.name!r} is ready after {time.monotonic() - began:.1f} s; "
        f"kubeconfig: {cluster.kubeconfig}"
    )


def _pass_on(options: argparse.Namespace) -> None:
    """Become kubectl or helm, aimed at the cluster."""
    cluster = state.required(options.name)
    arguments = options.arguments
    if arguments[:1] == ["--"]:
        arguments = arguments[1:]
    program = str(cluster.binaries / options.command)
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    os.execve(program, [options.command, *arguments], environment)  # noqa: S606


def _say(words: str) -> None:
    print(words, flush=True)

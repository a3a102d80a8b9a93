"""The API server goes away and comes back: the liveness probe notices, nothing needs a hand."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

pytestmark = pytest.mark.cluster


@pytest.fixture
def proxy(programs: Path, kubeconfig: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A way to the API server that can be frozen."""
    with subprocess.Popen(
        [str(programs / "kubectl"), "proxy", "--port=0"],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)}, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        address = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
        assert address is not None
        yield process, f"http://{address[0]}"
        process.send_signal(signal.SIGCONT)
        process.terminate()


def test_a_frozen_api_server_fails_the_probe_until_it_is_back(
    proxy: tuple[subprocess.Popen[str], str],
    own_world: Any,
    make_operator: Callable[..., Any],
    name: str,
    eventually: Callable[..., None],
    tmp_path: Path,
) -> None:
    process, address = proxy
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": address}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = tmp_path / "frozen.yaml"
    path.write_text(yaml.safe_dump(config))
    operator = make_operator(path, own_world.name, stall_seconds=1, resync_seconds=1)
    operator.start()

    def health() -> int | None:
        try:
            url = f"http://127.0.0.1:{operator.health_port}/healthz"
            return httpx.get(url, timeout=5).status_code
        except httpx.TransportError:
            return None

    eventually(lambda: health() == 200, "the operator should be healthy")
    process.send_signal(signal.SIGSTOP)
    eventually(lambda: health() == 503, "the probe should fail")
    process.send_signal(signal.SIGCONT)
    own_world.apply(name, replicas=1)
    eventually(
        lambda: own_world.condition(name, "Ready").get("status") == "True",
        "what was asked for meanwhile should be done",
        seconds=90,
    )
    eventually(lambda: health() == 200, "the operator should be healthy again")

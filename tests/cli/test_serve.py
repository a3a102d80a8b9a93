"""`chiasm serve` without a model: choices, what can be wrong, and what it says then."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import socket
from pathlib import Path

import pytest
from chiasm_cli import serve as serving
from chiasm_cli.children import Child
from chiasm_cli.errors import CliError
from chiasm_cli.serve import Choices, configs, serve, wait_ready, welcome
from chiasm_contract.builtin_models import builtin_identity
from chiasm_contract.config import VisionConfig
from chiasm_contract.errors import Unavailable

from tests.sidecar.conftest import ScriptedWorker, StartPod

CHOICES = Choices("demo", "127.0.0.1", 8000, 9100, "", "float32", "cpu", 2**26)


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as two:
        for sock in (one, two):
            sock.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]


def chosen(**changes: object) -> Choices:
    return Choices(**{**CHOICES.__dict__, **changes})  # type: ignore[arg-type]


def test_every_choice_reaches_its_part(tmp_path: Path) -> None:
    choices = Choices(
        "own", "0.0.0.0", 1, 2, "named", "bfloat16", "cuda", 2**21, 5, 3, 2, 4, 16, "mean"
    )
    worker, sidecar = configs(choices, tmp_path / "own", tmp_path)
    assert worker.model_dump(include={"model_id", "model_path", "dtype", "device"}) == {
        "model_id": "named", "model_path": tmp_path / "own", "dtype": "bfloat16", "device": "cuda",
    }  # fmt: skip
    assert worker.engine.kv_cache_bytes == 2**21
    assert worker.vision == VisionConfig(
        compression=4, low_detail_compression=16, compression_method="mean"
    )
    assert (sidecar.host, sidecar.api_port, sidecar.metrics_port) == ("0.0.0.0", 1, 2)
    assert sidecar.model_id == "named"
    for part in (worker, sidecar):
        kinds = (part.images, part.videos, part.audios)
        assert [kind.max_per_prompt for kind in kinds] == [5, 3, 2]
    assert worker.socket_path == sidecar.worker_socket == tmp_path / "worker.sock"
    assert worker.kernels == "auto"
    assert configs(chosen(kernels="torch"), tmp_path, tmp_path)[0].kernels == "torch"
    assert configs(chosen(model="x"), tmp_path / "own", tmp_path)[1].model_id == "own"
    assert configs(chosen(), tmp_path / "model", tmp_path)[1].model_id == "demo"


def test_api_keys_reach_the_sidecar_alone(tmp_path: Path) -> None:
    keys = tmp_path / "keys.env"
    worker, sidecar = configs(chosen(api_keys=keys), tmp_path / "model", tmp_path)
    assert sidecar.tenants is not None
    assert (sidecar.tenants.keys_path, sidecar.tenants.required) == (keys, True)
    assert sidecar.tenants.server_key_path.parent == tmp_path
    assert "keys.env" not in worker.model_dump_json()
    assert configs(chosen(), tmp_path / "model", tmp_path)[1].tenants is None


def test_a_builtin_model_must_be_what_it_is_known_to_be(tmp_path: Path) -> None:
    for dtype in ("float32", "bfloat16"):
        _, sidecar = configs(chosen(dtype=dtype), tmp_path / "model", tmp_path)
        assert sidecar.expected_identity == builtin_identity("demo", dtype)
        assert len(sidecar.expected_identity["compute.weights.language"]) == 64  # type: ignore[arg-type]
    assert configs(chosen(model="x"), tmp_path / "own", tmp_path)[1].expected_identity == {}


def test_welcome_names_what_works() -> None:
    words = welcome(chosen(host="0.0.0.0", port=81), "demo")
    assert 'chiasm ask --url http://127.0.0.1:81 PICTURE.png "' in words
    assert 'base_url="http://127.0.0.1:81/v1"' in words
    assert '  chiasm ask PICTURE.png "' in welcome(chosen(), "demo")
    assert "http://[::1]:8000" in welcome(chosen(host="::"), "demo")
    assert "authorization" not in words
    words = welcome(chosen(api_keys=Path("keys.env")), "demo")
    assert 'CHIASM_API_KEY=KEY chiasm ask PICTURE.png "' in words
    assert "-H 'authorization: Bearer KEY'" in words
    assert 'api_key="KEY"' in words


def test_model_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"nowhere does not exist; .* built-in one: demo\."):
        serve(chosen(model=str(tmp_path / "nowhere")))
    (tmp_path / "file").touch()
    with pytest.raises(CliError, match="file is a file"):
        serve(chosen(model=str(tmp_path / "file")))
    with pytest.raises(CliError, match=r"holds no config\.json"):
        serve(chosen(model=str(tmp_path)))


@pytest.mark.parametrize(("name", "option"), [("port", "--port"), ("metrics_port", "--metrics")])
def test_taken_port(name: str, option: str) -> None:
    port, other = free_ports()
    choices = chosen(**{"port": other, "metrics_port": other, name: port})
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with pytest.raises(CliError, match=f"port {port}: Address already in use.*{option}"):
            serve(choices)


def test_path_too_long_for_a_socket(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="TMPDIR=/tmp"):
        configs(chosen(), tmp_path, tmp_path / ("x" * 110))


def test_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        serving.importlib.util,
        "find_spec",
        lambda name: None if name in {"torch", "fastapi"} else find(name),
    )
    with pytest.raises(CliError, match=r"needs torch, fastapi, .*'chiasm\[worker,sidecar\]'"):
        serve(chosen())


async def test_model_that_cannot_be_served(worker: ScriptedWorker, start_pod: StartPod) -> None:
    words = "The model 'x' cannot be loaded: no weights."
    worker.unhealthy = Unavailable(words, code="model_load_failed")
    pod = await start_pod(wait_for="ModelLoadFailed")
    choices = chosen(metrics_port=int(pod.metrics_url.rsplit(":", 1)[1]))
    with pytest.raises(CliError) as caught:
        await asyncio.to_thread(wait_ready, [], choices)
    assert str(caught.value) == f"the model cannot be served (ModelLoadFailed): {words}"


async def test_ready_model(start_pod: StartPod) -> None:
    pod = await start_pod()
    choices = chosen(metrics_port=int(pod.metrics_url.rsplit(":", 1)[1]))
    await asyncio.to_thread(wait_ready, [], choices)


def test_part_that_ends_on_its_own() -> None:
    child = Child("worker", ["version"])
    with pytest.raises(CliError, match=r"the worker ended with status 0; its words are above\."):
        wait_ready([child], chosen(metrics_port=free_ports()[0]))
    child.stop(signal.SIGTERM)

"""`chiasm serve`: worker and sidecar on one machine, the same code as in a pod."""

from __future__ import annotations

import http.client
import importlib.util
import json
import secrets
import signal
import socket
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from chiasm_contract import names
from chiasm_contract.builtin_models import builtin_identity, builtin_models
from chiasm_contract.config import (
    AudioLimits,
    CompressionMethod,
    CompressionRatio,
    DeviceKind,
    Dtype,
    EngineLimits,
    ImageLimits,
    Kernels,
    MediaLimits,
    SidecarConfig,
    VideoLimits,
    VisionConfig,
    WorkerConfig,
)
from chiasm_contract.tenants import TenantKeys

from chiasm_cli.children import Child
from chiasm_cli.errors import CliError
from chiasm_cli.model_folders import find_model

_NEEDED = {"worker": ("torch", "transformers", "uvicorn"), "sidecar": ("fastapi", "aiohttp")}
_FINAL_REASONS = {
    "IdentityMismatch",
    "ModelLoadFailed",
    "ProbePictureFailed",
    "TenantKeysRefused",
}
_POLL_SECONDS = 0.1
_MAX_SOCKET_PATH_BYTES = 107  # sockaddr_un.sun_path


@dataclass(frozen=True)
class Choices:
    """What the person chose."""

    model: str
    host: str
    port: int
    metrics_port: int
    model_id: str
    dtype: Dtype
    device: DeviceKind
    kv_cache_bytes: int
    # How many of each kind one prompt may bring.
    images: int = 4
    videos: int = 0
    audios: int = 0
    compression: CompressionRatio = 1
    low_detail_compression: CompressionRatio = 8
    compression_method: CompressionMethod = "salient"
    # Who may ask; None: everybody.
    api_keys: Path | None = None
    # Who computes attention and what is around it.
    kernels: Kernels = "auto"


class _Stopped(Exception):
    """A signal asked us to end."""


def serve(choices: Choices) -> None:
    """Run until a signal ends it; nothing is left behind.

    Raises: CliError when it cannot start, or when a part ends on its own.
    """
    _check_extras()
    folder = find_model(choices.model)
    _check_port(choices.host, choices.port, "--port")
    _check_port(choices.host, choices.metrics_port, "--metrics-port")
    with _signals_stop(), tempfile.TemporaryDirectory(prefix="chiasm-") as scratch:
        worker_config, sidecar_config = configs(choices, folder, Path(scratch))
        if sidecar_config.tenants is not None:
            # Of this run only, like the cache whose scopes it makes.
            sidecar_config.tenants.server_key_path.write_text(secrets.token_hex(32))
        children: list[Child] = []
        try:
            for name, config in (("worker", worker_config), ("sidecar", sidecar_config)):
                path = Path(scratch) / f"{name}.json"
                path.write_text(config.model_dump_json())
                children.append(Child(name, [name, "run", "--config", str(path)]))
            print(f"Loading {sidecar_config.model_id} from {folder} ...", flush=True)
            wait_ready(children, choices)
            print(welcome(choices, sidecar_config.model_id), flush=True)
            _wait_end(children)
        except _Stopped:
            print("Stopping.", flush=True)
        finally:
            # The front door first: the worker ends what still runs before it goes.
            for child in reversed(children):
                child.stop(signal.SIGTERM)


def configs(choices: Choices, folder: Path, scratch: Path) -> tuple[WorkerConfig, SidecarConfig]:
    """What the operator would render for a pod.

    Raises: CliError when the scratch folder's path is too long for a socket.
    """
    socket_path = scratch / "worker.sock"
    if len(bytes(socket_path)) > _MAX_SOCKET_PATH_BYTES:
        raise CliError(f"{scratch} is too long a path for a socket; set TMPDIR=/tmp.")
    builtin = choices.model in builtin_models()
    model_id = choices.model_id or (choices.model if builtin else folder.name)
    media = MediaLimits(
        images=ImageLimits(max_per_prompt=choices.images),
        videos=VideoLimits(max_per_prompt=choices.videos),
        audios=AudioLimits(max_per_prompt=choices.audios),
    ).model_dump()
    worker = WorkerConfig(
        model_id=model_id,
        model_path=folder,
        dtype=choices.dtype,
        device=choices.device,
        kernels=choices.kernels,
        vision=VisionConfig(
            compression=choices.compression,
            low_detail_compression=choices.low_detail_compression,
            compression_method=choices.compression_method,
        ),
        engine=EngineLimits(kv_cache_bytes=choices.kv_cache_bytes),
        socket_path=socket_path,
        **media,
    )
    sidecar = SidecarConfig.model_validate(
        {
            "model_id": model_id,
            "worker_socket": socket_path,
            "host": choices.host,
            "api_port": choices.port,
            "metrics_port": choices.metrics_port,
            **media,
            "expected_identity": builtin_identity(choices.model, choices.dtype) if builtin else {},
            "tenants": _tenants(choices, scratch),
        }
    )
    return worker, sidecar


def _tenants(choices: Choices, scratch: Path) -> TenantKeys | None:
    if choices.api_keys is None:
        return None
    # Links are followed each time it is read, as they may be what changes.
    keys = choices.api_keys.expanduser().absolute()
    return TenantKeys(keys_path=keys, server_key_path=scratch / "server-key")


def welcome(choices: Choices, model_id: str) -> str:
    """What to try, once it answers."""
    url = f"http://{_reachable(choices.host)}:{choices.port}"
    body = {"model": model_id, "messages": [{"role": "user", "content": "Hello"}]}
    ask = "chiasm ask" if choices.port == names.API_PORT else f"chiasm ask --url {url}"
    key, header = "none", ""
    if choices.api_keys is not None:
        ask, key = f"CHIASM_API_KEY=KEY {ask}", "KEY"
        header = " -H 'authorization: Bearer KEY'"
    return textwrap.dedent(f"""\

        {model_id} is served at {url} (Ctrl-C ends it). Try in another terminal:

          {ask} PICTURE.png "What is in the picture?"

          curl {url}/v1/chat/completions -H 'content-type: application/json'{header} \\
            -d '{json.dumps(body)}'

          from openai import OpenAI
          client = OpenAI(base_url="{url}/v1", api_key="{key}")
          answer = client.chat.completions.create(model="{model_id}",
              messages=[{{"role": "user", "content": "Hello"}}])
          print(answer.choices[0].message.content)

        Metrics: http://{_reachable(choices.host)}:{choices.metrics_port}/metrics
        """)


def _reachable(host: str) -> str:
    wildcard = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - read here, not bound
    return wildcard.get(host, f"[{host}]" if ":" in host else host)


def _check_extras() -> None:
    missing = [
        module
        for modules in _NEEDED.values()
        for module in modules
        if importlib.util.find_spec(module) is None
    ]
    if missing:
        raise CliError(
            f"chiasm serve needs {', '.join(missing)}, not installed here; "
            "run: pip install 'chiasm[worker,sidecar]'"
        )


def _check_port(host: str, port: int, option: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            raise CliError(
                f"cannot listen on {host} port {port}: {error.strerror}. "
                f"Choose another with {option} (or --host)."
            ) from error


@contextmanager
def _signals_stop() -> Iterator[None]:
    """Within the block, SIGINT, SIGTERM and SIGHUP raise _Stopped once; later ones do nothing."""
    seen = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal seen
        if not seen:
            seen = True
            raise _Stopped

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield
    except _Stopped:  # before anything was started
        pass
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _check_alive(children: list[Child]) -> None:
    for child in children:
        if child.status is not None:
            raise CliError(
                f"the {child.name} ended with status {child.status}; its words are above."
            )


def _wait_end(children: list[Child]) -> None:
    while True:
        _check_alive(children)
        time.sleep(_POLL_SECONDS)


def wait_ready(children: list[Child], choices: Choices) -> None:
    """Return when the sidecar is ready.

    Raises: CliError when that cannot happen any more.
    """
    while True:
        _check_alive(children)
        state = _pod_state(choices)
        if state.get("ready"):
            return
        if state.get("reason") in _FINAL_REASONS:
            raise CliError(f"the model cannot be served ({state['reason']}): {state['message']}")
        time.sleep(_POLL_SECONDS)


def _pod_state(choices: Choices) -> dict[str, str]:
    host = _reachable(choices.host).strip("[]")
    connection = http.client.HTTPConnection(host, choices.metrics_port, timeout=5)
    try:
        connection.request("GET", "/state")
        state: dict[str, str] = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException):
        return {}
    finally:
        connection.close()
    return state

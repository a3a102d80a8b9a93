"""`chiasm worker run`: load what the configuration names and serve it on the Unix socket."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path

import torch
import uvicorn
import uvloop
from chiasm_contract import fingerprint
from chiasm_contract.config import EngineLimits, WorkerConfig, read_config
from chiasm_contract.fingerprint import Identity
from chiasm_contract.messages import MEDIA_NAMES, ModelCard, media_phrase
from pydantic import ValidationError
from transformers.utils.logging import disable_progress_bar

from chiasm_worker.attention.reference import ReferenceAttention
from chiasm_worker.engine.engine import Engine, cache_spec
from chiasm_worker.engine.service import EngineService
from chiasm_worker.generation import Generation
from chiasm_worker.identity import build_identity, cache_root
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.models.registry import load_model
from chiasm_worker.server import Serving, WorkerState, create_app
from chiasm_worker.settings import WorkerSettings
from chiasm_worker.tiers.client import BlockClient
from chiasm_worker.tiers.link import Namespace

logger = logging.getLogger(__name__)

_BYTES_PER_THREAD = 64 * 2**20
_CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def run(config_path: Path) -> None:
    """Serve what `config_path` says until a signal ends it.

    Raises: SystemExit with a sentence when the file is wrong or the socket cannot be had.
    """
    settings = WorkerSettings()
    logging.basicConfig(
        level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    disable_progress_bar()
    try:
        config = read_config(WorkerConfig, config_path)
    except (OSError, ValidationError) as error:
        raise SystemExit(f"chiasm worker: cannot use {config_path}: {error}") from error
    _clear_socket(config.socket_path)
    uvloop.run(serve(config))


async def serve(config: WorkerConfig) -> None:
    """Serve `config` until the server is told to stop and answers have ended or had their time."""
    state = WorkerState(config)
    async with loading(state):
        await web_server(state).serve()


def web_server(state: WorkerState) -> uvicorn.Server:
    """The server on the configured socket; answers get `shutdown_seconds` once it is to stop."""
    return uvicorn.Server(
        uvicorn.Config(
            create_app(state),
            uds=str(state.config.socket_path),
            http="httptools",
            lifespan="off",
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=math.ceil(state.config.shutdown_seconds),
        )
    )


@asynccontextmanager
async def loading(state: WorkerState) -> AsyncIterator[None]:
    """Load the model in the background and stop it at the end."""
    task = asyncio.create_task(_load(state))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if state.serving is not None:
            state.serving.generation.close()
            await state.serving.service.stop()


async def _load(state: WorkerState) -> None:
    config = state.config
    try:
        model, engine, identity = await asyncio.wrap_future(_build_aside(config))
        num_threads = config.num_threads or worthwhile_threads(model.num_bytes, usable_cores())
        service = EngineService(engine, num_threads, block_client(config, engine, state))
        generation = Generation(config, config.vision, model, service)
    except Exception as error:
        # Stays up and says so: whoever looks at the pod learns the reason, not a restart count.
        logger.exception("The model could not be loaded")
        state.load_failure = f"The model {config.model_id!r} cannot be loaded: {error}"
        return
    service.start()
    card = ModelCard(
        id=config.model_id,
        family=model.family.name,
        architecture=model.architecture,
        max_model_len=engine.limits.max_model_len,
    )
    state.serving = Serving(card, identity, service, generation)
    logger.info("Serving %s with %d cache blocks", config.model_id, engine.pool.num_blocks)


def _build_aside(config: WorkerConfig) -> Future[tuple[LoadedModel, Engine, Identity]]:
    """`build` in a thread that nothing waits for when the worker is told to stop.

    Loading cannot be interrupted and may take minutes, which a pod on its way out does not have.
    """
    built: Future[tuple[LoadedModel, Engine, Identity]] = Future()

    def run() -> None:
        built.set_running_or_notify_cancel()
        try:
            built.set_result(build(config))
        except BaseException as error:
            built.set_exception(error)

    threading.Thread(target=run, name="load", daemon=True).start()
    return built


def build(config: WorkerConfig) -> tuple[LoadedModel, Engine, Identity]:
    """Load a model and make an engine for it.

    Raises: ValueError or OSError saying what is wrong with the model or the configuration.
    """
    # See EngineService: only its thread computes with several.
    torch.set_num_threads(1)
    model = load_model(config.model_path, getattr(torch, config.dtype), device(config))
    check_modalities(model, config)
    limits = resolve_limits(model, config.engine)
    spec = cache_spec(model, limits)
    identity = build_identity(model, spec, ReferenceAttention.numerics)
    namespace = None
    if config.block_service is not None:
        namespace = Namespace(
            engine_gen=0,
            compute_fp=fingerprint.compute_fp(identity.compute),
            repr_fp=fingerprint.repr_fp(identity.repr),
            fields=identity.fields(),
            payload_bytes=spec.payload_bytes,
        )
    return model, Engine(model, limits, cache_root(identity), namespace), identity


def block_client(config: WorkerConfig, engine: Engine, state: WorkerState) -> BlockClient | None:
    """The way to the sidecar's block service, where there is one."""
    if config.block_service is None or engine.tiers is None:
        return None
    path = config.block_service.socket_path
    return BlockClient(path, state.incarnation, engine.tier_link, engine.tiers.not_kept)


def check_modalities(model: LoadedModel, config: WorkerConfig) -> None:
    """Raise ValueError if requests may bring what the model cannot look at."""
    for kind in MEDIA_NAMES:
        allowed = config.max_per_prompt(kind)
        if allowed and kind not in model.family.modalities:
            taken = " and ".join(f"{MEDIA_NAMES[known]}s" for known in model.family.modalities)
            raise ValueError(
                f"Up to {media_phrase(kind, allowed)} a prompt are allowed, but the family "
                f"{model.family.name} takes {taken} only; set spec.model.modalities.{kind}"
                f".maxPerPrompt to 0 (chiasm serve: --{kind}s 0)."
            )


def resolve_limits(model: LoadedModel, limits: EngineLimits) -> EngineLimits:
    """The limits with max_model_len lowered to what the model was made for; /model reports it."""
    if limits.max_model_len <= model.max_positions:
        return limits
    logger.warning(
        "max_model_len %d is lowered to %d: the model was made for no more positions",
        limits.max_model_len,
        model.max_positions,
    )
    return limits.model_copy(update={"max_model_len": model.max_positions})


def device(config: WorkerConfig) -> torch.device:
    """The device to compute on.

    Raises: ValueError when it is not there.
    """
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("The device is cuda, but torch sees none; ask for a GPU or use cpu.")
    return torch.device(config.device)


def worthwhile_threads(num_bytes: int, cores: int) -> int:
    """Threads that a model of so many bytes gains from.

    Threads wait for each other after every matrix product. On a 25 MB model two of them took
    10 times as long as one when another process used the cores, and saved nothing when none did.
    """
    return max(1, min(cores, num_bytes // _BYTES_PER_THREAD))


def usable_cores() -> int:
    """Cores that this process may use: its affinity, or less if its control group says so."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = _CPU_LIMIT.read_text().split()
    except (OSError, ValueError):
        return cores
    return cores if quota == "max" else max(1, min(cores, int(quota) // int(period)))


def _clear_socket(path: Path) -> None:
    """Remove what a crashed predecessor left; refuse to take a socket that somebody serves."""
    if not path.parent.is_dir():
        raise SystemExit(f"chiasm worker: there is no folder {path.parent} for the socket.")
    if not path.exists():
        return
    if not path.is_socket():
        raise SystemExit(f"chiasm worker: {path} is not a socket; remove it or name another.")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink()
            return
    raise SystemExit(f"chiasm worker: another process serves {path}; stop it or name another.")

"""`chiasm worker run`: load what the configuration names and serve it on the Unix socket."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
import uvloop
from chiasm_contract import logs
from chiasm_contract.config import WorkerConfig, read_config
from pydantic import ValidationError

from chiasm_worker.engine.engine import Engine
from chiasm_worker.engine.service import EngineService
from chiasm_worker.generation import Generation, Reading
from chiasm_worker.loading import Loaded, aside, load
from chiasm_worker.server import create_app
from chiasm_worker.serving import Serving, WorkerState
from chiasm_worker.settings import WorkerSettings
from chiasm_worker.tiers.client import BlockClient

logger = logging.getLogger(__name__)

_BYTES_PER_THREAD = 64 * 2**20
_CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def run(config_path: Path) -> None:
    """Serve what `config_path` says until a signal ends it.

    Raises: SystemExit with a sentence when the file is wrong or the socket cannot be had.
    """
    settings = WorkerSettings()
    logs.configure(settings.log_level)
    try:
        config = read_config(WorkerConfig, config_path)
    except (OSError, ValidationError) as error:
        raise SystemExit(f"chiasm worker: cannot use {config_path}: {error}") from error
    _clear_socket(config.socket_path)
    uvloop.run(serve(config))


async def serve(config: WorkerConfig) -> None:
    """Serve `config` until the server is told to stop and answers have ended or had their time."""
    logs.tell_lost_errors(asyncio.get_running_loop())
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
        await state.checkups.close()
        if state.serving is not None:
            state.serving.generation.close()
            await state.serving.service.stop()


async def _load(state: WorkerState) -> None:
    config = state.config
    try:
        loaded, engine = await asyncio.wrap_future(aside(functools.partial(build, config)))
        num_bytes = loaded.model.num_bytes
        num_threads = config.num_threads or worthwhile_threads(num_bytes, usable_cores())
        service = EngineService(engine, num_threads, block_client(state, engine))
        reading = Reading(config, config.vision, loaded.model)
        generation = Generation(reading, service)
    except Exception as error:
        # Stays up and says so: whoever looks at the pod learns the reason, not a restart count.
        # Of files and of a configuration: these words quote no request.
        logger.exception("The model could not be loaded: %s", error)
        state.load_failure = f"The model {config.model_id!r} cannot be loaded: {error}"
        return
    service.start()
    card = loaded.card(config.model_id, engine.limits.max_model_len)
    state.serving = Serving(card, loaded.report(state.incarnation), service, generation)
    logger.info("Serving %s with %d cache blocks", config.model_id, engine.pool.num_blocks)


def build(config: WorkerConfig) -> tuple[Loaded, Engine]:
    """Load a model and make an engine for it.

    Raises: ValueError or OSError saying what is wrong with the model or the configuration.
    """
    loaded = load(config)
    namespace = None if config.block_service is None else loaded.namespace(engine_gen=0)
    return loaded, Engine(loaded.model, loaded.limits, loaded.root, namespace)


def block_client(state: WorkerState, engine: Engine) -> BlockClient | None:
    """The way to the sidecar's block service, where there is one."""
    service = state.config.block_service
    if service is None:
        return None
    return BlockClient(service.socket_path, state.incarnation, engine.tier_link)


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

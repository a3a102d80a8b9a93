"""Both ports of a sidecar in one process, from the first listen to the last answer.

On DRAIN_SIGNAL /ready turns false and each response ends its connection; requests are still
served, for whoever routes to this pod needs a moment to hear of it. On SIGTERM or SIGINT the
listener closes and running answers finish; a second one ends what still runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

import uvicorn
from chiasm_contract.clients import DEFAULTS, ClientSettings
from chiasm_contract.config import SidecarConfig
from chiasm_contract.logs import tell_lost_errors
from chiasm_contract.messages import HeldNamespaces
from starlette.types import ASGIApp

from chiasm_sidecar.checkup.looking import Checkups
from chiasm_sidecar.configuration.desk import Desk
from chiasm_sidecar.drain import DRAIN_SIGNAL
from chiasm_sidecar.front_door.app import add_looks_inside, create_app, create_metrics_app
from chiasm_sidecar.front_door.chat import ChatEndpoint
from chiasm_sidecar.front_door.closing import ClosesWhenDraining
from chiasm_sidecar.kv.assembly import block_service
from chiasm_sidecar.kv.tiers.valkey import ValkeyTier
from chiasm_sidecar.metrics import Metrics
from chiasm_sidecar.readiness import Readiness
from chiasm_sidecar.recording.route import TimelineRoute
from chiasm_sidecar.recording.timeline import Timeline
from chiasm_sidecar.tenants.gate import Gate
from chiasm_sidecar.tracing.tracing import Tracing
from chiasm_sidecar.traffic.division import Division
from chiasm_sidecar.worker_client import WorkerClient

log = logging.getLogger("chiasm.sidecar")

_BACKLOG = 2048
# Longer than clients and proxies keep an idle connection: who closes first should not be us, for a
# request may be on its way just then.
_KEEP_ALIVE_SECONDS = 75


class _Server(uvicorn.Server):
    """One listener; signals are handled once for both."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `serve`."""
        yield


def _server(app: ASGIApp, shutdown_seconds: float) -> _Server:
    return _Server(
        uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=max(1, int(shutdown_seconds)),
        )
    )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises: OSError when the port is taken or the address is not ours.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


@dataclass(frozen=True)
class Running:
    """A sidecar that serves."""

    readiness: Readiness
    api_server: uvicorn.Server
    stopped: asyncio.Task[None]


@contextlib.asynccontextmanager
async def running(
    config: SidecarConfig,
    api: socket.socket,
    metrics: socket.socket,
    member: str | None = None,
    clients: ClientSettings = DEFAULTS,
) -> AsyncIterator[Running]:
    """Serve both ports while the block runs; leaving it lets running answers finish.

    The sockets are listening ones, closed at the end. `member` is the pod's name in traffic plans;
    None: the host's name, which is a pod's.
    """
    instruments = Metrics(config.model_id)
    async with contextlib.AsyncExitStack() as stack:
        pod = member or socket.gethostname()
        # First in, last out: what is in use is there before anything reads it, and ends after.
        desk = await stack.enter_async_context(Desk(config, pod, instruments, clients=clients))
        worker = await stack.enter_async_context(WorkerClient(config.worker_socket, clients))
        gate = Gate(config.tenants, instruments)
        desk.attach("tenants", gate)
        readiness = Readiness(config, worker, instruments, gate)
        timeline, tracing = Timeline(), None
        if config.tracing is not None:
            tracing = await stack.enter_async_context(
                Tracing(config.tracing, config, pod, timeline, instruments, worker)
            )
        held: Callable[[], HeldNamespaces] = HeldNamespaces
        if config.tiers is not None:
            service = block_service(
                config.tiers,
                readiness.admitted_identity,
                instruments,
                readiness.lack,
                None if tracing is None else tracing.tier,
            )
            store = await stack.enter_async_context(service)
            held = store.held
            for level in store.levels:
                if isinstance(level.tier, ValkeyTier):
                    desk.attach("valkey", level.tier)
        division = await stack.enter_async_context(Division(config, pod, instruments, clients))
        chat = ChatEndpoint(
            config, worker, readiness, instruments, gate, division, timeline, tracing
        )
        app = create_app(readiness, gate, chat)
        api_server = _server(ClosesWhenDraining(app, readiness), config.request_timeout_seconds)
        checkups = Checkups(worker, readiness, instruments, division, desk, clients)
        stack.push_async_callback(checkups.close)
        side_app = create_metrics_app(worker, readiness, instruments, division, desk, held)
        add_looks_inside(side_app, TimelineRoute(timeline, worker), checkups)
        metrics_server = _server(side_app, 1)
        watching = [asyncio.create_task(each.watch()) for each in (readiness, gate, division)]
        stopped = asyncio.create_task(api_server.serve(sockets=[api]))
        side = asyncio.create_task(metrics_server.serve(sockets=[metrics]))
        try:
            yield Running(readiness, api_server, stopped)
        finally:
            api_server.should_exit = True
            await stopped
            metrics_server.should_exit = True
            await side
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)


async def serve(
    config: SidecarConfig, api: socket.socket, metrics: socket.socket, clients: ClientSettings
) -> None:
    """Serve until a signal ends it."""
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    tell_lost_errors(loop)
    for number in (DRAIN_SIGNAL, signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number)
    async with running(config, api, metrics, clients=clients) as sidecar:
        log.info("listening", extra={"fields": {"api": api.getsockname()[:2]}})
        following = asyncio.create_task(_follow(signals, sidecar))
        await sidecar.stopped
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _follow(signals: asyncio.Queue[signal.Signals], sidecar: Running) -> None:
    """Do what the signals ask for until nothing is left to end."""
    while True:
        number = await signals.get()
        log.info("draining", extra={"fields": {"signal": number.name}})
        sidecar.readiness.drain()
        if number is DRAIN_SIGNAL:
            continue
        if sidecar.api_server.should_exit:
            sidecar.api_server.force_exit = True
        sidecar.api_server.should_exit = True

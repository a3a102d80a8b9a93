"""`chiasm operator run`: settings in, kopf around the supervisor, until a signal."""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import secrets
import socket
import time
from datetime import UTC, datetime
from functools import partial

import kopf
from chiasm_contract import logs
from kopf._core.engines.peering import Identity
from opentelemetry.sdk.trace import TracerProvider

from chiasm_operator import handlers
from chiasm_operator.admission.server import WebhookServer
from chiasm_operator.admission.webhook import Webhook
from chiasm_operator.api import Api, connect
from chiasm_operator.cluster import Cluster
from chiasm_operator.leadership.fence import Fence
from chiasm_operator.leadership.keeper import LeaseKeeper
from chiasm_operator.own_objects import LeaseObject, WebhookNames, WebhookObjects
from chiasm_operator.passes import Pass
from chiasm_operator.podstate import PodStates
from chiasm_operator.runtime import Runtime
from chiasm_operator.settings import Settings
from chiasm_operator.supervisor import Supervisor, Tempo
from chiasm_operator.tracing import TracedPass, provider


def _wall() -> datetime:
    return datetime.now(UTC)


def _now() -> str:
    return _wall().strftime("%Y-%m-%dT%H:%M:%SZ")


async def _runtime(settings: Settings) -> Runtime:
    fence = Fence(time.monotonic)
    # Connections of its own: in a storm of passes the lease must not wait for theirs.
    waits = settings.api_connect_timeout_seconds, settings.api_timeout_seconds
    own = await connect(*waits)
    cluster = Cluster(await connect(*waits), fence)
    states = PodStates(timeout_seconds=settings.state_timeout_seconds)
    one_pass = Pass(cluster, states, settings.images, _now)
    close = own.close
    if settings.tracing_endpoint:
        spans = _spans(settings)
        one_pass = TracedPass.of(one_pass, spans.get_tracer("chiasm"))
        close = partial(_close, own, spans)
    tempo = Tempo(
        settings.resync_seconds,
        settings.unsettled_seconds,
        settings.stall_seconds,
        settings.backoff_max_seconds,
    )
    supervisor = Supervisor(one_pass, tempo, settings.watch_namespaces, time.monotonic)
    keeper = LeaseKeeper(
        LeaseObject(own, settings.namespace, settings.lease_name),
        fence,
        settings.identity or f"{socket.gethostname()}-{secrets.token_hex(4)}",
        settings.lease_seconds,
        (time.monotonic, lambda: _wall().strftime("%Y-%m-%dT%H:%M:%S.%fZ")),
    )
    health = (settings.health_host, settings.health_port)
    return Runtime(supervisor, keeper, _webhook(settings, own), close, health)


def _spans(settings: Settings) -> TracerProvider:
    return provider(
        settings.tracing_endpoint,
        settings.tracing_sample_ratio,
        settings.identity or socket.gethostname(),
        importlib.metadata.version("chiasm"),
    )


async def _close(api: Api, spans: TracerProvider) -> None:
    """What waits for the collector may take a moment."""
    await api.close()
    await asyncio.to_thread(spans.shutdown)


def _webhook(settings: Settings, api: Api) -> Webhook | None:
    if not settings.webhook_name:
        return None
    where = WebhookNames(
        namespace=settings.namespace,
        secret=settings.webhook_name,
        service=settings.webhook_name,
        configuration=settings.webhook_configuration or settings.webhook_name,
    )
    server = WebhookServer(settings.webhook_host, settings.webhook_port)
    return Webhook(WebhookObjects(api, where), server, _wall)


def run() -> None:
    """Run the operator with CHIASM_OPERATOR_* settings until it is told to stop."""
    settings = Settings.from_environment()
    kopf.configure(
        debug=settings.log_level == "DEBUG",
        quiet=settings.log_level in {"WARNING", "ERROR"},
        log_format=kopf.LogFormat.JSON if settings.log_format == "json" else kopf.LogFormat.FULL,
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(logs.BoundFields())
    kopf.run(
        registry=handlers.registry(settings, lambda: _runtime(settings)),
        # kopf would make one up from the user's name, which a container's user does not have.
        identity=Identity(socket.gethostname()),
        clusterwide=not settings.watch_namespaces,
        namespaces=settings.watch_namespaces,
    )

"""What wakes what: kopf's watches, routed to the supervisor. No decision is made here.

Only `on.event` handlers: kopf then writes nothing into any object (no finalizer, no annotation),
so a dead operator never blocks a deletion.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import kopf
from chiasm_contract import names

from chiasm_operator.cluster import CHILD_KINDS, OUR_LABEL, POD, RESOURCE, Kind
from chiasm_operator.resource import Manifest
from chiasm_operator.runtime import Runtime
from chiasm_operator.settings import Settings

RuntimeFactory = Callable[[], Awaitable[Runtime]]


class NoDiffs(kopf.DiffBaseStorage):
    """We have no handlers of differences; kopf would still copy each object it hears of to find
    some, which took a third of a busy operator's time."""

    def build(self, *, body: kopf.Body, extra_fields: object = None) -> kopf.BodyEssence:
        """Nothing of an object is compared."""
        return kopf.BodyEssence()

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence:
        """Nothing was kept, and so nothing has changed."""
        return kopf.BodyEssence()

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Nothing is written into any object."""


def configure(settings: kopf.OperatorSettings, chosen: Settings) -> None:
    """kopf's settings for production; the reasons are in docs/operator.md."""
    settings.persistence.finalizer = names.FINALIZER
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=names.GROUP)
    settings.persistence.diffbase_storage = NoDiffs()
    settings.posting.enabled = False
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 310
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 5
    settings.networking.error_backoffs = (1, 2, 5)
    settings.queueing.error_delays = (1, 2, 5, 10, 30)
    settings.execution.max_workers = 4
    settings.process.ultimate_exiting_timeout = 10
    settings.peering.standalone = True
    settings.scanning.disabled = True
    for kind in (*CHILD_KINDS, POD):
        settings.watching.label_selectors[_selector(kind)] = OUR_LABEL


def _selector(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def registry(chosen: Settings, make_runtime: RuntimeFactory) -> kopf.OperatorRegistry:
    """Every handler of the operator."""
    handlers = kopf.OperatorRegistry()
    running: list[Runtime] = []

    @kopf.on.startup(registry=handlers)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings, chosen)
        runtime = await make_runtime()
        try:
            await runtime.start()
        except BaseException:
            await runtime.stop()
            raise
        running.append(runtime)

    @kopf.on.cleanup(registry=handlers)
    async def stop(**_: Any) -> None:
        for runtime in running:
            await runtime.stop()

    @kopf.on.login(registry=handlers)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        inside = kopf.login_with_service_account(**kwargs)
        if inside is None:
            return kopf.login_with_kubeconfig(**kwargs)
        # kopf asks for the API server by name; an address works without the cluster's DNS.
        return replace(inside, server=running[0].supervisor.cluster.server)

    def follow(kind: Kind) -> None:
        async def changed(*, event: kopf.RawEvent, **_: Any) -> None:
            if running:
                running[0].told(kind, event["type"], cast("Manifest", event["object"]))

        version = kind.api_version.rpartition("/")[2]
        kopf.on.event(kind.group, version, kind.plural, registry=handlers, id=kind.plural)(changed)

    for kind in (RESOURCE, *CHILD_KINDS, POD):
        follow(kind)
    for noisy in ("kopf.objects", "kopf.activities", "aiohttp.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    return handlers

"""An operator's port for Prometheus, with one resource in the middle of a roll-out.

The port, the exposition and the readings are the operator's own; the resource is a manifest as the
API server would store it, and a pass is a look at it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from chiasm_operator.health import Health, Report
from chiasm_operator.metering.exposition import Known, exposition
from chiasm_operator.metering.passes import PassCounts
from chiasm_operator.metering.readings import readings

from watched import fleet

_PASS_SECONDS = 1.0


def resource(share_percent: str) -> dict[str, Any]:
    """The manifest."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = {"Ready": "True", "Serving": "True", "Progressing": "True", "Degraded": "False"}
    return {
        "metadata": {"namespace": fleet.NAMESPACE, "name": fleet.RESOURCE},
        "spec": {"replicas": 1, "cost": {"replicaHour": "2.50", "currency": "EUR"}},
        "status": {
            "phase": "Progressing",
            "replicas": 2,
            "updatedReplicas": 1,
            "readyReplicas": 1,
            "conditions": [{"type": kind, "status": value} for kind, value in conditions.items()],
            "rollout": {
                "state": "Verifying",
                "stableRevision": fleet.STABLE,
                "canaryRevision": fleet.CANARY,
                "weight": share_percent,
                "stepBegan": now,
            },
        },
    }


@contextlib.contextmanager
def running(port: int, manifest: dict[str, Any]) -> Iterator[None]:
    """Answer on a port of loopback while the block runs."""
    counts = PassCounts()
    heard = time.monotonic()

    def expose(accept: str) -> tuple[bytes, str]:
        age = time.monotonic() - heard
        known = Known(True, counts, age, age, (manifest,), time.time())
        return exposition(known, accept)

    async def serve(stopped: asyncio.Event) -> None:
        health = Health("127.0.0.1", port, lambda: Report("leading", 1), expose)
        await health.port.open()
        while not stopped.is_set():
            began = time.perf_counter()
            list(readings(manifest, time.time()))
            counts.note("settled", time.perf_counter() - began)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PASS_SECONDS):
                    await stopped.wait()
        await health.port.close()

    loop = asyncio.new_event_loop()
    stopped = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(stopped),))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
        loop.close()

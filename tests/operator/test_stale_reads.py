"""What the index knows no longer: nobody told it, and the API server knows better."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web
from chiasm_contract import names
from chiasm_operator.api import Api
from chiasm_operator.cluster import KNOWN_KINDS, POD, RESOURCE, Cluster, Kind
from chiasm_operator.leadership.fence import Fence
from kubernetes_asyncio import client

HPA = "HorizontalPodAutoscaler"
PATH = "/apis/autoscaling/v2/namespaces/n/horizontalpodautoscalers/reader"
MINE = {
    "kind": HPA,
    "apiVersion": "autoscaling/v2",
    "metadata": {
        "namespace": "n", "name": "reader", "labels": {names.LABEL_OWNER: "reader"}
    },
}  # fmt: skip


@dataclass
class ApiServer:
    """One object."""

    stored: dict[str, Any] | None = None
    version: int = 0

    def put(self, manifest: dict[str, Any], uid: str) -> dict[str, Any]:
        self.version += 1
        own = {"uid": uid, "resourceVersion": str(self.version)}
        self.stored = {**manifest, "metadata": {**manifest["metadata"], **own}}
        return self.stored

    async def answer(self, request: web.Request) -> web.Response:
        if request.method == "GET":
            return self._found(self.stored)
        if request.method == "PATCH":
            return self._found(self.stored or self.put(await request.json(), "made"))
        options = await request.json() if request.can_read_body else {}
        own = self.stored["metadata"]["uid"] if self.stored else None
        if own and options.get("preconditions", {}).get("uid", own) != own:
            return web.json_response({"message": "the UID in the precondition"}, status=409)
        gone, self.stored = self.stored, None
        return self._found(gone and {"kind": "Status"})

    def _found(self, item: dict[str, Any] | None) -> web.Response:
        if item is None:
            return web.json_response({"message": "not found"}, status=404)
        return web.json_response(item)


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
async def cluster(server: ApiServer) -> AsyncIterator[Cluster]:
    application = web.Application()
    application.router.add_route("*", PATH, server.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fence = Fence(lambda: 0.0)
    fence.open(epoch=1, until=1.0)
    host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    cluster = Cluster(Api(configuration=client.Configuration(host=host)), fence)
    yield cluster
    await cluster.close()
    await runner.cleanup()


async def test_what_is_gone_is_found_out(server: ApiServer, cluster: Cluster) -> None:
    await cluster.apply(MINE)
    server.stored = None
    assert await cluster.children("n", "reader") == ()
    server.put(MINE, "again")
    await cluster.apply(MINE)
    (child,) = await cluster.children("n", "reader")
    assert child["metadata"]["uid"] == "again"


async def written(request: web.Request) -> web.Response:
    """A server that keeps what it is told, and says so."""
    told = await request.json()
    metadata = {"namespace": "n", "name": "reader", "uid": "u", **told.get("metadata", {})}
    return web.json_response({**told, "metadata": {**metadata, "resourceVersion": "2"}})


@pytest.mark.parametrize("kind", [RESOURCE, POD], ids=["status", "annotation of a pod"])
async def test_an_own_write_is_seen_before_any_watch_tells_of_it(kind: Kind) -> None:
    """A handler that did not see its own write did it again (kopf #729)."""
    application = web.Application()
    application.router.add_patch("/{path:.*}", written)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fence = Fence(lambda: 0.0)
    fence.open(epoch=1, until=1.0)
    host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    cluster = Cluster(Api(configuration=client.Configuration(host=host)), fence)
    before = {"namespace": "n", "name": "reader", "uid": "u", "resourceVersion": "1"}
    cluster.told(kind, "ADDED", {"metadata": before})
    if kind is RESOURCE:
        assert await cluster.write_status({"metadata": before}, {"phase": "Healthy"})
    else:
        await cluster.annotate_pod("n", "reader", "a", "b")
    known = cluster.index.get(kind.kind, "n", "reader")
    assert known is not None
    assert known["metadata"]["resourceVersion"] == "2"
    if kind is RESOURCE:
        assert known["status"] == {"phase": "Healthy"}
    else:
        assert known["metadata"]["annotations"] == {"a": "b"}
    await cluster.close()
    await runner.cleanup()


async def test_who_loses_a_child_hears_of_it_as_well(cluster: Cluster) -> None:
    """Somebody gave it the label of another owner: the first one has to set it right."""
    kind = next(each for each in KNOWN_KINDS if each.kind == "Service")
    taken = {"namespace": "n", "name": "reader", "labels": {names.LABEL_OWNER: "other"}}
    mine = {**MINE["metadata"], "resourceVersion": "1"}
    assert cluster.told(kind, "ADDED", {"metadata": mine}) == {("n", "reader")}
    told = cluster.told(kind, "MODIFIED", {"metadata": {**taken, "resourceVersion": "2"}})
    assert told == {("n", "reader"), ("n", "other")}
    assert cluster.told(kind, "MODIFIED", {"metadata": {**taken, "resourceVersion": "2"}}) == set()


async def test_a_child_is_deleted(server: ApiServer, cluster: Cluster) -> None:
    await cluster.apply(MINE)
    await cluster.delete(HPA, "n", "reader")
    assert server.stored is None
    assert await cluster.children("n", "reader") == ()
    await cluster.delete(HPA, "n", "reader")


async def test_another_object_that_has_the_name_by_now_is_not_deleted(
    server: ApiServer, cluster: Cluster
) -> None:
    """Nobody told the index that the child went and somebody else's came."""
    await cluster.apply(MINE)
    theirs = server.put({"metadata": {"namespace": "n", "name": "reader"}}, "theirs")
    await cluster.delete(HPA, "n", "reader")
    assert server.stored is theirs
    assert await cluster.children("n", "reader") == (), "it is no child"

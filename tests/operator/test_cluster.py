"""No write leaves a process that does not lead."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from chiasm_operator.api import Api
from chiasm_operator.cluster import Cluster
from chiasm_operator.leadership.fence import Deposed, Fence

SEEN = {
    "kind": "ConfigMap",
    "metadata": {"namespace": "n", "name": "m", "uid": "u", "resourceVersion": "1"},
}
WRITES: dict[str, tuple[Any, ...]] = {
    "annotate_pod": ("n", "p", "a", "b"),
    "apply": (SEEN,),
    "delete": ("ConfigMap", "n", "m"),
    "write_status": (SEEN, {}),
    "create_once": (SEEN,),
    "post_event": ("n", {}),
}


@pytest.mark.parametrize("name", sorted(WRITES))
async def test_only_a_leader_writes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    fence = Fence(lambda: now[0])
    cluster = Cluster(Api(), fence)
    cluster.index.put("ConfigMap", SEEN)

    async def sent(*_: Any, **__: Any) -> None:
        raise AssertionError("it was sent")

    monkeypatch.setattr(Api, "call_api", sent)
    write = getattr(cluster, name)
    with pytest.raises(Deposed):
        await write(*WRITES[name])
    fence.open(epoch=1, until=10.0)
    with pytest.raises(AssertionError, match="it was sent"):
        await write(*WRITES[name])
    now[0] = 10.0  # the lease may have run out, without anybody having noticed
    with pytest.raises(Deposed):
        await write(*WRITES[name])
    await cluster.close()


def test_every_write_is_among_them() -> None:
    source = inspect.getsource(Cluster)
    methods = source.split("    async def ")[1:]
    writing = {text.split("(")[0] for text in methods if any(f'"{verb}"' in text for verb in VERBS)}
    assert writing == set(WRITES)


VERBS = ("PATCH", "PUT", "POST", "DELETE")

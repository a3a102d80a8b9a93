"""What an administrator does with an OpenBao, against a real one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from chiasm_cluster.vault.server import Server

from tests.sidecar.configuration.baos import Bao


@pytest.fixture
def bao() -> Iterator[Bao]:
    with tempfile.TemporaryDirectory(prefix="bao-") as folder:
        bao = Bao(Path(folder))
        bao.start()
        try:
            yield bao
        finally:
            bao.stop()


def test_once_it_is_unsealed_it_can_be_written_to(bao: Bao) -> None:
    """A server that has been unsealed reads before it leads, and only a leader writes."""
    server = Server(bao.address)
    server.client.token, server._unseal_key = bao.token, bao.key
    server.enable("kv", "secret", options={"version": "2"})
    for number in range(1, 4):
        server.seal()
        server.unseal()
        assert server.put("anything", number=str(number)) == number

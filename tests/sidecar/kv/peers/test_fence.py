"""Who reaches the transport's port: those who proved that they know the secret, and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import pytest
from chiasm_sidecar.kv.peers import wire
from chiasm_sidecar.kv.peers.nixl.agent import Agent
from chiasm_sidecar.kv.peers.nixl.fence import MAX_ADDRESSES, Fence, listeners
from chiasm_sidecar.kv.peers.nixl.transport import NixlTransport
from chiasm_sidecar.kv.peers.serving import read_frame
from chiasm_sidecar.kv.tiers.base import TierFailed
from hypothesis import given
from hypothesis import strategies as st

from tests.sidecar.conftest import until
from tests.sidecar.kv.conftest import NAMESPACE, RECORD_BYTES, keys
from tests.sidecar.kv.peers.conftest import OWN, StartAsker, StartReplica, require_nixl
from tests.sidecar.kv.peers.replica import SECRET

STRANGER = "127.0.0.77"
LOOPBACK = st.integers(1, 2**24 - 2).map(
    lambda number: f"127.{number >> 16}.{number >> 8 & 255}.{number & 255}"
)


def connects(source: str, target: tuple[str, int]) -> bool:
    """Whether a connection comes about; what the kernel drops is told by nothing but silence."""
    with socket.socket() as tried:
        tried.bind((source, 0))
        tried.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            tried.connect(target)
            return True
    return False


def skip_unless_it_stands(fence: Fence) -> None:
    if not fence.stands:
        pytest.skip("this kernel lets only CAP_NET_ADMIN filter TCP")


@pytest.fixture
def agent() -> Iterator[Agent]:
    require_nixl()
    agent = Agent(0, "lo")
    skip_unless_it_stands(agent.fence)
    yield agent
    agent.close()


@pytest.fixture
def transport() -> str:
    """The only one with a port to fence in."""
    require_nixl()
    return "nixl"


def port_of(agent: Agent) -> int:
    (listener,) = agent.fence._listeners
    port: int = listener.getsockname()[1]
    return port


@given(st.sets(LOOPBACK, max_size=30), st.sets(LOOPBACK, min_size=1, max_size=10), st.data())
def test_what_comes_from_elsewhere_is_dropped(
    admitted: set[str], others: set[str], data: st.DataObject
) -> None:
    """Datagrams, which arrive before `sendto` returns, or never."""
    dismissed = data.draw(st.sets(st.sampled_from(sorted(admitted)))) if admitted else set()
    with socket.socket(type=socket.SOCK_DGRAM) as target:
        target.bind(("127.0.0.1", 0))
        target.setblocking(False)
        fence = Fence([target.dup()])
        for address in admitted:
            fence.admit(address)
        for address in dismissed:
            fence.dismiss(address)
        for address in admitted | others:
            with socket.socket(type=socket.SOCK_DGRAM) as sender:
                sender.bind((address, 0))
                sender.sendto(address.encode(), target.getsockname())
        arrived = set()
        with contextlib.suppress(BlockingIOError):
            while True:
                arrived.add(target.recv(64).decode())
        fence.close()
    assert arrived == admitted - dismissed


def test_an_address_is_admitted_until_its_last_admission_is_taken_back(
    agent: Agent,
) -> None:
    port, fence = port_of(agent), agent.fence
    assert not connects(STRANGER, ("127.0.0.1", port))
    fence.admit(STRANGER)
    fence.admit(STRANGER)
    fence.dismiss(STRANGER)
    assert connects(STRANGER, ("127.0.0.1", port))
    assert not connects("127.0.0.78", ("127.0.0.1", port))
    fence.dismiss(STRANGER)
    assert not connects(STRANGER, ("127.0.0.1", port))


def test_an_address_that_the_transport_does_not_speak_to_is_refused(agent: Agent) -> None:
    with pytest.raises(TierFailed, match="comes from fd00::1; blocks travel by IPv4 alone"):
        agent.fence.admit("fd00::1")


def test_a_fence_has_an_end_and_what_was_let_in_stays() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as target:
        target.bind(("127.0.0.1", 0))
        fence = Fence([target.dup()])
        for number in range(MAX_ADDRESSES):
            fence.admit(f"10.0.{number >> 8}.{number & 255}")
        with pytest.raises(TierFailed, match="more than 2000 replicas"):
            fence.admit("10.1.0.0")
        fence.dismiss("10.0.0.0")
        fence.admit("10.1.0.0")
        fence.close()


def test_a_port_that_cannot_be_fenced_in_is_not_used() -> None:
    with (
        socket.socket(socket.AF_INET6) as listener,
        pytest.raises(TierFailed, match="IPv6, which cannot be fenced in"),
    ):
        Fence([listener.dup()])


def test_where_the_kernel_forbids_a_fence_peers_serve_and_say_that_it_is_open(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    require_nixl()

    def forbidden(self: Fence) -> None:
        if self._listeners:
            raise TierFailed("peers: the port cannot be fenced in: Operation not permitted")

    monkeypatch.setattr(Fence, "_apply", forbidden)
    agent = Agent(0, "lo")
    assert not agent.fence.stands
    agent.fence.admit("fd00::1")
    agent.fence.dismiss("fd00::1")
    agent.close()
    (line,) = caplog.records
    assert line.message == "only a network policy keeps others from this process's memory"
    assert "Operation not permitted" in line.__dict__["fields"]["detail"]


def test_listeners_are_found_and_connections_are_not() -> None:
    before = listeners()
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        found = listeners(before)
        assert [each.getsockname() for each in found.values()] == [listener.getsockname()]
    for each in (*before.values(), *found.values()):
        each.close()


async def test_a_replica_lets_in_who_proved_the_secret_while_he_is_connected(
    start_asker: StartAsker, start_replica: StartReplica
) -> None:
    replica = start_replica()  # also: who is asked may come by a connection of his own
    asker = await start_asker(replica.address)
    assert isinstance(asker.tier._transport, NixlTransport)
    agent = asker.tier._transport.native.agent
    skip_unless_it_stands(agent.fence)
    assert asker.value("chiasm_kv_peers_fenced") == 1
    target = ("127.0.0.1", port_of(agent))
    reader, writer = await asyncio.open_connection(OWN, 19200, local_addr=(STRANGER, 0))
    writer.write(wire.encode_hello(bytes(wire.NONCE_BYTES)))
    proof = await reader.readexactly(wire.PROOF_BYTES)
    assert not await asyncio.to_thread(connects, STRANGER, target), "nothing is proved yet"
    theirs = wire.check_proof(SECRET, bytes(wire.NONCE_BYTES), proof)
    channel = wire.Channel(SECRET, bytes(wire.NONCE_BYTES), theirs, asker=True)
    writer.write(channel.seal(wire.Kind.DESCRIBE, b""))
    assert channel.open(await read_frame(reader))[0] is wire.Kind.REGION
    assert await asyncio.to_thread(connects, STRANGER, target)
    writer.close()
    await writer.wait_closed()

    async def shut() -> bool:
        return STRANGER not in agent.fence._admitted

    await until(shut)
    assert not await asyncio.to_thread(connects, STRANGER, target)

    await asker.peer.look_up(wire.Lookup(NAMESPACE.name, RECORD_BYTES, keys(1)))
    assert agent.fence._admitted == {replica.address: 1}
    asker.peer.close()
    assert not agent.fence._admitted

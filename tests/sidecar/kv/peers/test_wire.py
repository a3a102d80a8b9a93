"""What replicas say: read back as it was said, refused when altered, bounded whatever it is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from chiasm_sidecar.kv.peers import wire
from chiasm_sidecar.kv.peers.nixl.agent import default_interface
from chiasm_sidecar.kv.tiers.arena import Place
from hypothesis import given
from hypothesis import strategies as st

from tests.sidecar.kv.conftest import keys

SECRET = b"0123456789abcdef0123456789abcdef"
ASKER, PEER = bytes(32), bytes([1]) * 32


def channels(secret: bytes = SECRET) -> tuple[wire.Channel, wire.Channel]:
    return (
        wire.Channel(SECRET, ASKER, PEER, asker=True),
        wire.Channel(secret, ASKER, PEER, asker=False),
    )


def content(frame: bytes) -> bytes:
    assert wire.frame_length(frame[:4]) == len(frame) - 4
    return frame[4:]


def test_both_ends_understand_each_other() -> None:
    asker, peer = channels()
    for body in (b"", b"one", b"two"):
        assert peer.open(content(asker.seal(wire.Kind.LOOKUP, body))) == (wire.Kind.LOOKUP, body)
        assert asker.open(content(peer.seal(wire.Kind.PLACES, body))) == (wire.Kind.PLACES, body)


def test_a_frame_is_good_once_in_its_turn_and_its_direction() -> None:
    asker, peer = channels()
    first, second = (content(asker.seal(wire.Kind.LOOKUP, body)) for body in (b"1", b"2"))
    with pytest.raises(ValueError, match="tag"):
        peer.open(second)
    peer.open(first)
    with pytest.raises(ValueError, match="tag"):
        peer.open(first)
    peer.open(second)
    with pytest.raises(ValueError, match="tag"):
        asker.open(content(asker.seal(wire.Kind.LOOKUP, b"3")))


@given(st.data())
def test_no_altered_frame_is_taken(data: st.DataObject) -> None:
    asker, peer = channels()
    frame = bytearray(content(asker.seal(wire.Kind.LOOKUP, b"some body")))
    bit = data.draw(st.integers(0, 8 * len(frame) - 1))
    frame[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ValueError, match="tag"):
        peer.open(bytes(frame))


def test_another_secret_shows_on_both_sides() -> None:
    proof = wire.encode_proof(SECRET, ASKER, PEER)
    assert wire.check_proof(SECRET, ASKER, proof) == PEER
    with pytest.raises(ValueError, match="another secret"):
        wire.check_proof(SECRET[::-1], ASKER, proof)
    asker, peer = channels(SECRET[::-1])
    with pytest.raises(ValueError, match="another secret"):
        peer.open(content(asker.seal(wire.Kind.DESCRIBE, b"")))


def test_what_is_said_is_what_is_heard() -> None:
    lookup = wire.Lookup("a-b-c", 1024, keys(3))
    assert wire.decode_lookup(wire.encode_lookup(lookup)) == lookup
    description = wire.Description("agent", 2**40, 2**30, b"metadata")
    assert wire.decode_description(wire.encode_description(description)) == description
    places = [Place(0, 7), None, Place(128, 2**63)]
    assert wire.decode_places(wire.encode_places(places), 3, 128) == places
    read = wire.Read(1152, (Place(0, 7), Place(1152, 9)))
    assert wire.decode_read(wire.encode_read(read), read.num_bytes) == read
    assert wire.decode_hello(wire.encode_hello(ASKER)) == ASKER


def test_a_slot_outside_of_the_region_is_refused() -> None:
    with pytest.raises(ValueError, match="outside"):
        wire.decode_places(wire.encode_places([Place(129, 1)]), 1, 128)


def test_more_than_there_is_is_not_read() -> None:
    body = wire.encode_read(wire.Read(1152, (Place(0, 7), Place(1152, 9))))
    with pytest.raises(ValueError, match="READ asks for 2304 bytes; the region has 2303"):
        wire.decode_read(body, 2303)


@pytest.mark.parametrize(
    "decode",
    [
        wire.decode_lookup,
        lambda body: wire.decode_read(body, 10_000),
        wire.decode_description,
        lambda body: wire.decode_places(body, 2, 100),
        lambda body: wire.frame_length((body + bytes(4))[:4]),
        lambda body: wire.decode_hello((body + bytes(wire.HELLO_BYTES))[: wire.HELLO_BYTES]),
    ],
)
@given(body=st.binary(max_size=200))
def test_any_bytes_are_something_or_a_value_error(
    decode: Callable[[bytes], Any], body: bytes
) -> None:
    with contextlib.suppress(ValueError):
        decode(body)


def test_the_interface_is_that_of_the_default_route() -> None:
    head = "Iface\tDestination\tGateway\n"
    assert default_interface(head + "eth1\t0000590A\t0\neth0\t00000000\t0100590A\n") == "eth0"
    assert default_interface(head) == "lo"
    assert default_interface("") == "lo"

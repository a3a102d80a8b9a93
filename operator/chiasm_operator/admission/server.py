"""The webhook over TLS: one path, bodies of a bounded size, keys that change while it runs.

Must not know: where the keys come from, what is allowed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
import tempfile
import traceback

from aiohttp import web

from chiasm_operator.admission.certificates import Keys
from chiasm_operator.admission.envelope import NotAReview, answer
from chiasm_operator.port import Port

logger = logging.getLogger(__name__)

PATH = "/validate"
# etcd holds 1.5 MiB an object; a review carries two.
MAX_BODY_BYTES = 4 * 2**20
# The API server gives up after timeoutSeconds of the webhook's configuration.
BODY_SECONDS = 5.0


class WebhookServer:
    """Listens from the moment it has keys."""

    def __init__(self, host: str, port: int) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._port = Port(
            host,
            port,
            [web.post(PATH, _validate)],
            tls=self._context,
            max_body_bytes=MAX_BODY_BYTES,
        )
        self._shown: tuple[bytes, bytes] | None = None

    @property
    def port(self) -> int | None:
        """The port it listens on; None before it has keys."""
        return self._port.number

    async def show(self, keys: Keys) -> None:
        """Show the certificate of `keys` to whoever connects from now on.

        Raises: OSError when the port cannot be listened on.
        """
        pair = (keys.certificate, keys.key)
        if pair != self._shown:
            _load(self._context, *pair)
            self._shown = pair
            logger.info("the webhook shows a new certificate")
        if self.port is None:
            await self._port.open()

    async def close(self) -> None:
        """Stop listening; requests under way are answered."""
        await self._port.close()


async def _validate(request: web.Request) -> web.Response:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await request.read()
    except TimeoutError:
        return _fault(408, f"The body did not come within {BODY_SECONDS} s.")
    except web.HTTPRequestEntityTooLarge:
        return _fault(413, f"The body is larger than {MAX_BODY_BYTES} bytes.")
    try:
        return web.json_response(answer(json.loads(body)))
    except (NotAReview, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        return _fault(400, str(error))
    except Exception as error:
        # Anybody in the cluster may ask: a line for each, and not what they sent.
        last = traceback.extract_tb(error.__traceback__)[-1]
        logger.warning("a review failed: %s in %s", type(error).__name__, last)
        return _fault(500, "The review failed, which is a bug: the body was not what it should be.")


def _fault(status: int, message: str) -> web.Response:
    return web.json_response({"message": message}, status=status)


def _load(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Python's ssl takes keys from files only; the file is private and gone right after."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "pair.pem")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(certificate + key)
        context.load_cert_chain(path)

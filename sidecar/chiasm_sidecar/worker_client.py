"""The one module that talks to the worker: HTTP over its Unix socket.

Every fault of the connection becomes `WorkerGone` (503), with a reason that metrics count; the
worker's own refusals come back as the errors they were made from. Leaving `generate` early closes
the connection, which is how the worker learns that nobody waits any more.
"""

from __future__ import annotations

import asyncio
import io
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Literal, TypeVar

import aiohttp
from chiasm_contract import messages
from chiasm_contract.checkup import CHECKUP_PATH, MAX_CHECKUP_SECONDS, CheckupReport
from chiasm_contract.clients import DEFAULTS, ClientSettings
from chiasm_contract.errors import ChiasmError, ErrorBody, Unavailable, from_body
from chiasm_contract.messages import (
    FinishEvent,
    GenerateHead,
    IdentityReport,
    MediaFiles,
    ModelCard,
    TokenEvent,
)
from chiasm_contract.timeline import RequestSpans
from pydantic import BaseModel, ValidationError

from chiasm_sidecar.exposition import WorkerPart

M = TypeVar("M", bound=BaseModel)
FailureReason = Literal["unreachable", "cut", "timeout", "replaced"]

_BASE = "http://worker"
# Below the 5 s after which the worker's server closes an idle connection: ours goes first, so a
# request never meets a connection that is just being closed.
_KEEPALIVE_SECONDS = 3.0
_RETRY_AFTER_SECONDS = 2
_WHO_ANSWERS = (messages.INCARNATION_HEADER, messages.COMPUTE_FP_HEADER)
_MAX_LINE_BYTES = 4 * 2**20


class WorkerGone(Unavailable):
    """The worker did not answer, or not to the end."""

    def __init__(self, message: str, reason: FailureReason) -> None:
        super().__init__(message, retry_after_seconds=_RETRY_AFTER_SECONDS)
        self.reason = reason


def _unreachable() -> WorkerGone:
    return WorkerGone("The model's worker is not running; retry in a moment.", "unreachable")


def _cut() -> WorkerGone:
    return WorkerGone("The model's worker ended before the answer did; ask again.", "cut")


class WorkerClient:
    """A connection pool to one worker. Use as an async context manager."""

    def __init__(self, socket_path: Path, clients: ClientSettings = DEFAULTS) -> None:
        self._clients = clients
        self._socket_path = socket_path
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> WorkerClient:
        connector = aiohttp.UnixConnector(
            path=str(self._socket_path), limit=0, keepalive_timeout=_KEEPALIVE_SECONDS
        )
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def _pool(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("WorkerClient is used outside its `async with`; this is a bug")
        return self._session

    async def health(self) -> None:
        """Return when the worker is healthy.

        Raises: ChiasmError saying why it is not.
        """
        await self._get("/health")

    async def identity(self) -> IdentityReport:
        """What the worker's cached vectors are computed for."""
        return _parsed(IdentityReport, await self._get("/identity"))

    async def model(self) -> ModelCard:
        """The model that the worker serves."""
        return _parsed(ModelCard, await self._get("/model"))

    async def metrics(self, content_type: str) -> WorkerPart:
        """The worker's exposition, in this form if it has it."""
        asked = self._pool.get(_BASE + "/metrics", headers={"accept": content_type})
        response, body = await self._answer(asked, self._clients.worker_timeout_seconds)
        return WorkerPart(body.decode(), response.headers.get("content-type", ""))

    async def timeline(self, query: Mapping[str, str]) -> bytes:
        """The worker's Recording, as JSON."""
        return await self._get("/timeline", query)

    async def spans(self, request: str) -> RequestSpans:
        """Where the time of a request went that was sent with a sampled trace; given once."""
        return _parsed(RequestSpans, await self._get("/spans", {"request": request}))

    async def checkup(self) -> CheckupReport:
        """What the worker finds when it looks at its own engine."""
        seconds = MAX_CHECKUP_SECONDS + self._clients.worker_timeout_seconds
        asked = self._pool.post(_BASE + CHECKUP_PATH)
        return _parsed(CheckupReport, (await self._answer(asked, seconds))[1])

    async def _get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        asked = self._pool.get(_BASE + path, params=query)
        return (await self._answer(asked, self._clients.worker_timeout_seconds))[1]

    async def _answer(
        self, asked: AbstractAsyncContextManager[aiohttp.ClientResponse], timeout_seconds: float
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        try:
            async with asyncio.timeout(timeout_seconds), asked as response:
                body = await response.read()
        except TimeoutError as error:
            raise WorkerGone("The model's worker does not answer.", "timeout") from error
        except aiohttp.ClientError as error:
            raise _unreachable() from error
        if response.status != 200:
            raise _refusal(response.status, body)
        return response, body

    @asynccontextmanager
    async def generate(
        self,
        head: GenerateHead,
        files: MediaFiles,
        admitted: IdentityReport,
        told: Mapping[str, str] | None = None,
    ) -> AsyncIterator[AsyncIterator[list[TokenEvent | FinishEvent]]]:
        """Start one generation; yields the batches of events as they arrive.

        The last event of the last batch is the FinishEvent with the usage. An answer of another
        process or of other weights than were admitted is not taken. `told` are headers by which
        the worker names the request in its log and its trace.

        Raises: ChiasmError when the worker refuses, WorkerGone when it cannot be reached. While
        iterating: the error that the worker reports, WorkerGone when it ends early.
        """
        body = messages.encode_request(head, files)
        response = await self._post(body, told or {})
        del body, files  # they are large, and an answer can be long
        try:
            if response.status != 200:
                raise _refusal(response.status, await response.read())
            answers = [response.headers.get(name) for name in _WHO_ANSWERS]
            if answers != [admitted.incarnation, admitted.compute_fp]:
                raise WorkerGone("The model's worker was replaced; ask again.", "replaced")
            yield _batches(response.content)
        except aiohttp.ClientError as error:
            raise _cut() from error
        finally:
            # After a whole answer the connection is already back in the pool; before, this is
            # what makes the worker free the request's blocks.
            response.close()

    async def _post(self, body: bytes, told: Mapping[str, str]) -> aiohttp.ClientResponse:
        """Send one request; again when it is lost before a byte of the answer.

        A worker that is not there is asked again too: one that is being replaced is gone for a
        moment only.
        """
        pauses = self._clients.pauses(self._clients.worker_retries, random.random)
        headers = {**told, "content-type": messages.REQUEST_MEDIA_TYPE}
        while True:
            try:
                return await self._pool.post(
                    f"{_BASE}/generate",
                    data=io.BytesIO(body),
                    headers=headers,
                )
            except aiohttp.ClientConnectorError as error:
                gone = _unreachable()
                gone.__cause__ = error
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                gone = _cut()
                gone.__cause__ = error
            except aiohttp.ClientError as error:
                raise _cut() from error
            pause = next(pauses, None)
            if pause is None:
                raise gone
            await asyncio.sleep(pause)


async def _batches(
    content: aiohttp.StreamReader,
) -> AsyncIterator[list[TokenEvent | FinishEvent]]:
    """Whole lines as they arrive, decoded; several tokens that arrived together stay together."""
    rest = b""
    async for data in content.iter_any():
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > _MAX_LINE_BYTES:
            raise ChiasmError("The worker sent an endless event; this is a bug.")
        batch = [_event(line) for line in lines if line]
        if batch:
            yield batch
            last = batch[-1]
            if isinstance(last, FinishEvent) and last.usage is not None:
                return
    raise _cut()


def _event(line: bytes) -> TokenEvent | FinishEvent:
    try:
        event = messages.EVENT.validate_json(line)
    except ValidationError as error:
        raise ChiasmError("The worker sent an event of another version; this is a bug.") from error
    if event.type == "error":
        raise from_body(event.error)
    return event


def _parsed(kind: type[M], body: bytes) -> M:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise Unavailable(
            f"The worker's {kind.__name__} is of another version than this sidecar."
        ) from error


def _refusal(status: int, body: bytes) -> ChiasmError:
    try:
        return from_body(ErrorBody.model_validate_json(body))
    except ValidationError:
        return Unavailable(
            f"The model's worker answered with status {status}.",
            retry_after_seconds=_RETRY_AFTER_SECONDS,
        )

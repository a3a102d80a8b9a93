"""The faults that cross a boundary between parts, each with the status a client sees.

    ChiasmError
    ├── ClientFault            the caller can mend it (4xx)
    │   ├── InvalidRequest     400  malformed, undecodable, out of range
    │   ├── Unauthorized       401  no API key, or a wrong one
    │   ├── NotFound           404
    │   │   └── UnknownModel
    │   ├── RequestTooLarge    413  bytes, pixels, number of media
    │   ├── Misdirected        421  meant for another revision than the one that got it
    │   └── Overloaded         429  with retry_after_seconds
    ├── Unavailable            503  the part behind is not ready or gone
    └── InvariantError         a broken equation of ours: a bug, never the caller's fault

A message is one or two sentences: what was wrong, the value, what is allowed, what to do next.
It never carries file-system paths of the server, addresses or secrets.
"""

from __future__ import annotations

from http import HTTPStatus

from pydantic import BaseModel, ConfigDict


class ErrorBody(BaseModel):
    """An error as it travels between worker and sidecar; the front door turns it into OpenAI's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after_seconds: int | None = None


class ChiasmError(Exception):
    """Base of every fault with a meaning outside its module."""

    status: HTTPStatus = HTTPStatus.INTERNAL_SERVER_ERROR
    code: str = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code or self.code
        self.retry_after_seconds = retry_after_seconds

    def body(self) -> ErrorBody:
        """This error as data."""
        return ErrorBody(
            status=int(self.status),
            code=self.code,
            message=self.message,
            param=self.param,
            retry_after_seconds=self.retry_after_seconds,
        )


class ClientFault(ChiasmError):
    """The request is at fault; repeating it unchanged fails again (except 429)."""

    status = HTTPStatus.BAD_REQUEST
    code = "invalid_request"


class InvalidRequest(ClientFault):
    """Malformed or out of range."""


class Unauthorized(ClientFault):
    """No API key where one is needed, or one that is not valid here."""

    status = HTTPStatus.UNAUTHORIZED
    code = "invalid_api_key"


class NotFound(ClientFault):
    """What is asked for is not here, or not any more."""

    status = HTTPStatus.NOT_FOUND
    code = "not_found"


class UnknownModel(NotFound):
    """No such model here."""

    code = "model_not_found"


class RequestTooLarge(ClientFault):
    """More bytes, pixels or media than the resource allows."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    code = "request_too_large"


class Misdirected(ClientFault):
    """Meant for another revision than the one that got it."""

    status = HTTPStatus.MISDIRECTED_REQUEST
    code = "wrong_revision"


class Overloaded(ClientFault):
    """The queue is full; the same request may succeed after `retry_after_seconds`."""

    status = HTTPStatus.TOO_MANY_REQUESTS
    code = "overloaded"


class Unavailable(ChiasmError):
    """The part that would answer is not ready or has gone."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "unavailable"


class InvariantError(ChiasmError):
    """A broken equation of our own bookkeeping; the message shows it and says that it is a bug."""

    code = "invariant_broken"


_BY_STATUS: dict[int, type[ChiasmError]] = {
    int(kind.status): kind
    for kind in (
        InvalidRequest,
        Unauthorized,
        UnknownModel,
        RequestTooLarge,
        Misdirected,
        Overloaded,
        Unavailable,
    )
}


def from_body(body: ErrorBody) -> ChiasmError:
    """The exception that `body` was made from; an unknown status keeps its class by hundreds."""
    fallback = ClientFault if 400 <= body.status < 500 else ChiasmError
    error = _BY_STATUS.get(body.status, fallback)(
        body.message,
        param=body.param,
        code=body.code,
        retry_after_seconds=body.retry_after_seconds,
    )
    return error

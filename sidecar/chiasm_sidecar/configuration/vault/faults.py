"""What can go wrong with the server, as closed kinds.

The server's own words are dropped: they may quote what was asked. A path is no secret and is named.
"""

from __future__ import annotations

from typing import Literal

import requests.exceptions
from hvac.exceptions import VaultDown, VaultError

from chiasm_sidecar.configuration.offers import SourceFault

Kind = Literal[
    "denied", "absent", "refused", "throttled", "sealed", "failed", "slow", "unreachable", "odd"
]
_STATUS_KINDS: dict[int, Kind] = {
    400: "refused",
    401: "denied",
    403: "denied",
    404: "absent",
    429: "throttled",
}
_STATUSES = {
    "InvalidRequest": 400,
    "Unauthorized": 401,
    "Forbidden": 403,
    "InvalidPath": 404,
    "RateLimitExceeded": 429,
    "InternalServerError": 500,
    "VaultNotInitialized": 501,
    "BadGateway": 502,
    "VaultDown": 503,
}


class VaultFault(SourceFault):
    """The server did not do what was asked.

    Attributes:
        kind: denied: 403, the token or its policies; absent: nothing there; refused: 400, such as a
            lease that is gone; odd: an answer that is none.
    """

    def __init__(self, kind: Kind, words: str) -> None:
        super().__init__(words)
        self.kind: Kind = kind


def fault_of(error: Exception, path: str) -> VaultFault:
    """The kind of what hvac raised for a request to `path`."""
    if isinstance(error, VaultDown) and "sealed" in str(error.text or error.errors).lower():
        return VaultFault("sealed", "sealed")
    if isinstance(error, VaultError):
        status = _STATUSES.get(type(error).__name__)
        if status is None:
            return VaultFault("failed", f"an unexpected status for {path}")
        return VaultFault(_STATUS_KINDS.get(status, "failed"), f"{status} for {path}")
    if isinstance(error, requests.exceptions.Timeout):
        return VaultFault("slow", f"no answer in time for {path}")
    if isinstance(error, requests.exceptions.SSLError):
        return VaultFault("unreachable", "its certificate is not vouched for")
    if isinstance(error, requests.exceptions.ConnectionError):
        return VaultFault("unreachable", "it cannot be reached")
    return odd(path)


def odd(path: str) -> VaultFault:
    """For an answer of another form."""
    return VaultFault("odd", f"an answer that is none for {path}")

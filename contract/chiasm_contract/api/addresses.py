"""Addresses of servers as a resource names them, checked to the port: whoever takes one apart
later, for a NetworkPolicy or to ask there, meets no surprise.

Must not know: what is asked there.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, StringConstraints, WithJsonSchema

from chiasm_contract.api.fields import rule, rules

_PORT = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
# A scheme, a host, perhaps a port.
_ORIGIN = rf"https?://([A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])(:({_PORT}))?"
_ORIGIN_PATTERN = f"^{_ORIGIN}$"
_BASE = f"{_ORIGIN}(/[A-Za-z0-9._~/-]*)?"
_BASE_PATTERN = f"^{_BASE}$"
OPTIONAL_BASE_PATTERN = f"^({_BASE})?$"
_MAX_LENGTH = 512
_IS_IP = "isIP(self.substring(self.indexOf('[') + 1, self.indexOf(']')))"


def _with_an_ip_in_brackets(value: str) -> str:
    if "[" in value:
        host = value.partition("[")[2].partition("]")[0]
        try:
            ip_address(host)
        except ValueError as error:
            raise ValueError(f"[{host}] is no IPv6 address") from error
    return value


def _schema(pattern: str, allowed: str) -> dict[str, Any]:
    expression = f"self.matches(r'{pattern}') && (!self.contains('[') || {_IS_IP})"
    return {"type": "string", "maxLength": _MAX_LENGTH, **rules(rule(expression, allowed))}


Origin = Annotated[
    str,
    StringConstraints(max_length=_MAX_LENGTH, pattern=_ORIGIN_PATTERN),
    AfterValidator(_with_an_ip_in_brackets),
    WithJsonSchema(
        _schema(
            _ORIGIN_PATTERN,
            "must be http:// or https://, a host, and a port of 1 to 65535 or none, such as "
            "https://openbao.vault.svc:8200; no user, path or query",
        )
    ),
]
BaseUrl = Annotated[
    str,
    StringConstraints(max_length=_MAX_LENGTH, pattern=_BASE_PATTERN),
    AfterValidator(_with_an_ip_in_brackets),
    WithJsonSchema(
        _schema(
            _BASE_PATTERN,
            "must be http:// or https://, a host, a port of 1 to 65535 or none, and perhaps a "
            "path, such as http://otel-collector.monitoring:4318; no user or query",
        )
    ),
]


def port(address: str) -> int:
    """That of an address of these types; the scheme's own where none is written."""
    url = urlsplit(address)
    return url.port or (443 if url.scheme == "https" else 80)

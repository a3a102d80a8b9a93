"""`chiasm ask`: one question about one picture, the answer as it comes.

Standard library only, so that it works wherever `chiasm` is installed, without any extra.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chiasm_contract.config import Detail

from chiasm_cli import servers
from chiasm_cli.errors import CliError

TIMEOUT_SECONDS = 600
_KEY = re.compile(r"[!-~]+")
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"RIFF": "image/webp",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
}


def ask(
    url: str, image: Path, question: str, detail: Detail = "auto", api_key: str = ""
) -> Iterator[str]:
    """The pieces of the answer.

    Raises: CliError saying what is wrong with the picture, the key or the server.
    """
    picture, headers = data_url(image), _authorization(api_key)
    server = servers.connection(
        url, "http://127.0.0.1:8000", "Start a model with: chiasm serve demo", TIMEOUT_SECONDS
    )
    with server as connection:
        body = {
            "model": _served_model(connection, url, headers),
            "temperature": 0,
            "stream": True,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": picture, "detail": detail}},
                        {"type": "text", "text": question},
                    ],
                }
            ],
        }
        headers = {**headers, "content-type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise CliError(_fault(response, url))
        yield from _pieces(response)


def data_url(image: Path) -> str:
    """The picture as an address that carries it.

    Raises: CliError when there is no such file or it is no picture.
    """
    try:
        data = image.read_bytes()
    except OSError as error:
        raise CliError(f"cannot read {image}: {error.strerror}.") from error
    for signature, kind in _SIGNATURES.items():
        if data.startswith(signature):
            return f"data:{kind};base64,{base64.b64encode(data).decode()}"
    raise CliError(f"{image} is not a picture; PNG, JPEG, WebP, GIF and BMP files are.")


def _authorization(api_key: str) -> dict[str, str]:
    if not api_key:
        return {}
    if not _KEY.fullmatch(api_key):
        raise CliError(
            "the API key holds blanks, line ends or other characters than ASCII; give it as it is "
            "with --api-key or in CHIASM_API_KEY."
        )
    return {"authorization": f"Bearer {api_key}"}


def _served_model(connection: http.client.HTTPConnection, url: str, headers: dict[str, str]) -> str:
    connection.request("GET", "/v1/models", headers=headers)
    response = connection.getresponse()
    if response.status != 200:
        raise CliError(_fault(response, url))
    try:
        name: str = json.loads(response.read())["data"][0]["id"]
    except (ValueError, LookupError, TypeError) as error:
        raise CliError(f"{url} answers, but not with a list of models.") from error
    return name


def _fault(response: http.client.HTTPResponse, url: str) -> str:
    return servers.fault(response.read(), response.status, url, "a model server")


def _pieces(response: http.client.HTTPResponse) -> Iterator[str]:
    for line in response:
        if not line.startswith(b"data: "):
            continue
        data = line[len(b"data: ") :].strip()
        if data == b"[DONE]":
            return
        event: dict[str, Any] = json.loads(data)
        if "error" in event:
            raise CliError(event["error"]["message"])
        for choice in event["choices"]:
            yield choice["delta"].get("content") or ""
    raise CliError("the answer broke off; ask again.")

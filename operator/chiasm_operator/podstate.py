"""Asks the sidecars of a resource's pods what they know: GET http://POD:9100/state."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import aiohttp
from chiasm_contract import names
from chiasm_contract.messages import PodState

from chiasm_operator.resource import Manifest

_MAX_STATE_BYTES = 2**20


class PodStates:
    """A client for `/state`; a pod that does not answer has no state."""

    def __init__(self, port: int = names.METRICS_PORT, timeout_seconds: float = 2.0) -> None:
        timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._session = aiohttp.ClientSession(timeout=timeout)
        self._port = port

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def ask(self, pods: Sequence[Manifest]) -> Mapping[str, PodState]:
        """Pod name -> its state, of those that answer in time."""
        reachable = {
            pod["metadata"]["name"]: pod["status"]["podIP"]
            for pod in pods
            if pod.get("status", {}).get("podIP")
        }
        answers = await asyncio.gather(*map(self._ask, reachable.values()))
        return {
            name: state for name, state in zip(reachable, answers, strict=True) if state is not None
        }

    async def _ask(self, address: str) -> PodState | None:
        host = names.host_port(address, self._port)
        try:
            async with self._session.get(f"http://{host}/state") as response:
                return PodState.model_validate_json(await _body(response))
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return None


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """The whole body, which may come in many pieces.

    Raises: ValueError when it is larger than any state.
    """
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > _MAX_STATE_BYTES:
            raise ValueError(f"The state is larger than {_MAX_STATE_BYTES} bytes.")
    return bytes(body)

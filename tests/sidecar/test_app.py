"""Routes and methods."""

from __future__ import annotations

from tests.sidecar.conftest import (
    Pod,
)


async def test_unknown_paths_and_methods(pod: Pod) -> None:
    async with pod.http.get(f"{pod.url}/v1/engines") as answer:
        assert answer.status == 404
        assert (await answer.json())["error"]["code"] == "not_found"
    async with pod.http.get(f"{pod.url}/v1/chat/completions") as answer:
        assert answer.status == 405
        assert answer.headers["allow"] == "POST"
    async with pod.http.get(f"{pod.url}/health") as answer:
        assert (answer.status, await answer.read()) == (200, b"")
    for url in (pod.url, pod.metrics_url):
        for path in ("/health", "/ready", "/v1/models", "/v1/models/demo", "/metrics", "/state"):
            async with pod.http.get(url + path) as got, pod.http.head(url + path) as head:
                assert (head.status, await head.read()) == (got.status, b"")
    async with pod.http.get(f"{pod.url}/openapi.json") as answer:
        schema = await answer.json()
    assert "/v1/chat/completions" in schema["paths"]

"""Videos and sounds from a client's request through the front door and the worker to an answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import openai
import pytest
from chiasm_contract.config import SidecarConfig, WorkerConfig
from chiasm_sidecar.server import listen, running
from chiasm_worker.main import loading, web_server
from chiasm_worker.models.tiny import TINY_MODELS, write_tiny_model
from chiasm_worker.models.tiny.clips import write_clip, write_sound
from chiasm_worker.server import WorkerState

from tests.sidecar.conftest import sound_part, video_part

ONE, NONE = {"max_per_prompt": 1}, {"max_per_prompt": 0}


@pytest.mark.parametrize(
    ("model", "part", "limits", "kind"),
    [
        ("qwen2.5-grouped", video_part(write_clip(1)), {"videos": ONE}, "video"),
        ("qwen2-audio", sound_part(write_sound(1)), {"audios": ONE, "images": NONE}, "audio"),
    ],
    ids=["video", "sound"],
)
async def test_an_openai_client_gets_an_answer_about_it(
    model: str, part: dict[str, Any], limits: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    (tiny,) = (tiny for tiny in TINY_MODELS if tiny.name == model)
    socket_path = tmp_path / "worker.sock"
    worker = WorkerConfig(
        model_id="demo",
        model_path=write_tiny_model(tiny, tmp_path / "model"),
        num_threads=1,
        socket_path=socket_path,
        **limits,
    )
    sidecar = SidecarConfig(model_id="demo", worker_socket=socket_path, host="127.0.0.1", **limits)
    state, (api, metrics) = WorkerState(worker), (listen("127.0.0.1", 0), listen("127.0.0.1", 0))
    server = web_server(state)
    base_url = f"http://127.0.0.1:{api.getsockname()[1]}/v1"
    turn: Any = {"role": "user", "content": [part, {"type": "text", "text": "What?"}]}
    async with loading(state), running(sidecar, api, metrics) as pod:
        serving = asyncio.create_task(server.serve())
        try:
            async with asyncio.timeout(60):
                while not pod.readiness.state.ready:  # noqa: ASYNC110 - polled, like a probe
                    await asyncio.sleep(0.02)
            async with openai.AsyncOpenAI(base_url=base_url, api_key="-", max_retries=0) as client:
                answer = await client.chat.completions.create(
                    model="demo", messages=[turn], max_tokens=4, temperature=0
                )
                assert answer.usage is not None
                details: Any = answer.usage.prompt_tokens_details
                assert details.multimodal_tokens[kind] > 0
                with pytest.raises(openai.APIStatusError, match="at most 1 are") as refused:
                    await client.chat.completions.create(model="demo", messages=[turn, turn])
                assert refused.value.status_code == 413
        finally:
            server.should_exit = True
            await serving

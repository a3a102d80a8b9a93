"""A worker's configuration says what details mean; usage and metrics say what they came to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from chiasm_contract import messages
from chiasm_contract.config import VisionConfig
from chiasm_contract.messages import ChatMessage, GenerateHead, ImagePart, Sampling, TextPart
from prometheus_client.parser import text_string_to_metric_families

from tests.worker.server.running_worker import events, serving, tiny_config


async def test_details_are_ratios_of_the_configuration(
    tmp_path: Path, tiny_folder: Callable[[str], Path], picture: Callable[..., bytes]
):
    config = tiny_config(
        tmp_path,
        tiny_folder("qwen3-grouped"),
        vision=VisionConfig(compression=4, low_detail_compression=16),
    )
    shown = picture(1, 128, 96)  # 3 x 4 tokens
    async with serving(config) as worker:
        for detail, ratio, tokens in (("auto", 4, 4), ("low", 16, 1), ("high", 1, 12)):
            part = ImagePart.model_validate({"index": 0, "detail": detail})
            head = GenerateHead(
                request_id=detail,
                messages=(ChatMessage(role="user", content=(part, TextPart(text="hello"))),),
                sampling=Sampling(temperature=0, max_tokens=2),
            )
            body = messages.encode_request(head, messages.MediaFiles((shown,)))
            *_, finish = events(await worker.client.post("/generate", content=body))
            usage = finish.usage
            assert (usage.image_tokens, usage.image_compression) == (tokens, (ratio,))
            assert usage.uncompressed_image_tokens == 12
        text = (await worker.client.get("/metrics")).text
    assert "\nchiasm_worker_uncompressed_image_tokens_total" in text
    assert (
        f'{{model_name="{config.model_id}"}} 36.0\n'
        in text.partition("\nchiasm_worker_uncompressed_image_tokens_total")[2]
    )
    counted = {
        s.labels["compression"]: s.value
        for f in text_string_to_metric_families(text)
        for s in f.samples
        if s.name == "chiasm_worker_image_tokens_total"
    }
    assert counted == {"1": 12, "4": 4, "8": 0, "16": 1}

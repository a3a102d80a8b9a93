"""Files of chat requests: on their way to the worker, and back to the client by their place."""

from __future__ import annotations

import asyncio
import gc

from chiasm_contract.errors import InvalidRequest
from chiasm_contract.messages import MediaFiles
from chiasm_sidecar.front_door.media import MediaFile

from tests.sidecar.conftest import (
    ANSWER,
    MP4,
    WAV,
    Pod,
    StartPod,
    data_url,
    forever,
    png,
    question,
    sound_part,
    until,
    video_part,
)


async def test_no_file_stays_in_memory_while_its_answer_runs(pod: Pod) -> None:
    pod.worker.answer = (ANSWER[0], forever)
    request = asyncio.create_task(pod.chat(question(*[data_url(png())] * 2, stream=True)))
    await until(pod.worker.busy)

    async def streaming() -> bool:
        return await pod.metric("chiasm_sidecar_image_bytes_count") == 2

    await until(streaming)
    gc.collect()
    assert [each.param for each in gc.get_objects() if type(each) is MediaFile] == []
    request.cancel()
    async with asyncio.timeout(20):
        await pod.worker.abandoned.wait()


async def test_a_faulty_picture_is_named_by_its_place(pod: Pod) -> None:
    pod.worker.refusal = InvalidRequest("Picture 2 cannot be decoded.", param="images[1]")
    _, body = await pod.chat(question(data_url(png()), data_url(png())))
    assert body["error"]["param"] == "messages[0].content[2].image_url.url"
    pod.worker.refusal = InvalidRequest("No detail.", param="images[0].detail")
    _, body = await pod.chat(question(data_url(png()), data_url(png())))
    assert body["error"]["param"] == "messages[0].content[1].image_url.detail"
    pod.worker.refusal = InvalidRequest("Which?", param="images[7]")
    _, body = await pod.chat(question(data_url(png())))
    assert body["error"]["param"] == "images[7]"


async def test_videos_and_sounds_reach_the_worker(start_pod: StartPod) -> None:
    one = {"max_per_prompt": 1}
    pod = await start_pod(videos=one, audios=one)
    body = question(data_url(png()))
    body["messages"][0]["content"] += [sound_part(), video_part()]
    status, _ = await pod.chat(body)
    assert status == 200
    assert pod.worker.requests[-1][1] == MediaFiles((png(),), (MP4,), (WAV,))
    pod.worker.refusal = InvalidRequest("Video 1 is truncated.", param="videos[0]")
    assert (await pod.chat(body))[1]["error"]["param"] == "messages[0].content[3].video_url.url"
    pod.worker.refusal = InvalidRequest("Sound 1 is truncated.", param="audios[0]")
    assert (await pod.chat(body))[1]["error"]["param"] == "messages[0].content[2].input_audio.data"
    expected = {
        'chiasm_sidecar_requests_total{code="200",modality="mixed"}': 1,
        'chiasm_sidecar_videos_total{format="mp4"}': 1,
        'chiasm_sidecar_audios_total{format="wav"}': 1,
        "chiasm_sidecar_video_bytes_sum": len(MP4),
        "chiasm_sidecar_audio_bytes_sum": len(WAV),
    }
    assert {name: await pod.metric(name) for name in expected} == expected


async def test_large_bodies_are_parsed(pod: Pod) -> None:
    status, _ = await pod.chat(question(data_url(png(600, 400, "BMP"))))
    assert status == 200
    assert len(pod.worker.requests[-1][1].images[0]) > 700_000

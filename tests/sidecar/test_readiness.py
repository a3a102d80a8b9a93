"""When a pod may serve, and what it says when it may not."""

from __future__ import annotations

import io

import pytest
from chiasm_contract.config import ImageLimits
from chiasm_contract.errors import InvalidRequest, Unavailable
from chiasm_contract.messages import MediaFiles
from chiasm_sidecar import readiness
from PIL import Image

from tests.sidecar.conftest import ScriptedWorker, StartPod, cut, identity, question


async def test_ready_after_a_picture_went_through(start_pod: StartPod) -> None:
    pod = await start_pod()
    head, files = pod.worker.requests[0]
    assert len(pod.worker.requests) == 1
    assert [len(picture) for picture in files.images] == list(head.image_sizes_bytes)
    assert files.images[0].startswith(b"\x89PNG")
    assert "picture" in pod.sidecar.readiness.state.message
    assert await pod.metric("chiasm_sidecar_ready") == 1
    assert await pod.metric('chiasm_sidecar_probe_pictures_total{outcome="passed"}') == 1


async def test_a_model_without_pictures_is_probed_with_words(start_pod: StartPod) -> None:
    pod = await start_pod(images={"max_per_prompt": 0})
    assert pod.worker.requests[0][1] == MediaFiles()
    assert "picture" not in pod.sidecar.readiness.state.message
    assert await pod.metric('chiasm_sidecar_probe_pictures_total{outcome="passed"}') == 0


async def test_a_question_that_fails_says_so(worker: ScriptedWorker, start_pod: StartPod) -> None:
    worker.refusal = InvalidRequest("No.")
    pod = await start_pod(wait_for="ProbePictureFailed", images={"max_per_prompt": 0})
    assert pod.sidecar.readiness.state.message == "The built-in question got no answer: No."


@pytest.mark.parametrize("max_pixels", [784, 1000, 12_543, 12_544, 16_777_216])
async def test_the_built_in_picture_is_within_the_limits(
    start_pod: StartPod, max_pixels: int
) -> None:
    limits = ImageLimits(max_pixels=max_pixels, max_bytes=1024)
    pod = await start_pod(images=limits)
    (picture,) = pod.worker.requests[0][1].images
    with Image.open(io.BytesIO(picture)) as opened:
        assert 28 * 28 <= opened.width * opened.height <= max_pixels
        assert len(opened.getcolors() or []) == 2
    assert len(picture) <= limits.max_bytes


async def test_starting_worker(worker: ScriptedWorker, start_pod: StartPod) -> None:
    worker.unhealthy = Unavailable("The model is being loaded.")
    pod = await start_pod(wait_for="WorkerStarting")
    assert "being loaded" in (await pod.until("WorkerStarting"))["message"]
    status, answer = await pod.chat(question())
    assert (status, answer["error"]["code"]) == (503, "not_ready")
    worker.unhealthy = None
    await pod.until("Ready")


async def test_model_that_cannot_be_loaded(worker: ScriptedWorker, start_pod: StartPod) -> None:
    worker.unhealthy = Unavailable("No tokenizer.json.", code="model_load_failed")
    pod = await start_pod(wait_for="ModelLoadFailed")
    assert pod.sidecar.readiness.state.message == "No tokenizer.json."
    assert "tokenizer" not in (await pod.until("ModelLoadFailed"))["message"]
    assert "tokenizer" not in (await pod.chat(question()))[1]["error"]["message"]


async def test_other_identity_never_serves(start_pod: StartPod) -> None:
    expected = {"compute.compute_dtype": "bfloat16", "compute.position.theta": 10000.0}
    pod = await start_pod(wait_for="IdentityMismatch", expected_identity=expected)
    state = await pod.until("IdentityMismatch")
    told = pod.sidecar.readiness.state.message
    assert "compute.compute_dtype is 'float32', expected 'bfloat16'" in told
    assert "theta" not in told
    assert "float32" not in state["message"]
    status, answer = await pod.chat(question())
    assert status == 503
    assert "not the expected one" in answer["error"]["message"]
    assert "compute_dtype" not in answer["error"]["message"]
    assert pod.worker.requests == []
    assert await pod.metric('chiasm_sidecar_identity_checks_total{outcome="reject"}') >= 1
    assert await pod.metric("chiasm_sidecar_ready") == 0


async def test_other_model_never_serves(worker: ScriptedWorker, start_pod: StartPod) -> None:
    worker.model_id = "other"
    pod = await start_pod(wait_for="IdentityMismatch")
    assert "'other', expected 'demo'" in pod.sidecar.readiness.state.message


async def test_failing_picture(worker: ScriptedWorker, start_pod: StartPod) -> None:
    worker.refusal = InvalidRequest("Pictures are not for this model.")
    pod = await start_pod(wait_for="ProbePictureFailed")
    assert "not for this model" in (await pod.until("ProbePictureFailed"))["message"]
    worker.refusal = None
    pod.sidecar.readiness.doubt()
    await pod.until("Ready")
    assert await pod.metric('chiasm_sidecar_probe_pictures_total{outcome="failed"}') == 1


async def test_worker_cut_during_the_probe(worker: ScriptedWorker, start_pod: StartPod) -> None:
    worker.answer = (cut,)
    await start_pod(wait_for="ProbePictureFailed")


async def test_worker_that_goes_and_comes_back(start_pod: StartPod) -> None:
    pod = await start_pod()
    await pod.worker.stop()
    pod.sidecar.readiness.doubt()
    await pod.until("WorkerUnavailable")
    status, answer = await pod.chat(question())
    assert status == 503
    assert "not running" in answer["error"]["message"]

    pod.worker.identity = identity("two")
    await pod.worker.start()
    await pod.until("Ready")
    assert len(pod.worker.requests) == 2, "a new incarnation sees the picture again"
    assert await pod.metric("chiasm_sidecar_worker_restarts_total") == 1


async def test_identity_that_changes_in_a_running_worker(start_pod: StartPod) -> None:
    pod = await start_pod(expected_identity={"compute.compute_dtype": "float32"})
    pod.worker.identity = identity("one", **{"compute.compute_dtype": "float16"})
    pod.sidecar.readiness.doubt()
    await pod.until("IdentityMismatch")


async def test_a_bug_in_a_check_is_not_ready_and_does_not_end_the_checks(
    start_pod: StartPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = await start_pod()

    def broken(*_: object) -> None:
        raise RuntimeError("bug")

    with monkeypatch.context() as patch:
        patch.setattr(readiness, "judge", broken)
        pod.sidecar.readiness.doubt()
        await pod.until("WorkerUnavailable")
        assert (await pod.chat(question()))[0] == 503
    await pod.until("Ready")


async def test_a_bug_is_answered_in_openais_form(
    start_pod: StartPod, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = await start_pod()

    def broken(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(readiness.Readiness, "require", broken)
    async with pod.http.get(f"{pod.url}/v1/models") as response:
        assert response.status == 500
        error = (await response.json())["error"]
    assert (error["type"], error["code"]) == ("server_error", "internal_error")
    assert "secret" not in error["message"]


async def test_state_is_what_the_operator_reads(start_pod: StartPod) -> None:
    pod = await start_pod()
    async with pod.http.get(f"{pod.metrics_url}/state") as response:
        state = await response.json()
    assert state["ready"] is True
    assert state["model_id"] == "demo"
    assert state["identity"]["fields"]["compute.position.theta"] == 10000.0
    assert state == pod.sidecar.readiness.state.model_dump(mode="json")


async def test_draining_says_so_and_still_serves(start_pod: StartPod) -> None:
    pod = await start_pod()
    async with pod.http.get(f"{pod.url}/ready") as response:
        assert "connection" not in response.headers
    pod.sidecar.readiness.drain()
    async with pod.http.get(f"{pod.url}/ready") as response:
        assert response.status == 503
        assert (await response.json())["reason"] == "Draining"
        assert response.headers["connection"] == "close"
    assert (await pod.chat(question()))[0] == 200


@pytest.mark.parametrize("path", ["/v1/models", "/health", "/nowhere"])
async def test_every_answer_of_a_draining_pod_ends_its_connection(
    start_pod: StartPod, path: str
) -> None:
    pod = await start_pod()
    pod.sidecar.readiness.drain()
    async with pod.http.get(pod.url + path) as response:
        assert response.headers["connection"] == "close"


@pytest.mark.parametrize("stream", [False, True])
async def test_chat_answers_and_refusals_of_a_draining_pod_end_their_connection(
    start_pod: StartPod, stream: bool
) -> None:
    pod = await start_pod()
    pod.sidecar.readiness.drain()
    address = f"{pod.url}/v1/chat/completions"
    for body, status in ((question(stream=stream), 200), ({}, 400)):
        async with pod.http.post(address, json=body) as response:
            await response.read()
            assert response.status == status
            assert response.headers["connection"] == "close"

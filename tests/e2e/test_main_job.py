"""From an applied resource to answered pictures, on a real Kubernetes with the installed chart."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from functools import partial

import openai
import pytest
from chiasm_contract import names
from chiasm_tour import asking, tour
from chiasm_tour.clusters import LocalCluster
from chiasm_worker.equality import Reference, ask
from transformers import AutoTokenizer

from tests.e2e.conftest import SAMPLES, conditions, eventually, user_turn

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="session")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as opened:
        yield opened


def test_sample_pictures_are_answered_as_transformers_does(client: openai.OpenAI) -> None:
    answers = []
    for row in SAMPLES:
        completion = client.chat.completions.create(
            model=tour.RESOURCE,
            messages=user_turn(asking.PICTURES / row["picture"], row["text"]),
            temperature=0,
            max_tokens=32,
        )
        answers.append(completion.choices[0].message.content)
    assert answers == transformers_answers()


def transformers_answers() -> list[str]:
    """What transformers' own generate says of the samples, from the same model folder."""
    folder = tour.ROOT / "demo" / "model"
    reference, tokenizer = Reference(folder), AutoTokenizer.from_pretrained(folder)
    conversations = [
        ask(row["text"], [(asking.PICTURES / row["picture"]).read_bytes()]) for row in SAMPLES
    ]
    return [
        tokenizer.decode(reference.generate(one, 32), skip_special_tokens=True)
        for one in conversations
    ]


def test_streaming_says_the_same(client: openai.OpenAI) -> None:
    row = SAMPLES[0]
    messages = user_turn(asking.PICTURES / row["picture"], row["text"])
    whole = client.chat.completions.create(
        model=tour.RESOURCE, messages=messages, temperature=0, max_tokens=32
    )
    stream = client.chat.completions.create(
        model=tour.RESOURCE, messages=messages, temperature=0, max_tokens=32, stream=True,
        stream_options={"include_usage": True},
    )  # fmt: skip
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_a_broken_picture_is_the_callers_fault(client: openai.OpenAI) -> None:
    half = (asking.PICTURES / SAMPLES[0]["picture"]).read_bytes()[:600]
    part = {"url": f"data:image/png;base64,{base64.b64encode(half).decode()}"}
    content = [{"type": "image_url", "image_url": part}, {"type": "text", "text": "What is it?"}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model=tour.RESOURCE, messages=[{"role": "user", "content": content}]
        )
    assert caught.value.param == "messages[0].content[0].image_url.url"


def test_status_is_truthful(demo_cluster: LocalCluster) -> None:
    found = json.loads(demo_cluster.kubectl("get", "mmi", tour.RESOURCE, "-o", "json"))
    status = found["status"]
    assert status["observedGeneration"] == found["metadata"]["generation"]
    assert status["phase"] == "Healthy"
    assert len(status["identity"]["computeFingerprint"]) == 64
    assert {name: held["status"] for name, held in conditions(demo_cluster, tour.RESOURCE).items()}[
        "Ready"
    ] == "True"


def test_traffic_goes_on_without_the_operator(
    demo_cluster: LocalCluster, client: openai.OpenAI
) -> None:
    row = SAMPLES[0]
    own = ("get", "pods", "-o", "name", "-l", f"{names.LABEL_OWNER}={tour.RESOURCE}")
    pods_before = demo_cluster.kubectl(*own)
    scale = ("scale", "deployment", "-n", tour.SYSTEM_NAMESPACE, "--all")
    demo_cluster.kubectl(*scale, "--replicas=0")
    try:
        answer = client.chat.completions.create(
            model=tour.RESOURCE, temperature=0, max_tokens=32,
            messages=user_turn(asking.PICTURES / row["picture"], row["text"]),
        )  # fmt: skip
        assert answer.choices[0].message.content
    finally:
        demo_cluster.kubectl(*scale, "--replicas=1")
    rollout = ("rollout", "status", "deployment", "-n", tour.SYSTEM_NAMESPACE, "--timeout=90s")
    demo_cluster.kubectl(*rollout)
    assert demo_cluster.kubectl(*own) == pods_before


def test_deleted_pods_lose_no_request(demo_cluster: LocalCluster, client: openai.OpenAI) -> None:
    """A client that keeps its connection, as pools do, and repeats nothing, sees no fault."""
    row = SAMPLES[0]
    messages = user_turn(asking.PICTURES / row["picture"], row["text"])
    listed = ("get", "pods", "-l", f"chiasm.dev/name={tour.RESOURCE}", "-o", "name")
    state = ("get", "mmi", tour.RESOURCE, "-o", "jsonpath={.status.ready}")
    whole = demo_cluster.kubectl(*state)

    def answers_and_is_replaced(pod: str) -> bool:
        for _ in range(5):
            client.chat.completions.create(
                model=tour.RESOURCE, messages=messages, temperature=0, max_tokens=16
            )
        return pod not in demo_cluster.kubectl(*listed) and demo_cluster.kubectl(*state) == whole

    for pod in demo_cluster.kubectl(*listed).split():
        demo_cluster.kubectl("delete", pod, "--wait=false")
        eventually(partial(answers_and_is_replaced, pod), f"{pod} should be replaced", 240)


MISSING_PATH = """
apiVersion: chiasm.dev/v1alpha1
kind: MultimodalInference
metadata: {name: missing-claim}
spec: {model: {source: {path: {claimName: no-such-claim, path: models/x}}}}
"""

WRONG_IDENTITY = """
apiVersion: chiasm.dev/v1alpha1
kind: MultimodalInference
metadata: {name: wrong-identity}
spec:
  model:
    source: {builtin: demo}
    expectedIdentity: {compute.position.theta: "1000000.0"}
"""


def test_a_missing_claim_is_named(
    demo_cluster: LocalCluster, applied: Callable[[str], None]
) -> None:
    applied(MISSING_PATH)

    def named() -> bool:
        held = conditions(demo_cluster, "missing-claim").get("Ready", {})
        return held.get("status") == "False" and "no-such-claim" in held.get("message", "")

    eventually(named, "the Ready condition should name the claim")
    events = (
        "get",
        "events",
        "--field-selector",
        "involvedObject.name=missing-claim",
        "-o",
        "json",
    )
    eventually(lambda: "no-such-claim" in demo_cluster.kubectl(*events), "an event should name it")


def test_another_identity_never_becomes_ready_and_names_the_field(
    demo_cluster: LocalCluster, applied: Callable[[str], None]
) -> None:
    applied(WRONG_IDENTITY)

    def named() -> bool:
        held = conditions(demo_cluster, "wrong-identity").get("IdentityVerified", {})
        return held.get("status") == "False" and "position.theta" in held.get("message", "")

    eventually(named, "IdentityVerified should name compute.position.theta")
    assert conditions(demo_cluster, "wrong-identity")["Ready"]["status"] == "False"

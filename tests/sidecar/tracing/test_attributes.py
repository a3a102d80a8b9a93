"""What spans say: of media, of who answered, of the pod."""

from __future__ import annotations

from chiasm_contract.config import SidecarConfig, TracingConfig
from chiasm_contract.configuration import Configuration
from chiasm_contract.messages import Usage
from chiasm_contract.sampling import Sampling
from chiasm_contract.timeline import Anchor, Span
from chiasm_contract.trace_context import TraceContext
from chiasm_sidecar.front_door.exchange import Exchange
from chiasm_sidecar.front_door.traced import tell_ended
from chiasm_sidecar.tracing.attributes import of_answer, of_request
from chiasm_sidecar.tracing.tracer import Tracer
from chiasm_sidecar.tracing.tracing import _who
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.types import Message

PARENT = TraceContext("1" * 32, "2" * 16)
STAGING = SidecarConfig(
    model_id="demo", revision="v1-a", configuration=Configuration(environment="staging")
)


async def _receive() -> Message:
    raise AssertionError


async def _send(_: Message) -> None:
    raise AssertionError


def tracer() -> tuple[Tracer, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    config = TracingConfig(endpoint="http://nowhere", sample_ratio=1.0)
    return Tracer(config, {}, SimpleSpanProcessor(exporter)), exporter


def test_media_have_their_own_names() -> None:
    usage = Usage(
        prompt_tokens=90, completion_tokens=1, cached_tokens=0, image_tokens=20, video_tokens=40,
        audio_tokens=10, uncompressed_image_tokens=70, image_compression=(1, 4),
    )  # fmt: skip
    said = of_answer("chatcmpl-1", "demo", usage, ["length"])
    media = {name: value for name, value in said.items() if name.startswith("chiasm.")}
    assert media == {
        "chiasm.media.image.tokens": 20,
        "chiasm.media.video.tokens": 40,
        "chiasm.media.audio.tokens": 10,
        "chiasm.media.image.compression": [1, 4],
        "chiasm.media.image.uncompressed_tokens": 70,
    }


def test_a_clients_words_are_left_out() -> None:
    sampling = Sampling(stop=("zanzibar",), logit_bias={7: 1.0}, n=2)
    said = of_request(sampling, "mixed", {"image": [3, 4], "video": [], "audio": [9]}, stream=True)
    assert "zanzibar" not in str(said)
    assert said["gen_ai.request.choice.count"] == 2
    assert (said["chiasm.media.image.items"], said["chiasm.media.image.bytes"]) == (2, 7)
    assert "chiasm.media.video.items" not in said


def test_the_environment_and_the_track_are_said() -> None:
    made, exporter = tracer()
    exchange = Exchange(_receive, _send)
    exchange.trace = made.begin("chat demo", None, Anchor(clock_seconds=0.0, wall_ns=0), 0.0)
    exchange.status = 503
    tell_ended(exchange, STAGING, "canary")
    (span,) = exporter.get_finished_spans()
    said = dict(span.attributes or {})
    assert said["chiasm.environment"] == "staging"
    assert said["chiasm.revision"] == "v1-a"
    assert said["chiasm.track"] == "canary"
    assert said["error.type"] == "503"


def test_every_span_says_which_pod() -> None:
    said = _who(STAGING, "reader-0")
    del said["service.version"]
    assert said == {
        "service.namespace": "chiasm",
        "service.instance.id": "reader-0",
        "k8s.pod.name": "reader-0",
        "chiasm.revision": "v1-a",
        "chiasm.environment": "staging",
    }


def test_a_tier_that_could_not_be_read_is_a_fault() -> None:
    made, exporter = tracer()
    anchor = Anchor(clock_seconds=1.0, wall_ns=2_000_000_000)
    made.tier(PARENT, anchor, Span("tier disk", 0.5, 1.0, -1, {"asked_blocks": 3}, "unavailable"))
    (span,) = exporter.get_finished_spans()
    assert (span.start_time, span.end_time) == (1_500_000_000, 2_000_000_000)
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT.span_id
    assert dict(span.attributes or {}) == {"chiasm.asked_blocks": 3, "error.type": "unavailable"}
    assert not span.status.is_ok

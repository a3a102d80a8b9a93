"""From a body to an admitted request, or to a fault that names its field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chiasm_contract.config import AudioLimits, ImageLimits, MediaLimits, VideoLimits
from chiasm_contract.errors import ClientFault, InvalidRequest, RequestTooLarge, UnknownModel
from chiasm_contract.messages import AudioPart, ImagePart, TextPart, VideoPart
from chiasm_contract.sampling import Sampling
from chiasm_sidecar.front_door.allowed import allowed_values
from chiasm_sidecar.front_door.intake import Prepared, prepare
from chiasm_sidecar.front_door.schema import ChatRequest, neutral_values

from tests.sidecar.conftest import MP4, WAV, data_url, png, question, sound_part, video_part

LIMITS = MediaLimits(
    images=ImageLimits(max_per_prompt=2),
    videos=VideoLimits(max_per_prompt=1),
    audios=AudioLimits(max_per_prompt=1),
)
PICTURE = data_url(png())


def admit(body: Any) -> Prepared:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return prepare(data, "demo", LIMITS)


def refused(body: Any, kind: type[ClientFault] = InvalidRequest) -> ClientFault:
    with pytest.raises(kind) as caught:
        admit(body)
    return caught.value


def test_conversation_with_pictures() -> None:
    image = {"type": "image_url", "image_url": {"url": PICTURE, "detail": "high"}}
    other = {"type": "image_url", "image_url": {"url": data_url(png(8, 8))}}
    prepared = admit(
        {
            "model": "demo",
            "messages": [
                {"role": "developer", "content": "Be short."},
                {"role": "user", "content": [image, {"type": "text", "text": "first"}, other]},
                {"role": "assistant", "content": [{"type": "text", "text": "ok"}], "refusal": None},
                {"role": "user", "content": "and now?"},
            ],
        }
    )
    assert [message.role for message in prepared.messages] == [
        "system", "user", "assistant", "user",
    ]  # fmt: skip
    assert prepared.messages[1].content == (
        ImagePart(index=0, detail="high"), TextPart(text="first"), ImagePart(index=1),
    )  # fmt: skip
    assert [file.data for file in prepared.media] == [png(), png(8, 8)]
    assert prepared.modality == "image"


def user(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(parts)}


def test_videos_and_sounds_are_numbered_by_kind() -> None:
    image = {"type": "image_url", "image_url": {"url": PICTURE}}
    turns = [user(video_part(), image), user(sound_part(), image)]
    prepared = admit(question(messages=turns))
    assert [turn.content for turn in prepared.messages] == [
        (VideoPart(index=0), ImagePart(index=0)),
        (AudioPart(index=0), ImagePart(index=1)),
    ]
    assert [(file.kind, file.param) for file in prepared.media] == [
        ("video", "messages[0].content[0].video_url.url"),
        ("image", "messages[0].content[1].image_url.url"),
        ("audio", "messages[1].content[0].input_audio.data"),
        ("image", "messages[1].content[1].image_url.url"),
    ]
    assert (prepared.media[0].data, prepared.media[2].data) == (MP4, WAV)
    assert prepared.modality == "mixed"
    assert admit(question(messages=[user(video_part())])).modality == "video"
    assert admit(question(messages=[user(sound_part())])).modality == "audio"


@pytest.mark.parametrize(
    ("part", "words"),
    [(video_part(), "brings 2 videos; at most 1"), (sound_part(), "brings 2 sounds; at most 1")],
)
def test_each_kind_has_its_own_limit(part: dict[str, Any], words: str) -> None:
    error = refused(question(messages=[user(part), user(part)]), RequestTooLarge)
    assert words in error.message
    assert error.param == "messages[1].content[0]"
    allows = "none is allowed here. spec.model.modalities.(video|audio).maxPerPrompt .* allows some"
    with pytest.raises(InvalidRequest, match=allows):
        prepare(json.dumps(question(messages=[user(part)])).encode(), "demo", MediaLimits())


def test_videos_and_sounds_belong_to_people() -> None:
    for part in (video_part(), sound_part()):
        error = refused(question(messages=[{"role": "assistant", "content": [part]}]))
        assert error.param == "messages[0].content[0].type"


def test_other_formats_of_sound_are_refused_by_name() -> None:
    error = refused(question(messages=[user(sound_part(kind="mp3"))]))
    assert error.param == "messages[0].content[0].input_audio.format"
    assert "'wav' or 'flac'" in error.message


def test_every_sampling_field_arrives() -> None:
    fields = {
        "temperature": 0.5, "top_p": 0.9, "top_k": 7, "seed": -3, "max_tokens": 12,
        "stop": ["a", "b"], "logprobs": True, "top_logprobs": 4, "n": 3, "min_p": 0.2,
        "presence_penalty": 0.5, "frequency_penalty": -1, "repetition_penalty": 1.1,
        "logit_bias": {"5": 1, "0": -100}, "stop_token_ids": [4, 9], "min_tokens": 2,
        "include_stop_str_in_output": True, "ignore_eos": True,
    }  # fmt: skip
    sampling = admit(question(**fields)).sampling.model_dump()
    del fields["top_logprobs"]
    assert sampling == {
        **fields, "stop": ("a", "b"), "logprobs": 4, "logit_bias": {5: 1, 0: -100},
        "stop_token_ids": (4, 9),
    }  # fmt: skip
    assert set(sampling) == set(Sampling.model_fields)
    assert all(value != Sampling.model_fields[name].default for name, value in sampling.items())
    plain = admit(question(stop="x", max_completion_tokens=3, top_k=-1, logprobs=True)).sampling
    assert (plain.stop, plain.max_tokens, plain.top_k, plain.logprobs) == (("x",), 3, 0, 0)
    assert admit(question()).sampling.logprobs is None
    assert admit(question()).sampling == Sampling()


def test_priority_arrives() -> None:
    assert admit(question(priority=-3)).priority == -3
    assert admit(question()).priority == admit(question(priority=None)).priority == 0


def test_streaming_fields_arrive() -> None:
    prepared = admit(question(stream=True, stream_options={"include_usage": True}, user="u-1"))
    assert (prepared.stream, prepared.include_usage, prepared.user) == (True, True, "u-1")
    assert admit(question()).modality == "text"


NEUTRAL = {
    "response_format": {"type": "text"}, "tools": [],
    "tool_choice": "auto", "parallel_tool_calls": True, "modalities": ["text"], "store": False,
    "metadata": {}, "service_tier": "auto",
}  # fmt: skip
EFFECTIVE = {
    "response_format": {"type": "json_object"},
    "tools": [{"type": "function"}], "tool_choice": "required", "parallel_tool_calls": False,
    "modalities": ["text", "audio"], "store": True, "metadata": {"a": "b"}, "service_tier": "flex",
}  # fmt: skip


def test_neutral_values_change_nothing() -> None:
    assert admit(question(**NEUTRAL)) == admit(question()) == admit(question(store=None))


DEFAULTS = {
    "n": 1, "presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1.0,
    "min_p": 0, "logit_bias": {}, "stop_token_ids": [], "min_tokens": 0, "ignore_eos": False,
    "include_stop_str_in_output": False, "temperature": 1, "top_p": 1, "top_k": -1,
    "logprobs": False, "seed": None, "stop": None, "max_tokens": None,
}  # fmt: skip


def test_defaults_may_be_sent() -> None:
    assert admit(question(**DEFAULTS)) == admit(question())
    assert admit(question(**dict.fromkeys(DEFAULTS))) == admit(question())


def test_every_field_without_effect_is_tried_here() -> None:
    neutral = {n for n, field in ChatRequest.model_fields.items() if neutral_values(field)}
    assert neutral == set(NEUTRAL) == set(EFFECTIVE)


@pytest.mark.parametrize("name", EFFECTIVE)
def test_a_field_without_effect_is_refused_by_name(name: str) -> None:
    error = refused(question(**{name: EFFECTIVE[name]}))
    assert error.param == name
    assert f"{name} is " in error.message
    assert "no effect here; leave it out" in error.message


def test_true_is_not_one() -> None:
    assert refused(question(parallel_tool_calls=1)).param == "parallel_tool_calls"


def test_every_field_with_an_effect_says_what_it_takes() -> None:
    nested = {"messages", "stream_options"}
    effective = {n for n, field in ChatRequest.model_fields.items() if not neutral_values(field)}
    assert set(allowed_values(ChatRequest)) == effective - nested


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b"{", None, "not JSON"),
        (b"", None, "not JSON"),
        (b"[1]", None, "an object"),
        (b"\xff\xfe", None, "not JSON"),
        (b'{"model":' * 5000, None, "not JSON"),
        (b'{"logit_bias":' + b"[" * 100_000 + b"]" * 100_000 + b"}", None, "not JSON"),
        ({}, "model", "model is missing. messages is missing."),
        (question(surprise=1), "surprise", "surprise is not a field of this API"),
        (question(surprise=1), "surprise", "allowed: model, messages,"),
        (question(temperature=3), "temperature", "is 3; allowed: a number from 0 to 2."),
        (question(temperature="1"), "temperature", "is a string of 1 character; allowed: a n"),
        (b'{"model":"demo","messages":[],"temperature":NaN}', "messages", "nan; allowed: a number"),
        (question(top_p=0), "top_p", "is 0; allowed: a number above 0 and up to 1."),
        (question(min_p=1.5), "min_p", "is 1.5; allowed: a number from 0 to 1."),
        (question(presence_penalty=-3), "presence_penalty", "allowed: a number from -2 to 2."),
        (question(frequency_penalty=2.1), "frequency_penalty", "allowed: a number from -2 to 2."),
        (question(repetition_penalty=0), "repetition_penalty", "a number from 0.01 to 100."),
        (question(n=0), "n", "n is 0; allowed: a whole number from 1 to 128."),
        (question(n=129), "n", "n is 129; allowed: a whole number from 1 to 128."),
        (question(n=True), "n", "n is true; allowed:"),
        (question(n=10**40), "n", "n is 100000000000000000000000000...; allowed:"),
        (question(ignore_eos=1), "ignore_eos", "is 1; allowed: true or false."),
        (question(logit_bias={"x": 1}), "logit_bias.x", "takes an object of up to 1024 token ids"),
        (question(logit_bias={"05": 1}), "logit_bias.05", "takes an object of up to 1024 token i"),
        (question(logit_bias={"5": 101}), "logit_bias.5", "with a number from -100 to 100."),
        (question(logit_bias=dict.fromkeys(map(str, range(1025)), 1)), "logit_bias", "1025 fields"),
        (question(stop_token_ids=[-1]), "stop_token_ids[0]", "takes a list of up to 64 token ids"),
        (question(stop_token_ids=[1] * 65), "stop_token_ids", "is a list of 65; allowed:"),
        (question(seed=2**63), "seed", "is 9223372036854775808; allowed: a whole number from -9"),
        (question(seed=0.5), "seed", "is 0.5; allowed: a whole number"),
        (question(max_tokens=0), "max_tokens", "is 0; allowed: a whole number from 1 to"),
        (
            question(max_tokens=2, max_completion_tokens=3),
            "max_completion_tokens",
            "send one of them",
        ),
        (question(max_tokens=2, min_tokens=3), "min_tokens", "is 3, but max_tokens is 2"),
        (question(top_logprobs=3), "top_logprobs", "needs logprobs: true"),
        (question(logprobs=True, top_logprobs=21), "top_logprobs", "from 0 to 20."),
        (question(stream_options={}), "stream_options", "needs stream: true"),
        (question(stream_options=3), "stream_options", "is 3; it must be an object."),
        (question(stop=["a"] * 5), "stop", "is a list of 5; allowed: a string of 1 to 1000"),
        (question(stop=[""]), "stop[0]", "is a string of 0 characters; stop takes a string of 1"),
        (question(user="ü\n"), "user", "allowed: 1 to 128 printable ASCII characters."),
        (question(messages=[]), "messages", "is a list of 0; it must be a list of at least 1."),
        (question(messages=3), "messages", "messages is 3; it must be a list."),
        (
            question(messages=[{"role": "user", "content": [{"type": "text", "text": 3}]}]),
            "messages[0].content[0].text",
            "is 3; it must be a string.",
        ),
        (question(messages=[{"role": "tool", "content": "x"}]), "messages[0]", "whose role is one"),
        (question(messages=["x"]), "messages[0]", "whose role is one of system"),
        (question(messages=[{"role": "user"}]), "messages[0].content", "is missing"),
        (
            question(messages=[{"role": "user", "content": "x", "name": "Ann"}]),
            "messages[0].name",
            "no effect here",
        ),
        (
            question(messages=[{"role": "user", "content": [{"type": "refusal"}]}]),
            "messages[0].content[0]",
            "type is one of text, image_url, video_url, input_audio",
        ),
        (
            question(messages=[{"role": "assistant", "content": None, "tool_calls": [{}]}]),
            "messages[0].content",
            "a string or a list",
        ),
        (
            # Keys that a client chooses, and tensors from outside, are no input of ours.
            question(
                messages=[
                    {
                        "role": "user",
                        "content": [
                            {"type": "image_url", "uuid": "u", "image_url": {"url": PICTURE}}
                        ],
                    }
                ]
            ),
            "messages[0].content[0].uuid",
            "is not a field",
        ),
        (
            question(messages=[{"role": "user", "content": [{"type": "image_embeds"}]}]),
            "messages[0].content[0]",
            "type is one of text, image_url, video_url, input_audio",
        ),
        (question(prompt_embeds="AA=="), "prompt_embeds", "is not a field of this API"),
        (question(cache_salt="x" * 5000), "cache_salt", "is not a field of this API"),
        (question(priority=101), "priority", "a whole number from -100 to 100"),
        (question(PICTURE, "https://a/b"), "messages[0].content[2].image_url.url", "not fetched"),
    ],
)
def test_faults_name_their_field(body: Any, param: str | None, words: str) -> None:
    error = refused(body)
    assert words in error.message
    assert error.param == param
    for jargon in ("Input should", "validation", "pattern", "discriminat", "another kind"):
        assert jargon not in error.message


def test_pictures_belong_to_people() -> None:
    part = {"type": "image_url", "image_url": {"url": PICTURE}}
    error = refused(question(messages=[{"role": "system", "content": [part]}]))
    assert error.param == "messages[0].content[0].type"


def test_each_picture_keeps_its_detail() -> None:
    details = ("low", "high", "auto", None)
    parts = [
        {"type": "image_url", "image_url": {"url": PICTURE} | ({"detail": d} if d else {})}
        for d in details
    ]
    body = question(messages=[{"role": "user", "content": parts}])
    content = prepare(json.dumps(body).encode(), "demo", MediaLimits()).messages[0].content
    assert [part.detail for part in content if isinstance(part, ImagePart)] == [
        "low", "high", "auto", "auto",
    ]  # fmt: skip


def test_another_detail_is_refused() -> None:
    part = {"type": "image_url", "image_url": {"url": PICTURE, "detail": "medium"}}
    error = refused(question(messages=[{"role": "user", "content": [part]}]))
    assert error.param == "messages[0].content[0].image_url.detail"
    assert "'auto', 'low' or 'high'" in error.message


def test_unknown_model() -> None:
    error = refused(question() | {"model": "gpt-9"}, UnknownModel)
    assert error.message == "Model 'gpt-9' is not served here; use 'demo'."
    assert error.param == "model"


def test_too_many_pictures_is_said_before_any_is_looked_at() -> None:
    error = refused(question("x", "y", "z"), RequestTooLarge)
    assert error.message == "The request brings 3 pictures; at most 2 are allowed."
    assert error.param == "messages[0].content[3]"


def test_a_thousand_faults_make_a_short_sentence() -> None:
    error = refused(question(messages=[{"role": "x" * 500, "content": 1}] * 1000))
    assert len(error.message) < 2000
    assert "995 more faults are not listed." in error.message


def test_nothing_of_a_prompt_is_repeated() -> None:
    error = refused(question(messages=[{"role": "user", "content": [{"text": "my secret"}]}]))
    assert "secret" not in error.message

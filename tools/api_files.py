"""docs/reference/api.md from the sidecar's request schema and the CRD's limits on media."""

from __future__ import annotations

import json
from pathlib import Path

from chiasm_contract.api.modalities import Modalities
from chiasm_contract.media_formats import AUDIO_FORMATS_SENTENCE, VIDEO_FORMATS_SENTENCE
from chiasm_sidecar.front_door.media import FORMATS_SENTENCE
from chiasm_sidecar.front_door.schema import ChatRequest, neutral_values

HEAD = """\
# The chat API

Written by `make generate` from `sidecar/chiasm_sidecar/front_door/schema.py`. Port 8000 speaks
OpenAI's chat completions: POST /v1/chat/completions, GET /v1/models; beside them GET /health (the
process lives) and GET /ready (requests should come here; 503 with the reason otherwise). Errors
have OpenAI's body; `param` is the path of the field at fault.

Where the resource has tenants, paths under /v1 take their key as `Authorization: Bearer KEY`
([identity.md](../identity.md#tenants)); elsewhere that header says nothing.

A request's `X-Request-Id` (1 to 128 letters, digits or ._:/+=@-) comes back with its answer and
stands in the log; without one it is made up. A W3C `traceparent` joins the caller's trace, and an
answer whose request is recorded carries `traceresponse` ([tracing.md](../tracing.md)).

## Fields with an effect

| Field | Meaning |
|---|---|
"""
NEUTRAL = """
## Fields that may be sent but not changed

Clients send these by themselves. The value that means the default is accepted, any other is
answered 400 by name, and so is every field that stands in neither table: nothing is accepted and
ignored.

| Field | Accepted |
|---|---|
"""
TOKENS_AND_MEDIA = """
## How tokens are chosen

In vLLM's order, each step doing what transformers' LogitsProcessor of that name does:

1. Until `min_tokens`, end tokens (the model's own and `stop_token_ids`) cannot be chosen.
2. `logit_bias`, then `repetition_penalty` (prompt and answer), then `frequency_penalty` and
   `presence_penalty` (answer only). These change greedy answers too.
3. `temperature`, then `min_p`, `top_k` and `top_p`, each on what the one before it left.

A draw depends on the seed, the choice's index, the position in the answer and the logits, and on
nothing else: the same seed gives the same text alone and in company, from the cache, and after a
preemption. Batches of other sizes may round logits differently in their last bits; a draw moves
only where two tokens are that close to a tie. Without a seed each request draws its own.

`n` choices are one request: the prompt is computed once, its pictures are encoded once, and the
choices share its cache blocks (with prefix caching off each computes the prompt). Each choice takes
a place in the worker's queue; more than it has are answered 400, more than are left 429. `usage`
counts the prompt once and the tokens of all choices. A stream interleaves its choices by `index`;
the usage comes behind the last of them.

An answer ends before its first complete stop string, which is never sent in part, or before an end
token; `stop_reason` beside `finish_reason` is vLLM's: the string or the id of `stop_token_ids`,
null for the model's own end token. `include_stop_str_in_output` keeps what ended it. `logprobs`
are the model's own, before any of the above changes them, and list the tokens that are shown: not
the one that ended the answer, nor those behind a stop string's place.

## Pictures, videos and sounds

Parts of a user's turn, several of each and mixed with `{"type": "text", "text": "..."}`, in the
order in which the model shall see them:

| Part | Files | Limits when nothing else is said |
|---|---|---|
"""
MEDIA_AND_FAULTS = """
The first bytes of a file decide what it is. How many of each a request may bring is
`spec.model.modalities` of the resource (`--images`, `--videos` and `--audios` of `chiasm serve`);
videos and sounds are off until somebody allows them. Which models take which, and which frames of a
video they see: [families.md](../families.md). Addresses (`https://...`) are refused.

`detail` of a picture says how many of its tokens become one: high keeps all of them, auto (also
when absent) follows the resource's `spec.model.vision.compression`, low its `lowDetailCompression`.
A model whose tokens cannot be pooled answers 400 to a detail that would. In the answer's usage,
`prompt_tokens_details` says under `image_tokens`, `video_tokens` and `audio_tokens` what media
took, under `uncompressed_image_tokens` what pictures would have taken at high, and under
`image_compression` each one's ratio.

## Answers to faults

| Status | When |
|---|---|
| 400 | the body is not JSON, a field is wrong, a file cannot be decoded or is of a kind that is \
not allowed here, a prompt too long |
| 401 | no API key where one is needed, or a wrong one |
| 404 | the model is not served here; the path does not exist |
| 413 | the body, a file's bytes, pixels or seconds, or the number of files is above the limit |
| 429 | the queue is full, or too much is held already; Retry-After says how long |
| 503 | no worker of the expected identity is ready, or it ended in the middle; Retry-After |
"""


def _media() -> str:
    """One row for each kind of part."""
    kinds = Modalities()
    image, video, audio = kinds.image, kinds.video, kinds.audio
    rows = (
        (
            '{"type": "image_url", "image_url": {"url": "data:image/png;base64,...", '
            '"detail": "auto"}}',
            FORMATS_SENTENCE,
            f"{image.max_bytes}, {image.max_pixels} pixels",
            image.max_per_prompt,
        ),
        (
            '{"type": "video_url", "video_url": {"url": "data:video/mp4;base64,..."}}',
            VIDEO_FORMATS_SENTENCE,
            f"{video.max_bytes}, {video.max_pixels} pixels a frame, {video.max_seconds} s",
            video.max_per_prompt,
        ),
        (
            '{"type": "input_audio", "input_audio": {"data": "...", "format": "wav"}}',
            AUDIO_FORMATS_SENTENCE,
            f"{audio.max_bytes}, {audio.max_seconds} s",
            audio.max_per_prompt,
        ),
    )
    return "".join(
        f"| `{part}` | {formats.removesuffix(' are supported')} | {number} in a request; each "
        f"{limits} |\n"
        for part, formats, limits, number in rows
    )


def outputs(root: Path) -> dict[Path, str]:
    effective, neutral = [], []
    for name, field in ChatRequest.model_fields.items():
        values = neutral_values(field)
        if values is None:
            effective.append(f"| {name} | {field.description} |\n")
        else:
            accepted = ", ".join(json.dumps(value) for value in values)
            neutral.append(f"| {name} | {accepted} |\n")
    fields = (HEAD, *effective, NEUTRAL, *neutral)
    text = "".join((*fields, TOKENS_AND_MEDIA, _media(), MEDIA_AND_FAULTS))
    return {root / "docs" / "reference" / "api.md": text}

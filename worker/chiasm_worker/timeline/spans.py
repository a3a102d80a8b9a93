"""From what was added up of a request to the spans of its trace.

    request
    ├── receive, hash, decode, process, prompt, fetch, restore     as they were noted
    ├── queue      from the engine's door to the first step
    ├── encode     one for each call of an encoder, with its modality
    ├── prefill    from the first step to the first token; its chunks are children
    └── decode     from the first token to the last; one for each choice

Must not know: trace ids, who exports.
"""

from __future__ import annotations

from chiasm_contract.timeline import Event, Span, number_of

from chiasm_worker.timeline.followed import Followed

ROOT = -1
_AS_NOTED = {"receive", "hash", "decode", "process", "prompt", "fetch", "restore"}


def spans_of(followed: Followed) -> list[Span]:
    """The spans, each behind its parent."""
    spans = [
        Span(event.name, event.start, event.end, ROOT, event.details)
        for event in followed.events
        if event.name in _AS_NOTED
    ]
    spans += [
        Span(
            "encode", each.start, each.end, ROOT,
            {"modality": each.modality, "tokens": each.num_tokens, "items": len(each.choice_ids)},
        )
        for each in followed.encodes
    ]  # fmt: skip
    spans += _queue(followed)
    spans += _prefill(followed, len(spans))
    spans += _decode(followed)
    spans += [
        Span("failed", event.start, event.end, ROOT, event.details, fault="failed")
        for event in followed.events
        if event.name == "failed"
    ]
    return spans


def _queue(followed: Followed) -> list[Span]:
    queued = followed.first("queued")
    if queued is None:
        return []
    end = followed.began
    if end is None:
        end = _last(followed.events)
    return [Span("queue", queued.end, max(queued.end, end), ROOT, queued.details)]


def _prefill(followed: Followed, place: int) -> list[Span]:
    """The whole, whose place in the list is `place`, and its chunks."""
    if followed.began is None or not followed.chunks:
        return []
    # Copied: the engine may still be adding to what its client has left.
    firsts = [decoding.first for decoding in list(followed.decodings.values())]
    end = min(firsts, default=followed.chunks[-1].end)
    ended = followed.details("end")
    attributes = {"chunks": followed.num_chunks, "cached_tokens": ended.get("cached_tokens", 0)}
    whole = Span("prefill", followed.began, end, ROOT, attributes)
    chunks = [
        Span(
            "prefill chunk", each.start, each.end, place,
            {"first_token": each.first_token, "tokens": each.num_tokens},
        )
        for each in followed.chunks
    ]  # fmt: skip
    return [whole, *chunks]


def _decode(followed: Followed) -> list[Span]:
    ends = [event.details for event in followed.events if event.name == "end"]
    reasons = {str(end.get("choice", 0)): end.get("reason", "") for end in ends}
    spans = []
    for choice, each in list(followed.decodings.items()):
        number = number_of(choice)
        attributes = {
            "choice": number,
            "tokens": each.num_tokens,
            "longest_gap_seconds": round(each.longest_gap, 6),
            "finish_reason": reasons.get(str(number), "unfinished"),
        }
        spans.append(Span("decode", each.first, each.last, ROOT, attributes))
    return spans


def _last(events: list[Event]) -> float:
    return max(event.end for event in events)

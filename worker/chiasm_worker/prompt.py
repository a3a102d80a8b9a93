"""From a conversation to tokens, media spans and positions.

The model's own chat template renders the conversation; it alone writes control tokens. Words of a
message that spell a control token (`<|image_pad|>`, `<|im_end|>`) are marked before rendering and
tokenised as the plain text that they are. Where the template would join several texts into one, a
lone mark keeps them apart. Which tokens stand for which picture follows from the
template's placeholders, one per picture, in order.

Must not know: batches, blocks, HTTP.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from chiasm_contract.errors import InvalidRequest
from chiasm_contract.messages import ChatMessage, TextPart
from jinja2.exceptions import TemplateError
from transformers.utils.chat_template_utils import encode_marked_chat, mark_control_tokens

from chiasm_worker.media_identity import MediaSpan
from chiasm_worker.modality.media import MediaItem
from chiasm_worker.models.base import LoadedModel, PlacedItem
from chiasm_worker.models.mask import MaskRule, bidirectional_spans, cross_spans
from chiasm_worker.request import Prompt

# What a template's expressions raise when a conversation is not of the shape it was written for.
_TEMPLATE_FAULTS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)


class PromptBuilder:
    """One model's template, tokenizer and position scheme."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._processor: Any = model.processor
        self._tokenizer: Any = model.processor.tokenizer
        self._placeholders: dict[str, str] = {
            modality: getattr(model.processor, f"{modality}_token")
            for modality in model.family.modalities
        }
        template = str(model.processor.chat_template or "")
        if not template:
            raise ValueError(
                f"{model.path} holds no chat template, so conversations cannot be rendered; add "
                "chat_template.jinja to the model folder."
            )
        self._control_tokens = _control_tokens(self._tokenizer, template)
        self._written_tokens = re.compile(
            f"{_MARK}(?:{self._control_tokens.pattern}){_END_MARK}|({self._control_tokens.pattern})"
        )
        self._longest_token = max(map(len, self._tokenizer.get_vocab()))
        self._prefix: list[int] = self._tokenizer.encode("", add_special_tokens=True)
        if self._encode_plain("a", special=True) != self._prefix + self._encode_plain("a"):
            raise ValueError("The tokenizer adds tokens behind a text; such prompts never end.")

    def check_length(self, messages: Sequence[ChatMessage], max_model_len: int) -> None:
        """Refuse words that cannot fit, however long their tokens are, before they cost anything.

        Raises: InvalidRequest.
        """
        num_characters = sum(
            len(part.text)
            for message in messages
            for part in message.content
            if isinstance(part, TextPart)
        )
        limit = max_model_len * self._longest_token
        if num_characters > limit:
            raise InvalidRequest(
                f"The messages have {num_characters} characters; the {max_model_len} tokens that "
                f"are allowed together hold at most {limit}. Shorten them.",
                param="messages",
                code="context_length_exceeded",
            )

    def build(self, messages: Sequence[ChatMessage], placed: Sequence[MediaItem]) -> Prompt:
        """The prompt of a conversation whose media parts are `placed`, in their order.

        Raises: InvalidRequest when the template refuses the conversation or a picture's place, or a
        message spells a control token that the tokenizer cannot write as plain text.
        """
        if self._model.family.needs_media and not placed:
            raise InvalidRequest(
                "This model answers about pictures only; add one to a user message.",
                param="messages",
            )
        token_ids = self._tokenize(self._expand(self._render(messages), placed))
        places = find_runs(token_ids, placed)
        positions = self._model.family.positions(
            len(token_ids),
            [_placed(item, *place) for item, place in zip(placed, places, strict=True)],
            self._model.config,
        )
        spans = []
        for (start, runs), item in zip(places, placed, strict=True):
            part = positions[:, start : start + sum(runs[-1])]
            digest = hashlib.sha256(part.astype("<i8").tobytes()).digest()
            spans.append(MediaSpan(item.identity, start, digest, runs))
        mask = self._model.decoder.spec.mask
        if mask is MaskRule.CROSS:
            cross = cross_spans(spans)
            return Prompt(tuple(token_ids), (), positions, cross=cross)
        together = bidirectional_spans(mask, len(token_ids), spans)
        return Prompt(tuple(token_ids), tuple(spans), positions, together)

    def _render(self, messages: Sequence[ChatMessage]) -> str:
        """The conversation as text, in which only the template's control tokens are unmarked.

        Several texts, or a text and the template's own words, may spell a control token together.
        That is noticed by rendering once more with a mark around every text. Only then is the
        marked text used, because marks also part what the tokenizer would merge.
        """
        joined = self._apply_template(messages, around="")
        apart = self._apply_template(messages, around=_END_MARK)
        return joined if self._written(joined) == self._written(apart) else apart

    def _written(self, rendered: str) -> list[str]:
        """The control tokens that stand unmarked in a rendered conversation."""
        return [token for token in self._written_tokens.findall(rendered) if token]

    def _apply_template(self, messages: Sequence[ChatMessage], around: str) -> str:
        conversation = [
            {
                "role": message.role,
                "content": [
                    {"type": "text", "text": self._mark(part.text, around)}
                    if isinstance(part, TextPart)
                    else {"type": part.type}
                    for part in message.content
                ],
            }
            for message in messages
        ]
        try:
            rendered: str = self._processor.apply_chat_template(
                conversation, add_generation_prompt=True, tokenize=False
            )
        except TemplateError as error:
            raise InvalidRequest(
                f"The model's chat template refuses this conversation: {error}.", param="messages"
            ) from error
        except _TEMPLATE_FAULTS as error:
            raise InvalidRequest(
                "The model's chat template has no rule for this conversation; try fewer roles, one "
                "turn after the other, or plain strings as content.",
                param="messages",
            ) from error
        return rendered

    def _mark(self, text: str, around: str) -> str:
        marked: str = mark_control_tokens(text, self._control_tokens)
        # Templates may ask whether there is any text at all; none stays none.
        return f"{around}{marked}{around}" if marked.strip() else marked

    def _expand(self, rendered: str, placed: Sequence[MediaItem]) -> str:
        # A placeholder that a user typed is preceded by a mark and so does not count.
        tokens = "|".join(map(re.escape, self._placeholders.values()))
        parts = re.split(f"(?<!{_MARK})({tokens})", rendered)
        wanted = [self._placeholders[item.identity.modality] for item in placed]
        if parts[1::2] != wanted:
            raise InvalidRequest(
                f"The model's chat template places {len(parts) // 2} of {len(placed)} pictures "
                "or videos, or others; put them into user messages.",
                param="messages",
            )
        parts[::2] = self._model.family.lay_out(parts[::2], self._tokenizer.bos_token or "")
        parts[1::2] = [item.placeholder for item in placed]
        return "".join(parts)

    def _tokenize(self, text: str) -> list[int]:
        # As transformers does: the tokenizer's own prefix only if the template has not written it.
        bos = self._tokenizer.bos_token
        prefix = [] if bos is not None and text.startswith(bos) else self._prefix
        if _MARK in text or _END_MARK in text:
            try:
                marked: list[int] = encode_marked_chat(self._tokenizer, text)
            except ValueError as error:
                # The tokenizer has no other way to write a control token that a user typed.
                raise InvalidRequest(
                    f"A message spells one of the model's control tokens: {error}. Write it "
                    "otherwise, with a space inside for example.",
                    param="messages",
                ) from error
            return prefix + marked
        return self._encode_plain(text, special=bool(prefix))

    def _encode_plain(self, text: str, *, special: bool = False) -> list[int]:
        token_ids: list[int] = self._tokenizer.encode(text, add_special_tokens=special)
        return token_ids


def find_runs(
    token_ids: Sequence[int], placed: Sequence[MediaItem]
) -> list[tuple[int, tuple[tuple[int, int], ...]]]:
    """Where each item's encoder tokens stand: the first of them, and the unbroken runs from there.

    An item owns the next tokens of its kind, as many as its encoder has rows: no user's words make
    such a token. How the words between them were cut into tokens does not matter.
    """
    places, at = [], 0
    for item in placed:
        runs: list[tuple[int, int]] = []
        missing, start = item.identity.num_tokens, -1
        while missing:
            at = token_ids.index(item.row_token_id, at)
            start = at if start < 0 else start
            first = at
            while missing and at < len(token_ids) and token_ids[at] == item.row_token_id:
                at, missing = at + 1, missing - 1
            runs.append((first - start, at - first))
        places.append((start, tuple(runs)))
    return places


def _placed(item: MediaItem, start: int, runs: tuple[tuple[int, int], ...]) -> PlacedItem:
    identity = item.identity
    return PlacedItem(
        start,
        identity.num_tokens,
        identity.grid,
        runs,
        modality=identity.modality,
        seconds_per_step=item.seconds_per_step,
        window=(1, 1) if identity.compression is None else identity.compression.window,
    )


def _control_tokens(tokenizer: Any, template: str) -> re.Pattern[str]:
    """What transformers calls control tokens: special ones and those the template writes."""
    tokens = [
        token.content
        for token in tokenizer.added_tokens_decoder.values()
        if token.special or (token.content in template and not token.content.isspace())
    ]
    longest_first = sorted(tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


# The private-use characters that transformers puts around a control token in a user's words. A
# lone one is dropped when the text is tokenised, but still parts what stands on its two sides.
_MARK, _, _END_MARK = mark_control_tokens("x", re.compile("x"))

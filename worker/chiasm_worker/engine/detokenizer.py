"""From token ids to text that may be sent on, as soon as it is certain.

Text is held back while a UTF-8 character is incomplete and while it could be the beginning of a
stop string. What was sent is never taken back: all deltas together are the decoded answer, cut
before the stop string that was complete first (of several, the one that began first), or behind it.
One thing may differ: a run of byte tokens that is not UTF-8. Some tokenizers turn each byte of such
a run into a replacement character, also those that were a character before the bad one came; what
was sent of the run stays, and the rest of it may be missing. Words beside it are all there.

Must not know: the engine, HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers.decoders import DecodeStream


class StopStrings:
    """Finds stop strings in growing text."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]

    def find(self, text: str, num_exempt: int = 0) -> tuple[int, int] | None:
        """Where in `text` the first complete stop string begins and ends.

        One that ends within the first `num_exempt` characters does not count.
        """
        found: list[tuple[int, int]] = []
        for stop in self._stops:
            place = text.find(stop, max(0, num_exempt - len(stop) + 1))
            if place >= 0:
                found.append((place + len(stop), place))
        if not found:
            return None
        end, start = min(found)
        return start, end

    def num_certain(self, text: str) -> int:
        """Characters at the start of `text` that can no longer become part of a stop string."""
        if not self._stops:
            return len(text)
        longest = max(map(len, self._stops))
        for start in range(max(0, len(text) - longest + 1), len(text)):
            if any(stop.startswith(text[start:]) for stop in self._stops):
                return start
        return len(text)


class Detokenizer:
    """One answer's text.

    Args:
        tokenizer: a transformers fast tokenizer.
        stops: strings that end the answer.
        include_stop: whether the string that ends the answer is part of it.
        min_tokens: a stop string counts only if it ends behind the text of this many tokens.
    """

    def __init__(
        self,
        tokenizer: Any,
        stops: Sequence[str] = (),
        *,
        include_stop: bool = False,
        min_tokens: int = 0,
    ) -> None:
        self._tokenizer = tokenizer
        self._backend = tokenizer.backend_tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._stops = StopStrings(stops)
        self._token_ids: list[int] = []
        self._include_stop = include_stop
        self._min_tokens = min_tokens
        self._num_exempt = 0
        self._decoded = ""  # complete characters so far
        self.num_sent = 0
        self.stopped_by: str | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string has ended the answer."""
        return self.stopped_by is not None

    @property
    def num_decoded(self) -> int:
        """Complete characters so far, sent or held back."""
        return len(self._decoded)

    def push(self, token_id: int) -> str:
        """Add a token; returns the text that became certain, which may be empty."""
        self._token_ids.append(token_id)
        self._decoded += self._step(token_id)
        if len(self._token_ids) <= self._min_tokens:
            self._num_exempt = len(self._decoded)
        return self._take(final=False)

    def finish(self) -> str:
        """The text that was held back, when no further token comes."""
        if self.is_stopped:
            return ""
        whole = self._tokenizer.decode(self._token_ids, skip_special_tokens=True)
        if whole.startswith(self._decoded):
            self._decoded = whole
        return self._take(final=True)

    def _step(self, token_id: int) -> str:
        try:
            return self._stream.step(self._backend, token_id) or ""
        except Exception:
            # Raised (as a bare Exception) when byte tokens that are no character change how the
            # ones before them decode. A new stream goes on from here; the text of this token comes
            # from decoding all of them.
            self._stream = DecodeStream(skip_special_tokens=True)
            text = self._stream.step(self._backend, token_id) or ""
            whole: str = self._tokenizer.decode(self._token_ids, skip_special_tokens=True)
            return whole[len(self._decoded) :] if whole.startswith(self._decoded) else text

    def _take(self, *, final: bool) -> str:
        pending = self._decoded[self.num_sent :]
        found = self._stops.find(pending, max(0, self._num_exempt - self.num_sent))
        if found is not None:
            start, end = found
            self.stopped_by = pending[start:end]
            count = end if self._include_stop else start
        else:
            count = len(pending) if final else self._stops.num_certain(pending)
        self.num_sent += count
        return pending[:count]

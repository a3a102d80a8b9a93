"""The annotations by which a person steers a rollout: what each may say, and what it then means.

The webhook refuses what is wrong here, and whoever follows the annotations reads them with the
same functions, so that both always agree. Must not know: which revision is stable, clocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from chiasm_contract import names
from chiasm_contract.traffic import Override
from chiasm_contract.weights import ALLOWED, parse_weight

ACTIONS = ("pause", "resume", "promote", "abort", "retry")
AUTO = "auto"
PREFIX = f"{names.GROUP}/"
# Every annotation of ours that a person may put on a resource.
KNOWN = (
    names.ANNOTATION_CANARY_WEIGHT,
    names.ANNOTATION_CANARY_BY_HEADER,
    names.ANNOTATION_CANARY_BY_HEADER_VALUE,
    names.ANNOTATION_CANARY_BY_COOKIE,
    names.ANNOTATION_ROLLOUT_ACTION,
    names.ANNOTATION_RESTARTED_AT,
    names.ANNOTATION_RELOAD_CONFIG,
)

_THERE_ARE = f" There are: {', '.join(KNOWN)}."
_MAX_HINTS = 8
# An action is kept in the status, and what is wrong is said there.
_MAX_ACTION = 128
_MAX_QUOTED = 64

# RFC 9110: names of headers and cookies, and what a header may hold.
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_VISIBLE = re.compile(r"[!-~]{1,128}")
# Headers that mean something else already, so that a value in them is no wish for a revision.
_TAKEN_HEADERS = frozenset(
    {
        names.REVISION_HEADER, names.ROUTE_HEADER, names.CONVERSATION_HEADER, "authorization",
        "connection", "content-length", "content-type", "cookie", "host", "transfer-encoding",
    }
)  # fmt: skip


@dataclass(frozen=True)
class AnnotationFault:
    """One annotation that cannot be followed: its name, and a sentence with what is allowed.

    The hint is no part of the fault: the same one may come without.
    """

    annotation: str
    message: str
    hint: str = field(default="", compare=False)


def manual_weight(annotations: Mapping[str, str]) -> int | None:
    """The canary's share by hand in parts of 10,000; None without one and for `auto`.

    Raises: ValueError naming the value and what is allowed.
    """
    text = annotations.get(names.ANNOTATION_CANARY_WEIGHT)
    if text is None or text == AUTO:
        return None
    try:
        return parse_weight(text)
    except ValueError as error:
        raise ValueError(
            f"{_quoted(text)} is no weight; allowed are {ALLOWED}, and {AUTO}."
        ) from error


@dataclass(frozen=True)
class Action:
    """A rollout-action; `revision` is empty when none was named.

    Another value is another action: what stands behind a second colon says nothing else.
    """

    value: str
    verb: str
    revision: str


def action(annotations: Mapping[str, str]) -> Action | None:
    """What `rollout-action` asks for.

    Raises: ValueError naming the value and what is allowed.
    """
    text = annotations.get(names.ANNOTATION_ROLLOUT_ACTION)
    if text is None:
        return None
    verb, revision, *_ = [*text.split(":", 2), ""]
    if verb not in ACTIONS or len(text) > _MAX_ACTION:
        raise ValueError(
            f"{_quoted(text)} is no action; allowed are {', '.join(ACTIONS)}, each also with "
            f":REVISION or :REVISION:ANYTHING behind it, up to {_MAX_ACTION} characters in all."
        )
    return Action(text, verb, revision)


def override(annotations: Mapping[str, str]) -> Override:
    """The header and the cookie by which clients choose, as far as they can be followed.

    A header and its value go together: without the value the header would mean something else.
    """
    wrong = {fault.annotation for fault in _override_faults(annotations)}
    pair = {names.ANNOTATION_CANARY_BY_HEADER, names.ANNOTATION_CANARY_BY_HEADER_VALUE}
    if wrong & pair:
        wrong |= pair
    fields = {
        "header": names.ANNOTATION_CANARY_BY_HEADER,
        "header_value": names.ANNOTATION_CANARY_BY_HEADER_VALUE,
        "cookie": names.ANNOTATION_CANARY_BY_COOKIE,
    }
    return Override(
        **{name: annotations.get(key) for name, key in fields.items() if key not in wrong}
    )


def faults(annotations: Mapping[str, str]) -> tuple[AnnotationFault, ...]:
    """Everything that is wrong with a resource's annotations of ours; others are not looked at."""
    return (*_unknown(annotations), *unreadable(annotations))


def unreadable(annotations: Mapping[str, str]) -> tuple[AnnotationFault, ...]:
    """What is wrong with those that are read."""
    return (*_unparsed(annotations), *_override_faults(annotations))


def _unknown(annotations: Mapping[str, str]) -> Iterator[AnnotationFault]:
    unknown = [name for name in annotations if name.startswith(PREFIX) and name not in KNOWN]
    for number, name in enumerate(unknown):
        # To search takes long, and whoever asks about thousands has not misspelt them.
        near = get_close_matches(name, KNOWN, n=1) if number < _MAX_HINTS else []
        hint = f" Did you mean {near[0]}?" if near else ""
        yield AnnotationFault(name, "Nothing reads this annotation.", hint + _THERE_ARE)


def _unparsed(annotations: Mapping[str, str]) -> Iterator[AnnotationFault]:
    for name, read in (
        (names.ANNOTATION_CANARY_WEIGHT, manual_weight),
        (names.ANNOTATION_ROLLOUT_ACTION, action),
    ):
        try:
            read(annotations)
        except ValueError as error:
            yield AnnotationFault(name, str(error))


def _override_faults(annotations: Mapping[str, str]) -> Iterator[AnnotationFault]:
    header = annotations.get(names.ANNOTATION_CANARY_BY_HEADER)
    value = annotations.get(names.ANNOTATION_CANARY_BY_HEADER_VALUE)
    cookie = annotations.get(names.ANNOTATION_CANARY_BY_COOKIE)
    form = "up to 128 letters, digits and any of !#$%&'*+-.^_`|~"
    if header is not None:
        name = names.ANNOTATION_CANARY_BY_HEADER
        if not _fits(_TOKEN, header):
            yield AnnotationFault(
                name, f"{_quoted(header)} is not the name of an HTTP header: {form}."
            )
        elif header.lower() in _TAKEN_HEADERS:
            yield AnnotationFault(
                name, f"{_quoted(header)} has a meaning of its own; take another, such as x-canary."
            )
    if value is not None:
        name = names.ANNOTATION_CANARY_BY_HEADER_VALUE
        if header is None:
            yield AnnotationFault(
                name,
                f"{_quoted(value)} is allowed only beside {names.ANNOTATION_CANARY_BY_HEADER}.",
            )
        if not _fits(_VISIBLE, value):
            yield AnnotationFault(
                name,
                f"{_quoted(value)} is no header's value; allowed are up to 128 visible ASCII "
                "characters.",
            )
    if cookie is not None and not _fits(_TOKEN, cookie):
        yield AnnotationFault(
            names.ANNOTATION_CANARY_BY_COOKIE,
            f"{_quoted(cookie)} is not the name of a cookie: {form}.",
        )


def _quoted(text: str) -> str:
    """Enough of a wrong value to know it by; an annotation may hold 256 KiB."""
    return repr(text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…")


def _fits(pattern: re.Pattern[str], text: str) -> bool:
    return pattern.fullmatch(text) is not None

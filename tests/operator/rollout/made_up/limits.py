"""For each limit of `spec.rollout.analysis`: a canary that passes it, a value that bears it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from chiasm_contract.traffic import NONE_COUNTED, Counts

_BEHIND = [{"analysis": {"seconds": 20}}, {"pause": {}}]
LOOK: list[dict[str, Any]] = [{"setWeight": 5}, *_BEHIND]
MIRROR: list[dict[str, Any]] = [{"mirror": {"percent": 50}}, *_BEHIND]


def classes(number: int) -> tuple[int, ...]:
    """200 values of the class of this number."""
    return tuple(200 if each == number else 0 for each in range(len(NONE_COUNTED)))


# 200 answers with their first token after 20 to 30 ms, and 10 or 20 tokens each.
ANSWERED = Counts(
    requests=200,
    answers=200,
    first_token=classes(3),
    inter_token=classes(3),
    output_tokens=3000,
    output_tokens_squared=50_000,
)


def like_stable(**but: Any) -> Counts:
    return ANSWERED.model_copy(update=but)


@dataclass(frozen=True)
class Limit:
    """`canary` is aborted for `reason`, with `by` where no default does it, and passes with
    `borne`."""

    canary: Counts
    reason: str
    borne: float
    by: float | None = None
    steps: tuple[dict[str, Any], ...] = tuple(LOOK)


LIMITS = {
    "maxErrorIncreasePercent": Limit(like_stable(errors=10), "ErrorRate", 6),
    # 50 to 75 ms
    "maxFirstTokenRatio": Limit(like_stable(first_token=classes(5)), "SlowFirstToken", 2.6),
    "maxInterTokenRatio": Limit(like_stable(inter_token=classes(5)), "SlowTokens", 2.6),
    "maxOutputLengthChangePercent": Limit(
        like_stable(output_tokens=9000, output_tokens_squared=450_000), "OutputLength", 210
    ),
    "maxGuardRejectIncrease": Limit(like_stable(guard_rejects=60), "GuardRejects", 0.5),
    # Behind a mirror alone there are no answers of the canary but the mirrored ones.
    "minAgreementPercent": Limit(
        Counts(shadowed=100, agreed=80), "Disagreement", 75, by=90, steps=tuple(MIRROR)
    ),
}

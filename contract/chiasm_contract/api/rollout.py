"""`spec.rollout`: how a new revision replaces the old one.

Without steps (and without a weight by annotation) pods are replaced like those of a Deployment.
With steps the new revision stands beside the old one and gets the share that each step says.
What the fields do is in docs/rollout.md. Must not know: how traffic is divided.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema

from chiasm_contract.api.fields import ApiModel, IntOrPercent, rule, rules
from chiasm_contract.weights import ALLOWED, PATTERN, parse_weight

MAX_STEPS = 20
# What pods are told; the rest says how they are replaced, and makes no other revision.
TOLD_TO_PODS = frozenset({"drain_seconds", "termination_grace_period_seconds"})
# Whole sections of a spec that make no revision: they say how many pods there are and who leads
# clients to them.
BESIDE_REVISIONS = ("replicas", "autoscaling", "gateway", "cost")


def _checked(value: str) -> str:
    parse_weight(value)
    return value


Weight = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if isinstance(value, int) else value),
    AfterValidator(_checked),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "maxLength": 6,
            **rules(
                rule(f"string(self).matches(r'{PATTERN}')", f"must be {ALLOWED} (quote decimals)")
            ),
        }
    ),
]


class PauseStep(ApiModel):
    """Waits."""

    seconds: int | None = Field(
        default=None,
        ge=1,
        le=2_592_000,
        description="Goes on after this long; absent waits for rollout-action: resume.",
    )


class CanaryScaleStep(ApiModel):
    """Brings up pods of the new revision before it gets any of the traffic."""

    replicas: int = Field(
        ge=1, le=1000, description="Pods of the new revision; never fewer than its weight needs."
    )


class MirrorStep(ApiModel):
    """Asks the new revision what the old one has answered, and only compares."""

    percent: Weight = Field(
        description="Of the requests that can be repeated; each of them is computed twice."
    )


class AnalysisStep(ApiModel):
    """Compares both revisions by `analysis` before going on."""

    seconds: int = Field(
        ge=1, le=604_800, description="Least time to look at; ends with a verdict that is no fault."
    )


class Step(ApiModel):
    """One step: exactly one of its fields."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                " + ".join(
                    f"(has(self.{name}) ? 1 : 0)"
                    for name in ("setWeight", "pause", "setCanaryScale", "mirror", "analysis")
                )
                + " == 1",
                "a step is exactly one of setWeight, pause, setCanaryScale, mirror and analysis",
            )
        )
    )

    set_weight: Weight | None = Field(
        default=None,
        description="Per cent of new conversations for the new revision, such as 5 or '2.5'.",
    )
    pause: PauseStep | None = None
    set_canary_scale: CanaryScaleStep | None = None
    mirror: MirrorStep | None = None
    analysis: AnalysisStep | None = None


class Sticky(ApiModel):
    """Whether a conversation stays with the revision that answered its first turn."""

    mode: Literal["none", "conversation"] = Field(
        default="conversation", description="none draws a revision for each request."
    )
    ttl_seconds: int = Field(
        default=3600, ge=1, le=604_800, description="A conversation is forgotten this long after."
    )
    on_abort: Literal["break", "drain"] = Field(
        default="break",
        description="break sends conversations of an aborted revision to the stable one at once, "
        "drain lets them end there, for ttlSeconds at most.",
    )


class Abort(ApiModel):
    """What becomes of an aborted revision."""

    scale_down_delay_seconds: int = Field(
        default=30, ge=0, le=604_800, description="Its pods stay this long without traffic."
    )


class RollbackWindow(ApiModel):
    """Keeps what was replaced warm, so that going back is immediate and passes no steps."""

    revisions: int = Field(default=1, ge=1, le=10, description="How many former revisions.")
    seconds: int = Field(default=600, ge=1, le=604_800, description="How long each is kept.")
    replicas: IntOrPercent = Field(
        default="100%",
        description="Pods of each; a number or a share of spec.replicas, which is the most.",
    )


class Analysis(ApiModel):
    """How both revisions are compared; the numbers are the sidecars' exact counters.

    A limit that is passed is a fault only where chance does not explain it.
    """

    interval_seconds: int = Field(
        default=30, ge=1, le=86_400, description="Time between two looks."
    )
    min_samples: int = Field(
        default=50, ge=1, le=1_000_000, description="Requests of each revision for a verdict."
    )
    failure_limit: int = Field(
        default=2,
        ge=0,
        le=100,
        description="Looks in a row that may find a fault before the abort.",
    )
    on_no_data: Literal["hold", "fail", "skip"] = Field(
        default="hold",
        description="With fewer than minSamples: hold waits, fail aborts at noDataDeadlineSeconds, "
        "skip goes on at the step's end.",
    )
    no_data_deadline_seconds: int = Field(
        default=7200,
        ge=1,
        le=604_800,
        description="After this long without enough data hold becomes a pause for a person.",
    )
    max_error_increase_percent: float = Field(
        default=1,
        ge=0,
        le=100,
        description="Per cent of requests by which the new revision's may fail more often.",
    )
    max_first_token_ratio: float = Field(
        default=1.5,
        ge=1,
        le=1000,
        description="Median time to the first token, new to old, that is no fault.",
    )
    max_inter_token_ratio: float = Field(
        default=1.5,
        ge=1,
        le=1000,
        description="Median time between two tokens, new to old, that is no fault.",
    )
    max_output_length_change_percent: float = Field(
        default=50,
        ge=0,
        le=1_000_000,
        description="By how much answers may be longer or shorter in the mean.",
    )
    max_guard_reject_increase: float = Field(
        default=0.1,
        ge=0,
        le=1_000_000,
        description="Blocks for each request that the guard may refuse beyond those of the old "
        "revision.",
    )
    min_agreement_percent: float | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Of the answers that a mirror step compares, how many must be the same word "
        "for word; absent compares none, and a mirror alone never passes.",
    )


_NEEDS_A_WAY = rule(
    "!(string(self.maxSurge) in ['0', '0%'] && string(self.maxUnavailable) in ['0', '0%'])",
    "must not be 0 while maxSurge is 0",
    field=".maxUnavailable",
)
_GRACE = rule(
    "self.terminationGracePeriodSeconds >= self.drainSeconds + 10",
    "must be at least 10 seconds longer than drainSeconds",
    field=".terminationGracePeriodSeconds",
)


def _weight_at(index: str) -> str:
    return f"double(string(self.steps[{index}].setWeight))"


def _without_weight(index: str) -> str:
    return f"{index} >= self.steps.size() || !has(self.steps[{index}].setWeight)"


# By index: lists that CEL makes on the way have no length that its cost could be known from.
_INDICES = list(range(MAX_STEPS))
_ASCENDING = rule(
    f"!has(self.steps) || {_INDICES}.all(i, {_without_weight('i')} || {_INDICES}.all(j, j <= i || "
    f"{_without_weight('j')} || {_weight_at('i')} <= {_weight_at('j')}))",
    "weights must not fall from step to step; abort takes traffic back",
    field=".steps",
)


class Rollout(ApiModel):
    """How a new revision replaces the old one."""

    model_config = ConfigDict(json_schema_extra=rules(_NEEDS_A_WAY, _GRACE, _ASCENDING))

    max_surge: IntOrPercent = Field(
        default=1, description="Pods above `replicas` during a rollout; a number or a share."
    )
    max_unavailable: IntOrPercent = Field(
        default=0, description="Pods that may be missing during a rollout; a number or a share."
    )
    progress_deadline_seconds: int = Field(
        default=900,
        ge=30,
        le=86400,
        description="A rollout without progress for this long is reported as Degraded.",
    )
    drain_seconds: int = Field(
        default=5,
        ge=0,
        le=3600,
        description="A pod that is going keeps answering for this long, until no client is sent "
        "to it any more.",
    )
    termination_grace_period_seconds: int = Field(
        default=620,
        ge=10,
        le=7200,
        description="A pod that is going is killed after this long, and goes as soon as its last "
        "answer has ended. Answers that still run are cut 5 seconds before; the sum of "
        "drainSeconds, config.requestTimeoutSeconds and 5 cuts none.",
    )
    steps: list[Step] = Field(
        default_factory=list,
        max_length=MAX_STEPS,
        description="The way of a new revision, one after the other; behind the last it is "
        "promoted. Empty replaces pods as they become ready.",
    )
    paused: bool = Field(default=False, description="Holds a rollout where it is.")
    sticky: Sticky = Sticky()
    abort: Abort = Abort()
    rollback_window: RollbackWindow | None = None
    analysis: Analysis = Analysis()

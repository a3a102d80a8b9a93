"""How requests are divided between two revisions: the plan that every sidecar follows, and what
each reports back.

The operator writes one plan per resource (a ConfigMap that every pod mounts); sidecars read it
again when it changes and answer with a report in `/state`. A sidecar without a plan serves every
request by itself. Shares are parts of 10,000 (a hundredth of a per cent), never floats, so that
both sides mean the same.

Must not know: Kubernetes objects, clocks, HTTP.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

WHOLE = 10_000

# Upper bounds in seconds of the classes in which latencies are counted; one more class is above.
LATENCY_BOUNDS = (
    0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0,
    7.5, 10.0, 20.0, 30.0, 60.0,
)  # fmt: skip

Share = Annotated[int, Field(ge=0, le=WHOLE)]
Classes = Annotated[
    tuple[int, ...], Field(min_length=len(LATENCY_BOUNDS) + 1, max_length=len(LATENCY_BOUNDS) + 1)
]
NONE_COUNTED: Classes = (0,) * (len(LATENCY_BOUNDS) + 1)


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Version(_Message):
    """One revision that takes requests."""

    revision: str
    address: str = Field(description="host:port of the Service in front of its sidecars")
    compute_fp: str | None = Field(
        default=None, description="What its vectors are computed for; None until a pod reported"
    )


class Override(_Message):
    """A header or cookie by which a client chooses: `always` the canary, `never`, or as drawn."""

    header: str | None = None
    header_value: str | None = Field(
        default=None, description="With it, exactly this value means the canary, not `always`"
    )
    cookie: str | None = None


class TrafficPlan(_Message):
    """Who answers what."""

    epoch: int = Field(ge=1, description="Grows with every change of the plan")
    window: int = Field(
        ge=1,
        description="Changes when counting starts anew: another pair of revisions or another share",
    )
    stable: Version
    canary: Version | None = None
    share: Share = Field(default=0, description="Of new conversations, to the canary")
    mirror: Share = Field(
        default=0,
        description="Of repeatable requests answered by stable: asked of the canary too, and only "
        "compared",
    )
    override: Override = Override()
    divided_by: Literal["gateway"] | None = Field(
        default=None,
        description="gateway: each sidecar answers what reaches it, the share is the gateway's to "
        "keep. None: the sidecars divide",
    )
    sticky: bool = Field(default=True, description="A conversation stays with its revision")
    sticky_seconds: int = Field(default=3600, ge=1, description="After its last turn")
    members: tuple[str, ...] = Field(
        default=(),
        description="Names of the pods that clients reach, sorted: the place of a pod is the phase "
        "of its counting, so that all together hit the share exactly",
    )
    member_addresses: tuple[str, ...] = Field(
        default=(),
        description="host:port of the members' metrics ports, in their order: sidecars tell each "
        "other there which conversations the canary has. Empty: they do not, and a later turn "
        "that reaches another sidecar without its conversation header goes to stable",
    )


class Counts(_Message):
    """What became of the requests of one revision and modality in the present window, as the
    sidecar that clients reached saw it; exact, not sampled."""

    requests: int = 0  # that ended, however
    errors: int = 0  # answered 5xx, cut, or not answered and taken over by stable
    rerouted: int = 0  # of the errors: taken over by stable before the first byte
    guard_rejects: int = 0  # restored blocks that were refused
    first_token: Classes = NONE_COUNTED  # of each answer that ended well
    # Of each such answer the mean time between its tokens: one value an answer, for the gaps of one
    # answer are no independent samples.
    inter_token: Classes = NONE_COUNTED
    answers: int = 0  # that ended well
    output_tokens: int = 0  # of those answers
    output_tokens_squared: int = 0  # sum of squares of each answer's length
    shadowed: int = 0  # answered by both
    shadow_errors: int = 0  # answered by stable, and asked here in vain
    # Answered by stable, and not here in time while others of its modality were: it is too busy, or
    # some requests have no end.
    shadow_late: int = 0
    agreed: int = 0  # of the shadowed: same text


class VersionReport(_Message):
    """One revision as one sidecar sees it."""

    new_conversations: int = 0  # drawn by share in the present window, without overrides and pins
    in_flight: int = 0
    by_modality: dict[str, Counts] = {}


class TrafficReport(_Message):
    """What a sidecar says of the plan that it follows."""

    epoch: int = 0  # 0: it has no plan
    window: int = 0
    problem: str | None = Field(default=None, description="Why a newer plan cannot be followed")
    versions: dict[str, VersionReport] = {}  # by revision


Role = Literal["stable", "canary"]

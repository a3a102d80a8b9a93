"""What was found of a model's decay: a file that others read, and a recording rule made of it.

The rule compares what is seen with the curve: the mean time to the first token, divided by what the
curve says that the present mix of tokens costs, against the same of the past day. The base of the
curve cancels out, so a curve measured on another machine serves as long as its shape holds.
Minutes in which nobody asked have no value at all: 0 / 0 is no number, and one of these within a
day would make the whole day's mean none.

Must not know: engines, clocks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

RULE_NAME = "chiasm:latency_departure:ratio"
NORMAL_NAME = "chiasm:first_token_normal:seconds"
RATIO_NAME = "chiasm:visual_text_tokens:ratio"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Measured(_Frozen):
    """One ratio: visual over text tokens of the prompt."""

    ratio: float
    visual_tokens: int
    text_tokens: int
    seconds: float


class FittedPower(_Frozen):
    """base x (1 + a x max(r - 1, 0) ^ b), and its error on ratios that were left out."""

    base: float
    a: float
    b: float
    error_mean: float
    error_worst: float


class FittedAffine(_Frozen):
    """base x (1 + slope x r), likewise."""

    base: float
    slope: float
    error_mean: float
    error_worst: float


class Decay(_Frozen):
    """`docs/decay.json`.

    Attributes:
        what: which latency.
        better: the curve of smaller mean error, which the rule uses.
        drivers: stage -> its share of the growth from the lowest ratio to the highest.
        not_measured: stages that could not be told apart here, and why.
    """

    model: str
    machine: str
    date: str
    what: str
    repeats: int
    points: tuple[Measured, ...]
    power: FittedPower
    affine: FittedAffine
    better: Literal["power", "affine"]
    drivers: dict[str, float]
    not_measured: dict[str, str] = {}

    @classmethod
    def read(cls, path: Path) -> Decay:
        """What a file says.

        Raises: OSError, pydantic.ValidationError (a ValueError).
        """
        return cls.model_validate_json(path.read_bytes())


def growth_expression(decay: Decay) -> str:
    """PromQL: by what the present ratio multiplies the base."""
    if decay.better == "power":
        power = decay.power
        return f"(1 + {power.a:.4g} * clamp_min({RATIO_NAME} - 1, 0) ^ {power.b:.4g})"
    return f"(1 + {decay.affine.slope:.4g} * {RATIO_NAME})"


def recording_rules(decay: Decay) -> str:
    """The chart's file of rules."""
    curve = decay.power if decay.better == "power" else decay.affine
    return f"""\
# Written by `make generate` from docs/decay.json, which `chiasm decay fit` writes.
# The {decay.better} curve predicts ratios that it has not seen with an error of \
{curve.error_mean:.1%} on average.
groups:
  - name: chiasm-decay
    rules:
      # Visual tokens for each text token of the prompts of five minutes.
      - record: {RATIO_NAME}
        expr: >-
          sum by (namespace, resource, pod, model_name) (rate(chiasm_worker_image_tokens_total[5m]))
          / on (namespace, resource, pod, model_name)
          (
          rate(vllm:prompt_tokens_total[5m])
          - on (namespace, resource, pod, model_name)
          sum by (namespace, resource, pod, model_name) (rate(chiasm_worker_image_tokens_total[5m]))
          > 0)
      # The mean time to the first token, as it would be without pictures.
      - record: {NORMAL_NAME}
        expr: >-
          rate(vllm:time_to_first_token_seconds_sum[5m])
          / (rate(vllm:time_to_first_token_seconds_count[5m]) > 0)
          / on (namespace, resource, pod, model_name)
          {growth_expression(decay)}
      # Above 1: slower than the present mix of pictures and text explains, by the past day.
      - record: {RULE_NAME}
        expr: >-
          {NORMAL_NAME}
          / avg_over_time({NORMAL_NAME}[1d])
"""

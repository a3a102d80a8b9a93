"""One training loop for all stages: optimizers, learning rate, checkpoints, and a line of curves.

A stage is a module with a `loss_of(step)`; the loop knows nothing of pictures or words.
Matrices are trained by Muon, which learned the same in about two thirds of AdamW's steps here;
everything else (embeddings, norms, biases) by AdamW.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from chiasm_demo.checkpoint import load_state, save_state

Metrics = dict[str, float]

_LOG_EVERY_STEPS = 20
_WARMUP_STEPS = 40
_NOT_MUON = ("embed", "head", "merger")
"""Tables and outputs; the mergers' matrices are so large that orthogonalizing them costs more."""


@dataclass(frozen=True)
class Plan:
    """How long a stage trains and how fast; the rate falls over the last part of the run."""

    num_steps: int
    muon_rate: float
    adam_rate: float
    cooldown_share: float = 0.3


def build_optimizers(module: torch.nn.Module, plan: Plan) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside blocks and mergers, AdamW for the rest."""
    matrices: list[torch.nn.Parameter] = []
    rest: list[torch.nn.Parameter] = []
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        is_matrix = parameter.ndim == 2 and not any(word in name for word in _NOT_MUON)
        (matrices if is_matrix else rest).append(parameter)
    muon = torch.optim.Muon(
        matrices,
        lr=plan.muon_rate,
        weight_decay=0.01,
        momentum=0.95,
        adjust_lr_fn="match_rms_adamw",
    )
    adam = torch.optim.AdamW(rest, lr=plan.adam_rate, betas=(0.9, 0.98), weight_decay=0.01)
    return [muon, adam]


def rate_factor(step: int, plan: Plan) -> float:
    """Linear warm-up, then flat, then linear down to 2 %."""
    remaining = (plan.num_steps - step) / max(1.0, plan.num_steps * plan.cooldown_share)
    return min(1.0, (step + 1) / _WARMUP_STEPS, max(0.02, remaining))


def run_stage(
    name: str,
    module: torch.nn.Module,
    loss_of: Callable[[int], tuple[torch.Tensor, Metrics]],
    plan: Plan,
    folder: Path,
    save_every_seconds: float = 120.0,
) -> None:
    """Train until the plan's last step, going on from the stage's checkpoint in `folder`."""
    optimizers = build_optimizers(module, plan)
    path = folder / f"{name}.safetensors"
    step = load_state(path, module, optimizers)
    rates = {"muon": plan.muon_rate, "adam": plan.adam_rate}
    saved = started = time.monotonic()
    sums: dict[str, list[float]] = {}
    while step < plan.num_steps:
        factor = rate_factor(step, plan)
        for optimizer, rate in zip(optimizers, rates.values(), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * factor
        loss, metrics = loss_of(step)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step += 1
        for key, value in {"loss": float(loss.detach()), **metrics}.items():
            sums.setdefault(key, []).append(value)
        if step % _LOG_EVERY_STEPS == 0 or step == plan.num_steps:
            _log(folder / f"{name}.jsonl", step, time.monotonic() - started, sums)
            sums = {}
        if time.monotonic() - saved > save_every_seconds or step == plan.num_steps:
            save_state(path, module, optimizers, step)
            saved = time.monotonic()


def _log(path: Path, step: int, seconds: float, sums: dict[str, list[float]]) -> None:
    """One line of means since the last line: to the curves' file and to the terminal."""
    means = {key: round(sum(values) / len(values), 4) for key, values in sums.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps({"step": step, "seconds": round(seconds, 1), **means}) + "\n")
    shown = " ".join(f"{key} {value:.3f}" for key, value in means.items())
    print(f"{path.stem} step {step} ({seconds:.0f} s): {shown}", flush=True)

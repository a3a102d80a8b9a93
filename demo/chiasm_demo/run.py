"""`make train-demo`: from nothing to a shipped model, stage by stage, resumable at any moment.

    draw      pictures onto disk, in a process of their own, while the rest goes on
    language  the decoder on symbols           \\  at the same time, one core each: at these sizes
    perception  the tower on pictures          /   one thread per stage beats two for both
    joint     both together on pictures
    ship      write the model folder

Everything lies in one folder; delete it to start anew.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration

from chiasm_demo.checkpoint import load_weights
from chiasm_demo.curves import draw_curves
from chiasm_demo.drawing import load_style
from chiasm_demo.joint import Joined, JointStage, silence_deepstack
from chiasm_demo.language import LanguageStage, prepare_decoder
from chiasm_demo.model_config import build_config
from chiasm_demo.perception import PerceptionStage, Tower, prepare_tower, use_fast_forms
from chiasm_demo.scene import Split
from chiasm_demo.shards import draw_shard, shard_path
from chiasm_demo.shipping import ship
from chiasm_demo.tokenizer import build_tokenizer
from chiasm_demo.training import Plan, run_stage

NUM_SHARDS = 2400
_PLANS = {
    "language": Plan(2000, muon_rate=5e-3, adam_rate=1e-3),
    "perception": Plan(4800, muon_rate=3e-3, adam_rate=1.5e-3, cooldown_share=0.35),
    "joint": Plan(700, muon_rate=1e-3, adam_rate=3e-4, cooldown_share=0.7),
}


@dataclass(frozen=True)
class Parts:
    """The model in training form and what belongs to it."""

    model: Qwen3VLForConditionalGeneration
    tower: Tower
    tokenizer: PreTrainedTokenizerFast


def build_parts() -> Parts:
    """A fresh model, the same one every time."""
    torch.manual_seed(0)
    tokenizer = build_tokenizer()
    model = Qwen3VLForConditionalGeneration(build_config(tokenizer))
    prepare_decoder(model)
    prepare_tower(model)
    silence_deepstack(model)
    use_fast_forms(model)
    return Parts(model, Tower(model), tokenizer)


def draw_pictures(folder: Path, num_shards: int) -> None:
    """Draw every shard that is missing, the first ones first."""
    style = load_style(Split.TRAIN)
    for number in range(num_shards):
        draw_shard(number, style, folder / "shards")


def train_language(folder: Path) -> None:
    """Stage 1, on one core."""
    torch.set_num_threads(1)
    parts = build_parts()
    stage = LanguageStage(parts.model, parts.tokenizer)
    run_stage(
        "language", parts.model.model.language_model, stage.loss_of, _PLANS["language"], folder
    )


def train_perception(folder: Path) -> None:
    """Stage 2, on one core; begins as soon as the first shards are drawn."""
    torch.set_num_threads(1)
    parts = build_parts()
    stage = PerceptionStage(parts.tower, folder / "shards")
    run_stage("perception", parts.tower, stage.loss_of, _PLANS["perception"], folder)


def train_joint(folder: Path) -> Parts:
    """Stage 3: start from the two earlier stages (or this one's own checkpoint)."""
    parts = build_parts()
    joined = Joined(parts.model, parts.tower)
    load_weights(folder / "language.safetensors", parts.model.model.language_model)
    load_weights(folder / "perception.safetensors", parts.tower)
    plan = _PLANS["joint"]
    pictures = PerceptionStage(parts.tower, folder / "shards")
    stage = JointStage(parts.model, parts.tower, parts.tokenizer, pictures, plan.num_steps)
    run_stage("joint", joined, stage.loss_of, plan, folder)
    return parts


def train(folder: Path, target: Path) -> None:
    """All stages, then the model folder and the chart."""
    folder.mkdir(parents=True, exist_ok=True)
    load_style(Split.TRAIN)  # missing fonts are named now, not in a child process
    drawing = _start("draw", folder)
    _wait_for_first_shard(folder, drawing)
    stages = [_start("language", folder), _start("perception", folder)]
    for process in (*stages, drawing):
        if process.wait() != 0:
            raise RuntimeError(
                f"{' '.join(map(str, process.args))} failed with status {process.returncode}; "  # type: ignore[arg-type]
                "what it has learned is kept: mend the cause and run the same command again"
            )
    parts = train_joint(folder)
    num_bytes = ship(parts.model, target)
    chart = draw_curves(folder, folder / "curves.png")
    print(f"the model is in {target} ({num_bytes / 1e6:.1f} MB), its curves in {chart}")


def _start(stage: str, folder: Path) -> subprocess.Popen[bytes]:
    """Run one stage in a process of its own, on one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "chiasm_demo", stage, "--folder", str(folder)]
    return subprocess.Popen(command, env=environment)


def _wait_for_first_shard(folder: Path, drawing: subprocess.Popen[bytes]) -> None:
    """Perception needs something to look at."""
    while not shard_path(folder / "shards", 0).exists():
        if drawing.poll() not in (None, 0):
            raise RuntimeError("drawing pictures failed; the reason is printed above")
        time.sleep(0.5)

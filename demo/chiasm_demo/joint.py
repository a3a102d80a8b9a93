"""Stage 3: tower and decoder together, on pictures, judged by the answers alone in the end.

Both sides were taught the same vectors, so the joined model answers from its first step; here
each learns to live with what the other does badly. The tower's dense truth stays in the loss with
a weight that falls to zero over the run. DeepStack starts at zero (`silence_deepstack`) and is
learned here.
"""

from __future__ import annotations

import random

import torch
from torch import nn
from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration

from chiasm_demo.language import TRAINED_KINDS, answer_loss, ask_many
from chiasm_demo.patches import relight
from chiasm_demo.perception import PerceptionStage, Tower
from chiasm_demo.sequences import Packer
from chiasm_demo.training import Metrics

NUM_QUESTIONS = 6


def silence_deepstack(model: Qwen3VLForConditionalGeneration) -> None:
    """The decoder has never seen DeepStack features: let them grow from nothing."""
    for merger in model.model.visual.deepstack_merger_list:
        nn.init.zeros_(merger.linear_fc2.weight)
        nn.init.zeros_(merger.linear_fc2.bias)


class Joined(nn.Module):
    """All that is trained in this stage: the model's two halves and the tower's heads."""

    def __init__(self, model: Qwen3VLForConditionalGeneration, tower: Tower) -> None:
        super().__init__()
        self.language_model = model.model.language_model
        self.tower = tower


class JointStage:
    """Shards of pictures with new questions each time."""

    def __init__(
        self,
        model: Qwen3VLForConditionalGeneration,
        tower: Tower,
        tokenizer: PreTrainedTokenizerFast,
        pictures: PerceptionStage,
        num_steps: int,
    ) -> None:
        self._model = model
        self._tower = tower
        self._packer = Packer(tokenizer, TRAINED_KINDS)
        self._pictures = pictures
        self._num_steps = num_steps

    def loss_of(self, step: int) -> tuple[torch.Tensor, Metrics]:
        """Loss of half a shard: answers, and the fading rest of the dense truth."""
        shard = self._pictures.shard_at(step)
        rng = random.Random(f"joint {step}")
        generator = torch.Generator().manual_seed(step)
        pictures = relight(torch.from_numpy(shard.pictures).float(), generator)
        tokens, deepstack, half_way = self._tower.look(pictures)
        questions = [ask_many(scene, rng, NUM_QUESTIONS, step) for scene in shard.scenes]
        packed = self._packer.pack(questions, shard.grid, rng)
        answers, metrics = answer_loss(self._model, packed, tokens, deepstack)
        classes = torch.from_numpy(shard.slots).long()
        slots, slot_metrics = self._tower.slot_loss(tokens, classes, shard.grid)
        dense, _ = self._tower.patch_loss(half_way, torch.from_numpy(shard.patches).long())
        weight = 0.5 * max(0.0, 1 - step / (0.8 * self._num_steps))
        metrics["slot_price"] = slot_metrics["slot_price"]
        return answers + weight * (slots + 2 * dense), metrics

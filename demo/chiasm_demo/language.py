"""Stage 1: the text decoder learns to look up, compare, count and spell, without any pixel.

Its vision tokens are the fixed vectors of `symbols.py`, with noise, at the positions that real
pictures have. A step costs a third of one with pictures, and the hard part (finding *where* to
look) is learned before seeing begins.
"""

from __future__ import annotations

import random

import numpy as np
import torch
from torch.nn import functional
from transformers import PreTrainedTokenizerFast, Qwen3VLForConditionalGeneration

from chiasm_demo.model_config import HIDDEN, TOKEN_PIXELS
from chiasm_demo.questions import KINDS, Question, ask
from chiasm_demo.scene import SIDES, Scene, sample_scene
from chiasm_demo.sequences import Packed, Packer
from chiasm_demo.symbols import code_book, embed_slots, slot_classes
from chiasm_demo.training import Metrics

TRAINED_KINDS = (*KINDS, "describe")
_WEIGHTS = (0.7, 1.0, 0.7, 0.7, 3.0, 5.0, 1.5, 0.4)
"""How often each kind is asked: what is learned more slowly is asked more often."""

_DESCRIBE_EVERY_STEPS = 6
NUM_SCENES = 32
NUM_QUESTIONS = 8
_EMBEDDING_SPREAD = 0.1
_HEAD_GAIN = 1.5
"""Start value of the query and key norms: attention that can be sharp from the first steps on;
with 1.0 the same losses came about 50 steps later."""


def prepare_decoder(model: Qwen3VLForConditionalGeneration) -> None:
    """Initial values that suit a small decoder; called once, before the first stage."""
    decoder = model.model.language_model
    with torch.no_grad():
        decoder.embed_tokens.weight.normal_(0, _EMBEDDING_SPREAD)
        for layer in decoder.layers:
            layer.self_attn.q_norm.weight.fill_(_HEAD_GAIN)
            layer.self_attn.k_norm.weight.fill_(_HEAD_GAIN)


def ask_many(scene: Scene, rng: random.Random, num: int, step: int) -> list[Question]:
    """Questions of mixed kinds about one scene; long descriptions come together in few steps."""
    asked: list[Question] = []
    if step % _DESCRIBE_EVERY_STEPS == 0:
        asked += [q for q in (ask(scene, "describe", rng),) if q is not None]
    while len(asked) < num:
        question = ask(scene, rng.choices(KINDS, _WEIGHTS)[0], rng)
        if question is not None:
            asked.append(question)
    return asked


def answer_loss(
    model: Qwen3VLForConditionalGeneration,
    packed: Packed,
    seen: torch.Tensor,
    deepstack: list[torch.Tensor] | None = None,
) -> tuple[torch.Tensor, Metrics]:
    """Mean loss of the answers' tokens when the vision tokens are `seen` [batch, tokens, dim]."""
    decoder = model.model.language_model
    words = decoder.embed_tokens(packed.input_ids)
    image = packed.image
    embeds = torch.cat([words[:, : image.start], seen, words[:, image.stop :]], dim=1)
    is_image = torch.zeros(packed.input_ids.shape, dtype=torch.bool)
    is_image[:, image] = True
    hidden = decoder(
        inputs_embeds=embeds,
        position_ids=packed.position_ids,
        attention_mask=packed.mask,
        use_cache=False,
        visual_pos_masks=is_image if deepstack else None,
        deepstack_visual_embeds=deepstack,
    ).last_hidden_state
    chosen = packed.targets >= 0
    logits = hidden[chosen] @ decoder.embed_tokens.weight.T
    targets = packed.targets[chosen]
    losses = functional.cross_entropy(logits, targets, reduction="none")
    right = (logits.detach().argmax(dim=-1) == targets).float()
    kinds = packed.kinds[chosen]
    metrics = {"answer_loss": float(losses.detach().mean())}
    for index, kind in enumerate(TRAINED_KINDS):
        of_kind = kinds == index
        if of_kind.any():
            metrics[kind] = float(right[of_kind].mean())
    return losses.mean(), metrics


class LanguageStage:
    """Batches of symbolic pictures, and the loss of the answers."""

    def __init__(
        self,
        model: Qwen3VLForConditionalGeneration,
        tokenizer: PreTrainedTokenizerFast,
        *,
        blind: bool = False,
    ) -> None:
        self._model = model
        self._packer = Packer(tokenizer, TRAINED_KINDS)
        self._codes = code_book(HIDDEN)
        self._blind = blind  # sees nothing: the loss that guessing reaches

    def loss_of(self, step: int) -> tuple[torch.Tensor, Metrics]:
        """Loss of one batch; the batch follows from the step."""
        rng = random.Random(f"language {step}")
        width, height = rng.choice(SIDES), rng.choice(SIDES)
        grid = (height // TOKEN_PIXELS, width // TOKEN_PIXELS)
        scenes = [sample_scene(rng, width, height) for _ in range(NUM_SCENES)]
        questions = [ask_many(scene, rng, NUM_QUESTIONS, step) for scene in scenes]
        classes = torch.from_numpy(np.stack([slot_classes(scene) for scene in scenes]))
        seen = embed_slots(classes, grid, self._codes)
        noise = torch.randn(seen.shape, generator=torch.Generator().manual_seed(step))
        seen = torch.zeros_like(seen) if self._blind else seen + 0.05 * noise
        return answer_loss(self._model, self._packer.pack(questions, grid, rng), seen)

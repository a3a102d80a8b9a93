"""Stage 2: the vision tower learns to write what it sees in the symbols of `symbols.py`.

Dense truth instead of answers: after half of its blocks each patch must know the item and the
digits on it, at the end the nine slot tokens must be the slots' vectors. The two helpers for that
(`PatchHeads`) are dropped after training; the shipped tower is transformers' own.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import cast

import torch
from torch import nn
from torch.nn import functional
from transformers import Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl.modeling_qwen3_vl import (
    Qwen3VLVisionAttention,
    Qwen3VLVisionPatchEmbed,
    apply_rotary_pos_emb_vision,
)

from chiasm_demo.model_config import (
    HIDDEN,
    MERGE,
    VISION_DEPTH,
    VISION_HIDDEN,
)
from chiasm_demo.patches import relight, to_patches
from chiasm_demo.scene import NUM_SLOTS
from chiasm_demo.shards import NUM_PLACES, Shard, load_shard, shard_path
from chiasm_demo.symbols import (
    CODE_LENGTH,
    FIELD_CLASSES,
    code_book,
    embed_slots,
    field_offsets,
    slot_tokens,
)
from chiasm_demo.training import Metrics

_SHARPNESS = 12.0
"""Logit of a perfectly written class over the others, in the loss of the slots."""

_READ_FROM_STEP = 300
"""Until the patches know their digits, whole prices are only noise for the tower: they hardly
count before this step and fully after twice as many."""

_PATCH_FIELDS = {
    "shape": FIELD_CLASSES["shape"],
    "colour": FIELD_CLASSES["colour"],
    "left": 11,
    "right": 11,
    "left_place": NUM_PLACES + 1,
    "right_place": NUM_PLACES + 1,
    "tens": 11,
    "ones": 11,
    "tenths": 11,
    "hundredths": 11,
}
"""What the heads read off a patch: the shards' `patches`, then the digit of each place."""

_HEADS = {
    2: ("shape", "colour", "left", "right"),
    3: ("left", "right", "left_place", "right_place"),
    4: ("tens", "ones", "tenths", "hundredths"),
}
"""After which block a patch must know what: digits, then each digit's place, then the two as one,
so that the last block only has to collect them. Without the last two steps digits were learned
and prices were not."""


class StillPatchEmbed(Qwen3VLVisionPatchEmbed):
    """The same embedding for still pictures: both frames of a patch are one, so one is enough."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """[patches, 3 * 14 * 14] -> [patches, dim]."""
        weight = self.proj.weight.sum(dim=2).flatten(1)  # [dim, 3 * 14 * 14]
        return functional.linear(hidden_states, weight, self.proj.bias)


class EqualSizeAttention(Qwen3VLVisionAttention):
    """The same attention for batches whose pictures have one size: no loop over pictures."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        cu_seqlens: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        **_: object,
    ) -> torch.Tensor:
        """[batch * P, dim] -> [batch * P, dim]."""
        batch = cu_seqlens.numel() - 1
        qkv = self.qkv(hidden_states).view(hidden_states.shape[0], 3, self.num_heads, -1)
        query, key, value = qkv.unbind(1)
        if position_embeddings is not None:
            query, key = apply_rotary_pos_emb_vision(query, key, *position_embeddings)

        def by_picture(part: torch.Tensor) -> torch.Tensor:
            return part.view(batch, -1, self.num_heads, self.head_dim).transpose(1, 2)

        mixed = functional.scaled_dot_product_attention(
            by_picture(query), by_picture(key), by_picture(value), scale=self.scaling
        )
        projected: torch.Tensor = self.proj(mixed.transpose(1, 2).reshape(hidden_states.shape))
        return projected


def use_fast_forms(model: Qwen3VLForConditionalGeneration) -> None:
    """Switch the tower to its fast forms for training; weights and names stay what they are."""
    model.model.visual.patch_embed.__class__ = StillPatchEmbed
    for block in model.model.visual.blocks:
        block.attn.__class__ = EqualSizeAttention


def prepare_tower(model: Qwen3VLForConditionalGeneration) -> None:
    """Initial values that suit a small tower; called once, before the first stage.

    transformers' 0.02 everywhere is meant for a width of a thousand: at 192 the blocks would
    hardly act at first, and positions would drown in the pixels.
    """
    visual = model.model.visual
    with torch.no_grad():
        for block in visual.blocks:
            for linear in (block.attn.qkv, block.mlp.linear_fc1):
                linear.weight.normal_(0, linear.in_features**-0.5)
            for linear in (block.attn.proj, block.mlp.linear_fc2):
                linear.weight.normal_(0, (2 * VISION_DEPTH * linear.in_features) ** -0.5)
        side = visual.num_grid_per_side
        waves = VISION_HIDDEN // 4
        angles = torch.linspace(0, 1, side)[:, None] * torch.logspace(0, 1.5, waves)  # [side, w]
        axis = torch.cat([angles.sin(), angles.cos()], dim=1)  # [side, dim / 2]
        rows = axis[:, None].expand(-1, side, -1)
        columns = axis[None].expand(side, -1, -1)
        visual.pos_embed.weight.copy_(0.3 * torch.cat([rows, columns], dim=2).flatten(0, 1))


class PatchHeads(nn.Module):
    """Reads some of `_PATCH_FIELDS` off each patch inside the tower."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        super().__init__()
        self._fields = fields
        self._sizes = [_PATCH_FIELDS[field] for field in fields]
        self.norm = nn.LayerNorm(VISION_HIDDEN)
        self.head = nn.Linear(VISION_HIDDEN, sum(self._sizes))

    def loss(self, hidden: torch.Tensor, classes: torch.Tensor) -> tuple[torch.Tensor, Metrics]:
        """Hidden states [patches, dim] against classes [patches, 10]; -100 is not known."""
        parts = self.head(self.norm(hidden)).split(self._sizes, dim=-1)
        total = hidden.new_zeros(())
        metrics = {}
        for part, field in zip(parts, self._fields, strict=True):
            truth = classes[:, tuple(_PATCH_FIELDS).index(field)]
            losses = functional.cross_entropy(part, truth, reduction="none")
            total = total + losses.mean()
            if bool((truth > 0).any()):  # most patches are wall: let the others weigh as much
                total = total + losses[truth > 0].mean()
                right = part.argmax(dim=-1) == truth
                metrics[f"patch_{field}"] = float(right[truth > 0].float().mean())
        return total, metrics


def with_placed_digits(patches: torch.Tensor) -> torch.Tensor:
    """[patches, 6] -> [patches, 10]: adds the digit class of each place, wherever it stands."""
    digits, places = patches[:, 2:4], patches[:, 4:6]
    order = torch.arange(1, NUM_PLACES + 1)
    here = places[:, :, None] == order  # [patches, 2, 4]
    placed = (digits[:, :, None] * here).amax(dim=1)
    placed[(places < 0).any(dim=1)] = -100
    return torch.cat([patches, placed], dim=1)


class Tower(nn.Module):
    """The vision tower with its training heads, for batches of one picture size."""

    def __init__(self, model: Qwen3VLForConditionalGeneration) -> None:
        super().__init__()
        self.visual = model.model.visual
        self.patch_heads = nn.ModuleList(PatchHeads(fields) for fields in _HEADS.values())
        self._codes = code_book(HIDDEN)

    def look(
        self, pictures: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
        """Pictures [batch, H, W, 3] -> tokens [batch, T, dim], DeepStack, states half-way."""
        half_way: list[torch.Tensor] = []
        hooks = [
            self.visual.blocks[index].register_forward_hook(
                lambda _module, _args, out: half_way.append(out)
            )
            for index in _HEADS
        ]
        pixels = to_patches(pictures)
        rows, columns = pictures.shape[1] // 14, pictures.shape[2] // 14
        grids = torch.tensor([[1, rows, columns]] * pictures.shape[0])
        output = self.visual(pixels, grid_thw=grids)
        for hook in hooks:
            hook.remove()
        tokens = output.pooler_output.view(pictures.shape[0], rows * columns // MERGE**2, -1)
        return tokens, output.deepstack_features, half_way

    def patch_loss(
        self, half_way: list[torch.Tensor], classes: torch.Tensor
    ) -> tuple[torch.Tensor, Metrics]:
        """What the patches know after some of the blocks, against the shard's [batch, P, 6]."""
        flat = with_placed_digits(classes.flatten(0, 1))
        total = flat.new_zeros((), dtype=torch.float32)
        metrics: Metrics = {}
        for heads, hidden in zip(self.patch_heads, half_way, strict=True):
            loss, known = cast(PatchHeads, heads).loss(hidden, flat)
            total = total + loss
            metrics.update(known)
        return total, metrics

    def _place_loss(
        self, tokens: torch.Tensor, grid: tuple[int, int]
    ) -> tuple[torch.Tensor, Metrics]:
        """Each token must say which slot it carries, or that it is blank."""
        scores = tokens @ self._codes[field_offsets()[1] :].T / CODE_LENGTH**2
        truth = torch.full((tokens.shape[1],), NUM_SLOTS)
        truth[torch.from_numpy(slot_tokens(*grid))] = torch.arange(NUM_SLOTS)
        every = truth.expand(tokens.shape[0], -1)
        losses = functional.cross_entropy(
            _SHARPNESS * scores.flatten(0, 1), every.flatten(), reduction="none"
        )
        carries = (every < NUM_SLOTS).flatten()
        right = (scores.detach().argmax(dim=-1) == every).flatten()[carries]
        return losses.mean() + losses[carries].mean(), {"slot_place": float(right.float().mean())}

    def slot_loss(
        self,
        tokens: torch.Tensor,
        classes: torch.Tensor,
        grid: tuple[int, int],
        digit_weight: float = 1.0,
    ) -> tuple[torch.Tensor, Metrics]:
        """How far the tokens are from the slots' vectors, as distances and as classes."""
        target = embed_slots(classes, grid, self._codes)
        distance = (tokens - target).square().sum(dim=-1).mean() / CODE_LENGTH**2
        written = tokens[:, torch.from_numpy(slot_tokens(*grid))]  # [batch, 9, dim]
        scores = written @ self._codes.T / CODE_LENGTH**2
        place, metrics = self._place_loss(tokens, grid)
        total = 2 * distance + place
        metrics["distance"] = float(distance.detach())
        filled = classes[..., 0] > 0
        whole = torch.ones_like(filled)
        for index, (name, offset) in enumerate(
            zip(FIELD_CLASSES, field_offsets()[0].tolist(), strict=True)
        ):
            part = scores[..., offset : offset + FIELD_CLASSES[name]]
            truth = classes[..., index]
            flat = (_SHARPNESS * part).flatten(0, 1)
            losses = functional.cross_entropy(flat, truth.flatten(), reduction="none")
            weight = 1.0 if name in ("shape", "colour") else digit_weight
            total = total + weight * (losses.mean() + losses[filled.flatten()].mean())
            right = part.detach().argmax(dim=-1) == truth
            metrics[f"slot_{name}"] = float(right[filled].float().mean())
            if name not in ("shape", "colour"):
                whole &= right
        priced = classes[..., 3] > 0
        metrics["slot_price"] = float(whole[priced].float().mean())
        return total, metrics


class PerceptionStage:
    """Shards of pictures, and the loss of what the tower writes about them."""

    def __init__(self, tower: Tower, shards: Path) -> None:
        self._tower = tower
        self._folder = shards

    def shard_at(self, step: int) -> Shard:
        """Half a shard: the next new one while drawing keeps ahead, then any drawn so far."""
        number = step // 2
        if not shard_path(self._folder, number).exists():
            num_drawn = sum(1 for _ in self._folder.glob("shard-*.npz"))
            number = random.Random(f"shard of {number}").randrange(num_drawn)
        return load_shard(number, self._folder).half(step % 2)

    def loss_of(self, step: int) -> tuple[torch.Tensor, Metrics]:
        """Loss of half a shard."""
        shard = self.shard_at(step)
        generator = torch.Generator().manual_seed(step)
        pictures = relight(torch.from_numpy(shard.pictures).float(), generator)
        tokens, _, half_way = self._tower.look(pictures)
        classes = torch.from_numpy(shard.slots).long()
        reading = min(1.0, max(0.05, (step - _READ_FROM_STEP) / _READ_FROM_STEP))
        slots, metrics = self._tower.slot_loss(tokens, classes, shard.grid, reading)
        dense, patch_metrics = self._tower.patch_loss(
            half_way, torch.from_numpy(shard.patches).long()
        )
        return slots + 2 * dense, {**metrics, **patch_metrics}

"""Training: the fast forms compute what transformers does, runs resume, curves are drawn."""

from pathlib import Path

import pytest
import torch
from chiasm_demo.checkpoint import load_state, load_weights
from chiasm_demo.curves import draw_curves, read_curves
from chiasm_demo.language import LanguageStage
from chiasm_demo.model_config import build_processor
from chiasm_demo.patches import relight, to_patches
from chiasm_demo.perception import with_placed_digits
from chiasm_demo.run import Parts, build_parts
from chiasm_demo.training import Plan, rate_factor, run_stage
from torch import nn


@pytest.fixture(scope="module")
def parts() -> Parts:
    return build_parts()


def test_the_tower_sees_what_transformers_tower_sees(parts: Parts) -> None:
    pictures = torch.randint(0, 256, (2, 112, 140, 3), generator=torch.Generator().manual_seed(0))
    pictures = pictures.to(torch.uint8)
    inputs = build_processor(parts.tokenizer).image_processor(
        [picture.permute(2, 0, 1) for picture in pictures], return_tensors="pt"
    )
    pixels = inputs["pixel_values"]
    one_frame = pixels.view(-1, 3, 2, 14, 14)[:, :, 0].flatten(1)
    torch.testing.assert_close(to_patches(pictures.float()), one_frame)
    with torch.inference_mode():
        ours, deepstack, half_way = parts.tower.look(pictures.float())
        plain = type(parts.model.model.visual)(parts.model.config.vision_config)
        plain.load_state_dict(parts.model.model.visual.state_dict())
        theirs = plain(pixels, grid_thw=inputs["image_grid_thw"]).pooler_output
    torch.testing.assert_close(ours.flatten(0, 1), theirs, atol=2e-5, rtol=1e-4)
    assert len(half_way) == 3
    assert not deepstack[0].any()  # silent until the last stage


def test_digits_are_known_by_their_place_wherever_they_stand() -> None:
    patches = torch.tensor(
        [[0, 0, 8, 9, 2, 3], [3, 5, 0, 4, 0, 1], [0, 0, 0, 0, 0, 0], [0, 0, 7, 0, -100, 0]]
    )
    placed = with_placed_digits(patches)[:, 6:]
    assert placed.tolist() == [[0, 8, 9, 0], [4, 0, 0, 0], [0, 0, 0, 0], [-100] * 4]


def test_relighting_changes_pixels_within_range() -> None:
    pictures = torch.full((2, 28, 28, 3), 250.0)
    lit = relight(pictures, torch.Generator().manual_seed(1))
    assert lit.min() >= 0
    assert lit.max() <= 255
    assert not torch.equal(lit[0], lit[1])


def test_what_is_blind_cannot_tell_pictures_apart(parts: Parts) -> None:
    losses = [
        float(LanguageStage(parts.model, parts.tokenizer, blind=blind).loss_of(1)[0].detach())
        for blind in (True, False)
    ]
    assert losses[0] != losses[1]


class _Line(nn.Module):
    """Fits y = 3x: small enough to train in a test."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.matrix = nn.Linear(4, 4)
        self.head = nn.Linear(4, 1)

    def loss_of(self, step: int) -> tuple[torch.Tensor, dict[str, float]]:
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        return (self.head(self.matrix(x)) - 3 * x[:, :1]).square().mean(), {"share": 0.5}


def test_an_interrupted_run_ends_like_an_unbroken_one(tmp_path: Path) -> None:
    plan = Plan(40, 1e-2, 1e-2)
    whole, broken, resumed = _Line(), _Line(), _Line()
    run_stage("line", whole, whole.loss_of, plan, tmp_path / "whole")

    def stop_at_25(step: int) -> tuple[torch.Tensor, dict[str, float]]:
        if step == 25:
            raise KeyboardInterrupt
        return broken.loss_of(step)

    with pytest.raises(KeyboardInterrupt):
        run_stage("line", broken, stop_at_25, plan, tmp_path / "broken", save_every_seconds=0)
    run_stage("line", resumed, resumed.loss_of, plan, tmp_path / "broken")
    for name, value in whole.named_parameters():
        torch.testing.assert_close(dict(resumed.named_parameters())[name], value)


def test_stages_hand_their_weights_over(tmp_path: Path) -> None:
    trained, fresh = _Line(), _Line()
    run_stage("line", trained, trained.loss_of, Plan(3, 1e-2, 1e-2), tmp_path)
    load_weights(tmp_path / "line.safetensors", fresh)
    assert torch.equal(fresh.matrix.weight, trained.matrix.weight)
    assert load_state(tmp_path / "none.safetensors", fresh, []) == 0
    with pytest.raises(FileNotFoundError, match="train the none stage first"):
        load_weights(tmp_path / "none.safetensors", fresh)


def test_the_rate_warms_up_and_cools_down() -> None:
    plan = Plan(1000, 1.0, 1.0, cooldown_share=0.3)
    factors = [rate_factor(step, plan) for step in (0, 39, 500, 850, 999)]
    assert factors[0] < 0.05
    assert factors[1:3] == [1.0, 1.0]
    assert 0.4 < factors[3] < 0.6
    assert factors[4] < 0.05


def test_curves_become_a_chart_and_restarts_do_not_double(tmp_path: Path) -> None:
    line = _Line()
    run_stage("language", line, line.loss_of, Plan(40, 1e-2, 1e-2), tmp_path)
    log = tmp_path / "language.jsonl"
    log.write_text(log.read_text() * 2)
    assert [step for step, _ in read_curves(log)["loss"]] == [20, 40]
    chart = draw_curves(tmp_path, tmp_path / "curves.png")
    assert chart.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="train first"):
        draw_curves(tmp_path / "empty", tmp_path / "none.png")

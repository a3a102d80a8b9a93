"""What Gemma decoders take, and what is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from chiasm_contract.errors import InvalidRequest
from chiasm_worker.equality import Prepared, ask
from chiasm_worker.models.paligemma import CHAT_TEMPLATE
from chiasm_worker.models.registry import load_model
from chiasm_worker.prompt import PromptBuilder

CPU = torch.device("cpu")


def changed(folder: Path, target: Path, **text: object) -> Path:
    """A copy of a model folder with other values in its text configuration."""
    for file in folder.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    config["text_config"].update(text)
    (target / "config.json").write_text(json.dumps(config))
    return target


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("attn_logit_softcapping", 50.0),
        ("final_logit_softcapping", 30.0),
        ("use_bidirectional_attention", True),
    ],
)
def test_what_transformers_leaves_out_is_refused(
    name: str, value: object, tiny_folder: Callable[[str], Path], tmp_path: Path
):
    folder = changed(tiny_folder("gemma3-tied"), tmp_path, **{name: value})
    with pytest.raises(ValueError, match=rf"text_config.{name} is {value}, which this family"):
        load_model(folder, torch.float32, CPU)


def test_another_text_model_is_refused_by_name(tiny_folder: Callable[[str], Path], tmp_path: Path):
    folder = changed(tiny_folder("paligemma-gemma"), tmp_path, model_type="llama")
    with pytest.raises(ValueError, match="Text model 'llama' is not supported here"):
        load_model(folder, torch.float32, CPU)


def test_a_paligemma_without_template_gets_the_familys(
    tiny_folder: Callable[[str], Path], tmp_path: Path
):
    folder = changed(tiny_folder("paligemma-gemma"), tmp_path)
    (folder / "chat_template.jinja").unlink()
    assert load_model(folder, torch.float32, CPU).processor.chat_template == CHAT_TEMPLATE


def test_a_gemma_without_template_is_refused(tiny_folder: Callable[[str], Path], tmp_path: Path):
    folder = changed(tiny_folder("gemma3-tied"), tmp_path)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ValueError, match="holds no chat template"):
        PromptBuilder(load_model(folder, torch.float32, CPU))


def test_words_alone_are_refused_where_transformers_takes_none(
    prepared: Callable[[str], Prepared],
):
    with pytest.raises(InvalidRequest, match="answers about pictures only"):
        prepared("paligemma-gemma").prompt(ask("How are you?"))


def test_a_users_own_placeholder_moves_nothing(
    prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    """The fault: begin-of-text is put behind the last placeholder that a user typed."""
    model = prepared("paligemma-gemma")
    prompt, _ = model.prompt(ask("Is <image> or <bos> a word?", [picture(1)]))
    tokens = model.model.processor.tokenizer.convert_ids_to_tokens(prompt.token_ids)
    assert tokens[:17] == ["<image>"] * 16 + ["<bos>"]
    assert not {"<image>", "<bos>"} & set(tokens[17:])


def test_positions_count_from_one(
    prepared: Callable[[str], Prepared], picture: Callable[..., bytes]
):
    prompt, _ = prepared("paligemma-gemma").prompt(ask("x", [picture(1)]))
    assert prompt.positions[0].tolist() == list(range(1, len(prompt.token_ids) + 1))
    assert prompt.next_position == len(prompt.token_ids) + 1

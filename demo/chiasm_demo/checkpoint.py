"""Training states on disk, so that an interrupted run goes on where it stopped.

Weights and optimizer moments lie in one safetensors file, the step number in its metadata. Written
beside the old file and renamed, so a crash leaves the last whole state.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file


def save_state(
    path: Path, module: torch.nn.Module, optimizers: list[torch.optim.Optimizer], step: int
) -> None:
    """Store everything that the next step depends on."""
    tensors = {f"weights/{name}": value for name, value in module.named_parameters()}
    for index, optimizer in enumerate(optimizers):
        for number, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimizer/{index}/{number}/{name}"] = value
    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {name: value.detach().contiguous().clone() for name, value in tensors.items()}
    save_file(plain, unfinished, metadata={"step": str(step)})
    unfinished.rename(path)


def load_state(path: Path, module: torch.nn.Module, optimizers: list[torch.optim.Optimizer]) -> int:
    """Restore a stored state in place; returns its step, 0 where there is none."""
    if not path.exists():
        return 0
    states: list[dict[int, dict[str, torch.Tensor]]] = [{} for _ in optimizers]
    with safe_open(path, framework="pt") as stored, torch.no_grad():
        parameters = dict(module.named_parameters())
        for key in stored.keys():  # noqa: SIM118 (safe_open is no dictionary)
            kind, _, name = key.partition("/")
            if kind == "weights":
                parameters[name].copy_(stored.get_tensor(key))
            else:
                index, number, field = name.split("/")
                if int(index) < len(states):
                    state = states[int(index)].setdefault(int(number), {})
                    state[field] = stored.get_tensor(key)
        step = int(stored.metadata()["step"])
    for optimizer, state_of in zip(optimizers, states, strict=True):
        optimizer.load_state_dict(
            {"state": state_of, "param_groups": optimizer.state_dict()["param_groups"]}
        )
    return step


def load_weights(path: Path, module: torch.nn.Module) -> None:
    """Copy the weights that an earlier stage ended with into `module`."""
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: train the {path.stem} stage first")
    parameters = dict(module.named_parameters())
    with safe_open(path, framework="pt") as stored, torch.no_grad():
        for key in stored.keys():  # noqa: SIM118
            if key.startswith("weights/"):
                parameters[key.removeprefix("weights/")].copy_(stored.get_tensor(key))

"""From a configuration to a model that may be served: loaded, checked, with its identity.

Must not know: engines, requests, HTTP.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

import torch
from chiasm_contract import fingerprint
from chiasm_contract.config import EngineLimits, WorkerConfig
from chiasm_contract.fingerprint import Identity
from chiasm_contract.messages import MEDIA_NAMES, IdentityReport, ModelCard, media_phrase
from transformers.utils.logging import disable_progress_bar

from chiasm_worker.engine.engine import cache_spec
from chiasm_worker.identity import build_identity, cache_root
from chiasm_worker.models.base import LoadedModel
from chiasm_worker.models.registry import load_model
from chiasm_worker.tiers.link import Namespace

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model, what it is limited to here and what its numbers are."""

    model: LoadedModel
    limits: EngineLimits
    identity: Identity

    @property
    def root(self) -> bytes:
        """What every key of its blocks descends from."""
        return cache_root(self.identity)

    def namespace(self, engine_gen: int) -> Namespace:
        """What the tiers know its blocks as."""
        return Namespace(
            engine_gen=engine_gen,
            compute_fp=fingerprint.compute_fp(self.identity.compute),
            repr_fp=fingerprint.repr_fp(self.identity.repr),
            fields=self.identity.fields(),
            payload_bytes=cache_spec(self.model, self.limits).payload_bytes,
        )

    def report(self, incarnation: str) -> IdentityReport:
        """What a process serves with it: the manifest and its digests."""
        return IdentityReport(
            compute_fp=fingerprint.compute_fp(self.identity.compute),
            repr_fp=fingerprint.repr_fp(self.identity.repr),
            incarnation=incarnation,
            fields=self.identity.fields(),
        )

    def card(self, model_id: str, max_model_len: int) -> ModelCard:
        """What is served under that name, to answers of that length."""
        return ModelCard(
            id=model_id,
            family=self.model.family.name,
            architecture=self.model.architecture,
            max_model_len=max_model_len,
        )


def aside(work: Callable[[], T]) -> Future[T]:
    """The result of `work` in a thread that nothing waits for when the worker is told to stop.

    Loading cannot be interrupted and may take minutes, which a pod on its way out does not have.
    """
    done: Future[T] = Future()

    def run() -> None:
        done.set_running_or_notify_cancel()
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="load", daemon=True).start()
    return done


def load(config: WorkerConfig) -> Loaded:
    """Load what a configuration names.

    Raises: ValueError or OSError saying what is wrong with the model or the configuration.
    """
    disable_progress_bar()  # a log is no terminal
    # See EngineService: only its thread computes with several.
    torch.set_num_threads(1)
    dtype = getattr(torch, config.dtype)
    model = load_model(config.model_path, dtype, device(config), kernels=config.kernels)
    check_modalities(model, config)
    limits = resolve_limits(model, config.engine)
    spec = cache_spec(model, limits)
    logger.info("the decoder and its attention are computed by %s", model.choice)
    return Loaded(model, limits, build_identity(model, spec, model.choice.numerics))


def check_modalities(model: LoadedModel, config: WorkerConfig) -> None:
    """Raise ValueError if requests may bring what the model cannot look at."""
    for kind in MEDIA_NAMES:
        allowed = config.max_per_prompt(kind)
        if allowed and kind not in model.family.modalities:
            taken = " and ".join(f"{MEDIA_NAMES[known]}s" for known in model.family.modalities)
            raise ValueError(
                f"Up to {media_phrase(kind, allowed)} a prompt are allowed, but the family "
                f"{model.family.name} takes {taken} only; set spec.model.modalities.{kind}"
                f".maxPerPrompt to 0 (chiasm serve: --{kind}s 0)."
            )


def resolve_limits(model: LoadedModel, limits: EngineLimits) -> EngineLimits:
    """The limits with max_model_len lowered to what the model was made for; /model reports it."""
    if limits.max_model_len <= model.max_positions:
        return limits
    logger.warning(
        "max_model_len %d is lowered to %d: the model was made for no more positions",
        limits.max_model_len,
        model.max_positions,
    )
    return limits.model_copy(update={"max_model_len": model.max_positions})


def device(config: WorkerConfig) -> torch.device:
    """The device to compute on.

    Raises: ValueError when it is not there.
    """
    if config.device == "cuda" and not torch.cuda.is_available():
        raise ValueError("The device is cuda, but torch sees none; ask for a GPU or use cpu.")
    return torch.device(config.device)

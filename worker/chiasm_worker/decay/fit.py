"""`chiasm decay fit`: load a model, measure it, fit the curves.

Everything is computed by one thread, and its processor time is what is measured: the latency where
nothing runs beside it, whatever does.

Must not know: the command line, where the result goes.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch
from chiasm_contract.config import Dtype
from transformers.utils.logging import disable_progress_bar

from chiasm_worker.decay.fitting import Point, error_of, fit_affine, fit_power
from chiasm_worker.decay.measuring import Readings, measure
from chiasm_worker.decay.record import Decay, FittedAffine, FittedPower
from chiasm_worker.decay.stages import Stages
from chiasm_worker.models.registry import load_model

WHAT = "processor time to the first token"
NOT_MEASURED = {
    "remapping of K and V": "there is none: pictures and text are blocks of one pool",
    "meeting of bit widths": "K and V of pictures and text are of one type in this version",
}
_REPEATS = 7


def fit(
    folder: Path,
    name: str,
    dtype: Dtype = "float32",
    repeats: int = _REPEATS,
    seed: int = 0,
    told: Callable[[str], None] = lambda _: None,
) -> Decay:
    """What was found of the model in `folder`, called `name`.

    Raises: ValueError or OSError saying why it cannot be loaded, or that latency does not grow.
    """
    disable_progress_bar()
    torch.set_num_threads(1)
    model = load_model(folder, getattr(torch, dtype), torch.device("cpu"))
    if "image" not in model.family.modalities:
        raise ValueError(f"The family {model.family.name} takes no pictures; nothing decays.")
    stages = Stages(model, time.thread_time)
    readings = measure(stages, model.max_positions, repeats, seed, told)
    return fitted(readings, name, f"{platform.machine()}, one core, {dtype}", repeats)


def fitted(readings: Readings, name: str, machine: str, repeats: int) -> Decay:
    """Both curves through the readings, with their errors.

    Raises: ValueError when there are too few ratios.
    """
    points = [Point(each.ratio, each.seconds) for each in readings.points]
    power, affine = fit_power(points), fit_affine(points)
    errors = error_of(fit_power, points), error_of(fit_affine, points)
    return Decay(
        model=name,
        machine=machine,
        date=datetime.now(UTC).date().isoformat(),
        what=WHAT,
        repeats=repeats,
        points=readings.points,
        power=FittedPower(
            base=power.base,
            a=power.a,
            b=power.b,
            error_mean=errors[0].mean,
            error_worst=errors[0].worst,
        ),
        affine=FittedAffine(
            base=affine.base,
            slope=affine.slope,
            error_mean=errors[1].mean,
            error_worst=errors[1].worst,
        ),
        better="power" if errors[0].mean < errors[1].mean else "affine",
        drivers=readings.drivers,
        not_measured=NOT_MEASURED,
    )

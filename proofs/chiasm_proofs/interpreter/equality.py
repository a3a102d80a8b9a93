"""One case, judged: what a kernel must satisfy to be believed, beside its reference.

    equal       outputs are the reference's, within the case's tolerance; NaN only where it has NaN
    unharmed    arguments that are not written, guards and holes are what they were
    alone       a row alone gives the bits that it gives among others
    shuffled    programs in another order give the same bits
    findings    no access out of bounds and no race, in any of the launches

On the interpreter all of it; on a GPU (without a checker) all but the findings and the order.

Must not know: which kernels there are.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from chiasm_worker.kernels.case import Case, Draw, Inputs, Outputs, Tolerance

from chiasm_proofs.interpreter.memory import Poisoned

# Rows that are computed alone, at most.
NUM_ALONE = 2
# Orders of programs beside the given one.
NUM_ORDERS = 1


class Watcher(Protocol):
    """The checker, where there is one."""

    races: list[str]

    def shuffle(self, seed: int | None) -> None:
        """See checker.Checker."""
        ...


@dataclass(frozen=True)
class Verdict:
    """What came of one case; no faults: it holds.

    Attributes:
        excess: the largest difference as a share of what the tolerance allows.
    """

    faults: tuple[str, ...]
    excess: float
    seconds: float


def as_outputs(value: Any) -> Outputs:
    """A function's result as a tuple of tensors."""
    return value if isinstance(value, tuple) else (value,)


class Trial:
    """One case with one seed on one device."""

    def __init__(
        self,
        case: Case,
        kernel: Callable[..., Any],
        reference: Callable[..., Any],
        seed: int,
        device: torch.device,
        watcher: Watcher | None,
    ) -> None:
        self._case = case
        self._kernel = kernel
        self._reference = reference
        self._seed = seed
        self._device = device
        self._watcher = watcher
        self._faults: list[str] = []
        self._excess = 0.0

    def judge(self) -> Verdict:
        """Run everything; exceptions of a kernel are faults."""
        started = time.perf_counter()
        try:
            outputs = self._equal()
            self._alone(outputs)
            if self._watcher is not None:
                self._shuffled(self._watcher, outputs)
        except Exception as error:
            self._faults.append(f"{type(error).__name__}: {error}")
        return Verdict(tuple(self._faults), self._excess, time.perf_counter() - started)

    def _inputs(self) -> tuple[Inputs, Poisoned]:
        memory = Poisoned(self._device)
        return self._case.draw(Draw(self._seed, memory)), memory

    def _launch(self, inputs: Inputs, what: str) -> Outputs:
        outputs = as_outputs(self._kernel(**inputs))
        if self._watcher is not None:
            self._faults += [f"{what}: race: {race}" for race in self._watcher.races]
        return outputs

    def _equal(self) -> Outputs:
        inputs, memory = self._inputs()
        twin, _ = self._inputs()
        outputs = self._launch(inputs, "equal")
        expected = as_outputs(self._reference(**twin))
        if not memory.intact():
            self._faults.append("unharmed: what lies around the arguments was written")
        written = {output.data_ptr() for output in outputs}
        for name, value in inputs.items():
            if isinstance(value, torch.Tensor) and value.data_ptr() not in written:
                _compare_bits(self._faults, f"unharmed: {name}", (value,), (twin[name],))
        if len(outputs) != len(expected):
            self._faults.append(f"equal: {len(outputs)} outputs, not {len(expected)}")
        for i, (got, right) in enumerate(zip(outputs, expected, strict=False)):
            given = self._case.tolerance
            tolerance = given[i] if isinstance(given, tuple) else given
            self._compare(f"equal: output {i}", got, right, tolerance)
        return outputs

    def _compare(
        self, what: str, got: torch.Tensor, right: torch.Tensor, tolerance: Tolerance
    ) -> None:
        if got.shape != right.shape or got.dtype != right.dtype:
            self._faults.append(
                f"{what} is {tuple(got.shape)} {got.dtype}, not {tuple(right.shape)} {right.dtype}"
            )
            return
        a, b = got.detach().cpu().double(), right.detach().cpu().double()
        if b.isnan().any() and not self._case.writes_partly:
            self._faults.append(f"{what}: the reference itself has NaN; the case is wrong")
        if not torch.equal(a.isnan(), b.isnan()):
            self._faults.append(f"{what}: NaN at {int((a.isnan() != b.isnan()).sum())} places")
            return
        allowed = tolerance.absolute + tolerance.relative * b.abs()
        same = (a == b) | a.isnan()
        share = torch.where(same, 0.0, (a - b).abs() / allowed)
        if share.numel():
            self._excess = max(self._excess, float(share.max()))
            if not (share <= 1).all():
                worst = int(share.argmax())
                self._faults.append(
                    f"{what}: {int((share > 1).sum())} of {share.numel()} differ, the worst "
                    f"{float(a.flatten()[worst])!r} instead of {float(b.flatten()[worst])!r}"
                )

    def _alone(self, outputs: Outputs) -> None:
        case = self._case
        if case.alone is None or case.num_rows is None:
            return
        inputs, _ = self._inputs()
        count = case.num_rows(inputs)
        for row in random.Random(self._seed).sample(range(count), min(count, NUM_ALONE)):
            fresh, _ = self._inputs()
            alone, select = case.alone(fresh, row)
            got = self._launch(alone, f"alone: row {row}")
            if case.of_alone is not None:
                got = case.of_alone(alone, got)
            _compare_bits(self._faults, f"alone: row {row}", got, select(outputs))

    def _shuffled(self, watcher: Watcher, expected: Outputs) -> None:
        try:
            for order in range(NUM_ORDERS):
                watcher.shuffle(self._seed + order)
                again, _ = self._inputs()
                got = self._launch(again, f"order {order}")
                _compare_bits(self._faults, f"shuffled: order {order}", got, expected)
        finally:
            watcher.shuffle(None)


def _compare_bits(faults: list[str], what: str, got: Outputs, expected: Outputs) -> None:
    """Note where the bytes of tensors differ."""
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        x, y = (t.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
        if x.shape != y.shape or not torch.equal(x, y):
            differing = int((x != y).sum()) if x.shape == y.shape else "all"
            faults.append(f"{what}: tensor {i}: {differing} of {x.numel()} bytes differ")

"""The process that runs kernels for others: a JSON question a line in, an answer a line out.

    python -m chiasm_proofs.worker interpreted    TRITON_INTERPRET=1 must be set
    python -m chiasm_proofs.worker compiled       it must not be

Whether Triton interprets is decided when it is imported, so that one process cannot do both, and a
test process should do neither. What a kernel prints goes to stderr.

Must not know: which cases there are to ask for.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from chiasm_worker.kernels.case import Draw, builds_of, cases_of, function_of
from chiasm_worker.kernels.launch import INTERPRETER

Answer = dict[str, Any]
Question = Callable[..., Answer]


def interpreted() -> dict[str, Question]:
    """What the interpreter can be asked."""
    from chiasm_proofs.interpreter import (  # noqa: PLC0415 - they import Triton
        checker,
        code_checks,
        gpu_launches,
        layer_checks,
        planted,
        repair,
        silent,
        wrong,
    )
    from chiasm_proofs.interpreter.equality import Trial  # noqa: PLC0415
    from chiasm_proofs.interpreter.memory import Poisoned  # noqa: PLC0415

    repair.install()
    watcher = checker.install()
    device = torch.device("cpu")

    def case(operation: str, name: str, seed: int, machine: str = INTERPRETER) -> Answer:
        found = next(case for case in cases_of(operation) if case.name == name)
        kernel = function_of(operation, found.function, reference=False)
        reference = function_of(operation, found.function, reference=True)
        with gpu_launches.launching_as(machine):
            return asdict(Trial(found, kernel, reference, seed, device, watcher).judge())

    def launches(operation: str, name: str, seed: int, machine: str) -> Answer:
        found = next(case for case in cases_of(operation) if case.name == name)
        kernel = function_of(operation, found.function, reference=False)
        with gpu_launches.launching_as(machine), gpu_launches.noting() as noted:
            kernel(**found.draw(Draw(seed, Poisoned(device))))
        return {"launches": noted}

    def wrong_case() -> Answer:
        trial = Trial(wrong.CASE, wrong.wrongly_doubled, wrong.doubled, 0, device, watcher)
        return asdict(trial.judge())

    def engine(
        model: str, seed: int, cache: str | None, quick: bool, machine: str = INTERPRETER
    ) -> Answer:
        from chiasm_proofs.interpreter.engine import mismatches  # noqa: PLC0415 - imports transformers

        with gpu_launches.launching_as(machine):
            return mismatches(model, seed, cache, quick=quick)

    def quantised_engine(model: str, seed: int, scheme: dict[str, Any]) -> Answer:
        from chiasm_proofs.interpreter.quantised_engine import (  # noqa: PLC0415 - as above
            quantised_mismatches,
        )

        return quantised_mismatches(model, seed, **scheme)

    def refused_sum() -> Answer:
        try:
            silent.bf16_sum()
        except Exception as error:
            return {"said": str(error)}
        return {"said": ""}

    def plant(name: str, seed: int) -> Answer:
        fault, said = planted.PLANTED[name]
        watcher.shuffle(seed)
        try:
            fault()
            findings = list(watcher.races)
        except Exception as error:
            findings = [str(error)]
        finally:
            watcher.shuffle(None)
        return {"caught": any(said in finding for finding in findings), "findings": findings}

    def silent_error(name: str) -> Answer:
        repaired = silent.is_right(name)
        repair.remove()
        try:
            plain = silent.is_right(name)
        finally:
            repair.install()
        return {"plain": plain, "repaired": repaired}

    return {
        "case": case,
        "launches": launches,
        "planted": plant,
        "silent": silent_error,
        "engine": engine,
        "quantised_engine": quantised_engine,
        "codes": lambda seed: {"faults": code_checks.faults(seed)},
        "layers": lambda seed: {"faults": layer_checks.faults(seed, device)},
        "wrong_case": wrong_case,
        "refused_sum": refused_sum,
        "die": lambda: os._exit(3),
        "names": lambda: {"planted": list(planted.PLANTED), "silent": list(silent.SILENT_ERRORS)},
    }


def compiled() -> dict[str, Question]:
    """What the compiler can be asked."""
    from chiasm_proofs.compiler.gates import judge, judge_launch  # noqa: PLC0415 - import Triton

    def build(operation: str, name: str, target: str) -> Answer:
        found = next(build for build in builds_of(operation) if build.name == name)
        return judge(operation, found, target).as_row()

    def incomplete_build() -> Answer:
        whole = builds_of("norm")[0]
        types = {name: kind for name, kind in whole.types.items() if name != "eps"}
        return judge("norm", replace(whole, types=types), "sm_90").as_row()

    return {"build": build, "incomplete_build": incomplete_build, "launch": judge_launch}


KINDS = {"interpreted": interpreted, "compiled": compiled}


def main() -> None:
    """Answer until the questions end."""
    # Answers have a stream of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    torch.set_num_threads(1)
    questions = KINDS[sys.argv[1]]()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = questions[asked.pop("ask")](**asked)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()

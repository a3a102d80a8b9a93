"""Every Triton kernel beside its reference, on Triton's interpreter; no GPU is needed.

Each case is drawn anew `--rounds` times and must be equal within its tolerance, alone as among
others bit for bit, in shuffled order of programs too, without an access out of bounds or a race
(proofs/chiasm_proofs/interpreter). Each round is launched with another machine's tiles: the
interpreter's own, then those of the five GPUs. That the proofs themselves see is shown beside it:
each silent error of the interpreter and its repair, and each planted fault. Then the decoder's
operations are held to torch's as layers call them; the engine answers with Triton's kernels and
with torch, and must launch all that its decoder has, and answers with quantised weights and with
what they stand for; and prompts with images are planned: KV tiles visited against those that hold
anything visible, and against all up to each prompt's end, which kernels without a plan for images
visit.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from chiasm_proofs.child import Child, ProofError
from chiasm_worker.kernels.case import cases_of, operations
from chiasm_worker.kernels.launch import ARCHITECTURES, INTERPRETER, configuration
from chiasm_worker.kernels.paged_prefill.plan import NewTokens, Rule, visits
from reporting import publish

# M-RoPE, windows, spans that see one another, with windows or without, soft caps, cross-attention;
# caches.
ENGINES = (
    ("qwen3-grouped", None),
    ("qwen2.5-window", None),
    ("gemma3-narrow-window", None),
    ("paligemma-gemma", None),
    ("paligemma2-window", None),
    ("mllama-grouped", None),
    ("qwen3-grouped", "e4m3"),
    ("gemma3-narrow-window", "e4m3"),
    ("qwen2.5-grouped", "int8"),
)
QUANTISED = (
    ("qwen3-grouped", {"form": "pack-quantized", "bits": 4, "group": 64, "symmetric": False}),
    ("gemma3-narrow-window", {"form": "pack-quantized", "bits": 4, "group": 0, "symmetric": True}),
    ("mllama-grouped", {"form": "int-quantized", "bits": 8, "group": 0, "symmetric": False}),
)
MACHINES = (INTERPRETER, *ARCHITECTURES)
# An engine's rounds, at most: the interpreter's tiles, and those of a GPU.
ENGINE_MACHINES = (INTERPRETER, "sm_90")
NUM_PROMPTS = 40
GROUP = 4


def compared(child: Child, rng: random.Random, rounds: int) -> dict[str, Any]:
    """All cases, `rounds` times each."""
    failed: list[dict[str, Any]] = []
    per_operation: dict[str, dict[str, Any]] = {}
    for operation in operations():
        cases, excess = cases_of(operation), 0.0
        started = time.perf_counter()
        for case in cases:
            for round_ in range(rounds):
                seed = rng.getrandbits(31)
                asked: dict[str, Any] = {
                    "operation": operation, "name": case.name, "seed": seed,
                    "machine": MACHINES[round_ % len(MACHINES)],
                }  # fmt: skip
                try:
                    answer = child.ask("case", **asked)
                except ProofError as error:
                    answer = {"faults": [str(error)], "excess": 0.0}
                excess = max(excess, answer["excess"])
                if answer["faults"]:
                    failed.append({**asked, "faults": answer["faults"]})
                    print(asked, answer["faults"], flush=True)
        per_operation[operation] = {
            "cases": len(cases),
            # 1: as far from the reference as the tolerance allows.
            "largest_share_of_tolerance": round(excess, 3),
            "seconds": round(time.perf_counter() - started, 1),
        }
        print(operation, per_operation[operation], flush=True)
    num_cases = sum(operation["cases"] for operation in per_operation.values())
    return {
        "cases": num_cases,
        "runs": num_cases * rounds,
        "machines": list(MACHINES[:rounds]),
        "failures": len(failed),
        "failed": failed,
        "operations": per_operation,
    }


def proofs_proved(child: Child) -> dict[str, Any]:
    """What the proofs are shown and must see."""
    names = child.ask("names")
    silent = {name: child.ask("silent", name=name) for name in names["silent"]}
    planted = {
        name: all(child.ask("planted", name=name, seed=order)["caught"] for order in range(3))
        for name in names["planted"]
    }
    return {
        "planted_faults": len(planted),
        "planted_faults_caught": sum(planted.values()),
        "silent_errors": sum(not was["plain"] for was in silent.values()),
        "silent_errors_repaired": sum(w["repaired"] and not w["plain"] for w in silent.values()),
    }


def layers(child: Child, rng: random.Random, rounds: int) -> dict[str, Any]:
    """The decoder's operations that are not torch's as its layers call them."""
    answers = [child.ask("layers", seed=rng.getrandbits(31)) for _ in range(rounds)]
    return {"layer_faults": sorted({fault for answer in answers for fault in answer["faults"]})}


def engines(child: Child, rng: random.Random, rounds: int) -> dict[str, Any]:
    """Tokens of the whole engine that differ between Triton's kernels and torch, and launches."""
    num_tokens, differing = 0, {}
    not_launched: list[str] = []
    launches: Counter[str] = Counter()
    for model, cache in ENGINES:
        for round_ in range(rounds):
            seed = rng.getrandbits(31)
            asked: dict[str, Any] = {
                "model": model, "seed": seed, "cache": cache, "quick": False,
                "machine": ENGINE_MACHINES[round_],
            }  # fmt: skip
            answer = child.ask("engine", **asked, timeout_seconds=600)
            launches.update(answer["kernels"])
            faults = [*answer["not_launched"], *answer["exceptions"]]
            not_launched += [f"{model} {cache} {seed}: {fault}" for fault in faults]
            num_tokens += answer["num_tokens"]
            if answer["num_mismatches"]:
                differing[f"{model} {cache} {seed}"] = answer["num_mismatches"]
            print(model, cache, answer, flush=True)
    return {
        "engine_tokens": num_tokens,
        "engine_token_mismatches": sum(differing.values()),
        "engine_where": differing,
        "engine_launches": dict(launches),
        "engine_not_launched": not_launched,
    }


def quantised_engines(child: Child, rng: random.Random) -> dict[str, Any]:
    """Tokens that differ between packed weights and what they stand for, computed by torch."""
    num_tokens = num_mismatches = num_launches = 0
    for model, scheme in QUANTISED:
        asked: dict[str, Any] = {"model": model, "scheme": scheme, "seed": rng.getrandbits(31)}
        answer = child.ask("quantised_engine", timeout_seconds=600, **asked)
        num_tokens += answer["num_tokens"]
        num_mismatches += answer["num_mismatches"]
        num_launches += answer["num_launches"]
        print(asked, answer, flush=True)
    return {
        "quantised_engine_tokens": num_tokens,
        "quantised_engine_token_mismatches": num_mismatches,
        "quantised_engine_launches": num_launches,
    }


def tiles(rng: random.Random) -> dict[str, Any]:
    """KV tiles of prompts with images, at the sizes of sm_90's launch."""
    numbers = configuration("paged_prefill", "float16", "sm_90")
    shape = (numbers["ROWS"] // GROUP, numbers["TILE"])
    visited = visible = masked = everything = 0
    for _ in range(NUM_PROMPTS):
        spans, length = [], rng.randint(0, 200)
        for _ in range(rng.randint(1, 4)):
            image = rng.choice((64, 256, 300, 1024))
            spans.append((length, length + image))
            length += image + rng.randint(1, 300)
        for rule in (Rule(), Rule(512), Rule(512, spans_pass_window=True)):
            counted = visits([NewTokens(0, length, spans)], rule, *shape)
            visited += counted.visited
            visible += counted.visible
            masked += counted.masked
            everything += -(-length // shape[0]) * -(-length // shape[1])
    return {
        "kv_tiles_visited_of_visible": round(visited / visible, 4),
        "kv_tiles_masked_of_visited": round(masked / visited, 4),
        "kv_tiles_visited_of_all": round(visited / everything, 4),
        "kv_tiles_visited": visited,
    }


def main() -> None:
    """Run, print, publish."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--rounds", type=int, default=6, help="draws of each case")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds {args.rounds} compares nothing; it takes 1 or more")
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as scratch, Child("interpreted", Path(scratch)) as child:
        figures = {
            **compared(child, rng, args.rounds),
            **proofs_proved(child),
            **layers(child, rng, args.rounds),
            **engines(child, rng, min(args.rounds, len(ENGINE_MACHINES))),
            **quantised_engines(child, rng),
        }
    publish("kernel_equality", {**figures, **tiles(rng), "seed": args.seed})


if __name__ == "__main__":
    main()

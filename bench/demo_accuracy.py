"""How often the shipped demo model is right, per kind of question, on held-out pictures.

2,000 pictures per kind (`--num` for fewer), drawn with fonts and wallpapers that training never
used, asked through transformers' own processor and `generate`. An answer counts if it is the
expected text, letter by letter. `majority` stands beside it: what always giving the kind's most
frequent answer would reach, without looking.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path

import torch
from chiasm_demo.drawing import Style, load_style
from chiasm_demo.evaluation import answer_all, held_out
from chiasm_demo.fonts import MissingFontsError, install
from chiasm_demo.questions import KINDS
from chiasm_demo.scene import Split
from chiasm_demo.shipping import load
from reporting import publish

MODEL = Path(__file__).resolve().parent.parent / "demo" / "model"
GOALS = {kind: 0.90 if kind == "number" else 0.95 for kind in KINDS}


def style_with_fonts() -> Style:
    """The held-out fonts and wallpapers; installs missing font packages after saying so."""
    try:
        return load_style(Split.HELD_OUT)
    except MissingFontsError as missing:
        install(missing.packages)
        return load_style(Split.HELD_OUT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num", type=int, default=2000, help="pictures per kind of question")
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--wrong", type=int, default=0, help="wrong answers to show per kind")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model, processor = load(arguments.model)
    style = style_with_fonts()
    accuracy, majority = {}, {}
    started = time.monotonic()
    for kind in KINDS:
        asked = held_out(kind, arguments.num, style)
        answered = list(answer_all(model, processor, asked))
        wrong = [(one, said) for one, said in answered if said != one.question.answer]
        accuracy[kind] = round(1 - len(wrong) / len(asked), 4)
        frequent = Counter(one.question.answer for one in asked).most_common(1)[0][1]
        majority[kind] = round(frequent / len(asked), 4)
        print(
            f"{kind:9} {accuracy[kind]:.3f} (goal {GOALS[kind]:.2f}, always the most frequent "
            f"answer {majority[kind]:.3f}), {time.monotonic() - started:.0f} s",
            flush=True,
        )
        for one, said in wrong[: arguments.wrong]:
            print(f"    {one.question.text} -> {said!r}, not {one.question.answer!r}")
    publish(
        "demo_accuracy",
        {
            "accuracy": accuracy,
            "majority": majority,
            "goals": GOALS,
            "short_of_goal": [kind for kind in KINDS if accuracy[kind] < GOALS[kind]],
            "num_per_kind": arguments.num,
            "num_questions": arguments.num * len(KINDS),
            "seconds": round(time.monotonic() - started, 1),
        },
    )


if __name__ == "__main__":
    main()

"""`python -m chiasm_demo`: train the demo model, follow its curves, draw samples, ask it.

    train       everything, resumable; ends with the model folder
    curves      chart of the run so far
    samples     the ten sample pictures and their questions
    ask         one question about one picture
The single stages (draw, language, perception, joint) are what `train` runs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from chiasm_demo import run, samples
from chiasm_demo.curves import draw_curves
from chiasm_demo.fonts import (
    HELD_OUT_PACKAGES,
    TRAIN_PACKAGES,
    MissingFontsError,
    font_files,
    install,
)

_DEMO = Path(__file__).parents[1]
_CACHE = Path.home() / ".cache" / "chiasm" / "train-demo"


def main() -> None:
    """Parse the command line and run the command."""
    parser = argparse.ArgumentParser(prog="python -m chiasm_demo", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("train", "draw", "language", "perception", "joint", "curves"):
        command = commands.add_parser(name)
        command.add_argument("--folder", type=Path, default=_CACHE, help="where the run is kept")
    commands.choices["train"].add_argument("--model", type=Path, default=_DEMO / "model")
    commands.add_parser("samples").add_argument("--folder", type=Path, default=_DEMO / "pictures")
    ask = commands.add_parser("ask")
    ask.add_argument("picture", type=Path)
    ask.add_argument("question")
    ask.add_argument("--model", type=Path, default=_DEMO / "model")
    arguments = parser.parse_args()
    _run(arguments)


def _run(arguments: argparse.Namespace) -> None:
    match arguments.command:
        case "train":
            _install_missing(TRAIN_PACKAGES)
            run.train(arguments.folder, arguments.model)
        case "draw":
            run.draw_pictures(arguments.folder, run.NUM_SHARDS)
        case "language":
            run.train_language(arguments.folder)
        case "perception":
            run.train_perception(arguments.folder)
        case "joint":
            run.train_joint(arguments.folder)
        case "curves":
            print(draw_curves(arguments.folder, arguments.folder / "curves.png"))
        case "samples":
            _install_missing(HELD_OUT_PACKAGES)
            samples.write(arguments.folder)
        case "ask":
            print(samples.ask_picture(arguments.model, arguments.picture, arguments.question))


def _install_missing(packages: dict[str, tuple[str, ...]]) -> None:
    """Fonts are part of drawing: install what is missing, after saying so."""
    try:
        font_files(packages)
    except MissingFontsError as missing:
        install(missing.packages)


if __name__ == "__main__":
    main()

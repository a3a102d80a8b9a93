"""`chiasm decay`: how latency grows with the ratio of visual to text tokens, and what drives it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from chiasm_contract.config import Dtype

from chiasm_cli.errors import CliError
from chiasm_cli.model_folders import find_model
from chiasm_cli.parts import load

app = typer.Typer(
    help="How latency grows with the ratio of visual to text tokens.", no_args_is_help=True
)


@app.callback()
def decay() -> None:
    """How latency grows with the ratio of visual to text tokens."""


@app.command()
def fit(
    model: Annotated[str, typer.Argument(help="'demo', or a folder with a model.")] = "demo",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write the result as JSON.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Where to draw it; the ending says how (.png, .svg).")
    ] = None,
    rules: Annotated[
        Path | None, typer.Option(help="Where to write Prometheus' recording rules.")
    ] = None,
    dtype: Annotated[Dtype, typer.Option(help="Precision that is computed in.")] = "float32",
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; the least of them counts.")] = 7,
) -> None:
    """Measure MODEL on one core of this machine and fit its curve."""
    folder = find_model(model)
    # First, so that nobody waits for what then cannot be written or drawn.
    for path in (output, picture, rules):
        check_writable(path)
    drawing = None if picture is None else load("worker", "decay.drawing", "decay fit", "dev")
    if drawing is not None:
        try:
            drawing.check_kind(picture)
        except ValueError as error:
            raise CliError(str(error)) from error
    measuring = load("worker", "decay.fit", "decay fit")

    def told(words: str) -> None:
        print(words, file=sys.stderr, flush=True)

    try:
        found = measuring.fit(folder, model, dtype, repeats, told=told)
    except (ValueError, OSError) as error:
        raise CliError(f"{model} cannot be measured: {error}") from error
    if output is not None:
        output.write_text(found.model_dump_json(indent=2) + "\n")
    if rules is not None:
        record = load("worker", "decay.record", "decay fit")
        rules.write_text(record.recording_rules(found))
    if drawing is not None and picture is not None:
        drawing.draw(found, picture)
    print("\n".join(lines(found)))


def check_writable(path: Path | None) -> None:
    """Raise CliError saying why a file cannot be written; None is none."""
    if path is None:
        return
    if path.is_dir():
        raise CliError(f"{path} is a folder; name a file.")
    if not path.parent.is_dir():
        raise CliError(
            f"{path} cannot be written: there is no folder {path.parent}; make it first."
        )
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise CliError(f"{path} may not be written; name another file.")


def lines(found: Any) -> list[str]:
    """The result for a person."""
    power, affine = found.power, found.affine
    rows = [
        f"{each.ratio:8.2f}{each.visual_tokens:9}{each.text_tokens:8}{1000 * each.seconds:10.1f}"
        for each in sorted(found.points, key=lambda each: each.ratio)
    ]
    shares = ", ".join(f"{name} {share:.0%}" for name, share in found.drivers.items())
    return [
        f"{found.what} of {found.model}, {found.machine}",
        "   RATIO   VISUAL    TEXT        MS",
        *rows,
        f"power   {1000 * power.base:.1f} ms x (1 + {power.a:.3g} x max(r - 1, 0)^{power.b:.2f}), "
        f"error {power.error_mean:.1%}, at worst {power.error_worst:.1%}",
        f"affine  {1000 * affine.base:.1f} ms x (1 + {affine.slope:.3g} x r), "
        f"error {affine.error_mean:.1%}, at worst {affine.error_worst:.1%}",
        f"better: {found.better}",
        f"drivers: {shares}",
        *(f"not measured: {name}: {why}" for name, why in found.not_measured.items()),
    ]

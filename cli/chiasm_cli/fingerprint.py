"""`chiasm fingerprint`: what a model's cached vectors are computed for, and how two differ."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from chiasm_contract.config import BlockSize, Dtype
from chiasm_contract.manifest import Manifest
from pydantic import ValidationError
from typer.core import TyperGroup

from chiasm_cli.errors import CliError
from chiasm_cli.model_folders import find_model
from chiasm_cli.parts import load

# As diff(1): 1 says that there are differences, so that trouble needs another number.
_TROUBLE = 2


class _ShowUnlessSaid(TyperGroup):
    """`chiasm fingerprint MODEL` is `chiasm fingerprint show MODEL`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, "--help"}:
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ShowUnlessSaid,
    help="What a model's cached vectors are computed for: chiasm fingerprint MODEL.",
    no_args_is_help=True,
)

DtypeOption = Annotated[Dtype, typer.Option(help="Precision that is computed in.")]
BlockSizeOption = Annotated[BlockSize, typer.Option(help="Tokens in one cache block.")]


@app.command()
def show(
    model: Annotated[str, typer.Argument(help="'demo', or a folder with a model.")],
    dtype: DtypeOption = "float32",
    block_size: BlockSizeOption = 16,
    json: Annotated[bool, typer.Option("--json", help="Write JSON, which diff reads too.")] = False,
) -> None:
    """Print the manifest and digests of MODEL as a worker on this machine's CPU reports them."""
    manifest = manifest_of(model, dtype, block_size)
    print(manifest.model_dump_json(indent=2) if json else "\n".join(lines(manifest)))


@app.command()
def diff(
    a: Annotated[str, typer.Argument(help="A model, or a file that --json wrote.")],
    b: Annotated[str, typer.Argument(help="Another one.")],
    dtype: DtypeOption = "float32",
    block_size: BlockSizeOption = 16,
) -> None:
    """Say in which fields A and B differ; ends with 1 when they do, with 0 when they are equal."""
    try:
        manifests = [_read(each, dtype, block_size) for each in (a, b)]
    except CliError as error:
        print(f"chiasm: {error}", file=sys.stderr)
        raise typer.Exit(_TROUBLE) from error
    differences = manifests[0].differences(manifests[1])
    print("\n".join(differences) or "Equal: their cached vectors can stand for each other.")
    raise typer.Exit(1 if differences else 0)


def manifest_of(model: str, dtype: Dtype, block_size: BlockSize) -> Manifest:
    """The manifest of a built-in model or of a folder.

    Raises: CliError when it is none, or cannot be loaded.
    """
    folder = find_model(model)
    identity = load("worker", "identity", "fingerprint")
    try:
        return Manifest.of(identity.folder_identity(folder, dtype, block_size))
    except (ValueError, OSError) as error:
        raise CliError(f"{model} cannot be loaded: {error}") from error


def lines(manifest: Manifest) -> Iterator[str]:
    """The manifest for a person: each digest above the fields that it is made of."""
    width = max(map(len, manifest.fields))
    for domain, digest in (
        ("compute", manifest.compute_fp), ("repr", manifest.repr_fp), ("scope", manifest.scope_fp),
    ):  # fmt: skip
        yield f"{f'{domain}_fp':{width}}  {digest}"
        for name, value in manifest.fields.items():
            if name.startswith(f"{domain}."):
                yield f"{name:{width}}  {value}"


def _read(given: str, dtype: Dtype, block_size: BlockSize) -> Manifest:
    """The manifest in a file, or of a model."""
    if not Path(given).is_file():
        return manifest_of(given, dtype, block_size)
    try:
        return Manifest.model_validate_json(Path(given).read_bytes())
    except (OSError, ValidationError) as error:
        raise CliError(
            f"{given} is not what chiasm fingerprint MODEL --json writes: {_first(error)}."
        ) from error


def _first(error: OSError | ValidationError) -> str:
    if isinstance(error, OSError):
        return str(error.strerror)
    fault = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, fault["loc"]))
    return f"{where}: {fault['msg']}" if where else fault["msg"]

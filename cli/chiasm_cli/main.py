"""The commands and their options."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import Annotated

import typer
from chiasm_contract.config import (
    CompressionMethod,
    CompressionRatio,
    Detail,
    DeviceKind,
    Dtype,
    Kernels,
)

from chiasm_cli import ask as asking
from chiasm_cli import decay, doctor, fingerprint, namespaces, rollout
from chiasm_cli import serve as serving
from chiasm_cli.errors import CliError
from chiasm_cli.parts import leave_when_told, load
from chiasm_cli.trace import command as trace

DEFAULT_URL = "http://127.0.0.1:8000"

app = typer.Typer(
    name="chiasm",
    help="Serve vision-language models, on this machine or on Kubernetes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
worker_app = typer.Typer(help="The engine.", no_args_is_help=True)
sidecar_app = typer.Typer(help="The front door beside an engine.", no_args_is_help=True)
operator_app = typer.Typer(help="The Kubernetes operator.", no_args_is_help=True)
app.add_typer(worker_app, name="worker")
app.add_typer(sidecar_app, name="sidecar")
app.add_typer(operator_app, name="operator")
app.add_typer(fingerprint.app, name="fingerprint")
app.add_typer(rollout.app, name="rollout")
app.add_typer(namespaces.app, name="namespaces")
app.add_typer(trace.app, name="trace")
app.add_typer(decay.app, name="decay")
app.command("doctor")(doctor.doctor)

ConfigOption = Annotated[Path, typer.Option("--config", help="The file that the operator wrote.")]


@app.command()
def serve(  # noqa: PLR0913, PLR0917 - one parameter for each option
    model: Annotated[str, typer.Argument(help="'demo', or a folder with a model.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the API.")] = 8000,
    metrics_port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of metrics and state.")
    ] = 9100,
    model_id: Annotated[
        str, typer.Option(help="Name that clients use; default: the folder's.")
    ] = "",
    dtype: Annotated[Dtype, typer.Option(help="Precision that is computed in.")] = "float32",
    device: Annotated[DeviceKind, typer.Option(help="Where it is computed.")] = "cpu",
    kernels: Annotated[
        Kernels,
        typer.Option(help="Triton where it can compute, never, or nothing starts without it."),
    ] = "auto",
    kv_cache_bytes: Annotated[
        int, typer.Option(min=2**20, help="Memory for cached keys and values.")
    ] = 256 * 2**20,
    images: Annotated[int, typer.Option(min=0, max=64, help="Pictures in one request.")] = 4,
    videos: Annotated[
        int, typer.Option(min=0, max=16, help="Videos in one request, where the model takes them.")
    ] = 0,
    audios: Annotated[
        int, typer.Option(min=0, max=16, help="Sounds in one request, where the model takes them.")
    ] = 0,
    compression: Annotated[
        CompressionRatio, typer.Option(help="Vision tokens that become one at detail auto.")
    ] = 1,
    low_detail_compression: Annotated[
        CompressionRatio, typer.Option(help="Vision tokens that become one at detail low.")
    ] = 8,
    compression_method: Annotated[
        CompressionMethod, typer.Option(help="Keep the most salient of them, or their mean.")
    ] = "salient",
    api_keys: Annotated[
        Path | None,
        typer.Option(
            help="File of NAME=KEY lines: who may ask, each with a cache of their own; read anew "
            "when it changes. Without it everybody may.",
        ),
    ] = None,
) -> None:
    """Serve MODEL on this machine, without Kubernetes."""
    serving.serve(
        serving.Choices(
            model=model,
            host=host,
            port=port,
            metrics_port=metrics_port,
            model_id=model_id,
            dtype=dtype,
            device=device,
            kernels=kernels,
            kv_cache_bytes=kv_cache_bytes,
            images=images,
            videos=videos,
            audios=audios,
            compression=compression,
            low_detail_compression=low_detail_compression,
            compression_method=compression_method,
            api_keys=api_keys,
        )
    )


@app.command()
def ask(
    image: Annotated[Path, typer.Argument(help="A picture: PNG, JPEG, WebP, GIF or BMP.")],
    question: Annotated[str, typer.Argument(help="What to ask about it.")],
    url: Annotated[str, typer.Option(help="Where a model is served.")] = DEFAULT_URL,
    detail: Annotated[
        Detail, typer.Option(help="How much of the picture to see; less is quicker.")
    ] = "auto",
    api_key: Annotated[
        str,
        typer.Option(
            envvar="CHIASM_API_KEY",
            help="Key of a tenant, where the server asks for one.",
            show_default=False,
        ),
    ] = "",
) -> None:
    """Ask a served model QUESTION about the picture IMAGE."""
    for piece in asking.ask(url, image, question, detail, api_key):
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")


@worker_app.command("run")
def run_worker(config: ConfigOption) -> None:
    """Run the engine."""
    leave_when_told()
    load("worker", "main", "worker run").run(config)


@sidecar_app.command("run")
def run_sidecar(config: ConfigOption) -> None:
    """Run the front door."""
    leave_when_told()
    load("sidecar", "main", "sidecar run").run(config)


@operator_app.command("run")
def run_operator() -> None:
    """Run the operator."""
    leave_when_told()
    load("operator", "main", "operator run").run()


@app.command()
def version() -> None:
    """Print the version."""
    print(importlib.metadata.version("chiasm"))


def main() -> None:
    """The command's entry point."""
    try:
        app()
    except CliError as error:
        print(f"chiasm: {error}", file=sys.stderr)
        sys.exit(1)

"""`chiasm trace` and `chiasm trace report`: options in, a file or lines out."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from chiasm_contract.timeline import MAX_LAST_SECONDS
from typer.core import TyperGroup

from chiasm_cli.errors import CliError
from chiasm_cli.kubectl import ContextOption, NamespaceOption
from chiasm_cli.pods import DEFAULT_URL
from chiasm_cli.trace import report as reporting
from chiasm_cli.trace.laid_out import drawing
from chiasm_cli.trace.pods import Where, recordings

_RECORD = "record"
_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0}
_LAST = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m)?")


class _RecordsUnlessNamed(TyperGroup):
    """`chiasm trace REQUEST` is `chiasm trace record REQUEST`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command's name in front of what names none."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [_RECORD, *args]
        return list(super().parse_args(ctx, args))


app = typer.Typer(
    cls=_RecordsUnlessNamed,
    help="What a pod did when: for Perfetto's UI, or as a report. chiasm trace REQUEST and chiasm "
    "trace --last 60s are short for chiasm trace record.",
    no_args_is_help=True,
)

RequestArgument = Annotated[
    str,
    typer.Argument(
        metavar="[REQUEST]",
        help="An answer's id, its X-Request-Id, or its trace id, as in the header traceresponse.",
        show_default=False,
    ),
]
LastOption = Annotated[
    str, typer.Option("--last", help="Instead of a request: all of the last seconds, like 60s.")
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        help=f"A pod's port of metrics and state; default: {DEFAULT_URL}", show_default=False
    ),
]
MmiOption = Annotated[
    str | None,
    typer.Option(help="Instead of --url: all pods of this MultimodalInference, by kubectl."),
]


@app.command(_RECORD)
def record(
    request: RequestArgument = "",
    last: LastOption = "",
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where the trace is written.")
    ] = Path("chiasm.pftrace"),
    url: UrlOption = None,
    mmi: MmiOption = None,
    namespace: NamespaceOption = "",
    context: ContextOption = "",
) -> None:
    """Write what happened as a trace that https://ui.perfetto.dev opens."""
    perfetto = _perfetto()
    found = recordings(Where(url, mmi, namespace, context), query(request, last))
    data = perfetto.write(drawing(found))
    if not data:
        raise CliError(
            f"nothing was done in the last {last}, so nothing is written; ask for longer, "
            f"{MAX_LAST_SECONDS:g}s at most."
        )
    try:
        output.write_bytes(data)
    except OSError as error:
        raise CliError(f"cannot write {output}: {error.strerror}.") from error
    for pod, recording in found.items():
        steps = recording.worker.steps if recording.worker else ()
        requests = {e.request for e in recording.sidecar.events if e.request}
        print(f"{pod}: {_counted(len(requests), 'request')}, {_counted(len(steps), 'step')}")
    print(f"{output}: {len(data)} bytes; open it at https://ui.perfetto.dev")


@app.command()
def report(
    request: RequestArgument = "",
    last: LastOption = "",
    url: UrlOption = None,
    mmi: MmiOption = None,
    namespace: NamespaceOption = "",
    context: ContextOption = "",
) -> None:
    """Say what took the time, and which tokens came late because of what."""
    found = recordings(Where(url, mmi, namespace, context), query(request, last))
    for pod, recording in found.items():
        print("\n".join(reporting.lines(pod, recording)))


def query(request: str, last: str) -> dict[str, str]:
    """What the pods are asked for.

    Raises: CliError unless it is one request or some seconds.
    """
    if bool(request) == bool(last):
        raise CliError("name one request, or say --last 60s for all of the last minute.")
    if request:
        return {"request": request}
    given = _LAST.fullmatch(last)
    seconds = float(given[1]) * _UNITS[given[2] or ""] if given else 0.0
    if not 0 < seconds <= MAX_LAST_SECONDS:
        raise CliError(
            f"--last {last} is no time above 0 and at most {MAX_LAST_SECONDS:g}s; write it like "
            "60s, 2m or 500ms."
        )
    return {"last_seconds": f"{seconds:g}"}


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _perfetto() -> Any:
    """What writes the file.

    Raises: CliError when its library is not installed.
    """
    try:
        return importlib.import_module("chiasm_cli.trace.perfetto")
    except ModuleNotFoundError as error:
        raise CliError(
            f"chiasm trace needs {error.name}, which is not installed; run: "
            "pip install 'chiasm[trace]'. chiasm trace report does without."
        ) from error

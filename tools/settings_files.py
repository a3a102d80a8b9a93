"""docs/reference/settings.md, from the models that read the environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from chiasm_operator import settings as operator
from chiasm_sidecar import settings as sidecar
from pydantic.fields import FieldInfo

_HEAD = """\
# Settings

Generated from the models that read them; `make generate` writes this file.

What a resource says is in [its spec](crd.md). These are variables of processes: how long one part
waits for another, how often it asks again, and where the operator finds its own objects. A value
outside the safe range ends the process at its start, with a line that names it. Times are seconds.
"""
_PARTS: dict[str, tuple[ModuleType, str]] = {
    "Sidecar": (
        sidecar,
        "Set by an entry with `env` of a source in `spec.config.environments`, or by the "
        "environment of `chiasm serve`. Pauses before a further try begin below "
        "`CHIASM_BACKOFF_FIRST_SECONDS`, double up to `CHIASM_BACKOFF_MAX_SECONDS`, and of each "
        "chance leaves out up to the part `CHIASM_BACKOFF_JITTER`.",
    ),
    "Operator": (operator, "Set by the chart; [its values](values.md) have other names."),
}


def outputs(root: Path) -> dict[Path, str]:
    sections = [
        f"## {title}\n\n{words}\n\n{_table(part)}" for title, (part, words) in _PARTS.items()
    ]
    return {root / "docs" / "reference" / "settings.md": "\n".join([_HEAD, *sections])}


def _table(part: ModuleType) -> str:
    model: Any = part.Settings
    prefix: str = model.model_config["env_prefix"]
    rows = ["| Variable | Default | Safe range | Meaning |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        default = "" if field.is_required() else _text(field.default)
        meaning = field.description or ""
        rows.append(f"| `{prefix}{name.upper()}` | {default} | {_range(field)} | {meaning} |")
    return "\n".join(rows) + "\n"


def _text(value: object) -> str:
    shown = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"`{shown}`" if shown else "empty"


def _range(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{each}`" for each in get_args(field.annotation))
    return ", ".join(_bounds(field))


def _bounds(field: FieldInfo) -> Iterator[str]:
    least = next((each.ge for each in field.metadata if isinstance(each, Ge)), None)
    most = next((each.le for each in field.metadata if isinstance(each, Le)), None)
    if least is not None and most is not None:
        yield f"{least} to {most}"
    for each in field.metadata:
        if isinstance(each, MinLen):
            yield "not empty"
        if isinstance(each, (Gt, Lt)):
            yield str(each)

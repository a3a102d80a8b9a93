"""One exposition for a pod: the sidecar's families, then the worker's, in the form that was asked
for: OpenMetrics, where exemplars name traces, or Prometheus' older text.

Must not know: which metrics there are, how the worker is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from chiasm_contract.metric_forms import NAMES_AS_THEY_ARE, OPENMETRICS, PLAIN
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

_FAMILY = re.compile(r"^# (?:HELP|TYPE|UNIT) (?P<name>\S+)")
_END = "# EOF\n"


@dataclass(frozen=True)
class WorkerPart:
    """What the worker exposes, as it said it."""

    text: str = ""
    content_type: str = PLAIN


def encoded(registry: CollectorRegistry, form: str) -> str:
    """What a registry has, in one of the two forms."""
    if form == OPENMETRICS:
        data: bytes = openmetrics.generate_latest(  # type: ignore[no-untyped-call]
            registry, escaping=NAMES_AS_THEY_ARE
        )
        return data.decode()
    return generate_latest(registry).decode()


def joined(own: str, workers: str) -> str:
    """Both as one; of a family that both have, ours. One end, where the form has one."""
    names = {name for name, _ in _families(own)}
    others = [text for name, text in _families(workers) if name not in names]
    end = _END if own.endswith(_END) else ""
    return "".join([own.removesuffix(_END), *others, end])


def _families(text: str) -> Iterator[tuple[str, str]]:
    """(family name, its lines) of an exposition in either form."""
    name = ""
    lines: list[str] = []
    for line in text.removesuffix(_END).splitlines(keepends=True):
        found = _FAMILY.match(line)
        if found and found["name"] != name:
            if name:
                yield name, "".join(lines)
            name, lines = found["name"], []
        lines.append(line if line.endswith("\n") else line + "\n")
    if name:
        yield name, "".join(lines)

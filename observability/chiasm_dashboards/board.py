"""What a dashboard is, as plain data: whoever draws one, or asks Prometheus for it, reads this.

Queries hold Grafana's variables. `resource` is the label that a scrape takes from a pod's label
chiasm.dev/name (docs/observability.md); the operator's series name a resource themselves.

Must not know: Grafana's JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["lines", "stacked", "number"]
RATE = "$__rate_interval"
_OF_PODS = 'namespace=~"$namespace", resource=~"$resource", pod=~"$pod"'
_OF_RESOURCES = 'resource_namespace=~"$namespace", resource=~"$resource"'


@dataclass(frozen=True)
class Query:
    """One expression and the name of its lines, `{{label}}` filled in."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """One picture.

    Attributes:
        unit: Grafana's word for it.
        about: what a reader can take from it, in a sentence or two.
        lowest: where the axis begins, unless values lie below.
        exemplars: whether single requests are shown as points that lead to their traces.
    """

    title: str
    unit: str
    about: str
    queries: tuple[Query, ...]
    kind: Kind = "lines"
    lowest: float = 0
    exemplars: bool = False


@dataclass(frozen=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Board:
    """One dashboard; `name` is its file's and the end of its uid."""

    name: str
    title: str
    about: str
    rows: tuple[Row, ...]

    def panels(self) -> Iterator[Panel]:
        """All of them, in order."""
        for row in self.rows:
            yield from row.panels


def pods(metric: str, more: str = "") -> str:
    """A metric of the chosen pods; `more` are further matchers."""
    return f"{metric}{{{_OF_PODS}{', ' if more else ''}{more}}}"


def resources(metric: str, more: str = "") -> str:
    """A metric by which the operator tells of the chosen resources."""
    return f"{metric}{{{_OF_RESOURCES}{', ' if more else ''}{more}}}"


def per_second(metric: str, by: str = "", more: str = "") -> str:
    """How fast a counter of the chosen pods grows, summed up by labels."""
    return f"{_sum(by)}(rate({pods(metric, more)}[{RATE}]))"


def total(metric: str, by: str = "", more: str = "") -> str:
    """A gauge of the chosen pods, summed up by labels."""
    return f"{_sum(by)}({pods(metric, more)})"


def share(part: str, whole: str) -> str:
    """One expression as a part of another; nothing where the whole is 0."""
    return f"{part} / ({whole} > 0)"


def quantile(level: float, histogram: str, by: str = "", more: str = "") -> str:
    """The value that `level` of all readings are below, by labels."""
    inside = f"rate({pods(f'{histogram}_bucket', more)}[{RATE}])"
    labels = ", ".join(["le", *([by] if by else [])])
    return f"histogram_quantile({level:g}, sum by ({labels}) ({inside}))"


def _sum(by: str) -> str:
    return f"sum by ({by}) " if by else "sum"


_VARIABLE = re.compile(r"\$(?:__)?\w+")


def filled_in(expr: str, values: Mapping[str, str]) -> str:
    """The expression as Prometheus takes it: each `$variable` with its value.

    Raises: KeyError for a variable without one.
    """
    return _VARIABLE.sub(lambda found: values[found[0].removeprefix("$")], expr)

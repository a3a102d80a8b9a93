"""In which of two forms metrics are written, by what the asker takes.

OpenMetrics has a place for exemplars, and whoever asks for it by name gets it; everybody else gets
Prometheus' older text.

Must not know: the library that writes them.
"""

from __future__ import annotations

from collections.abc import Iterator

PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# By which a name with a colon, such as vLLM's, stays as it is. `underscores`, the library's own
# choice, writes samples under other names than their families.
NAMES_AS_THEY_ARE = "allow-utf-8"
# What differs in 0.0.1 is nothing that we write.
_VERSIONS = ("", "0.0.1", "1.0.0")


def form_for(accept: str) -> str:
    """The content type for who sends this Accept header."""
    wanted = {"openmetrics": 0.0, "plain": 0.0}
    for kind, version, quality in _ranges(accept):
        if kind == media_type(OPENMETRICS) and version in _VERSIONS:
            wanted["openmetrics"] = max(wanted["openmetrics"], quality)
        elif kind == media_type(PLAIN):
            wanted["plain"] = max(wanted["plain"], quality)
    is_wanted = wanted["openmetrics"] > 0 and wanted["openmetrics"] >= wanted["plain"]
    return OPENMETRICS if is_wanted else PLAIN


def media_type(content_type: str) -> str:
    """Without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def _ranges(accept: str) -> Iterator[tuple[str, str, float]]:
    """Media type, version and quality of each part; one that cannot be read is not wanted."""
    for part in accept.split(","):
        kind, _, rest = part.partition(";")
        parameters = {}
        for item in rest.split(";"):
            name, _, value = item.partition("=")
            parameters[name.strip().lower()] = value.strip().strip('"')
        try:
            quality = float(parameters.get("q", "1"))
        except ValueError:
            quality = 0.0
        yield kind.strip().lower(), parameters.get("version", ""), quality

"""Which pinned packages each image holds: a part of constraints.txt, chosen by the part's extra.

`constraints.txt` says of each package on whose behalf it is there ("# via"); following that
from the extra's own packages gives the image's list. The lists are generated files beside the
Dockerfiles, so that an engine's build needs nothing but the files, and so that the layer they
make changes only when the list does.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from chiasm_cluster.errors import ClusterError

PARTS = ("operator", "worker", "sidecar")
_HEADER = """\
# The packages of the {part} image, generated from constraints.txt and pyproject.toml.
# Do not edit; write it anew with: python -m chiasm_cluster requirements
"""


def render(part: str, pyproject: str, constraints: str) -> str:
    """The list of `part` as the text of a requirements file.

    Raises: ClusterError when a package of the part has no pin.
    """
    project = tomllib.loads(pyproject)["project"]
    wanted = project["dependencies"] + project["optional-dependencies"][part]
    pins, needs = _read(constraints)
    chosen: set[str] = set()
    waiting = [_name(requirement) for requirement in wanted]
    while waiting:
        name = waiting.pop()
        if name in chosen:
            continue
        if name not in pins:
            raise ClusterError(
                f"constraints.txt has no pin for {name}, which the {part} image needs; run make "
                "constraints."
            )
        chosen.add(name)
        waiting += needs.get(name, [])
    lines = [pins[name] for name in sorted(chosen)]
    return _HEADER.format(part=part) + "\n".join(lines) + "\n"


def write_all(root: Path) -> list[Path]:
    """Write the list of every part; the files that changed."""
    pyproject = (root / "pyproject.toml").read_text()
    constraints = (root / "constraints.txt").read_text()
    changed = []
    for part in PARTS:
        path, text = root / part / "requirements.txt", render(part, pyproject, constraints)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            changed.append(path)
    return changed


def _name(requirement: str) -> str:
    """The normalized package name of a requirement or a pin."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s\[<>=!~;@]", requirement, maxsplit=1)[0]).lower()


def _read(constraints: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The pins by name, and what each package needs."""
    pins: dict[str, str] = {}
    needs: dict[str, list[str]] = {}
    current = ""
    for line in constraints.splitlines():
        if line and not line.startswith(("#", " ")):
            current = _name(line)
            pins[current] = line.strip()
        found = re.match(r"\s+#\s+(?:via\s*)?(\S.*)?$", line)
        if found is not None and found[1]:
            needs.setdefault(_name(found[1].split()[0]), []).append(current)
    return pins, needs

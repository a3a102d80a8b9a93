"""Which pinned packages each image holds: a part of constraints.txt, chosen by the part's extra.

`constraints.txt` says of each package on whose behalf it is there ("# via"); following that
from the extra's own packages gives the image's list. An image PART-EXTRA is that of PART with the
packages that EXTRA names, and nothing that these need beyond them. The lists are generated files
beside the Dockerfiles, so that an engine's build needs nothing but the files, and so that the layer
they make changes only when the list does.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from chiasm_cluster.errors import ClusterError

PARTS = ("operator", "worker", "sidecar")
LISTS = {
    **{part: f"{part}/requirements.txt" for part in PARTS},
    "sidecar-peers": "sidecar/requirements-peers.txt",
}
_HEADER = """\
# The packages of the {image} image, generated from constraints.txt and pyproject.toml.
# Do not edit; write it anew with: python -m chiasm_cluster requirements
"""


def render(image: str, pyproject: str, constraints: str) -> str:
    """The list of `image` as the text of a requirements file.

    Raises: ClusterError when a package of the image has no pin.
    """
    project = tomllib.loads(pyproject)["project"]
    part, _, extra = image.partition("-")
    extras = project["optional-dependencies"]
    pins, needs = _read(constraints)
    alone = {_name(requirement) for requirement in (extras[extra] if extra else ())}
    waiting = [*alone, *map(_name, project["dependencies"] + extras[part])]
    chosen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in chosen:
            continue
        if name not in pins:
            raise ClusterError(
                f"constraints.txt has no pin for {name}, which the {image} image needs; run make "
                "constraints."
            )
        chosen.add(name)
        waiting += needs.get(name, []) if name not in alone else []
    lines = [pins[name] for name in sorted(chosen)]
    return _HEADER.format(image=image) + "\n".join(lines) + "\n"


def write_all(root: Path) -> list[Path]:
    """Write the list of every image; the files that changed."""
    pyproject = (root / "pyproject.toml").read_text()
    constraints = (root / "constraints.txt").read_text()
    changed = []
    for image, name in LISTS.items():
        path, text = root / name, render(image, pyproject, constraints)
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

"""Model folders whose content is replaced at once, as a reload finds them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


class Folder:
    """A model folder whose content is replaced at once."""

    def __init__(self, path: Path, weights: Callable[[str], Path]) -> None:
        self.path = path
        self._weights = weights

    def hold(self, which: str) -> None:
        beside = self.path.with_name("beside")
        beside.symlink_to(self._weights(which))
        os.replace(beside, self.path)

"""Test runs of one machine take turns with the clusters whose names they share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chiasm_cluster import state


@contextmanager
def turn_with(cluster: str) -> Iterator[None]:
    """Nobody else's tests bring up, change or take down the cluster of this name meanwhile.

    Another run waits, and says so: two on one cluster would each see what the other did.
    """
    with state.locked(f"tests-{cluster}"):
        yield

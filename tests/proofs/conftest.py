"""The processes that interpret and compile kernels, one of each for the whole run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from chiasm_proofs.child import Child


@pytest.fixture(scope="session")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    """Asks Triton's interpreter."""
    with Child("interpreted", tmp_path_factory.mktemp("interpreted")) as child:
        yield child


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    """Asks Triton's compiler."""
    with Child("compiled", tmp_path_factory.mktemp("compiled")) as child:
        yield child


@pytest.fixture
def seed() -> int:
    """Another one each time; a test says it where it fails."""
    return random.SystemRandom().randrange(2**31)


@pytest.fixture(scope="session")
def names(interpreted: Child) -> dict[str, list[str]]:
    """Names of all planted faults and silent errors."""
    answer: dict[str, list[str]] = interpreted.ask("names")
    return answer


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache folder of a child that a test starts itself."""
    return tmp_path

"""Worlds in which something has happened already."""

from __future__ import annotations

import pytest

from tests.operator.rollout.scenarios import spec
from tests.operator.rollout.world import World


@pytest.fixture
def served() -> World:
    """Three pods of the first revision are up."""
    world = World()
    spec(1)(world)
    return world.settled()

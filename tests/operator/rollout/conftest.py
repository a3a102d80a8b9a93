"""Worlds in which something has happened already."""

from __future__ import annotations

import pytest

from tests.operator.rollout.made_up.scenarios import spec
from tests.operator.rollout.made_up.world import World


@pytest.fixture
def served() -> World:
    """Three pods of the first revision are up."""
    world = World()
    spec(1)(world)
    return world.settled()

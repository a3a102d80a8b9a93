"""What is registered with kopf, and how kopf is set up: it watches, and writes nothing."""

from __future__ import annotations

import inspect
from typing import Any

import kopf
import pytest
from chiasm_operator import handlers
from chiasm_operator.cluster import CHILD_KINDS, POD, RESOURCE
from chiasm_operator.runtime import Runtime
from chiasm_operator.settings import Settings


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    async def never() -> Runtime:
        raise AssertionError("nothing is started here")

    return handlers.registry(_settings(), never)


def _settings() -> Settings:
    return Settings(worker_image="w:1", sidecar_image="s:1", sidecar_peers_image="p:1")


def watching(registry: kopf.OperatorRegistry) -> list[Any]:
    return list(registry._watching.get_all_handlers())


def test_nothing_of_what_makes_kopf_write_is_used(registry: kopf.OperatorRegistry) -> None:
    """Handlers of changes, timers and daemons bring finalizers, annotations and patches, and kopf's
    admission overwrites the webhook's whole configuration."""
    for unused in (registry._changing, registry._spawning, registry._indexing, registry._webhooks):
        assert list(unused.get_all_handlers()) == []
    followed = {str(handler.id) for handler in watching(registry)}
    assert followed == {kind.plural for kind in (RESOURCE, *CHILD_KINDS, POD)}


def test_no_handler_takes_a_thread(registry: kopf.OperatorRegistry) -> None:
    """Threads that wait were used up, and everything behind them stood still (kopf #894)."""
    every = [*watching(registry), *registry._activities.get_all_handlers()]
    blocking = {each.fn.__name__ for each in every if not inspect.iscoroutinefunction(each.fn)}
    assert blocking == {"login"}, "it reads a mounted file"


def test_watches_end_and_begin_again_and_nothing_is_shared_with_other_operators() -> None:
    """A connection that went silent was watched for ever (kopf #585, #957, #1120)."""
    settings = kopf.OperatorSettings()
    before = settings.persistence.finalizer
    handlers.configure(settings, _settings())
    watches, network = settings.watching, settings.networking
    assert watches.server_timeout is not None
    assert watches.client_timeout is not None
    assert 0 < watches.server_timeout < watches.client_timeout < 600
    assert network.request_timeout is not None
    assert network.request_timeout <= 60
    assert settings.peering.standalone, "our own lease fences, kopf's peering does not"
    assert settings.persistence.finalizer != before
    assert not settings.posting.enabled

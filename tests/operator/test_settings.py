"""The operator's environment."""

from __future__ import annotations

import pytest
from chiasm_operator.settings import Settings


@pytest.fixture(autouse=True)
def images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHIASM_OPERATOR_WORKER_IMAGE", "w:1")
    monkeypatch.setenv("CHIASM_OPERATOR_SIDECAR_IMAGE", "s:1")
    monkeypatch.setenv("CHIASM_OPERATOR_SIDECAR_PEERS_IMAGE", "p:1")


def test_namespaces_are_a_list_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.from_environment().watch_namespaces == ()
    monkeypatch.setenv("CHIASM_OPERATOR_WATCH_NAMESPACES", "a, b,")
    assert Settings.from_environment().watch_namespaces == ("a", "b")


def test_images_reach_the_pods() -> None:
    images = Settings.from_environment().images
    assert (images.worker, images.sidecar, images.sidecar_peers) == ("w:1", "s:1", "p:1")
    assert images.pull_policy == "IfNotPresent"


def test_a_wrong_or_missing_value_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHIASM_OPERATOR_RESYNC_SECONDS", "never")
    monkeypatch.delenv("CHIASM_OPERATOR_WORKER_IMAGE")
    with pytest.raises(SystemExit, match="CHIASM_OPERATOR_WORKER_IMAGE: Field required") as ended:
        Settings.from_environment()
    assert "CHIASM_OPERATOR_RESYNC_SECONDS: Input should be a valid number" in str(ended.value)

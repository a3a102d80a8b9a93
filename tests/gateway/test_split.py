"""Requests through a real Envoy: who answers, and that none fails while weights change."""

from __future__ import annotations

import pytest

from tests.demo_site import asking
from tests.gateway.conftest import Site

pytestmark = pytest.mark.gateway

NUM = 100
HEADER = "x-canary"


@pytest.mark.parametrize(("split", "first"), [("gateway", 2), ("sidecars", 4)])
def test_a_canary_behind_envoy(site: Site, split: str, first: int) -> None:
    site.present(split, first)
    site.until_ready()
    assert site.is_true("RouteAccepted")
    stable = site.resource["status"]["revision"]

    site.annotate("canary-weight=20", f"canary-by-header={HEADER}")
    site.present(split, first + 1)
    site.until_synced("20")
    canary = site.resource["status"]["revision"]
    assert canary != stable

    found = site.share(NUM)
    if split == "sidecars":
        assert found == {stable: 80, canary: 20}, "exactly"
    else:
        assert 6 <= found[canary] <= 36, "by chance: 20 +- 4 standard deviations"
    assert site.share(10, **{HEADER: "always"})[canary] == 10
    assert site.share(10, **{HEADER: "never"})[stable] == 10

    with asking(site.ask) as statuses:
        for weight in (50, 5, 0):
            site.weigh(weight)
    assert statuses
    assert set(statuses) == {200}
    assert site.share(30)[canary] == 0

    with asking(site.ask) as statuses:
        site.annotate(f"rollout-action=promote:{canary}")
        site.until_ready()
    assert set(statuses) == {200}
    assert site.share(10)[canary] == 10
    site.annotate("canary-weight-", "rollout-action-", "canary-by-header-")

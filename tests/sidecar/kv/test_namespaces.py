"""Names of namespaces, and the one way through their life."""

from __future__ import annotations

import json

import pytest
from chiasm_contract.tiers import begins
from chiasm_sidecar.kv.namespaces import Registry, State, prefixes

from tests.sidecar.conftest import identity
from tests.sidecar.kv.conftest import IDENTITY, NAMESPACE, SCOPE_FP, release

OTHER = release(identity(**{"compute.position.theta": 1e6})).namespace(SCOPE_FP)
NAME = NAMESPACE.name


def test_a_name_is_the_beginning_of_three_digests() -> None:
    expected = (IDENTITY.compute_fp[:16], IDENTITY.repr_fp[:16], SCOPE_FP.hex()[:16])
    assert "-".join(expected) == NAME
    assert prefixes(NAME) == [expected[0], "-".join(expected[:2]), NAME]
    assert all(begins(NAME, prefix) for prefix in prefixes(NAME))
    assert not begins(NAME, NAME[:10])
    assert OTHER.name != NAME


def test_the_manifest_says_what_it_was_made_for() -> None:
    manifest = json.loads(NAMESPACE.manifest)
    assert manifest["compute_fp"] == IDENTITY.compute_fp
    assert manifest["scope_fp"] == SCOPE_FP.hex()
    assert manifest["fields"]["compute.position.theta"] == 10000.0


def test_namespaces_of_other_identities_drain_and_come_back() -> None:
    registry, both = Registry(), (NAME, OTHER.name)
    assert registry.state(NAME) is State.LIVE
    assert registry.draining(both) == frozenset()
    registry.admit(release().prefix)
    assert registry.draining(both) == {OTHER.name}
    assert registry.state(OTHER.name) is State.DRAINING
    assert registry.open(OTHER.name)
    registry.admit(OTHER.name.rsplit("-", 1)[0])
    assert registry.draining(both) == {NAME}


@pytest.mark.parametrize("prefix", prefixes(NAME))
def test_a_retired_namespace_never_comes_back(prefix: str) -> None:
    registry = Registry()
    registry.retire(prefix)
    registry.admit(release().prefix)
    assert registry.state(NAME) is State.RETIRED
    assert not registry.open(NAME)
    assert registry.open(OTHER.name)
    assert registry.ends() == {prefix: State.RETIRED}
    registry.swept(prefix)
    registry.admit(release().prefix)
    assert registry.state(NAME) is State.SWEPT
    assert not registry.open(NAME)
    assert registry.ends() == {prefix: State.SWEPT}
    with pytest.raises(ValueError, match="not retired"):
        registry.swept(prefix)
    with pytest.raises(ValueError, match="not retired"):
        Registry().swept(prefix)


def test_what_one_prefix_has_swept_another_may_still_sweep() -> None:
    long, short = NAME, prefixes(NAME)[0]
    registry = Registry()
    registry.retire(long)
    registry.retire(short)
    registry.swept(long)
    assert registry.state(NAME) is State.RETIRED

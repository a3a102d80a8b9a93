"""What of an offer a running pod takes, ids that tell nothing, faults without words of others."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from chiasm_contract.configuration import ConfigSource, OnChange
from chiasm_contract.configuration_metric_specs import SERVER_OUTCOMES
from chiasm_sidecar.configuration.offers import (
    MAX_BYTES,
    Offer,
    SourceFault,
    checked,
    digest,
    of_kind,
    taken,
)
from chiasm_sidecar.configuration.vault.faults import Kind, fault_of
from hvac import exceptions
from hypothesis import given
from hypothesis import strategies as st

entries = st.dictionaries(st.sampled_from("abcdef"), st.binary(max_size=3))
policies = st.dictionaries(
    st.sampled_from("abcdef"), st.sampled_from(get_args(OnChange)), max_size=6
)


@given(entries, entries, policies)
def test_only_what_reloads_changes(
    first: dict[str, bytes], offered: dict[str, bytes], keys: dict[str, OnChange]
) -> None:
    source = ConfigSource(name="s", kind="mounted", path=Path("/x"), keys=keys)
    after = taken(source, first, offered)
    assert of_kind(source, after, "reload") == of_kind(source, offered, "reload")
    for kind in ("restart", "ignore"):
        assert of_kind(source, after, kind) == of_kind(source, first, kind)  # type: ignore[arg-type]
    assert taken(source, after, offered) == after
    assert taken(source, None, offered) == offered


@given(entries, entries)
def test_ids_are_those_of_the_content(one: dict[str, bytes], two: dict[str, bytes]) -> None:
    same = digest(b"k", one) == digest(b"k", two)
    assert same == (one == two)
    assert digest(b"k", one) != digest(b"K", one)


def test_no_two_lists_are_alike() -> None:
    assert digest(b"k", {"a": b"bc"}) != digest(b"k", {"ab": b"c"})
    assert digest(b"k", {"a": b"1", "b": b"2"}) == digest(b"k", {"b": b"2", "a": b"1"})


@pytest.mark.parametrize("name", ["..data", "a/b", "", "ü", "x" * 254, "a\n"])
def test_a_name_that_is_no_file_is_not_shown(name: str) -> None:
    with pytest.raises(SourceFault, match="no file's") as fault:
        checked({name: b""})
    assert not name or name not in str(fault.value).replace("two dots", "")


def test_too_much_is_a_fault_and_values_have_no_repr() -> None:
    with pytest.raises(SourceFault, match="more than"):
        checked({"a": bytes(MAX_BYTES + 1)})
    assert "hunter2" not in repr(Offer("v1", {"a": b"hunter2"}))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (exceptions.Forbidden("hunter2"), "403 for a/b"),
        (exceptions.VaultDown("hunter2", errors=["Vault is sealed"]), "sealed"),
        (exceptions.VaultDown("hunter2"), "503 for a/b"),
        (exceptions.UnexpectedError("hunter2"), "an unexpected status for a/b"),
        (ValueError("hunter2"), "an answer that is none for a/b"),
    ],
)
def test_the_servers_words_are_dropped(error: Exception, words: str) -> None:
    assert str(fault_of(error, "a/b")) == words


def test_every_kind_of_fault_is_counted() -> None:
    assert set(SERVER_OUTCOMES) == {"well", *get_args(Kind)}

"""Time-outs and retries: bounded, spread by chance, each a variable with an effect."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from chiasm_contract.clients import DEFAULTS, ClientSettings, variables
from chiasm_contract.configuration import SettingName
from chiasm_sidecar.settings import Settings
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

ROOT = Path(__file__).resolve().parents[2]


@given(
    st.integers(0, 10), st.floats(0.001, 10), st.floats(0.001, 60), st.floats(0, 1),
    st.floats(0, 1),
)  # fmt: skip
def test_pauses_are_as_many_as_retries_and_never_longer_than_allowed(
    retries: int, first: float, most: float, jitter: float, chance: float
) -> None:
    settings = ClientSettings(
        backoff_first_seconds=first, backoff_max_seconds=most, backoff_jitter=jitter
    )
    pauses = list(settings.pauses(retries, lambda: chance))
    assert len(pauses) == retries
    for attempt, pause in enumerate(pauses):
        longest = min(most, first * 2**attempt)
        assert 0 <= pause <= longest
        assert pause >= longest * (1 - jitter) - 1e-9


def test_without_jitter_pauses_double_up_to_the_longest() -> None:
    settings = ClientSettings(backoff_first_seconds=1, backoff_max_seconds=5, backoff_jitter=0)
    assert list(settings.pauses(4, lambda: 0.5)) == [1, 2, 4, 5]


def test_a_resource_can_set_each_variable_and_no_other() -> None:
    assert set(get_args(SettingName)) == {*variables(), "CHIASM_LOG_LEVEL"}


@pytest.mark.parametrize("name", ClientSettings.model_fields)
def test_each_variable_is_read_with_its_range(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    field = ClientSettings.model_fields[name]
    bounds = {type(each).__name__: each for each in field.metadata}
    least, most = bounds["Ge"].ge, bounds["Le"].le
    variable = f"CHIASM_{name.upper()}"
    monkeypatch.setenv(variable, str(most))
    assert getattr(Settings.load(), name) == most
    monkeypatch.setenv(variable, str(most + 1))
    with pytest.raises(SystemExit, match=f"{variable}: .*less than or equal to {most}"):
        Settings.load()
    with pytest.raises(ValidationError):
        ClientSettings(**{name: least - 1})
    assert least <= getattr(DEFAULTS, name) <= most


@pytest.mark.parametrize("name", ClientSettings.model_fields)
def test_each_setting_is_used(name: str) -> None:
    sources = [*(ROOT / "sidecar").rglob("*.py"), ROOT / "contract/chiasm_contract/clients.py"]
    assert any(f".{name}" in source.read_text() for source in sources)

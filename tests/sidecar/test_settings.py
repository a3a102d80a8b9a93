"""What comes from the environment, and the form of a log line."""

from __future__ import annotations

import json
import logging

import pytest
from chiasm_contract import logs
from chiasm_contract.clients import ClientSettings
from chiasm_sidecar.settings import Settings
from pydantic import ValidationError


def test_defaults() -> None:
    assert Settings().model_dump() == {**ClientSettings().model_dump(), "log_level": "INFO"}


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHIASM_LOG_LEVEL", "ERROR")
    monkeypatch.setenv("CHIASM_WORKER_RETRIES", "5")
    changed = {"log_level": "ERROR", "worker_retries": 5}
    assert Settings().model_dump() == {**ClientSettings().model_dump(), **changed}
    monkeypatch.setenv("CHIASM_LOG_LEVEL", "LOUD")
    with pytest.raises(ValidationError, match="log_level"):
        Settings()


def test_a_log_line_is_one_json_object() -> None:
    record = logging.LogRecord("chiasm", logging.INFO, "f", 1, "two\nlines %s", ("x",), None)
    record.fields = {"status": 200}
    line = logs.JsonFormatter().format(record)
    assert "\n" not in line
    read = json.loads(line)
    assert read.pop("time").endswith("Z")
    assert read == {"level": "info", "logger": "chiasm", "message": "two\nlines x", "status": 200}

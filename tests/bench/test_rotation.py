"""What looks for secrets finds those that are there: a search that finds nothing proves nothing."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def leaks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "bench"))
    return importlib.import_module("rotating.leaks")


class Cluster:
    """Answers as kubectl does when it reads a sidecar's folder, or anything else."""

    def __init__(self, files: dict[str, str], logs: str = "") -> None:
        self._files = files
        self._logs = logs

    def kubectl(self, *words: str, quiet: bool = False) -> str:
        match words[0]:
            case "exec":
                return json.dumps(self._files)
            case "logs":
                return self._logs
            case "get" if words[-1] == "name":
                return "pod/reader-1"
        return "{}"


TOKEN, PASSWORD, KEY = "hvs.a-token-of-a-pod", "a-password-of-a-user", "an-api-key-of-a-shop"


@pytest.fixture
def markers(leaks: Any) -> Any:
    files = {
        "/run/store/..1/password": PASSWORD,
        "/run/tenants/..1/shop": f"{KEY}\n",
        "/run/peers/..1/..record.json": json.dumps({"id": "x", "held": None}),
        "/run/store/..1/..record.json": json.dumps({"id": "v1", "held": {"token": TOKEN}}),
    }
    found = leaks.Markers()
    found.collect(Cluster(files), ["reader-1"])
    return found


def test_everything_that_a_sidecar_has_is_looked_for(markers: Any) -> None:
    assert {TOKEN, PASSWORD, KEY} <= set(markers.values)


@pytest.mark.parametrize("secret", [TOKEN, PASSWORD, KEY])
def test_a_secret_in_a_log_is_found_and_not_repeated(leaks: Any, markers: Any, secret: str) -> None:
    cluster = Cluster({}, logs=f"cannot log in as reader:{secret}@valkey")
    lines = leaks.found(markers, leaks.written(cluster, {}))
    assert lines
    assert all("logs of pod/reader-1" in line and secret not in line for line in lines)


def test_nothing_is_found_where_nothing_is(leaks: Any, markers: Any) -> None:
    assert leaks.found(markers, leaks.written(Cluster({}, logs="all is well"), {})) == []

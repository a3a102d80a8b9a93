"""A real Prometheus, and what it answers."""

from __future__ import annotations

import contextlib
import math
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

_READY_SECONDS = 60.0


@dataclass(frozen=True)
class Series:
    """One line of a picture: its labels, and (time, value) without what is no number."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


@dataclass
class Prometheus:
    """A process in a folder of its own."""

    program: Path
    folder: Path
    port: int
    scrape_configs: Sequence[Mapping[str, Any]]
    rules: Sequence[Path] = ()
    interval: str = "1s"
    _client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60))

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[Prometheus]:
        """Run it while the block runs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "prometheus.yml"
        config.write_text(yaml.safe_dump(self._config()))
        command = [
            str(self.program),
            f"--config.file={config}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--enable-feature=exemplar-storage",
            "--log.level=warn",
        ]
        with (self.folder / "prometheus.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
        try:
            self._wait_ready(process)
            yield self
        finally:
            self._client.close()
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _config(self) -> dict[str, Any]:
        return {
            "global": {"scrape_interval": self.interval, "evaluation_interval": self.interval},
            "storage": {"exemplars": {"max_exemplars": 10_000}},
            "rule_files": [str(path) for path in self.rules],
            "scrape_configs": [dict(each) for each in self.scrape_configs],
        }

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + _READY_SECONDS
        while time.monotonic() < until and process.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if self._client.get(f"{self.url}/-/ready").status_code == 200:
                    return
            time.sleep(0.1)
        said = (self.folder / "prometheus.log").read_text()
        raise SystemExit(f"Prometheus did not become ready:\n{said[-3000:]}")

    def get(self, path: str, **parameters: str | float) -> Any:
        """The data of an answer of its API.

        Raises: ValueError with Prometheus' own words when it refuses.
        """
        answer = self._client.get(f"{self.url}/api/v1/{path}", params=parameters).json()
        if answer["status"] != "success":
            raise ValueError(f"{answer['errorType']}: {answer['error']}; asked: {parameters}")
        return answer["data"]

    def query(self, expr: str) -> list[Series]:
        """What the expression is now."""
        found = self.get("query", query=expr)
        return list(_series(found["resultType"], found["result"]))

    def query_range(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        """What it was between two times."""
        found = self.get("query_range", query=expr, start=start, end=end, step=step)
        return list(_series(found["resultType"], found["result"]))

    def targets(self) -> list[str]:
        """Addresses that it scrapes."""
        active = self.get("targets", state="active")["activeTargets"]
        return sorted(each["labels"]["instance"] for each in active)

    def targets_down(self) -> dict[str, str]:
        """Address -> what was wrong with its last scrape, of those that did not go well."""
        active = self.get("targets", state="active")["activeTargets"]
        return {
            each["labels"]["instance"]: each["lastError"]
            for each in active
            if each["health"] != "up"
        }


def _series(kind: str, result: Any) -> Iterator[Series]:
    if kind == "scalar":
        yield Series({}, tuple(_points([result])))
        return
    for each in result:
        pairs = each["values"] if "values" in each else [each["value"]]
        points = tuple(_points(pairs))
        if points:
            yield Series(each["metric"], points)


def _points(pairs: Sequence[Sequence[Any]]) -> Iterator[tuple[float, float]]:
    for moment, text in pairs:
        value = float(text)
        if math.isfinite(value):
            yield float(moment), value

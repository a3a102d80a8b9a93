"""Clients that keep asking the demo's questions: about pictures, about none, streamed and not."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "demo" / "pictures"
_WORDS = "How many things are on the shelf?"


class Load:
    """Two clients of one address."""

    def __init__(self, url: str, model: str, key: str) -> None:
        self._url = url
        self._model = model
        self._headers = {"authorization": f"Bearer {key}"}
        self._stopped = threading.Event()
        self.statuses: Counter[int] = Counter()

    def _ask(self, number: int) -> None:
        content: list[dict[str, Any]] = [{"type": "text", "text": f"{_WORDS} ({number})"}]
        pictures = sorted(PICTURES.glob("*.png"))
        if number % 3:
            url = data_url(pictures[number % len(pictures)], number if number % 4 == 1 else 0)
            detail = ("high", "low")[number % 2]
            content.insert(0, {"type": "image_url", "image_url": {"url": url, "detail": detail}})
        asked = {
            "model": self._model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": 12,
            "temperature": 0,
            "stream": number % 2 == 0,
        }
        if number % 10 == 9:
            asked["model"] = "another"  # refused, and counted as such
        url = f"{self._url}/v1/chat/completions"
        with httpx.stream("POST", url, json=asked, headers=self._headers, timeout=120) as answer:
            for _ in answer.iter_bytes():
                if number % 17 == 16:
                    break  # the client goes away
        self.statuses[answer.status_code] += 1

    def _run(self, first: int) -> None:
        for number in itertools.count(first, 2):
            if self._stopped.is_set():
                return
            with contextlib.suppress(httpx.HTTPError):
                self._ask(number)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Ask while the block runs."""
        threads = [threading.Thread(target=self._run, args=(first,)) for first in range(2)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            for thread in threads:
                thread.join()


def data_url(path: Path, mark: int = 0) -> str:
    """A picture inside a request; with a mark, one that no cache knows."""
    data = path.read_bytes()
    if mark:
        with Image.open(path) as opened:
            picture = opened.convert("RGB")
        picture.putpixel((0, 0), (mark % 256, mark // 256 % 256, 7))
        fresh = io.BytesIO()
        picture.save(fresh, "PNG")
        data = fresh.getvalue()
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"

"""Questions about pictures, asked the way any user would: with the official OpenAI client."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import openai
from chiasm_cli import ask as ask_command
from chiasm_cli.errors import CliError

from chiasm_tour.console import TourError

PICTURES = Path(__file__).resolve().parent.parent / "pictures"


@dataclass(frozen=True)
class Question:
    """A picture, what is asked about it, and what a person sees there."""

    image: Path
    text: str
    answer: str | None


def sample_questions(limit: int) -> list[Question]:
    """`limit` sample questions, each of another kind and about another picture."""
    rows = json.loads((PICTURES / "questions.json").read_text())
    chosen: list[Question] = []
    kinds: set[str] = set()
    images: set[str] = set()
    for row in rows:
        if row["kind"] in kinds or row["picture"] in images:
            continue
        kinds.add(row["kind"])
        images.add(row["picture"])
        chosen.append(Question(PICTURES / row["picture"], row["text"], row["answer"]))
    return chosen[:limit]


def data_url(image: Path) -> str:
    """`image` as an address that carries it.

    Raises: TourError when it does not exist or is no picture.
    """
    try:
        return ask_command.data_url(image)
    except CliError as error:
        raise TourError(str(error)) from error


def ask(base_url: str, model: str, question: Question) -> str:
    """The model's answer to one question about one picture.

    Raises: TourError with the server's sentence when it refuses.
    """
    content = [
        {"type": "image_url", "image_url": {"url": data_url(question.image)}},
        {"type": "text", "text": question.text},
    ]
    with openai.OpenAI(base_url=f"{base_url}/v1", api_key="unused", max_retries=3) as client:
        try:
            answer = client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": content}],  # type: ignore[list-item,misc]
                temperature=0,
                max_tokens=64,
            )
        except openai.APIStatusError as error:
            body = error.body if isinstance(error.body, dict) else {}
            words = body.get("message", error.message)
            raise TourError(f"The server answered {error.status_code}: {words}") from error
        except openai.APIConnectionError as error:
            raise TourError(
                f"Nothing answers at {base_url}; run make demo first, or look at the pods."
            ) from error
    return (answer.choices[0].message.content or "").strip()

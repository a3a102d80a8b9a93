"""How long one part of a pod waits for another, and how often it asks again.

Each field is a variable of the sidecar, CHIASM_ and its name in capitals, with its unit at the end
of its name and a range that is safe: below it a busy peer looks dead, above it a dead one looks
busy. What a resource's spec says (time-outs of tiers, of whole requests) is not here.

Retries are bounded, and so is the time that they take: pauses double from the first to the longest,
and of each a random part is left out, so that many who lost the same peer do not come back as one
(full jitter: Brooker, "Exponential Backoff And Jitter", 2015).

Must not know: clocks, connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pydantic import BaseModel, ConfigDict, Field

VARIABLE_PREFIX = "CHIASM_"


class ClientSettings(BaseModel):
    """Waiting and asking again, for everything that the sidecar asks."""

    model_config = ConfigDict(frozen=True)

    worker_timeout_seconds: float = Field(
        default=5.0,
        ge=0.1,
        le=60,
        description="A question to the worker about its health, identity or metrics is given up "
        "after this long; an answer to a client may take config.requestTimeoutSeconds.",
    )
    worker_retries: int = Field(
        default=2,
        ge=0,
        le=10,
        description="A request that found no worker, or lost it before a byte of the answer, is "
        "sent again so often.",
    )
    peer_connect_timeout_seconds: float = Field(
        default=2.0,
        ge=0.1,
        le=30,
        description="A connection to a sidecar of another revision that takes longer is given up.",
    )
    peer_timeout_seconds: float = Field(
        default=2.0,
        ge=0.1,
        le=30,
        description="A word to another sidecar about conversations is given up after this long.",
    )
    peer_retries: int = Field(
        default=2,
        ge=0,
        le=10,
        description="A request that is handed to another revision, and lost before a byte of the "
        "answer, is sent again so often where no other revision could answer it.",
    )
    backoff_first_seconds: float = Field(
        default=0.05, ge=0.001, le=10, description="The longest first pause before asking again."
    )
    backoff_max_seconds: float = Field(
        default=1.0, ge=0.001, le=60, description="The longest pause of all."
    )
    backoff_jitter: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="The part of a pause that chance may leave out; 0 makes all wait alike.",
    )
    vault_timeout_seconds: float = Field(
        default=5.0,
        ge=0.5,
        le=60,
        description="An answer of the Vault or OpenBao that takes longer is given up.",
    )
    vault_backoff_first_seconds: float = Field(
        default=1.0,
        ge=0.1,
        le=60,
        description="The longest first pause before it is asked again; there is no last time.",
    )
    vault_backoff_max_seconds: float = Field(
        default=30.0, ge=1, le=600, description="The longest pause before it is asked again."
    )

    def pauses(self, retries: int, chance: Callable[[], float]) -> Iterator[float]:
        """Seconds before each further try; `chance` draws from 0 to 1."""
        for attempt in range(retries):
            longest = min(self.backoff_max_seconds, self.backoff_first_seconds * 2.0**attempt)
            yield longest * (1 - self.backoff_jitter * chance())


DEFAULTS = ClientSettings()


def variables() -> tuple[str, ...]:
    """The names of the variables."""
    return tuple(f"{VARIABLE_PREFIX}{name.upper()}" for name in ClientSettings.model_fields)

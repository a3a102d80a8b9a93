"""How often and how long: every pause and time-out of this folder. Seconds."""

from __future__ import annotations

from dataclasses import dataclass

from chiasm_contract.clients import ClientSettings


@dataclass(frozen=True)
class Pace:
    """Attributes:
    server_timeout: for one answer of the server.
    backoff_first: the longest first pause after a fault; each further one may be twice as long.
    backoff_max: the longest pause.
    jitter: the part of a pause that chance may take off, so that pods do not ask together.
    look: between looks at what is delivered, and at approvals.
    ask: between questions for a kv secret, of which the server says nothing by itself.
    check: between proofs of a lease in use, which somebody may have revoked.
    start: how long a start waits for first values.
    between_reloads: at least, whoever asks for them.
    reload: how long the answer to a reload waits for its look.
    end: how long an end waits for its leases to be revoked.
    """

    server_timeout: float = 5.0
    backoff_first: float = 1.0
    backoff_max: float = 30.0
    jitter: float = 0.1
    look: float = 2.0
    ask: float = 15.0
    check: float = 10.0
    start: float = 5.0
    between_reloads: float = 1.0
    reload: float = 20.0
    end: float = 10.0

    @classmethod
    def of(cls, clients: ClientSettings) -> Pace:
        """As the settings say how the server is asked."""
        return cls(
            server_timeout=clients.vault_timeout_seconds,
            backoff_first=clients.vault_backoff_first_seconds,
            backoff_max=clients.vault_backoff_max_seconds,
        )

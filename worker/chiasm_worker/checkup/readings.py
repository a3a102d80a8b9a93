"""What a checkup read, before anybody judges it.

Must not know: torch, engines, how anything was read.
"""

from __future__ import annotations

from dataclasses import dataclass

from chiasm_worker.checkup.books import Books
from chiasm_worker.checkup.drift import Drift


@dataclass(frozen=True, slots=True)
class Steps:
    """What was noted in the engine's steps.

    Attributes:
        num_faulty: steps in which attention was given something else than planned.
        shape_faults: what was wrong, in words; those of `visibility` too.
        num_misplaced: steps with positions that are not the model's own.
        visibility: in what tokens see others than they should; None: not asked.
        failure: why the looking on failed; None: it did not.
    """

    num_steps: int = 0
    num_tokens: int = 0
    num_faulty: int = 0
    shape_faults: tuple[str, ...] = ()
    num_misplaced: int = 0
    position_faults: tuple[str, ...] = ()
    visibility: tuple[str, ...] | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """What was compared.

    Attributes:
        differing: fields of the identity whose files say something else now, sorted.
        num_read: bytes of weights that were read anew, of `num_bytes`.
        fault: why files could not be read; None: they could.
    """

    differing: tuple[str, ...] = ()
    num_read: int = 0
    num_bytes: int = 0
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Readings:
    """All that was read of a worker. Instead of what could not be read stands why, in words.

    Attributes:
        stopped: by which broken rule the engine stopped, after which the books were read; None: it
            goes on.
    """

    steps: Steps
    books: tuple[Books, ...] | str
    drift: Drift | str
    stored: Stored | str
    broken_books: str | None = None
    stopped: str | None = None
    identity_faults: tuple[str, ...] = ()

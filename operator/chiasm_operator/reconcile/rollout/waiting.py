"""Steps wait while pods take up new configuration: no time passes for them meanwhile, and what was
counted then is of neither the old configuration nor the new one."""

from __future__ import annotations

from chiasm_contract import instants
from chiasm_contract.api.status import StatusRollout

_TIMES = ("step_began", "step_deadline", "next_look")


def waited(rollout: StatusRollout, *, waits: bool, now: int) -> tuple[StatusRollout, bool]:
    """The rollout with its times moved on, and whether it goes on in this moment: then counting
    begins anew."""
    since = rollout.held_since
    if waits:
        began = instants.to_text(now) if since is None else since
        return rollout.model_copy(update={"held_since": began}), False
    if since is None:
        return rollout, False
    seconds = max(0, now - instants.to_seconds(since))
    moved = {
        name: instants.to_text(instants.to_seconds(text) + seconds)
        for name in _TIMES
        if (text := getattr(rollout, name)) is not None
    }
    return rollout.model_copy(update={**moved, "held_since": None}), True

"""Every dashboard, in the order in which one looks at them."""

from __future__ import annotations

from chiasm_dashboards import cost, engine, kv_and_guard, overview, rollout, secrets
from chiasm_dashboards.board import Board

BOARDS: tuple[Board, ...] = (
    overview.BOARD,
    engine.BOARD,
    kv_and_guard.BOARD,
    rollout.BOARD,
    secrets.BOARD,
    cost.BOARD,
)

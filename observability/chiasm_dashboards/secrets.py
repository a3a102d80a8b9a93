"""Configuration and secrets: sources, leases, rotations. Names and ages, never values."""

from __future__ import annotations

from chiasm_dashboards.board import Board, Panel, Query, Row, per_second, pods

_SOURCES = Row(
    "Sources",
    (
        Panel(
            "Can be asked",
            "short",
            "0: the last good values stay in use.",
            (Query(pods("chiasm_config_source_up"), "{{pod}} {{source}}"),),
        ),
        Panel(
            "Offers that do not work",
            "short",
            "1 while a source offers a value that failed its proof, and so is not taken.",
            (Query(pods("chiasm_config_offer_refused"), "{{pod}} {{source}}"),),
        ),
        Panel(
            "Environment",
            "short",
            "Always 1; the legend says in which environment and revision a pod is.",
            (
                Query(
                    pods("chiasm_config_environment_info"),
                    "{{pod}} {{environment}} {{revision}}",
                ),
            ),
            kind="number",
        ),
    ),
)
_CHANGES = Row(
    "Changes",
    (
        Panel(
            "Life left of leases",
            "s",
            "If nothing renews them. A saw is health; a line that falls is not.",
            (Query(pods("chiasm_config_lease_seconds_left"), "{{pod}} {{source}}"),),
        ),
        Panel(
            "Leases to be revoked",
            "short",
            "Replaced, or not taken.",
            (Query(pods("chiasm_config_old_leases"), "{{pod}} {{source}}"),),
        ),
        Panel(
            "Rotations",
            "short",
            "Values an hour that took the place of others while pods served, or were refused.",
            (
                Query(
                    "sum by (source, outcome) "
                    f"(increase({pods('chiasm_config_rotations_total')}[1h]))",
                    "{{source}} {{outcome}}",
                ),
            ),
        ),
        Panel(
            "Requests to the server of secrets",
            "reqps",
            "By how they ended; anything but well is worth a look.",
            (Query(per_second("chiasm_config_server_requests_total", "outcome"), "{{outcome}}"),),
            kind="stacked",
        ),
        Panel(
            "Tenants' keys",
            "short",
            "Loads an hour because the keys had changed; refused: those from before stay.",
            (
                Query(
                    "sum by (outcome) "
                    f"(increase({pods('chiasm_sidecar_tenant_key_loads_total')}[1h]))",
                    "{{outcome}}",
                ),
            ),
        ),
    ),
)

BOARD = Board(
    "secrets",
    "Chiasm: configuration and secrets",
    "Sources, leases and rotations: names and ages, never values.",
    (_SOURCES, _CHANGES),
)

"""Two revisions beside each other, and the operator that leads from one to the other."""

from __future__ import annotations

from chiasm_dashboards.board import (
    RATE,
    Board,
    Panel,
    Query,
    Row,
    per_second,
    pods,
    quantile,
    resources,
    share,
    total,
)

_REQUESTS = "chiasm_traffic_requests_total"
_NEW = "chiasm_traffic_new_conversations_total"
_BY = "role, modality"

_SHARED = Row(
    "Who answers",
    (
        Panel(
            "Share that the plan gives",
            "percent",
            "Of new conversations.",
            (Query(resources("chiasm_operator_resource_weight_percent"), "{{resource}} {{role}}"),),
        ),
        Panel(
            "Share that the canary received",
            "percentunit",
            "Of new conversations, counted where clients arrived.",
            (Query(share(per_second(_NEW, more='role="canary"'), per_second(_NEW)), "canary"),),
        ),
        Panel(
            "Requests by revision",
            "reqps",
            "And by what they brought.",
            (Query(per_second(_REQUESTS, _BY), "{{role}} {{modality}}"),),
            kind="stacked",
        ),
        Panel(
            "Failed by revision",
            "percentunit",
            "Share of requests that failed or that another revision had to answer.",
            (
                Query(
                    share(
                        per_second(_REQUESTS, _BY, 'outcome=~"failed|rerouted"'),
                        per_second(_REQUESTS, _BY),
                    ),
                    "{{role}} {{modality}}",
                ),
            ),
        ),
        Panel(
            "First token by revision, 95 of 100",
            "s",
            "Whole answers only, where they were made.",
            (
                Query(
                    quantile(0.95, "chiasm_traffic_first_token_seconds", _BY),
                    "{{role}} {{modality}}",
                ),
            ),
        ),
        Panel(
            "Under way by revision",
            "short",
            "A revision goes only when nothing runs there any more.",
            (Query(total("chiasm_traffic_in_flight", "role"), "{{role}}"),),
        ),
        Panel(
            "Asked of both",
            "reqps",
            "Requests that the canary was asked too, only to compare.",
            (Query(per_second("chiasm_traffic_shadowed_total", "outcome"), "{{outcome}}"),),
        ),
        Panel(
            "Conversations that stay",
            "short",
            "Known with their revision, and a second told to other sidecars.",
            (
                Query(total("chiasm_traffic_pins"), "known"),
                Query(per_second("chiasm_traffic_pins_told_total", "outcome"), "{{outcome}}"),
            ),
        ),
        Panel(
            "Plan that is followed",
            "short",
            "Its number in each pod, and plans that were taken or refused.",
            (
                Query(pods("chiasm_traffic_plan_epoch"), "{{pod}}"),
                Query(per_second("chiasm_traffic_plan_loads_total", "outcome"), "{{outcome}}"),
            ),
        ),
    ),
)
_STEPS = Row(
    "Where it is",
    (
        Panel(
            "State",
            "short",
            "1 for what is being done about a new revision.",
            (
                Query(
                    f"{resources('chiasm_operator_resource_rollout_state')} > 0",
                    "{{resource}} {{state}}",
                ),
            ),
        ),
        Panel(
            "The present step",
            "s",
            "Since when it runs, since when it should have ended, and since when it waits for "
            "configuration.",
            (
                Query(resources("chiasm_operator_resource_step_age_seconds"), "{{resource}} runs"),
                Query(
                    resources("chiasm_operator_resource_step_overdue_seconds"),
                    "{{resource}} overdue",
                ),
                Query(resources("chiasm_operator_resource_held_seconds"), "{{resource}} held"),
            ),
        ),
        Panel(
            "Revisions",
            "short",
            "Always 1; the legend says which revision has which role.",
            (
                Query(
                    resources("chiasm_operator_resource_revision_info"),
                    "{{resource}} {{role}} {{revision}}",
                ),
            ),
            kind="number",
        ),
        Panel(
            "Conditions",
            "short",
            "1 true, 0 false, -1 unknown.",
            (Query(resources("chiasm_operator_resource_condition"), "{{resource}} {{condition}}"),),
            lowest=-1,
        ),
        Panel(
            "Pods",
            "short",
            "Of all revisions, and of the present one.",
            (Query(resources("chiasm_operator_resource_replicas"), "{{resource}} {{state}}"),),
        ),
    ),
)
_OPERATOR = Row(
    "The operator",
    (
        Panel(
            "Leaders and resources",
            "short",
            "One process leads; the sum is 1.",
            (
                Query("sum(chiasm_operator_leader)", "leaders"),
                Query("sum(chiasm_operator_resources)", "resources"),
            ),
        ),
        Panel(
            "Passes",
            "short",
            "Per second by how they ended.",
            (
                Query(
                    f"sum by (outcome) (rate(chiasm_operator_passes_total[{RATE}]))", "{{outcome}}"
                ),
            ),
            kind="stacked",
        ),
        Panel(
            "Time of a pass, 95 of 100",
            "s",
            "Mostly that of the API server and of pods that are asked for their state.",
            (
                Query(
                    "histogram_quantile(0.95, sum by (le) "
                    f"(rate(chiasm_operator_pass_seconds_bucket[{RATE}])))",
                    "pass",
                ),
            ),
        ),
        Panel(
            "Silence",
            "s",
            "Since a watch told of anything, and since everything was listed.",
            (
                Query("chiasm_operator_event_age_seconds", "watch, {{pod}}"),
                Query("chiasm_operator_sweep_age_seconds", "list, {{pod}}"),
            ),
        ),
    ),
)

BOARD = Board(
    "rollout",
    "Chiasm: roll-out",
    "Two revisions beside each other, and the operator that leads from one to the other.",
    (_SHARED, _STEPS, _OPERATOR),
)

"""`spec.gateway`: an HTTPRoute of the resource's own, for clients outside the cluster.

What the fields do is in docs/gateway.md. Must not know: how a route is written.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from chiasm_contract.api.fields import ApiModel, DnsName, rule, rules

MAX_PARENTS = 8

NamespaceName = Annotated[
    str, StringConstraints(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
]
Hostname = Annotated[
    str,
    StringConstraints(
        max_length=253,
        pattern=r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    ),
]


class ParentRef(ApiModel):
    """A Gateway that is to route to this resource."""

    name: DnsName = Field(description="Name of the Gateway.")
    namespace: NamespaceName | None = Field(
        default=None,
        description="Its namespace; that of the resource when absent. A listener takes routes of "
        "another namespace only where its allowedRoutes say so.",
    )
    section_name: DnsName | None = Field(
        default=None, description="One listener of it; all of them when absent."
    )


_SAME_GATEWAY = (
    "a.name == b.name && (has(a.__namespace__) ? a.__namespace__ : '') == "
    "(has(b.__namespace__) ? b.__namespace__ : '')"
)
_EACH_ONCE = rule(
    f"self.all(a, self.filter(b, {_SAME_GATEWAY} && (!has(a.sectionName) || "
    "!has(b.sectionName) || a.sectionName == b.sectionName)).size() == 1)",
    "each Gateway, or each sectionName of one, may be named once",
)


class Gateway(ApiModel):
    """An HTTPRoute named like the resource (Gateway API), for clients outside the cluster."""

    parent_refs: list[ParentRef] = Field(
        min_length=1,
        max_length=MAX_PARENTS,
        description="The Gateways that route to this resource.",
        json_schema_extra=rules(_EACH_ONCE),
    )
    hostnames: list[Hostname] = Field(
        default_factory=list,
        max_length=16,
        description="Names by which clients ask, such as reader.example.com or *.example.com; "
        "empty takes every name of the listeners.",
    )
    split: Literal["sidecars", "gateway"] = Field(
        default="sidecars",
        description="Who divides during a rollout. sidecars: exactly, by conversation, and "
        "the stable revision answers for a canary that fails. gateway: by weights in the route, "
        "each request by chance.",
    )

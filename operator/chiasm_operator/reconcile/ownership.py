"""Whose object is it? Server-side apply with force would take over anybody's."""

from __future__ import annotations

from enum import Enum, auto

from chiasm_contract import names

from chiasm_operator.resource import Manifest, Resource


class Owner(Enum):
    """The relation of a live object to a resource."""

    OURS = auto()
    ADOPTABLE = auto()  # carries our labels and has no owner: it was orphaned on purpose
    LEFTOVER = auto()  # of a deleted resource with the same name; garbage collection takes it
    FOREIGN = auto()


def owner(live: Manifest, resource: Resource) -> Owner:
    """Whose `live` is."""
    metadata = live["metadata"]
    controller = next(
        (item for item in metadata.get("ownerReferences", ()) if item.get("controller")), None
    )
    if controller is None:
        labels = metadata.get("labels", {})
        ours = (
            labels.get(names.LABEL_OWNER) == resource.name
            and labels.get(names.LABEL_MANAGED_BY) == names.FIELD_MANAGER
        )
        return Owner.ADOPTABLE if ours else Owner.FOREIGN
    if controller["uid"] == resource.uid:
        return Owner.OURS
    same_name = (controller["kind"], controller["name"]) == (names.KIND, resource.name)
    return Owner.LEFTOVER if same_name else Owner.FOREIGN

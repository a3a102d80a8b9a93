"""What the watches have told: every resource, child and pod, found by whose it is, without a call.

Three hands write here: the watches, the answers to our own writes (so that a pass never misses what
the one before it did), and a list taken now and then, which is believed in everything that is not
newer. Versions decide: an older word about an object never replaces a newer one, and what is gone
stays gone until a newer version of it is seen.

Must not know: Kubernetes clients, kopf, clocks, what the objects mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from chiasm_contract import names

from chiasm_operator.resource import Manifest

Name = tuple[str, str, str]  # kind, namespace, name
Key = tuple[str, str]  # namespace and name of a resource

_MAX_TOMBSTONES = 10_000


def version_of(manifest: Manifest) -> int:
    """Its version as a number; Kubernetes promises since 1.35 that these can be compared."""
    return int(manifest["metadata"].get("resourceVersion") or 0)


class Index:
    """Objects by kind, namespace and name, and by owner."""

    def __init__(self) -> None:
        self._objects: dict[Name, Manifest] = {}
        self._by_owner: dict[Key, dict[Name, Manifest]] = {}
        self._gone: dict[Name, int] = {}

    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """One object, as far as is known."""
        return self._objects.get((kind, namespace, name))

    def owned(self, namespace: str, owner: str) -> Iterator[Manifest]:
        """Every child and pod that carries the owner's label."""
        yield from self._by_owner.get((namespace, owner), {}).values()

    def keys(self, kind: str) -> list[Key]:
        """Namespace and name of every object of a kind."""
        return [(each[1], each[2]) for each in self._objects if each[0] == kind]

    def put(self, kind: str, manifest: Manifest) -> bool:
        """Take in what was told of an object; whether that was news."""
        name = _name(kind, manifest)
        version = version_of(manifest)
        known = self._objects.get(name)
        if known is not None and version_of(known) >= version:
            return False
        if self._gone.get(name, -1) >= version:
            return False
        self._gone.pop(name, None)
        self._forget(name)
        self._objects[name] = manifest
        owner = _owner(manifest)
        if owner is not None:
            self._by_owner.setdefault((name[1], owner), {})[name] = manifest
        return True

    def drop(self, kind: str, manifest: Manifest) -> bool:
        """Take in that an object is gone, which was last like this; whether that was news."""
        name = _name(kind, manifest)
        version = version_of(manifest)
        known = self._objects.get(name)
        if known is not None and version_of(known) > version:
            return False  # it has been made again since
        self._gone[name] = max(version, self._gone.get(name, 0))
        if len(self._gone) > _MAX_TOMBSTONES:
            del self._gone[next(iter(self._gone))]
        self._forget(name)
        return known is not None

    def replace(self, kind: str, listed: Iterable[Manifest], version: int) -> set[Key]:
        """Take in a list of every object of a kind as of `version`.

        The resources that it has news about: what no watch has told, or not yet.
        """
        news: set[Key] = set()
        found: set[Name] = set()
        for manifest in listed:
            name = _name(kind, manifest)
            found.add(name)
            before = self._objects.get(name)
            if self.put(kind, manifest):
                news |= {whose(kind, each) for each in (before, manifest) if each is not None}
        for name, known in list(self._objects.items()):
            if name[0] == kind and name not in found and version_of(known) <= version:
                self._forget(name)
                news.add(whose(kind, known))
        for name, gone in list(self._gone.items()):
            if name[0] == kind and gone <= version:
                del self._gone[name]
        return news

    def _forget(self, name: Name) -> None:
        known = self._objects.pop(name, None)
        owner = _owner(known) if known is not None else None
        if owner is not None:
            owned = self._by_owner.get((name[1], owner), {})
            owned.pop(name, None)
            if not owned:
                self._by_owner.pop((name[1], owner), None)


def _name(kind: str, manifest: Manifest) -> Name:
    metadata = manifest["metadata"]
    return kind, metadata["namespace"], metadata["name"]


def _owner(manifest: Manifest) -> str | None:
    labels: dict[str, Any] = manifest["metadata"].get("labels") or {}
    return labels.get(names.LABEL_OWNER)


def whose(kind: str, manifest: Manifest) -> Key:
    """The resource that an object is, or belongs to by its label."""
    metadata = manifest["metadata"]
    own = metadata["name"] if kind == names.KIND else _owner(manifest)
    return metadata["namespace"], own or metadata["name"]

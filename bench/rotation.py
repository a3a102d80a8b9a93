"""What it costs clients when secrets change, and what they lose when the server of secrets is ill.

On a local cluster of its own, with a real OpenBao (Kubernetes auth against the cluster's API
server), a real Valkey whose users OpenBao makes, the installed chart and the demo's own workers,
clients with an API key ask without a pause. Then, one after the other:

- `rotations`: a value of each kind changes. `kv`: another API key, which clients then use;
  `database`: new leases for all pods, asked for by annotation (they rotate by themselves too, each
  after two thirds of a minute); `secret`: a Secret that pods mount; `restart`: a ConfigMap whose
  value is a variable. `seconds`: from the change to the moment at which the last pod says that it
  uses it.
- `failures`: the server is sealed, killed, stopped; it refuses pods; tokens and leases are revoked.
  `told`: the conditions that said so, the first after `seconds_to_tell`; the failure lasts for a
  while longer. `seconds_to_recover`: from its end until the status says that everything is well.
  What is revoked pods replace by themselves: from the revocation until all have another lease.

`non_2xx` and each `lost` count every answer other than 200 and every one that did not come.
`old_leases_left`: leases and users of Valkey beyond one for each pod, when all is quiet.
`leaked_secrets`: secrets that were in use at any time, found in logs, objects, events, descriptions
or on open ports. A container of which only an older log is left is read too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import redis
import uvloop
from canaries.proxy import api_proxy
from canaries.watching import Watch, watching
from chiasm_contract import names
from chiasm_contract.configuration import SourceReport
from chiasm_tour import tour
from chiasm_tour.clusters import LocalCluster
from reporting import publish
from rotating import leaks, site
from rotating.load import Clients

_ILL_SECONDS = 20
_LIMIT_SECONDS = 300

Act = Callable[[], Awaitable[None] | None]


class Trial:
    """One resource under load."""

    def __init__(self, stand: site.Stand, watch: Watch, clients: Clients) -> None:
        self.stand = stand
        self.watch = watch
        self.clients = clients
        self.markers = leaks.Markers()
        self.markers.add("the first API key", stand.key)
        self.markers.add("Valkey's administrator", stand.vault.valkey_password)

    # --- what there is ---

    def pods(self) -> dict[str, str]:
        """Names and addresses of the pods that serve."""
        return {pod.name: pod.address for pod in self.watch.stable_pods()}

    def reports(self, source: str) -> list[SourceReport]:
        """What each of them says of a source; fewer where one has not answered."""
        said = [self.watch.states.get(pod) for pod in self.pods()]
        return [
            each
            for state in said
            if state is not None
            for each in state.configuration.sources
            if each.name == source
        ]

    def all_use(self, source: str, wanted: Callable[[SourceReport], bool]) -> bool:
        """Whether every pod says something of a source that is so."""
        reports = self.reports(source)
        return len(reports) == len(self.pods()) > 0 and all(map(wanted, reports))

    def well(self) -> bool:
        """Whether the status says so of everything."""
        kinds = ("Ready", "ConfigSynced", "SecretLeaseHealthy")
        return all(self.watch.condition(kind).get("status") == "True" for kind in kinds)

    async def begin(self) -> None:
        """The resource, ready."""
        await asyncio.to_thread(self.stand.apply, site.manifest("direct"))
        await self.watch.until(self.well, "the resource", 600)
        await self._collect()

    async def _collect(self) -> None:
        await asyncio.to_thread(self.markers.collect, self.stand.cluster, [*self.pods()])

    # --- rotations ---

    async def rotations(self) -> dict[str, dict[str, Any]]:
        """The figures of each kind."""
        found = {}
        for kind, rotate in {
            "kv": self._kv, "database": self._database, "secret": self._secret,
            "restart": self._restart,
        }.items():  # fmt: skip
            before = self.clients.asked.lost, self.clients.asked.requests
            seconds = await rotate()
            await self.watch.until(self.well, f"the end of a rotation of {kind}")
            await self._collect()
            asked = self.clients.asked
            found[kind] = {
                "seconds": round(seconds, 1),
                "requests": asked.requests - before[1],
                "non_2xx": asked.lost - before[0],
            }
            print(f"{kind}: {json.dumps(found[kind])}", flush=True)
        return found

    async def _kv(self) -> float:
        key = site.new_key()
        self.markers.add("another API key", key)
        began = time.monotonic()
        version = await asyncio.to_thread(self.stand.put_tenants, self.clients.key, key)
        both = await self._until_used("tenants", version)
        self.clients.key = key
        await asyncio.sleep(2)  # requests with the old one end
        version = await asyncio.to_thread(self.stand.put_tenants, key)
        await self._until_used("tenants", version)
        return both - began

    async def _until_used(self, source: str, version: int) -> float:
        def used() -> bool:
            return self.all_use(source, lambda each: str(each.id).startswith(f"v{version}-"))

        return await self.watch.until(used, f"version {version} of {source}", _LIMIT_SECONDS)

    async def _database(self) -> float:
        asked = f"bench-{time.time_ns()}"
        began = time.monotonic()
        await self._annotate(f"{names.ANNOTATION_RELOAD_CONFIG}={asked}")

        def followed() -> bool:
            states = [self.watch.states.get(pod) for pod in self.pods()]
            said = [state.configuration.asked if state else None for state in states]
            return bool(said) and set(said) == {asked}

        followed_at = await self.watch.until(followed, "new leases", _LIMIT_SECONDS)
        ended = lambda: self.all_use("store", lambda each: each.old_leases == 0)  # noqa: E731
        await self.watch.until(ended, "the end of the old leases", _LIMIT_SECONDS)
        return followed_at - began

    async def _secret(self) -> float:
        before = {each.id for each in self.reports("peers")}
        began = time.monotonic()
        await asyncio.to_thread(self.stand.put_secret, "peers", secret=site.new_key() * 2)
        changed = lambda: self.all_use("peers", lambda each: each.id not in before)  # noqa: E731
        return await self.watch.until(changed, "another Secret", _LIMIT_SECONDS) - began

    async def _restart(self) -> float:
        before = set(self.pods())
        began = time.monotonic()
        await asyncio.to_thread(self.stand.put_settings, "DEBUG")

        def replaced() -> bool:
            return not before & set(self.watch.pods) and self.all_use("settings", _has_id)

        return await self.watch.until(replaced, "other pods", _LIMIT_SECONDS) - began

    async def _annotate(self, *words: str) -> None:
        await asyncio.to_thread(
            self.stand.cluster.kubectl, "annotate", "mmi", site.NAME, "--overwrite", *words
        )

    # --- failures ---

    async def failures(self) -> dict[str, dict[str, Any]]:
        """The figures of each failure."""
        server, stand = self.stand.vault.server, self.stand
        nothing = 'path "secret/data/nothing" { capabilities = ["read"] }'

        async def forbidden() -> None:
            await asyncio.to_thread(stand.admit, nothing)
            await self._annotate(f"{names.ANNOTATION_RELOAD_CONFIG}=forbidden-{time.time_ns()}")

        def seal() -> Awaitable[None]:
            return asyncio.to_thread(server.seal)

        def kill() -> Awaitable[None]:
            return asyncio.to_thread(stand.kill_vault)

        def signal(name: str) -> Awaitable[None]:
            return asyncio.to_thread(stand.signal_vault, name)

        def revoke(prefix: str) -> Awaitable[None]:
            return asyncio.to_thread(server.client.sys.revoke_prefix, prefix)

        return {
            "sealed": await self._told_failure("sealed", seal, server.unseal),
            "killed": await self._told_failure("killed", kill, server.unseal),
            "does_not_answer": await self._told_failure(
                "does_not_answer", lambda: signal("STOP"), lambda: stand.signal_vault("CONT")
            ),
            "policy_removed": await self._told_failure("policy_removed", forbidden, stand.admit),
            "leases_revoked": await self._healing_failure(
                "leases_revoked", lambda: revoke("database/creds/store")
            ),
            "tokens_revoked": await self._healing_failure(
                "tokens_revoked", lambda: revoke("auth/kubernetes/login")
            ),
        }

    async def _told_failure(
        self, name: str, begin: Callable[[], Awaitable[None]], end: Callable[[], Any]
    ) -> dict[str, Any]:
        """One that lasts until somebody mends it: told, then some time longer, then ended."""
        async with self._losses(name) as figures, self._told() as told:
            await begin()
            began = time.monotonic()
            ill = await self.watch.until(lambda: not self.well(), f"word of {name}", _LIMIT_SECONDS)
            await asyncio.sleep(_ILL_SECONDS)
            ended = time.monotonic()
            await asyncio.to_thread(end)
            recovered = await self.watch.until(self.well, f"recovery from {name}", _LIMIT_SECONDS)
            figures |= {
                "told": sorted(told),
                "seconds_to_tell": round(ill - began, 1),
                "seconds_to_recover": round(recovered - ended, 1),
            }
        return figures

    async def _healing_failure(
        self, name: str, begin: Callable[[], Awaitable[None]]
    ) -> dict[str, Any]:
        """One that pods mend by themselves: until each has another lease."""
        async with self._losses(name) as figures, self._told() as told:
            began = time.monotonic()
            dead = {each.id for each in self.reports("store")}
            await begin()

            def healed() -> bool:
                others = self.all_use("store", lambda each: each.id not in dead)
                return others and self.well()

            recovered = await self.watch.until(healed, f"recovery from {name}", _LIMIT_SECONDS)
            figures |= {"told": sorted(told), "seconds_to_recover": round(recovered - began, 1)}
        return figures

    @contextlib.asynccontextmanager
    async def _losses(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """What clients lost while the block ran."""
        lost, requests = self.clients.asked.lost, self.clients.asked.requests
        figures: dict[str, Any] = {}
        yield figures
        await self._collect()
        figures["requests"] = self.clients.asked.requests - requests
        figures["lost"] = self.clients.asked.lost - lost
        print(f"{name}: {json.dumps(figures)}", flush=True)

    @contextlib.asynccontextmanager
    async def _told(self) -> AsyncIterator[set[str]]:
        """What conditions of configuration said while the block ran."""
        told: set[str] = set()

        async def listen() -> None:
            while True:
                for kind in ("ConfigSynced", "SecretLeaseHealthy"):
                    found = self.watch.condition(kind)
                    if found.get("status") == "False":
                        told.add(f"{kind}: {found['reason']}")
                await asyncio.sleep(0.2)

        task = asyncio.create_task(listen())
        try:
            yield told
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # --- what is left ---

    async def old_leases(self) -> int:
        """Leases and users beyond one for each pod, once nothing rotates."""

        def beyond() -> int:
            wanted = len(self.pods())
            leases = len(self.stand.vault.server.leases("database/creds/store"))
            client = redis.Redis(
                host=self.stand.vault.valkey_address, password=self.stand.vault.valkey_password
            )
            users = len(client.acl_users()) - 1  # the administrator
            client.close()
            return max(leases - wanted, 0) + max(users - wanted, 0)

        left = 0
        for _ in range(60):  # some pod may be changing over just now
            left = await asyncio.to_thread(beyond)
            if not left:
                return 0
            await asyncio.sleep(1)
        return left

    async def leaked(self) -> list[str]:
        """Where a secret is that must not be there."""
        await self._collect()
        texts = lambda: leaks.found(  # noqa: E731
            self.markers, leaks.written(self.stand.cluster, self.pods())
        )
        return await asyncio.to_thread(texts)


def _has_id(report: SourceReport) -> bool:
    return report.id is not None


async def measured(stand: site.Stand, server: str, options: argparse.Namespace) -> dict[str, Any]:
    """All figures."""
    async with watching(server, site.NAME) as watch:
        trial = Trial(stand, watch, Clients("", site.NAME, stand.key))
        await trial.begin()
        with stand.cluster.endpoint(tour.NAMESPACE, site.NAME, names.API_PORT) as url:
            trial.clients.url = url
            async with trial.clients.asking(options.clients) as asked:
                rotations = await trial.rotations()
                failures = {} if options.without_failures else await trial.failures()
        leaked = await trial.leaked()
        return {
            "rotations": rotations,
            "failures": failures,
            "requests": asked.requests,
            "non_2xx": asked.lost,
            "words_of_what_was_lost": asked.words,
            "slowest_answer_seconds": round(asked.slowest_seconds, 2),
            "slowest_acknowledgement_seconds": max(each["seconds"] for each in rotations.values()),
            "lost_in_failures": sum(each["lost"] for each in failures.values()),
            "old_leases_left": await trial.old_leases(),
            "secrets_looked_for": len(trial.markers.values),
            "leaked_secrets": len(leaked),
            "leaks": leaked[:20],
        }


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=2, help="that ask at the same time")
    parser.add_argument("--name", default="chiasm-rotation", help="of the cluster")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    parser.add_argument("--without-failures", action="store_true", help="only rotations")
    return parser.parse_args(words)


def main() -> None:
    options = arguments()
    cluster = LocalCluster(options.name)
    try:
        stand = site.bring_up(options.name)
        with api_proxy(cluster) as server:
            found = uvloop.run(measured(stand, server, options))
    finally:
        if not options.keep:
            cluster.down()
    if not options.without_failures:
        publish("rotation", found)
    else:
        print(json.dumps(found))


if __name__ == "__main__":
    main()

"""What a bad canary costs: how soon nobody is sent to it, and what clients lose until then.

On a local cluster of its own, with the installed chart and two replicas whose workers are stand-ins
(bench/stand_ins/faulty_worker.py), a client asks at a steady pace and repeats nothing. Each fault
comes as a user would bring it: another spec, `rollout.steps` with a mirror, a weight and an
analysis. Nothing is done by hand after that but in `by_hand`, where a sound canary is aborted by
annotation.

For each fault:

- `seconds_visible_to_zero`: from the first answer of the canary that a sidecar counts as failed.
  Faults that only a comparison can see (slow, wrong) have no such answer, and no such figure.
- `seconds_to_zero`: from the moment at which the decision to take it back is in the status, to the
  moment at which the sidecar of every pod that clients reach follows a plan without the canary's
  share. `by_hand`: from the start of the kubectl command that annotates.
- `requests_lost`: answers other than 200, or not whole. `streams_cut`: streams that ended behind
  their first bytes; nobody can take those back.
- `stable_untouched`: the same pods of the stable revision, none restarted, and they answer on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from canaries import image
from canaries.asking import Client, Counted
from canaries.proxy import api_proxy
from canaries.watching import Watch, watching
from chiasm_cluster.settings import Settings
from chiasm_contract import names
from chiasm_tour import tour
from chiasm_tour.clusters import IMAGES, LocalCluster
from reporting import publish
from stand_ins.faulty_worker import Fault

NAME = "reader"
FAULTS = (
    Fault.BY_HAND, Fault.PICTURES, Fault.CRASHING, Fault.CRASHING_IN_ANSWERS, Fault.SLOW,
    Fault.WRONG,
)  # fmt: skip
# Only a comparison sees these.
BY_VERDICT = (Fault.SLOW, Fault.WRONG)
_LATER_SECONDS = 5  # asked on behind the abort: the stable side goes on


@dataclass(frozen=True)
class StandInCluster(LocalCluster):
    """A local cluster whose workers are stand-ins."""

    worker_digest: str = ""

    def load(self) -> None:
        """Only what runs on it."""
        command = self._command("load", "--name", self.name, "operator", "sidecar")
        subprocess.run(command, check=True)

    def load_archive(self, path: Path) -> None:
        """Bring an archive to its node."""
        subprocess.run(self._command("load", "--name", self.name, str(path)), check=True)

    def chart_values(self) -> list[str]:
        """The stand-in in place of the worker."""
        digests = json.loads(
            subprocess.run(
                self._command("images", "--name", self.name),
                check=True, capture_output=True, text=True,
            ).stdout
        )  # fmt: skip
        digests["worker"] = self.worker_digest
        pairs = {f"images.{part}.digest": digests[part] for part in IMAGES}
        pairs["images.worker.repository"] = image.REPOSITORY
        return [word for key, value in pairs.items() for word in ("--set", f"{key}={value}")]


def manifest(fault: Fault, *, steps: bool) -> dict[str, Any]:
    """The resource; without steps for its first revision."""
    analysis = {
        "intervalSeconds": 2, "minSamples": 20, "failureLimit": 1, "minAgreementPercent": 95,
    }  # fmt: skip
    little = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    rollout = {
        "analysis": analysis,
        "abort": {"scaleDownDelaySeconds": 0},
        "drainSeconds": 2,
        "steps": [
            {"mirror": {"percent": 100}},
            {"setWeight": 25},
            {"analysis": {"seconds": 120}},
        ] if steps else [],
    }  # fmt: skip
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": NAME},
        "spec": {
            "model": {"source": {"builtin": "demo"}},
            "replicas": 2,
            "engine": {"maxNumSeqs": fault.value},
            "resources": {**little, "sidecar": little},
            "rollout": rollout,
        },
    }


class Trial:
    """One cluster, one resource, one fault after the other."""

    def __init__(self, cluster: StandInCluster, watch: Watch, per_second: float) -> None:
        self._cluster = cluster
        self._watch = watch
        self._per_second = per_second

    async def _apply(self, fault: Fault, *, steps: bool) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(manifest(fault, steps=steps), file)
            file.flush()
            await asyncio.to_thread(self._cluster.kubectl, "apply", "-f", file.name)

    async def begin(self) -> None:
        """The stable revision, which stays."""
        await self._apply(Fault.SOUND, steps=False)
        ready = lambda: self._watch.condition("Ready").get("status") == "True"  # noqa: E731
        await self._watch.until(ready, "the first revision", 600)

    async def fault(self, fault: Fault, url: str, limit_seconds: float) -> dict[str, Any]:
        """The figures of one canary."""
        watch, before = self._watch, {pod.name: pod.restarts for pod in self._watch.stable_pods()}
        client = Client(url, NAME, self._per_second)
        async with client.asking() as counted:
            began = time.monotonic()
            await self._apply(fault, steps=True)
            await watch.until(lambda: self._share() > 0, "the canary's share", 600)
            canary: str = watch.rollout["canaryRevision"]
            shared = time.monotonic()
            ended = await self._ended(canary, fault, limit_seconds)
            if ended is None:
                figures: dict[str, Any] = {"found": False}
                await self._kubectl(
                    "annotate", "mmi", NAME, "--overwrite",
                    f"{names.ANNOTATION_ROLLOUT_ACTION}=abort:{canary}",
                )  # fmt: skip
                await watch.until(lambda: self._is_at_zero(canary), "the end of the share")
            else:
                visible, decided = ended
                zero = await watch.until(lambda: self._is_at_zero(canary), "the end of the share")
                figures = {
                    "found": True,
                    "seconds_to_zero": round(max(0.0, zero - decided), 2),
                }
                if visible is not None:
                    figures["seconds_visible_to_zero"] = round(zero - visible, 2)
            figures["seconds_with_share"] = round(time.monotonic() - shared, 1)
            figures["seconds_to_share"] = round(shared - began, 1)
            figures["reason"] = str(watch.rollout.get("abortMessage") or "")[:200]
            answered = _by_others(counted, canary)
            await asyncio.sleep(_LATER_SECONDS)
            goes_on = _by_others(counted, canary) > answered
        await watch.until(
            lambda: all(pod.revision != canary for pod in watch.pods.values()), "the canary's end"
        )
        after = {pod.name: pod.restarts for pod in watch.stable_pods()}
        return {**figures, **self._lost(counted, canary), "stable_untouched": before == after,
                "stable_answers_on": goes_on}  # fmt: skip

    async def _ended(
        self, canary: str, fault: Fault, limit_seconds: float
    ) -> tuple[float | None, float] | None:
        """When an answer had failed, if any had to, and when the abort was decided; None: never."""
        watch = self._watch
        aborted = lambda: watch.rollout.get("abortedRevision") == canary  # noqa: E731
        if fault is Fault.BY_HAND:
            await asyncio.sleep(_LATER_SECONDS)
            at = time.monotonic()
            await self._kubectl(
                "annotate", "mmi", NAME, "--overwrite",
                f"{names.ANNOTATION_ROLLOUT_ACTION}=abort:{canary}",
            )  # fmt: skip
            return None, at
        seen = lambda: watch.counted(canary, "errors") > 0  # noqa: E731
        try:
            visible = None
            if fault not in BY_VERDICT:
                visible = await watch.until(seen, "a failed answer", limit_seconds)
            decided = await watch.until(aborted, "the abort", limit_seconds)
        except TimeoutError:
            return None
        return visible, decided

    def _share(self) -> float:
        """The canary's, where every sidecar follows it."""
        followed = self._follows(int(self._watch.rollout.get("epoch", 0)))
        return float(self._watch.rollout.get("weight") or 0) if followed else 0.0

    def _follows(self, epoch: int) -> bool:
        states = [self._watch.states.get(pod.name) for pod in self._watch.stable_pods()]
        return bool(states) and all(
            state is not None and state.traffic.epoch >= epoch for state in states
        )

    def _is_at_zero(self, canary: str) -> bool:
        """Whether the sidecars that clients reach follow a plan in which it has nothing."""
        rollout = self._watch.rollout
        gone = rollout.get("abortedRevision") == canary and float(rollout.get("weight") or 0) == 0
        return gone and self._follows(int(rollout["epoch"]))

    async def _kubectl(self, *arguments: str) -> None:
        await asyncio.to_thread(self._cluster.kubectl, *arguments)

    def _lost(self, counted: Counted, canary: str) -> dict[str, Any]:
        return {
            "requests": counted.asked,
            "answered_by_canary": counted.by_revision.get(canary, 0),
            "requests_lost": counted.lost,
            "streams_cut": counted.cut,
            "slowest_answer_seconds": round(counted.slowest_seconds, 2),
            "words_of_what_was_lost": counted.words,
        }


def _by_others(counted: Counted, canary: str) -> int:
    """Whole answers that were not the canary's."""
    return sum(number for revision, number in counted.by_revision.items() if revision != canary)


async def measured(
    cluster: StandInCluster, server: str, faults: tuple[Fault, ...], options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """The figures of each fault."""
    found: dict[str, dict[str, Any]] = {}
    async with watching(server, NAME) as watch:
        trial = Trial(cluster, watch, options.per_second)
        await trial.begin()
        with cluster.endpoint(tour.NAMESPACE, NAME, names.API_PORT) as url:
            for fault in faults:
                label = fault.name.lower()
                found[label] = await trial.fault(fault, url, options.limit_seconds)
                print(f"{label}: {json.dumps(found[label])}", flush=True)
    return found


def bring_up(name: str, folder: Path) -> StandInCluster:
    """The cluster with the chart and the stand-in's image."""
    plain = StandInCluster(name)
    plain.up()
    plain.load()
    archive, digest = image.write(folder, Settings().cache_dir)
    plain.load_archive(archive)
    archive.unlink()
    cluster = StandInCluster(name, digest)
    tour.install(cluster)
    return cluster


def summary(found: dict[str, dict[str, Any]], per_second: float) -> dict[str, Any]:
    """The figures of all faults together; by hand stands aside, for it holds a whole command."""
    faults = {name: each for name, each in found.items() if name != Fault.BY_HAND.name.lower()}
    by_hand = found.get(Fault.BY_HAND.name.lower(), {})
    return {
        "seconds_to_zero": _longest(faults, "seconds_to_zero"),
        "seconds_visible_to_zero": _longest(faults, "seconds_visible_to_zero"),
        "seconds_to_zero_by_hand": by_hand.get("seconds_to_zero"),
        "requests_lost": sum(each["requests_lost"] for each in found.values()),
        "streams_cut": sum(each["streams_cut"] for each in found.values()),
        "requests": sum(each["requests"] for each in found.values()),
        "requests_per_second": per_second,
        "stable_untouched": all(each["stable_untouched"] for each in found.values()),
        "not_found": [name for name, each in faults.items() if not each["found"]],
        "by_fault": found,
    }


def _longest(faults: dict[str, dict[str, Any]], figure: str) -> float | None:
    return max((each[figure] for each in faults.values() if figure in each), default=None)


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--per-second", type=float, default=6, help="requests")
    parser.add_argument("--limit-seconds", type=float, default=150, help="for a fault to be found")
    parser.add_argument("--name", default="chiasm-canary", help="of the cluster")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    parser.add_argument("--only", nargs="*", choices=[fault.name for fault in FAULTS])
    return parser.parse_args(words)


def main() -> None:
    options = arguments()
    faults = tuple(fault for fault in FAULTS if not options.only or fault.name in options.only)
    with tempfile.TemporaryDirectory(prefix="chiasm-bench-") as folder:
        try:
            cluster = bring_up(options.name, Path(folder))
            with api_proxy(cluster) as server:
                found = uvloop.run(measured(cluster, server, faults, options))
        finally:
            if not options.keep:
                LocalCluster(options.name).down()
    if options.only:
        return
    publish("canary_abort", summary(found, options.per_second))


if __name__ == "__main__":
    main()

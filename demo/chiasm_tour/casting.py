"""Records what a terminal shows of a promotion and an abort: `python -m chiasm_tour.casting`.

Every line of the recording is what a command printed at that moment on the cluster; waiting
is shortened by the player (`idle_time_limit`), never by us. Writes docs/rollout.cast (asciicast,
version 2) and the same text as docs/rollout-cast.md.

Must not know: what the commands mean; each scene is a line that is typed or a state waited for.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from chiasm_tour import tour
from chiasm_tour.clusters import LocalCluster
from chiasm_tour.console import TourError

DOCS = tour.ROOT / "docs"
NAME = tour.RESOURCE
_WIDTH, _HEIGHT = 118, 32
_WAIT_SECONDS = 600
_PODS = "-o custom-columns=POD:.metadata.name,READY:.status.containerStatuses[*].ready"


@dataclass(frozen=True)
class Typed:
    """A command, with what a viewer should know first."""

    line: str
    why: str = ""


@dataclass(frozen=True)
class Until:
    """Nothing is shown until the rollout's state is this one."""

    state: str


SCENES: tuple[Typed | Until, ...] = (
    Typed("kubectl get mmi", "One revision answers everything."),
    Typed(
        f"kubectl annotate mmi {NAME} chiasm.dev/canary-weight=20",
        "The next change gets 20 % of new conversations, and stays there until we say more.",
    ),
    Typed(
        f'kubectl patch mmi {NAME} --type=merge -p \'{{"spec":{{"engine":{{"maxNumSeqs":8}}}}}}\''
    ),
    Until("Preparing"),
    Typed(f"chiasm rollout status {NAME}"),
    Until("Paused"),
    Typed("kubectl get mmi"),
    Typed(f"kubectl get pods {_PODS}", "Both revisions stand beside each other."),
    Typed(f"chiasm rollout status {NAME}"),
    Typed(f"chiasm rollout promote {NAME}", "It is good: it takes over, and no pod restarts."),
    Until("Idle"),
    Typed(f"kubectl get pods {_PODS}"),
    Typed(f"chiasm rollout history {NAME}"),
    Typed(
        f'kubectl patch mmi {NAME} --type=merge -p \'{{"spec":{{"engine":{{"maxNumSeqs":4}}}}}}\'',
        "Another change, which we will not like.",
    ),
    Until("Preparing"),
    Until("Paused"),
    Typed("kubectl get mmi"),
    Typed(f"chiasm rollout abort {NAME}", "Back: first the traffic, then the pods."),
    Until("Aborted"),
    Typed("kubectl get mmi"),
    Typed(f"chiasm rollout status {NAME}"),
    Typed(
        "kubectl get events --field-selector involvedObject.kind=MultimodalInference "
        "-o custom-columns=REASON:.reason,MESSAGE:.message --sort-by=.lastTimestamp",
        "The whole story, as kubectl describe tells it.",
    ),
)


@dataclass
class Recording:
    """Events of the cast, and the same as text."""

    began: float = field(default_factory=time.monotonic)
    events: list[tuple[float, str, str]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)

    def show(self, text: str) -> None:
        """What appears on the terminal now."""
        moment = round(time.monotonic() - self.began, 3)
        self.events.append((moment, "o", text.replace("\n", "\r\n")))
        self.text.append(text)

    def cast(self) -> str:
        """As asciicast, version 2."""
        header = {
            "version": 2, "width": _WIDTH, "height": _HEIGHT, "idle_time_limit": 2.0,
            "title": "Chiasm: a promotion and an abort",
        }  # fmt: skip
        return "".join(json.dumps(line) + "\n" for line in (header, *self.events))

    def markdown(self, note: str = "") -> str:
        """As a page; `note` is what a reader should know of the cluster."""
        return (
            "# A promotion and an abort, step by step\n\n"
            "Recorded by `python -m chiasm_tour.casting` on a local cluster; `asciinema play "
            "docs/rollout.cast`\nshows it in a terminal. What each state and field means: "
            f"[rollout.md](rollout.md).{' ' + note if note else ''}\n\n"
            f"```console\n{''.join(self.text).rstrip()}\n```\n"
        )


class Terminal:
    """Types commands where kubectl and chiasm mean the demo cluster."""

    def __init__(self, kubeconfig: Path, programs: Path, recording: Recording) -> None:
        path = f"{Path(sys.executable).parent}:{programs}:{os.environ['PATH']}"
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path}
        self._recording = recording

    def type(self, typed: Typed) -> None:
        """Show a command and all that it prints.

        Raises: TourError when it fails.
        """
        comment = f"# {typed.why}\n" if typed.why else ""
        self._recording.show(f"{comment}$ {typed.line}\n")
        done = self._run(typed.line)
        self._recording.show(f"{done.stdout}{done.stderr}\n")
        if done.returncode != 0:
            raise TourError(f"{typed.line} failed: {done.stderr.strip()}")

    def wait(self, until: Until) -> None:
        """Until the rollout is there.

        Raises: TourError when it does not come there.
        """
        line = f"kubectl get mmi {NAME} -o jsonpath={{.status.rollout.state}}"
        _eventually(lambda: self._run(line).stdout == until.state, f"state {until.state}")

    def _run(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line],
            check=False, capture_output=True, text=True, env=self._environment,
        )  # fmt: skip


def _eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TourError(f"{what} did not come within {_WAIT_SECONDS} s.")
        time.sleep(0.3)


def main() -> None:
    """Record on the cluster that make demo brought up, or on another whose name is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="chiasm", help="of the cluster")
    parser.add_argument("--note", default="", help="what a reader should know of it")
    options = parser.parse_args()
    cluster = LocalCluster(options.name)
    recording = Recording()
    terminal = Terminal(cluster.kubeconfig(), cluster.programs(), recording)
    for scene in SCENES:
        if isinstance(scene, Until):
            terminal.wait(scene)
        else:
            terminal.type(scene)
    (DOCS / "rollout.cast").write_text(recording.cast())
    (DOCS / "rollout-cast.md").write_text(recording.markdown(options.note))


if __name__ == "__main__":
    try:
        main()
    except TourError as problem:
        raise SystemExit(f"casting: {problem}") from problem

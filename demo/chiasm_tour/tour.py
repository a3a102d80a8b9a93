"""The steps of `make demo`, `make ask` and `make down`."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

from chiasm_tour.asking import Question, ask, sample_questions
from chiasm_tour.clusters import CurrentCluster, LocalCluster
from chiasm_tour.console import DIM, GREEN, Console, TourError

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "crds" / "examples" / "minimal.yaml"
NAMESPACE = "default"
RESOURCE = "shelf-reader"
SYSTEM_NAMESPACE = "chiasm-system"
READY_TIMEOUT_SECONDS = 420
NUM_QUESTIONS = 3
API_PORT = 8000
DEFINITION = "multimodalinferences.chiasm.dev"

AnyCluster = LocalCluster | CurrentCluster


def demo(cluster: AnyCluster) -> None:
    """Bring everything up and show that it answers.

    Raises: TourError, whose message says what to do.
    """
    console = Console(num_steps=6)
    with console.step("Kubernetes (built once, then cached)"):
        cluster.up()
    with console.step("Images of operator, sidecar and worker"):
        cluster.load()
    with console.step("helm install chiasm charts/chiasm"):
        install(cluster)
    with console.step("kubectl apply -f crds/examples/minimal.yaml"):
        console.say(textwrap.indent(MANIFEST.read_text().strip(), "      | "))
        cluster.kubectl("apply", "-n", NAMESPACE, "-f", str(MANIFEST))
    with console.step("Waiting until the model has seen its first picture"):
        wait_ready(cluster, console)
    with console.step(f"{NUM_QUESTIONS} questions about pictures, through the Service"):
        ask_samples(cluster, console)
    console.say()
    console.say("$ kubectl get mmi")
    console.say(cluster.kubectl("get", "mmi", "-n", NAMESPACE))
    console.say(closing_words(cluster, console))


def install(cluster: AnyCluster) -> None:
    """Install the chart, or bring an installed one up to date."""
    cluster.helm(
        "upgrade", "--install", "chiasm", str(ROOT / "charts" / "chiasm"),
        "--namespace", SYSTEM_NAMESPACE, "--create-namespace", "--wait", "--timeout", "3m",
        *cluster.chart_values(),
    )  # fmt: skip


def wait_ready(cluster: AnyCluster, console: Console) -> None:
    """Follow the resource's Ready condition, printing each new reason, until it is True."""
    fields = "{.status.conditions[?(@.type=='Ready')]['status','reason','message']}"
    deadline = time.monotonic() + READY_TIMEOUT_SECONDS
    seen = ""
    while time.monotonic() < deadline:
        words = cluster.kubectl(
            "get", "mmi", RESOURCE, "-n", NAMESPACE, "-o", f"jsonpath={fields}", quiet=True
        ).strip()
        if words != seen:
            console.say(console.paint(f"      Ready: {words}", DIM))
            seen = words
        if words.startswith("True"):
            return
        time.sleep(1)
    raise TourError(
        f"{RESOURCE} is not Ready after {READY_TIMEOUT_SECONDS} s ({seen or 'no status yet'}). "
        f"Look at: {cluster.kubectl_command} describe mmi {RESOURCE}"
    )


def ask_samples(cluster: AnyCluster, console: Console) -> None:
    """Ask about sample pictures and print the answers beside what a person sees."""
    with cluster.endpoint(NAMESPACE, RESOURCE, API_PORT) as url:
        for question in sample_questions(NUM_QUESTIONS):
            answer = ask(url, RESOURCE, question)
            mark = console.paint("right", GREEN) if answer == question.answer else "wrong"
            console.say(f"      {question.image.relative_to(ROOT)}")
            console.say(f"        Q: {question.text}")
            console.say(f"        A: {answer}   ({mark}: a person sees {question.answer})")


def closing_words(cluster: AnyCluster, console: Console) -> str:
    """How long it took, and what to try next."""
    return textwrap.dedent(f"""\
        Everything is up ({console.total_seconds():.0f} s). Try next:
          make ask IMAGE=demo/pictures/shelf-01.png Q="What is at the top left?"
          {cluster.kubectl_command} get pods
          {cluster.kubectl_command} describe mmi {RESOURCE}
          make down        removes everything again""")


def ask_one(cluster: AnyCluster, image: str, text: str) -> None:
    """One question of the user's about a picture of the user's.

    Raises: TourError when image or question is missing, or nothing answers.
    """
    if not image or not text:
        missing = "the picture" if not image else "the question"
        raise TourError(
            f'{missing} is missing: make ask IMAGE=photo.jpg Q="How many circles are there?"'
        )
    question = Question(Path(image), text, None)
    if isinstance(cluster, LocalCluster) and not cluster.kubectl("get", "--raw", "/", quiet=True):
        raise TourError("The demo is not running; run make demo first.")
    with cluster.endpoint(NAMESPACE, RESOURCE, API_PORT) as url:
        print(ask(url, RESOURCE, question))


def down(cluster: AnyCluster) -> None:
    """Remove what `demo` made: the release on a cluster of the user's, else the cluster itself.

    The definition of the resource goes only with its last resource: deleting it would delete
    everybody's.
    """
    if isinstance(cluster, CurrentCluster):
        cluster.confirm(f"This removes {RESOURCE} and the release chiasm from")
        manifest = str(MANIFEST)
        cluster.kubectl("delete", "-n", NAMESPACE, "-f", manifest, "--ignore-not-found")
        cluster.helm("uninstall", "chiasm", "--namespace", SYSTEM_NAMESPACE, "--ignore-not-found")
        left = cluster.kubectl("get", "mmi", "--all-namespaces", "-o", "name", quiet=True).split()
        if left:
            print(f"down: {len(left)} resources of others are left, so {DEFINITION} stays.")
        else:
            cluster.kubectl("delete", "crd", DEFINITION, "--ignore-not-found")
    cluster.down()

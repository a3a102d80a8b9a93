"""`chiasm doctor`: what is wrong with a running pod, or with all pods of a resource.

Ends with 0 when nothing is wrong, with 1 when something is, and with 2 when it could not be looked
at, or not at everything.

Must not know: how anything is found; the pods say what they find.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

import typer
from chiasm_contract import names
from chiasm_contract.checkup import (
    BOTTLENECKS,
    CHECKUP_PATH,
    MAX_CHECKUP_SECONDS,
    CheckupReport,
    Finding,
)
from pydantic import ValidationError

from chiasm_cli import pods
from chiasm_cli.errors import CliError
from chiasm_cli.kubectl import RESOURCES, ContextOption, Kubectl, KubectlFailed, NamespaceOption

_TIMEOUT_SECONDS = 2 * MAX_CHECKUP_SECONDS
_WRONG, _NOT_SEEN = 1, 2
_WIDTH = 100


@dataclass(frozen=True)
class Patient:
    """A pod and its report; instead of it, why there is none."""

    name: str
    report: CheckupReport | str


def doctor(
    url: Annotated[
        str | None,
        typer.Option(help=f"A pod's metrics port; default: {pods.DEFAULT_URL}", show_default=False),
    ] = None,
    mmi: Annotated[
        str | None, typer.Option(help="Name of a MultimodalInference: all of its running pods.")
    ] = None,
    namespace: NamespaceOption = "",
    context: ContextOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Write the reports as JSON.")] = False,
) -> None:
    """Look at a running pod: what is wrong, where, how bad, and what to do.

    The pod goes on serving. A built-in picture is asked about, never a client's.
    """
    try:
        kubectl = Kubectl(context, namespace)
        pods.check_choice(url, mmi, kubectl)
        if mmi is not None:
            patients = of_resource(kubectl, mmi)
        else:
            patients = [at(pods.DEFAULT_URL if url is None else url)]
    except CliError as error:
        print(f"chiasm: {error}", file=sys.stderr)
        raise typer.Exit(_NOT_SEEN) from error
    print(as_data(patients) if as_json else "\n".join(lines(patients)))
    raise typer.Exit(status(patients))


def status(patients: Sequence[Patient]) -> int:
    """What the command ends with."""
    reports = [each.report for each in patients if isinstance(each.report, CheckupReport)]
    if any(report.findings for report in reports):
        return _WRONG
    seen = len(reports) == len(patients) and not any(report.missed for report in reports)
    return 0 if seen else _NOT_SEEN


def as_data(patients: Sequence[Patient]) -> str:
    """The reports by pod."""
    data = {
        each.name: each.report.model_dump()
        if isinstance(each.report, CheckupReport)
        else each.report
        for each in patients
    }
    return json.dumps(data, indent=2)


def lines(patients: Sequence[Patient]) -> Iterator[str]:
    """The reports for a person: a table for each pod, then what is to be done."""
    for patient in patients:
        report = patient.report
        if isinstance(report, str):
            yield f"{patient.name}: cannot be looked at: {report}"
            continue
        wrong = {finding.check: finding.severity for finding in report.findings}
        yield f"{patient.name}: looked at in {report.seconds:.1f} s"
        yield f"  {'CHECK':<11}{'STATE':<12}READING"
        for look in report.looks:
            state = wrong.get(look.check, "well") if look.taken else "not seen"
            yield from _wrapped(f"  {look.check:<11}{state:<12}", look.words)
        for finding in report.findings:
            yield ""
            yield from _told(finding)
    yield ""
    yield _summary(patients)


def _told(finding: Finding) -> Iterator[str]:
    name = BOTTLENECKS.get(finding.check)
    title = f"{finding.check}: {name}" if name else finding.check
    yield f"  {finding.severity.upper()}  {title}"
    for word, text in (
        ("what", finding.what),
        ("where", finding.where),
        ("how bad", finding.how_bad),
        ("what to do", finding.what_to_do),
    ):
        yield from _wrapped(f"    {word:<11}", text)


def _wrapped(first: str, text: str) -> Iterator[str]:
    yield from textwrap.wrap(
        " ".join(text.split()),
        _WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
    ) or [first.rstrip()]


def _summary(patients: Sequence[Patient]) -> str:
    reports = [each.report for each in patients if isinstance(each.report, CheckupReport)]
    count = sum(len(report.findings) for report in reports)
    if count:
        return f"{count} finding{'s' * (count != 1)}."
    if status(patients):
        return "Nothing wrong was found, but not everything could be looked at."
    return "Nothing is wrong."


def at(url: str) -> Patient:
    """The pod whose metrics port is at `url`.

    Raises: CliError when nothing answers there, or something else.
    """
    with pods.connection(url, _TIMEOUT_SECONDS) as connection:
        connection.request("POST", urlsplit(url).path.rstrip("/") + CHECKUP_PATH)
        response = connection.getresponse()
        body = response.read()
    if response.status != 200:
        raise CliError(
            f"{url} answered {response.status} to {CHECKUP_PATH}; is it {pods.WHO}, and of this "
            "version?"
        )
    return Patient(url, _parsed(body))


def of_resource(kubectl: Kubectl, name: str) -> list[Patient]:
    """All running pods of a resource.

    Raises: CliError when there is no such resource, or no pod of it runs.
    """
    resource = kubectl.get(RESOURCES, name)[0]
    found = [_of_pod(kubectl, pod) for pod in pods.running(kubectl, resource)]
    if not found:
        raise CliError(
            f"no pod of {name} runs; see: kubectl describe {names.PLURAL} {name} "
            f"--namespace {resource['metadata']['namespace']}"
        )
    return found


def _of_pod(kubectl: Kubectl, pod: pods.RunningPod) -> Patient:
    try:
        answer = kubectl.post(pod.proxy + CHECKUP_PATH, _TIMEOUT_SECONDS)
    except KubectlFailed as error:
        return Patient(pod.name, str(error))
    return Patient(pod.name, _parsed(answer.encode()))


def _parsed(body: bytes) -> CheckupReport | str:
    try:
        return CheckupReport.model_validate_json(body)
    except ValidationError:
        return "its answer is no report of this version's"

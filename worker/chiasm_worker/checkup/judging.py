"""From readings to findings: what is wrong, where, how bad it is, and what to do about it.

One fault is one finding: attention that sees other tokens than it should also drifts, and then the
drift is told with it.

Pure; must not know: torch, engines, clocks, how anything was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chiasm_contract.checkup import CheckupReport, Finding, Look

from chiasm_worker.checkup.books import Books
from chiasm_worker.checkup.drift import Drift, StepDrift
from chiasm_worker.checkup.readings import Readings, Steps


def report(readings: Readings) -> CheckupReport:
    """The whole report of a worker."""
    judged = (_attention(readings), _pool(readings), _drift(readings), _identity(readings))
    findings = [finding for _, found in judged for finding in found]
    return CheckupReport(looks=tuple(look for look, _ in judged), findings=tuple(findings))


_Judged = tuple[Look, list[Finding]]


def _attention(readings: Readings) -> _Judged:
    steps = readings.steps
    if steps.failure is not None:
        return Look(check="attention", taken=False, words=steps.failure), []
    asked = "not asked what tokens see: no room" if steps.visibility is None else "as they should"
    words = f"{steps.num_steps} steps of {steps.num_tokens} tokens; tokens see {asked}"
    faults = (*(steps.visibility or ()), *steps.shape_faults)
    if not faults:
        return Look(check="attention", words=words), []
    drifted = isinstance(readings.drift, Drift) and readings.drift.beyond
    finding = Finding(
        check="attention",
        severity="critical",
        what="Attention is given, or looks at, other tokens than the plan says: " + faults[0] + ".",
        where="; ".join(faults[1:3]) or "between scheduler and attention",
        how_bad=(
            f"in {steps.num_faulty} of {steps.num_steps} steps"
            if steps.num_faulty
            else f"in {len(steps.visibility or ())} of the built-in sequences"
        )
        + (f"; answers drift by it: {_worst(drifted)}" if drifted else "; answers may be wrong"),
        what_to_do=(
            "Take the pod out of service. The kernel or the block table is at fault, not a "
            "request: go back to the last image, or choose another attention backend, and look "
            "again."
        ),
    )
    counted = Look(check="attention", words=f"{steps.num_steps} steps of {steps.num_tokens} tokens")
    return counted, [finding]


def _pool(readings: Readings) -> _Judged:
    books = readings.books
    if isinstance(books, str):
        return Look(check="pool", taken=False, words=books), []
    first, last = books[0], books[-1]
    look = Look(
        check="pool",
        words=f"{last.num_used} of {last.num_blocks} blocks in use, {last.num_held} held by "
        f"{last.num_requests} requests; {last.num_steps - first.num_steps} steps",
    )
    if readings.stopped is not None:
        return look, [_stopped(last, readings.stopped)]
    return look, list(_pool_findings(first, last, readings.broken_books))


def _pool_findings(first: Books, last: Books, broken: str | None) -> Iterator[Finding]:
    if last.num_unread:
        yield Finding(
            check="pool",
            severity="critical",
            what=f"{last.num_unread} blocks that requests hold count as free.",
            where="the block pool's readers",
            how_bad="another request may write into them while they are read: answers mix",
            what_to_do="Restart the worker now, and report it: the bookkeeping is broken.",
        )
    elif last.num_unexplained:
        yield _leak(first, last)
    elif last.num_miscounted or broken is not None:
        yield Finding(
            check="pool",
            severity="warning",
            what=broken or f"{last.num_miscounted} blocks have more readers than requests.",
            where="the block pool's readers",
            how_bad="these blocks stay in use when their requests have ended",
            what_to_do="Restart the worker when it suits, and report it: its books are broken.",
        )


def _stopped(last: Books, why: str) -> Finding:
    return Finding(
        check="pool",
        severity="critical",
        what=f"The engine has stopped: {why}",
        where=_where(last) or "between scheduler and block pool",
        how_bad="nothing is answered until the worker is restarted, as its liveness probe does",
        what_to_do="Report it with the worker's log: blocks are given back when a request ends, "
        "however it ends.",
    )


def _where(books: Books) -> str:
    kinds = {
        "held by no request": max(0, books.num_used - books.num_held),
        "beyond what their tokens need": books.num_surplus,
        "of media that nobody reads any more": books.num_orphans,
    }
    return ", ".join(f"{count} {words}" for words, count in kinds.items() if count)


def _leak(first: Books, last: Books) -> Finding:
    grown = last.num_unexplained - first.num_unexplained
    steps = max(1, last.num_steps - first.num_steps)
    num_bytes = last.num_unexplained * last.record_bytes
    left = last.num_blocks - last.num_unexplained
    growth = (
        f"{grown / steps:.3g} more a step, so that the pool is full in {left * steps / grown:.0f} "
        "steps"
        if grown > 0
        else "not growing while it was looked at"
    )
    return Finding(
        check="pool",
        severity="critical" if grown > 0 else "warning",
        what=f"{last.num_unexplained} blocks outlive the requests that they were for.",
        where=_where(last),
        how_bad=f"{num_bytes} bytes, {last.num_unexplained / last.num_blocks:.1%} of the pool; "
        + growth,
        what_to_do="Restart the worker before the pool is full, and report it: blocks are given "
        "back when a request ends, however it ends.",
    )


def _drift(readings: Readings) -> _Judged:
    drift, steps = readings.drift, readings.steps
    findings = []
    if steps.position_faults:
        findings.append(_misplaced(steps, drift))
    if isinstance(drift, str):
        return Look(check="drift", taken=False, words=drift), findings
    worst = max(drift.steps, key=lambda step: step.max_abs)
    look = Look(
        check="drift",
        words=f"logits at most {worst.max_abs:.2g} apart, allowed are {drift.limit:.2g} (rounding "
        f"alone: {drift.noise:.2g}); {len(drift.steps)} tokens compared",
    )
    explained = findings or steps.shape_faults or steps.visibility
    if drift.beyond and not explained:
        findings.append(_drifted(drift))
    return look, findings


def _misplaced(steps: Steps, drift: Drift | str) -> Finding:
    drifted = drift.beyond if isinstance(drift, Drift) else ()
    return Finding(
        check="drift",
        severity="critical",
        what=f"Tokens stand at other positions than the model's own: {steps.position_faults[0]}.",
        where="positions that the decoder is given",
        how_bad=f"in {steps.num_misplaced} of {steps.num_steps} steps"
        + (f"; answers drift by it: {_worst(drifted)}" if drifted else ""),
        what_to_do=(
            "Take the pod out of service, and go back to the last image: text and pictures are "
            "no longer where the model learned them to be."
        ),
    )


def _drifted(drift: Drift) -> Finding:
    return Finding(
        check="drift",
        severity="critical" if drift.flipped else "warning",
        what="The fast path answers otherwise than one whole pass without cache: "
        + _worst(drift.beyond)
        + ".",
        where=_origin(drift),
        how_bad=(
            f"{len(drift.flipped)} of {len(drift.steps)} tokens would be others"
            if drift.flipped
            else "the same tokens would be chosen here"
        )
        + f"; allowed are {drift.limit:.2g}, rounding alone makes {drift.noise:.2g}",
        what_to_do=(
            "Take the pod out of service if tokens are others. Turn off what the place names "
            "(prefix caching, quantised caches, a kernel), or go back to the last image, and look "
            "again."
        ),
    )


def _origin(drift: Drift) -> str:
    """What the drifting tokens have in common."""
    beyond, ways = drift.beyond, dict.fromkeys(step.way for step in drift.steps)
    drifting = dict.fromkeys(step.way for step in beyond)
    first = min(step.step for step in beyond)
    which = "every way" if len(drifting) == len(ways) else "only " + ", ".join(drifting)
    since = (
        "from the first token: prompt, picture or cache"
        if first == min(step.step for step in drift.steps)
        else f"from token {first} of the answer: what decoding writes and reads"
    )
    return f"{which}; {since}"


def _worst(beyond: Sequence[StepDrift]) -> str:
    worst = max(beyond, key=lambda step: (step.max_abs != step.max_abs, step.max_abs))
    return (
        f"logits {worst.max_abs:.2g} apart at token {worst.step} ({worst.way}), KL {worst.kl:.2g}"
    )


def _identity(readings: Readings) -> _Judged:
    findings = [
        Finding(
            check="identity",
            severity="critical",
            what=f"The engine is not what it says it is: {fault}.",
            where="the identity that the worker reports",
            how_bad="cache blocks of another model may be taken for its own",
            what_to_do="Restart the worker, and report it.",
        )
        for fault in readings.identity_faults
    ]
    stored = readings.stored
    if isinstance(stored, str):
        return Look(check="identity", taken=False, words=stored), findings
    if stored.fault is not None:
        findings.append(
            Finding(
                check="identity",
                severity="warning",
                what=f"The model's files cannot be read any more: {stored.fault}",
                where="the model's folder",
                how_bad="what is loaded goes on serving; a restart would find no model",
                what_to_do="Bring the model's files back where the pod mounts them.",
            )
        )
        return Look(check="identity", words="the files could not be read"), findings
    share = stored.num_read / stored.num_bytes if stored.num_bytes else 1.0
    look = Look(
        check="identity",
        words=f"{min(1.0, share):.0%} of {stored.num_bytes} bytes of weights read anew, and "
        "configuration, processor and template",
    )
    if stored.differing:
        findings.append(
            Finding(
                check="identity",
                severity="warning",
                what="The model's files are not those that were loaded: "
                f"{', '.join(stored.differing)} differ.",
                where="the model's folder",
                how_bad="what was loaded goes on serving; a restart or reload would serve another "
                "model, and pods of one revision would differ",
                what_to_do="If the change is meant, let it be a new revision or POST /-/reload on "
                "every worker; if not, put the files back.",
            )
        )
    return look, findings

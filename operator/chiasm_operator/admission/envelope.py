"""AdmissionReview in, AdmissionReview out: the words of the API server around a `Verdict`.

Must not know: HTTP, Kubernetes clients, clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chiasm_contract import names

from chiasm_operator.admission.review import Verdict, review

API_VERSION = "admission.k8s.io/v1"
_KIND = "AdmissionReview"
# Longer warnings may be cut by the API server.
_MAX_WARNING = 256
_MAX_FAULT = 512
_MAX_WARNINGS = _MAX_FAULTS = 12


class NotAReview(ValueError):
    """The body is no AdmissionReview that can be answered."""


def answer(body: object) -> dict[str, Any]:
    """The AdmissionReview that answers `body`.

    Raises: NotAReview when it has no uid to answer to, or holds something else.
    """
    if not isinstance(body, Mapping) or body.get("kind") != _KIND:
        raise NotAReview(f"The body must be an {_KIND} of {API_VERSION}.")
    request = body.get("request")
    if body.get("apiVersion") != API_VERSION or not isinstance(request, Mapping):
        raise NotAReview(f"The body must be an {_KIND} of {API_VERSION} with a request.")
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        raise NotAReview("request.uid is missing.")
    response = {"uid": uid, **_response(_verdict(request))}
    return {"apiVersion": API_VERSION, "kind": _KIND, "response": response}


def _verdict(request: Mapping[str, Any]) -> Verdict:
    new, old = request.get("object"), request.get("oldObject")
    about_us = request.get("kind", {}).get("kind") == names.KIND
    if not about_us or request.get("subResource") or not isinstance(new, Mapping):
        return Verdict()  # a deletion, the status, or somebody else's kind: none of our business
    return review(old if isinstance(old, Mapping) else None, new)


def _response(verdict: Verdict) -> dict[str, Any]:
    response: dict[str, Any] = {"allowed": verdict.allowed}
    if verdict.warnings:
        response["warnings"] = [
            _cut(text, _MAX_WARNING) for text in verdict.warnings[:_MAX_WARNINGS]
        ]
    if not verdict.allowed:
        message = "; ".join(_cut(str(fault), _MAX_FAULT) for fault in verdict.faults[:_MAX_FAULTS])
        if len(verdict.faults) > _MAX_FAULTS:
            message += f"; and {len(verdict.faults) - _MAX_FAULTS} more."
        response["status"] = {"code": 422, "reason": "Invalid", "message": message}
    return response


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"

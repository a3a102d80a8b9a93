"""What a request's span says, from the request as far as it has come.

Must not know: how spans are made.
"""

from __future__ import annotations

from http import HTTPStatus

from chiasm_contract.config import SidecarConfig
from chiasm_contract.messages import MEDIA_NAMES

from chiasm_sidecar.front_door.exchange import Exchange
from chiasm_sidecar.front_door.intake import Prepared
from chiasm_sidecar.front_door.named_files import of_kind
from chiasm_sidecar.tracing.attributes import of_answer, of_request


def tell_asked(exchange: Exchange, prepared: Prepared) -> None:
    """What is asked for is known."""
    trace = exchange.trace
    if trace is None or not trace.sampled:
        return
    sizes = {
        kind: [len(file.data) for file in of_kind(prepared.media, kind)] for kind in MEDIA_NAMES
    }
    trace.set(of_request(prepared.sampling, prepared.modality, sizes, stream=prepared.stream))


def tell_ended(exchange: Exchange, config: SidecarConfig, own_track: str) -> None:
    """The request has ended; its span does, too."""
    trace = exchange.trace
    if trace is None or not trace.sampled:
        return
    found: dict[str, object] = {
        "http.response.status_code": exchange.status,
        "chiasm.request_id": exchange.request_id,
        "chiasm.revision": config.revision,
        "chiasm.track": own_track,
    }
    if config.configuration is not None:
        found["chiasm.environment"] = config.configuration.environment
    given = exchange.given
    if given is not None:
        found["chiasm.revision"] = given.place.revision
        found["chiasm.track"] = given.route.role(given.place.revision)
        found["chiasm.by"] = given.route.reason
    if exchange.usage is not None:
        found |= of_answer(
            exchange.answer_id, config.model_id, exchange.usage, exchange.finish_reasons
        )
    if exchange.first_text is not None:
        found["gen_ai.response.time_to_first_chunk"] = exchange.first_text - exchange.started
    trace.set({name: value for name, value in found.items() if value is not None and value != ""})
    fault = str(exchange.status) if exchange.status >= HTTPStatus.INTERNAL_SERVER_ERROR else ""
    trace.end(exchange.notes.events, exchange.notes.now(), fault)

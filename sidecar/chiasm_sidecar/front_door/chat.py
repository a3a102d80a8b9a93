"""One chat request from its first byte to the last byte of its answer.

Works on ASGI's receive and send directly, for a stream costs one send a token and every layer in
between would be paid for each. Must not know: how a body is parsed (intake), how an answer is
written (answers), how the worker is reached (worker_client).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from chiasm_contract import trace_context
from chiasm_contract.config import SidecarConfig
from chiasm_contract.errors import ChiasmError, InvalidRequest, Unavailable
from chiasm_contract.logs import bind, error_fields
from chiasm_contract.messages import FinishEvent, GenerateHead, IdentityReport, TokenEvent
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from chiasm_sidecar.front_door.answers import AnswerHead, EventStream, complete
from chiasm_sidecar.front_door.bodies import Bodies, HeldBody
from chiasm_sidecar.front_door.client_waits import ClientGone, Waiting, client_waits
from chiasm_sidecar.front_door.exchange import Exchange
from chiasm_sidecar.front_door.intake import Prepared, prepare
from chiasm_sidecar.front_door.named_files import media_files, named, places
from chiasm_sidecar.front_door.relay import relay
from chiasm_sidecar.front_door.request_headers import handed_on, request_id, within
from chiasm_sidecar.front_door.traced import tell_asked, tell_ended
from chiasm_sidecar.metrics import Metrics
from chiasm_sidecar.readiness import Readiness
from chiasm_sidecar.recording.timeline import Timeline
from chiasm_sidecar.tenants.gate import Gate
from chiasm_sidecar.tracing.tracing import Tracing
from chiasm_sidecar.traffic.counting import CLIENT_CLOSED
from chiasm_sidecar.traffic.division import Division, Given
from chiasm_sidecar.traffic.handover import NotAnswered
from chiasm_sidecar.traffic.observer import MEASURES_HEADER, StreamReader, comment
from chiasm_sidecar.traffic.routing import Asked, Route
from chiasm_sidecar.worker_client import WorkerClient, WorkerGone

log = logging.getLogger("chiasm.sidecar.chat")
access = logging.getLogger("chiasm.sidecar.access")

# A body that is on its way holds memory that others wait for.
MAX_BODY_SECONDS = 60.0
# Parsing more than this takes longer than a hop to a thread costs.
_INLINE_BODY_BYTES = 256 * 1024

Batches = AsyncIterator[list[TokenEvent | FinishEvent]]


@dataclass(frozen=True)
class _Pending:
    """What an answer needs, as long as it is open who gives it."""

    prepared: Prepared
    held: HeldBody
    waiting: Waiting
    headers: Mapping[str, str]

    def let_go(self) -> None:
        """Somebody answers."""
        self.prepared.let_go()
        self.held.release()


class ChatEndpoint:
    """`POST /v1/chat/completions`, streamed or not."""

    def __init__(  # noqa: PLR0913, PLR0917 - one for each part that it joins
        self,
        config: SidecarConfig,
        worker: WorkerClient,
        readiness: Readiness,
        metrics: Metrics,
        gate: Gate,
        division: Division,
        timeline: Timeline,
        tracing: Tracing | None = None,
    ) -> None:
        self._config = config
        self._worker = worker
        self._readiness = readiness
        self._metrics = metrics
        self._gate = gate
        self._division = division
        self._timeline = timeline
        self._tracing = tracing
        self._bodies = Bodies(config.max_body_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        exchange = Exchange(receive, send, timeline=self._timeline)
        headers = Headers(scope=scope)
        held = self._bodies.begin()
        self._metrics.in_progress.inc()
        try:
            self._begin_trace(exchange, headers)
            await self._answer(exchange, headers, held)
        except ClientGone:
            exchange.status = CLIENT_CLOSED
            self._metrics.count("vllm:request_success_total", finished_reason="abort")
        except asyncio.CancelledError:
            # The server ends, and waits for no answer any longer: this one was cut.
            exchange.status = int(HTTPStatus.SERVICE_UNAVAILABLE)
            raise
        except ChiasmError as error:
            await self._refuse(exchange, error)
        except Exception as error:
            _log_bug(error)
            await self._refuse(
                exchange, ChiasmError("The server failed on this request; this is a bug.")
            )
        finally:
            held.release()
            self._metrics.in_progress.dec()
            self._record(exchange)
            self._end_trace(exchange)

    def _begin_trace(self, exchange: Exchange, headers: Headers) -> None:
        """Without a collector nothing is recorded, by nobody: the worker only learns the id."""
        if self._tracing is not None:
            exchange.trace = self._tracing.begin(headers, exchange.started)
        elif (caller := trace_context.parse(headers)) is not None:
            exchange.caller_trace = caller._replace(flags=0)
        context = exchange.context
        bind(answer_id=exchange.answer_id, trace_id=context and context.trace_id)

    def _end_trace(self, exchange: Exchange) -> None:
        if self._tracing is None or exchange.trace is None:
            return
        tell_ended(exchange, self._config, self._division.own_role or "")
        if exchange.trace.worker is not None:
            self._tracing.collect(exchange.answer_id, exchange.trace.worker)

    async def _answer(self, exchange: Exchange, headers: Headers, held: HeldBody) -> None:
        try:
            self._admit(exchange, headers)
        finally:
            exchange.note_admission()
        began = exchange.notes.now()
        body = await self._read(exchange, headers, held)
        exchange.started = time.perf_counter()
        exchange.notes.since(began, "body", bytes=len(body))
        async with client_waits(exchange.receive) as waiting:
            prepared = await self._prepare(body)
            del body
            exchange.notes.since(exchange.started, "parse", modality=prepared.modality)
            exchange.modality = prepared.modality
            exchange.user = prepared.user
            tell_asked(exchange, prepared)
            try:
                async with asyncio.timeout(self._config.request_timeout_seconds):
                    await self._divide(exchange, headers, prepared, held, waiting)
            except TimeoutError as error:
                raise self._too_slow(exchange) from error

    def _admit(self, exchange: Exchange, headers: Headers) -> None:
        """Who asks, and whether this pod can answer."""
        exchange.request_id = request_id(headers)
        bind(request_id=exchange.request_id)
        exchange.caller = self._gate.caller(headers)
        exchange.is_handed_over = self._division.is_handed_over(headers)
        if exchange.is_handed_over or self._division.needs_worker:
            self._readiness.require()

    def _too_slow(self, exchange: Exchange) -> Unavailable:
        words = (
            f"The answer took longer than {self._config.request_timeout_seconds:g} s; "
            "ask for fewer tokens."
        )
        is_elsewhere = exchange.given is not None and exchange.given.place.address is not None
        return Unavailable(words) if is_elsewhere else WorkerGone(words, "timeout")

    async def _read(self, exchange: Exchange, headers: Headers, held: HeldBody) -> bytes:
        """The whole body."""
        seconds = min(MAX_BODY_SECONDS, self._config.request_timeout_seconds)
        try:
            async with asyncio.timeout(seconds):
                body = await held.read(exchange.receive, headers.get("content-length", ""))
        except TimeoutError as error:
            raise InvalidRequest(
                f"The body did not arrive within {seconds:g} s.", code="request_timeout"
            ) from error
        self._metrics.body_bytes.observe(len(body))
        return body

    async def _prepare(self, body: bytes) -> Prepared:
        arguments = (body, self._config.model_id, self._config)
        if len(body) <= _INLINE_BODY_BYTES:
            return prepare(*arguments)
        return await asyncio.to_thread(prepare, *arguments)

    async def _divide(
        self,
        exchange: Exchange,
        headers: Headers,
        prepared: Prepared,
        held: HeldBody,
        waiting: Waiting,
    ) -> None:
        """Have the request answered by the revision that it is for, or by who stands in for it."""
        route = None if exchange.is_handed_over else self._route(exchange, headers, prepared)
        if route is None:
            prepared.body = b""
            await self._generate(exchange, prepared, held, waiting)
            return
        trace = None if exchange.trace is None else exchange.trace.context
        told = handed_on(headers, exchange.request_id, trace)
        pending = _Pending(prepared, held, waiting, told)
        started, doubted = exchange.started, None
        for place in route.places:
            given = self._division.begin(route, place, prepared.modality, started, doubted)
            exchange.given = given
            try:
                await self._answer_at(exchange, given, pending)
            except NotAnswered as error:
                if place is route.places[-1] or exchange.response_started:
                    raise
                doubted = self._division.reroute(given, error)
                exchange.given, started = None, time.perf_counter()
            else:
                return

    def _route(self, exchange: Exchange, headers: Headers, prepared: Prepared) -> Route | None:
        if self._division.plan is None:
            return None
        asked = Asked(
            scope_fp=exchange.caller.scope_fp,
            headers=headers,
            messages=prepared.messages,
            files=[file.data for file in prepared.media],
            fresh_name=exchange.answer_id,
        )
        return self._division.route(asked)

    async def _answer_at(self, exchange: Exchange, given: Given, pending: _Pending) -> None:
        """Let this pod's worker answer, or another sidecar.

        Raises: NotAnswered when the other did not.
        """
        prepared, place, headers = pending.prepared, given.place, pending.headers
        if place.address is None:
            self._division.shadow(given, prepared.sampling, prepared.body, headers)
            prepared.body = b""
            await self._generate(exchange, prepared, pending.held, pending.waiting)
            return
        with exchange.attempt(place.revision) as context:
            if context is not None and exchange.trace is not None:
                headers = {**headers, **within(context)}
            asking = self._division.handover.ask(place, prepared.body, headers, given.taken)
            async with asking as response:
                reader = StreamReader(given.observed, given.keeps_text)
                await relay(exchange, response, pending.waiting, reader, pending.let_go)

    async def _generate(
        self, exchange: Exchange, prepared: Prepared, held: HeldBody, waiting: Waiting
    ) -> None:
        """Ask the worker; once more if another one has taken the place of the admitted one."""
        admission = self._readiness.require()
        try:
            await self._ask(exchange, prepared, held, waiting, admission.identity)
        except WorkerGone as error:
            if error.reason != "replaced":
                raise
            await self._readiness.look_anew(admission)
            identity = self._readiness.require().identity
            await self._ask(exchange, prepared, held, waiting, identity)

    async def _ask(
        self,
        exchange: Exchange,
        prepared: Prepared,
        held: HeldBody,
        waiting: Waiting,
        identity: IdentityReport,
    ) -> None:
        head = GenerateHead(
            request_id=exchange.answer_id,
            messages=prepared.messages,
            sampling=prepared.sampling,
            priority=prepared.priority,
            scope_fp=exchange.caller.scope_fp,
        )
        files = media_files(prepared.media)
        with named(places(prepared.media)), exchange.attempt("worker") as context:
            told = exchange.told(context)
            async with self._worker.generate(head, files, identity, told) as batches:
                del files
                self._metrics.admitted(prepared.media)
                prepared.media.clear()
                held.release()
                answer = AnswerHead(exchange.answer_id, self._config.model_id, identity.compute_fp)
                if prepared.stream:
                    num_choices = prepared.sampling.n
                    encoder = EventStream(answer, prepared.include_usage, num_choices)
                    await self._stream(exchange, batches, encoder, waiting)
                else:
                    await self._collect(exchange, batches, answer, waiting)

    async def _stream(
        self, exchange: Exchange, batches: Batches, encoder: EventStream, waiting: Waiting
    ) -> None:
        """Pass each piece of text on as it comes."""
        async for batch in batches:
            self._observe(exchange, batch)
            pieces = []
            for event in batch:
                if isinstance(event, TokenEvent):
                    pieces.append(encoder.token(event))
                else:
                    exchange.note_finish(event)
                    said = exchange.measures()
                    pieces.append(encoder.finish(event, b"" if said is None else comment(said)))
            if exchange.is_complete:
                waiting.end()
            if not exchange.response_started:
                pieces.insert(0, encoder.first())
                await exchange.start_stream()
            data = b"".join(pieces)
            if data:
                await exchange.send_events(data, more=not exchange.is_complete)

    async def _collect(
        self, exchange: Exchange, batches: Batches, answer: AnswerHead, waiting: Waiting
    ) -> None:
        """Gather the whole answer and send it at once."""
        events: list[TokenEvent | FinishEvent] = []
        async for batch in batches:
            self._observe(exchange, batch)
            events += batch
            for event in batch:
                if isinstance(event, FinishEvent):
                    exchange.note_finish(event)
        if exchange.usage is None:
            raise ChiasmError("The answer has no end; this is a bug.")
        data = complete(answer, events, exchange.usage)
        waiting.end()
        said = exchange.measures()
        await exchange.send_json(200, data, *([] if said is None else [(MEASURES_HEADER, said)]))

    def _observe(self, exchange: Exchange, batch: list[TokenEvent | FinishEvent]) -> None:
        """Note when text came."""
        if not any(isinstance(event, TokenEvent) for event in batch):
            return
        now = time.perf_counter()
        if exchange.first_text is None:
            count, since = self._metrics.first_token, exchange.started
        else:
            count, since = self._metrics.next_token, exchange.last_text
        count(exchange.modality, now - since, exchange.trace_id)
        exchange.note_text(batch, now)

    async def _refuse(self, exchange: Exchange, error: ChiasmError) -> None:
        if isinstance(error, WorkerGone):
            self._metrics.count("chiasm_sidecar_worker_failures_total", reason=error.reason)
            self._readiness.doubt()
        await exchange.refuse(error)

    def _record(self, exchange: Exchange) -> None:
        """Count one request, and write its line where the access log is on."""
        seconds = time.perf_counter() - exchange.started
        if not exchange.is_handed_over:  # else it is counted where a client asked
            self._metrics.ended(exchange.status, exchange.modality)
        finish, usage = exchange.finish, exchange.usage
        if finish is not None and usage is not None and exchange.status == HTTPStatus.OK:
            self._metrics.finished(finish.reason, usage, seconds, exchange.trace_id)
        if exchange.given is not None:
            self._division.end(exchange.given, exchange.status)
        if self._config.access_log:
            fields = exchange.log_fields(seconds, self._config.configuration)
            access.info("chat", extra={"fields": fields})


def _log_bug(error: Exception) -> None:
    """Where it happened, without its message: that may quote what somebody asked."""
    log.error("request failed", extra={"fields": error_fields(error)})

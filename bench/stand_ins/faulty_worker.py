"""A worker without a model, for images of benchmarks: it answers at once, or with a planted fault.

It speaks the worker's contract and reports the identity that is known of the built-in model, so
that no product part is told of it. Which fault it has follows from `engine.maxNumSeqs`, a field of
the spec that means nothing here: so each fault is a revision of its own, made the way users make
one. The picture and the question of the readiness check never meet a fault: such canaries come up.
"""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from enum import IntEnum
from pathlib import Path

from aiohttp import web
from chiasm_contract import messages
from chiasm_contract.builtin_models import builtin_identity
from chiasm_contract.config import WorkerConfig, read_config
from chiasm_contract.fingerprint import Identity, compute_fp, repr_fp
from chiasm_contract.messages import (
    FinishEvent,
    GenerateHead,
    IdentityReport,
    TextPart,
    TokenEvent,
    Usage,
)

from stand_ins import identity_of_nobody, serving

CLIENTS_MARK = "for the benchmark"  # in each question of a client, in none of the sidecar
WORDS = ("There ", "are ", "three ", "red ", "circles", ".")
WRONG_WORDS = ("There ", "are ", "seven ", "blue ", "squares", ".")
TOKEN_SECONDS = 0.01
SLOW_TOKEN_SECONDS = 0.06
ANSWERS_BEFORE_A_CRASH = 10


class Fault(IntEnum):
    """By `engine.maxNumSeqs`; any other number is a sound worker, as are the first two."""

    SOUND = 16
    BY_HAND = 17
    WRONG = 21
    SLOW = 22
    CRASHING = 23
    CRASHING_IN_ANSWERS = 24
    PICTURES = 25


class FaultyWorker:
    """One worker with its fault."""

    def __init__(self, config: WorkerConfig) -> None:
        numbers = {each.value for each in Fault}
        number = config.engine.max_num_seqs
        self.fault = Fault(number) if number in numbers else Fault.SOUND
        self._config = config
        self._identity = _identity(config)
        self._num_asked = 0

    def application(self) -> web.Application:
        """What listens on the socket."""
        return serving.application(self._config.model_id, self._identity, self._generate)

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        head, files = messages.decode_request(await request.read())
        fault = self.fault if _is_of_a_client(head) else Fault.SOUND
        self._num_asked += fault is not Fault.SOUND
        if fault is Fault.PICTURES and files.images:
            raise web.HTTPInternalServerError
        due = self._num_asked >= ANSWERS_BEFORE_A_CRASH
        if fault is Fault.CRASHING and due:
            os._exit(1)
        response = web.StreamResponse(headers=serving.headers(self._identity))
        await response.prepare(request)
        seconds = SLOW_TOKEN_SECONDS if fault is Fault.SLOW else TOKEN_SECONDS
        words = WRONG_WORDS if fault is Fault.WRONG else WORDS
        for number, word in enumerate(words):
            if fault is Fault.CRASHING_IN_ANSWERS and due and number == len(words) // 2:
                os._exit(1)
            await asyncio.sleep(seconds)
            await response.write(serving.line(TokenEvent(text=word, token_ids=(number,))))
        usage = Usage(
            prompt_tokens=8, completion_tokens=len(words), cached_tokens=0, image_tokens=0
        )
        await response.write(serving.line(FinishEvent(reason="stop", usage=usage)))
        return response


def _is_of_a_client(head: GenerateHead) -> bool:
    return any(
        isinstance(part, TextPart) and CLIENTS_MARK in part.text
        for message in head.messages
        for part in message.content
    )


def _identity(config: WorkerConfig) -> IdentityReport:
    """That of nobody, with what is known of the built-in model."""
    known = builtin_identity("demo", config.dtype)
    whole = Identity.from_fields({**identity_of_nobody().fields, **known})
    return IdentityReport(
        compute_fp=compute_fp(whole.compute),
        repr_fp=repr_fp(whole.repr),
        incarnation=uuid.uuid4().hex,
        fields=whole.fields(),
    )


def main() -> None:
    """`chiasm worker run --config FILE`, as every worker's container is started."""
    config = read_config(WorkerConfig, Path(sys.argv[-1]))
    config.socket_path.unlink(missing_ok=True)  # of the one before that crashed
    worker = FaultyWorker(config)
    web.run_app(worker.application(), path=str(config.socket_path), print=None)


if __name__ == "__main__":
    main()

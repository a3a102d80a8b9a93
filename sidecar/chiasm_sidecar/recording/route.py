"""GET /-/timeline: what both processes of the pod noted of a request, or of the last seconds.

Names, counts and times only: what clients asked, showed or were told is in neither of them. One
asker at a time, at most one a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from chiasm_contract.errors import InvalidRequest, NotFound, Unavailable
from chiasm_contract.recording_json import encoded
from chiasm_contract.timeline import Recording, last_seconds
from starlette.responses import Response

from chiasm_sidecar.recording.timeline import Timeline
from chiasm_sidecar.turns import Turns
from chiasm_sidecar.worker_client import WorkerClient

PATH = "/-/timeline"


class TimelineRoute:
    """Asks both."""

    def __init__(self, timeline: Timeline, worker: WorkerClient) -> None:
        self._timeline = timeline
        self._worker = worker
        self._turns = Turns()

    async def answer(self, query: Mapping[str, str]) -> Response:
        """A PodRecording.

        Raises: InvalidRequest for another question, NotFound for a request that nobody knows.
        """
        if len(query) > 1 or not query.keys() <= {"request", "last_seconds"}:
            raise InvalidRequest(
                f"{', '.join(query)} cannot be asked for; give request=ID or last_seconds, "
                "nothing else.",
                param=next(iter(query)),
            )
        async with self._turns.turn():
            name = query.get("request")
            if name is not None:
                return await self._of_request(name)
            seconds = last_seconds(query)
            theirs = await self._ask({"last_seconds": f"{seconds:g}"})
            return await _pod(self._timeline.last(seconds), theirs)

    async def _of_request(self, name: str) -> Response:
        answer_id = self._timeline.find(name)
        if answer_id is None:
            raise NotFound(
                "No request of that name is known here, or none any more; give an answer's id, its "
                "X-Request-Id or its trace id, and ask the pod that answered soon after it.",
                param="request",
            )
        theirs = await self._ask({"request": answer_id})
        return await _pod(self._timeline.of_request(answer_id), theirs)

    async def _ask(self, query: Mapping[str, str]) -> bytes:
        """The worker's Recording; null while it is away."""
        try:
            return await self._worker.timeline(query)
        except Unavailable:
            return b"null"


async def _pod(ours: Recording, theirs: bytes) -> Response:
    # Theirs can have megabytes, which nothing here needs to understand; ours takes a while, and the
    # loop has answers to send meanwhile.
    own = await asyncio.to_thread(encoded, ours)
    return Response(b'{"sidecar":%s,"worker":%s}' % (own, theirs), media_type="application/json")

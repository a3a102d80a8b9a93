"""How exactly the canary gets its share of new conversations.

For each number of sidecars and each weight, the routers of that many sidecars (the code that
decides, without sockets) draw new conversations, spread over them in turn and at random:

- in turn: `max_error_conversations` is the largest |observed - due| whenever all have had equally
  many; `within_a_round` is the same after every single conversation, with the order of the sidecars
  drawn anew for each run.
- at random: after every single conversation, over many runs; the sidecars do not talk about it, so
  each may be off by less than one. `share_above_one` says how often the whole is off by more.
- by a coin: what a splitter without memory would do with the same conversations, beside it.

Then real sidecars of two revisions, each with a worker that answers at once, are asked over HTTP in
turn, and what clients saw is compared with what is due and with what the sidecars counted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import tempfile
from collections.abc import AsyncIterator, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import aiohttp
import uvloop
from aiohttp import web
from chiasm_contract.config import SidecarConfig
from chiasm_contract.messages import (
    ChatMessage,
    FinishEvent,
    PodState,
    TextPart,
    TokenEvent,
    Usage,
)
from chiasm_contract.names import CONVERSATION_HEADER
from chiasm_contract.traffic import WHOLE, TrafficPlan, Version
from chiasm_sidecar.server import listen, running
from chiasm_sidecar.traffic.counting import Books
from chiasm_sidecar.traffic.routing import Asked, Router
from reporting import publish
from stand_ins import identity_of_nobody, serving
from starlette.datastructures import Headers

REPLICAS = (1, 3, 8)
SHARES = (50, 100, 500, 1250, 3333, 5000)  # parts of 10,000
STABLE, CANARY = "v1-stable", "v1-canary"
FIRST_TURN = (ChatMessage(role="user", content=(TextPart(text="What is it?"),)),)
ASKED = Asked("0" * 64, Headers(), FIRST_TURN, (), "name")


def plan(share: int, names: tuple[str, ...], addresses: dict[str, str] | None = None) -> Any:
    """The plan that all follow."""
    at = addresses or dict.fromkeys((STABLE, CANARY), "127.0.0.1:1")
    return TrafficPlan(
        epoch=1,
        window=1,
        stable=Version(revision=STABLE, address=at[STABLE]),
        canary=Version(revision=CANARY, address=at[CANARY]),
        share=share,
        members=names,
    )


def routers(num_replicas: int, share: int) -> list[Router]:
    """Those of sidecars that have just begun to follow the plan."""
    names = tuple(f"pod-{number}" for number in range(num_replicas))
    made = [Router(STABLE, name, Books()) for name in names]
    for router in made:
        router.take(plan(share, names))
    return made


def draws(fleet: list[Router], order: Iterator[int]) -> Iterator[bool]:
    """Whether the canary gets each of the conversations."""
    for place in order:
        route = fleet[place].route(ASKED, 0)
        yield route is not None and route.places[0].revision == CANARY


def in_turn(num_replicas: int, rounds: int) -> Iterator[int]:
    order = random.sample(range(num_replicas), num_replicas)
    for _ in range(rounds):
        yield from order


def at_random(num_replicas: int, total: int) -> Iterator[int]:
    for _ in range(total):
        yield random.randrange(num_replicas)


def errors(hits: Iterator[bool], share: int) -> Iterator[float]:
    """|observed - due| after each conversation."""
    observed = 0
    for number, hit in enumerate(hits, 1):
        observed += hit
        yield float(abs(observed - Fraction(number * share, WHOLE)))


def decided(num_replicas: int, runs: int, total: int) -> dict[str, float]:
    """The figures of one number of sidecars, the worst over all weights."""
    rounds = total // num_replicas
    equal = within = random_worst = coin = 0.0
    above = counted = 0
    for share in SHARES:
        for _ in range(runs):
            each = list(
                errors(draws(routers(num_replicas, share), in_turn(num_replicas, rounds)), share)
            )
            equal = max(equal, *each[num_replicas - 1 :: num_replicas])
            within = max(within, *each)
            spread = at_random(num_replicas, total)
            each = list(errors(draws(routers(num_replicas, share), spread), share))
            random_worst = max(random_worst, *each)
            above += sum(error > 1 for error in each)
            counted += len(each)
            tossed = (random.random() * WHOLE < share for _ in range(total))
            coin = max(coin, *errors(tossed, share))
    return {
        "max_error_conversations": round(equal, 4),
        "within_a_round": round(within, 4),
        "random_max_error_conversations": round(random_worst, 4),
        "random_share_above_one": round(above / counted, 4),
        "coin_max_error_conversations": round(coin, 4),
    }


def instant_worker() -> web.Application:
    """Speaks the contract and answers at once."""
    identity = identity_of_nobody()
    usage = Usage(prompt_tokens=8, completion_tokens=1, cached_tokens=0, image_tokens=0)
    events = (TokenEvent(text="So.", token_ids=(1,)), FinishEvent(reason="stop", usage=usage))
    lines = b"".join(serving.line(event) for event in events)

    async def generate(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=lines, headers=serving.headers(identity))

    return serving.application("demo", identity, generate)


@contextlib.asynccontextmanager
async def worker_at(path: Path) -> AsyncIterator[None]:
    runner = web.AppRunner(instant_worker())
    await runner.setup()
    await web.UnixSite(runner, str(path)).start()
    try:
        yield
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def fleet(num_stable: int, share: int) -> AsyncIterator[tuple[list[str], list[str]]]:
    """API and metrics addresses of the sidecars that clients reach."""
    names = tuple(f"pod-{number}" for number in range(num_stable))
    with tempfile.TemporaryDirectory(prefix="chiasm-bench-") as folder:
        async with contextlib.AsyncExitStack() as stack:
            socket_path, traffic = Path(folder) / "worker.sock", Path(folder) / "traffic.json"
            await stack.enter_async_context(worker_at(socket_path))
            sockets = {name: (listen("127.0.0.1", 0), listen("127.0.0.1", 0)) for name in names}
            sockets["canary"] = (listen("127.0.0.1", 0), listen("127.0.0.1", 0))
            urls = {
                name: [f"127.0.0.1:{each.getsockname()[1]}" for each in pair]
                for name, pair in sockets.items()
            }
            addresses = {STABLE: urls[names[0]][0], CANARY: urls["canary"][0]}
            traffic.write_text(plan(share, names, addresses).model_dump_json())
            for name, (api, metrics) in sockets.items():
                config = SidecarConfig(
                    model_id="demo",
                    worker_socket=socket_path,
                    host="127.0.0.1",
                    revision=CANARY if name == "canary" else STABLE,
                    traffic_file=traffic,
                )
                sidecar = await stack.enter_async_context(running(config, api, metrics, name))
                async with asyncio.timeout(60):
                    while not sidecar.readiness.state.ready:  # noqa: ASYNC110 - polled
                        await asyncio.sleep(0.02)
            yield [urls[name][0] for name in names], [urls[name][1] for name in names]


async def asked(num_stable: int, share: int, rounds: int) -> tuple[float, bool]:
    """|observed - due| of what clients saw, and whether the sidecars counted the same."""
    body = {"model": "demo", "messages": [{"role": "user", "content": "What is it?"}]}
    seen = 0
    async with fleet(num_stable, share) as (apis, sides), aiohttp.ClientSession() as http:
        for _ in range(rounds):
            for api in apis:
                async with http.post(f"http://{api}/v1/chat/completions", json=body) as response:
                    if response.status != 200:
                        raise RuntimeError(f"{api} answered {response.status}")
                    await response.read()
                    seen += response.headers[CONVERSATION_HEADER].endswith(f"@{CANARY}")
        counted = 0
        for side in sides:
            async with http.get(f"http://{side}/state") as response:
                state = PodState.model_validate_json(await response.text())
            counts = state.traffic.versions[CANARY].by_modality.get("text")
            counted += 0 if counts is None else counts.answers
    return float(abs(seen - Fraction(num_stable * rounds * share, WHOLE))), seen == counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="for each weight")
    parser.add_argument("--conversations", type=int, default=2400, help="of a run")
    parser.add_argument("--http-rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random.seed(options.seed)
    by_replicas = {}
    for num_replicas in REPLICAS:
        by_replicas[num_replicas] = decided(num_replicas, options.runs, options.conversations)
        print(f"{num_replicas} sidecars: {by_replicas[num_replicas]}")
    over_http = {}
    for share in (500, 1250, 3333):
        error, agrees = uvloop.run(asked(3, share, options.http_rounds))
        over_http[f"{share / 100:g} %"] = {
            "max_error_conversations": round(error, 4), "counted_as_seen": agrees,
        }  # fmt: skip
        print(f"3 sidecars over HTTP, {share / 100:g} %: {over_http[f'{share / 100:g} %']}")
    worst = [each["max_error_conversations"] for each in by_replicas.values()]
    worst += [float(each["max_error_conversations"]) for each in over_http.values()]
    publish(
        "canary_share",
        {
            "max_error_conversations": max(worst),
            "random_max_error_conversations": max(
                each["random_max_error_conversations"] for each in by_replicas.values()
            ),
            "by_replicas": by_replicas,
            "over_http": over_http,
            "weights_percent": [share / 100 for share in SHARES],
            "conversations_of_a_run": options.conversations,
            "runs_for_each_weight": options.runs,
        },
    )


if __name__ == "__main__":
    main()

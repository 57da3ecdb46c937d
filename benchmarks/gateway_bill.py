"""What sessions cost through a live gateway, by the books of the provider behind it.

Request traces are replayed with their own sizes and gaps: a client in the Anthropic dialect sends its whole conversation
with each request, marks it for the cache as coding agents do, and goes through a gateway to the scripted provider. Gateway,
worker and provider run in this process and go by one clock, which only the gaps of the trace move. The texts are made up.
"""

import asyncio
import contextlib
import json
import random
import statistics
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import aiohttp
import msgspec

from benchmarks.clock import note
from benchmarks.live_bill import NOUNS, VERBS, SharedClock
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table, share
from benchmarks.traces import generated_traces
from penstock.context.bookkeeping import Bookkeeper
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.gateway.conversations import Conversations
from penstock.gateway.fitting import ConversationFitter
from penstock.gateway.orders import Answer, Order
from penstock.gateway.server import Gateway
from penstock.gateway.upstreams import read_upstreams
from penstock.measure.prices import price_of
from penstock.measure.tokens import tokenizer_named
from penstock.measure.usage import Usage
from penstock.measure.weigh import MESSAGE_FRAME, weigh
from penstock.planning.economics import PriceTerms, terms_of
from penstock.planning.policy import budgets
from penstock.replay.bills import Case, bill_of, course_of
from penstock.replay.policies import at_size
from penstock.replay.traces import Trace, read_traces
from penstock.settings import CompressionSettings, Settings, settings_from
from penstock.testing import PromptCache, Received, Reply
from penstock.testing.provider_server import ScriptedProvider

__all__ = ["run"]

MODEL = "claude-opus-4-8"
WINDOW_TOKENS = 200_000
LATE_SHARE, LATE_KEPT_TOKENS = 0.83, 25_000
FLOORS = {"5m": Limit(78), "1h": Limit(97)}
NONE = Limit(0)
ROUNDING = 1.0001
ANSWER_TOKENS = 1_000  # that each request allows; the trace says what came
SMALLEST = 24  # tokens of a call with its result
TOKENIZER = tokenizer_named("o200k_base")
LINES = 4_000
UNSET = "Not run: PENSTOCK_CORPORA names no folder with `traces/*.jsonl.gz`. It would add recorded sessions, and has the floors."


class Till(PromptCache):
    """The provider's cache with its books."""

    def __init__(self, clock: SharedClock, terms: PriceTerms) -> None:
        super().__init__(clock=clock)
        self._terms = terms
        self.units = 0.0
        self.largest_prompt = 0

    def split(self, usage: Usage, received: Received, weights: Sequence[int]) -> Usage:
        parted = super().split(usage, received, weights)
        self.units += self._terms.bill(parted)
        self.largest_prompt = max(self.largest_prompt, usage.prompt_tokens)
        return parted


class WorkersHere:
    """Carries orders out in this process, so that a clock of ours reaches the books."""

    def __init__(self, settings: Settings) -> None:
        self._conversations = Conversations(settings)

    async def give(self, order: Order) -> Answer:
        return await self._conversations.carry_out(order)

    def hurry(self) -> None:
        """Does nothing: an order is carried out as soon as it is given."""

    async def aclose(self) -> None:
        await self._conversations.aclose()


@dataclass
class Replayed:
    """A session as it was billed, and as it would have been: never compacted, and compacted at 83 %."""

    trace: Trace
    units: float
    compactions: int
    largest_prompt: int
    never: float
    late: float
    peak: int
    """Tokens of its largest request had nothing been compacted."""
    prompts: list[int] = field(default_factory=list)


def run(options: Options) -> list[Table]:
    """The tables of the gateway's bill."""
    files = sorted(options.corpora.glob("traces/*.jsonl.gz")) if options.corpora else []
    if files:
        sets = {path.name.partition(".")[0]: read_traces(path.read_bytes()) for path in files}
        chosen = {name: _choose(traces, options.limit) for name, traces in sets.items()}
    else:
        chosen = {"generated": generated_traces(3 if options.quick else 20)}
    rows = []
    for name, traces in chosen.items():
        for ttl, floor in FLOORS.items():
            note(f"gateway bill: {name}, {len(traces)} sessions, {ttl} cache")
            found = asyncio.run(_replay(traces, ttl))
            rows.append(_row(f"{name}, {ttl}", found, floor if files else None))
    table = Table(
        "gateway-bill",
        "Bill of sessions through the gateway",
        (
            "sessions, cache",
            "sessions",
            "requests",
            "compactions",
            "gateway / at 83 % (floor)",
            "gateway / never",
            "at 83 % / never",
            "below the threshold",
            "dearer of them (floor)",
            "dearest of them / never",
            "largest prompt",
            "over the window (floor)",
        ),
        tuple(rows),
        f"Replayed through a live gateway with default settings (extractive) and the scripted provider with its prompt cache; "
        f"{WINDOW_TOKENS:,} tokens of window, prices of {MODEL}, by the provider's own books. *At 83 %* compacts extractively "
        f"to {LATE_KEPT_TOKENS:,} tokens, *never* only where the window forces it; both are computed for the very same "
        f"requests. {'' if files else UNSET}",
    )
    return [table]


def _choose(traces: Sequence[Trace], limit: int) -> list[Trace]:
    """An even sample by size: `limit` sessions of those that one window holds, a few of those of a million tokens."""
    tokens = statistics.median(sum(trace.appended) for trace in traces)
    count = limit if tokens < WINDOW_TOKENS else max(1, limit // 20)
    ordered = sorted(traces, key=lambda trace: sum(trace.appended))
    count = min(count, len(ordered))
    return [ordered[(2 * number + 1) * len(ordered) // (2 * count)] for number in range(count)]


def _row(label: str, found: Sequence[Replayed], floor: Limit | None) -> tuple[str | Figure, ...]:
    units, never, late = (sum(getattr(one, name) for one in found) for name in ("units", "never", "late"))
    room = WINDOW_TOKENS - ANSWER_TOKENS  # what a request reserves for its answer is not part of the window
    threshold = budgets(CompressionSettings(), room).threshold_tokens
    below = [one for one in found if one.peak < threshold]
    largest = max(one.largest_prompt for one in found)
    return (
        label,
        Figure(len(found)),
        Figure(sum(one.trace.requests for one in found)),
        Figure(sum(one.compactions for one in found)),
        share(units / late, floor),
        share(units / never),
        share(late / never),
        Figure(len(below)),
        Figure(sum(one.units > one.never * ROUNDING for one in below), "", NONE),
        share(max((one.units / one.never for one in below), default=0.0)),
        Figure(largest),
        Figure(sum(one.largest_prompt > WINDOW_TOKENS for one in found), "", NONE),
    )


async def _replay(traces: Sequence[Trace], ttl: str) -> list[Replayed]:
    price = price_of(MODEL)
    assert price is not None, f"the price table does not know {MODEL}"
    terms = terms_of(price, "1h" if ttl == "1h" else "5m")
    assert isinstance(terms, PriceTerms), terms
    found = []
    for number, trace in enumerate(traces):
        found.append(await _replay_one(trace, ttl, terms))
        if number % 10 == 9:
            note(f"gateway bill: {number + 1} of {len(traces)}")
    return found


async def _replay_one(trace: Trace, ttl: str, terms: PriceTerms) -> Replayed:
    clock = SharedClock()
    till = Till(clock, terms)
    outputs = iter(trace.output)
    client = _Client(trace, ttl)
    appended: list[int] = []
    prompts, compactions = [], 0
    async with _stage(till, clock, lambda _: _answer(next(outputs))) as (address, fitter, provider):
        async with aiohttp.ClientSession() as connection:
            for gap, body in zip(trace.gaps, client.requests(), strict=True):
                clock.seconds += max(0.0, gap - 0.001)  # at its very end a cache is warm
                headers = {
                    "content-type": "application/json",
                    "x-api-key": "any",
                    "anthropic-version": "2023-06-01",
                }
                async with connection.post(f"{address}/v1/messages", data=body, headers=headers) as response:
                    answer = await response.read()
                    assert response.status == 200, (response.status, answer[:300])
                    compactions += response.headers["x-penstock-compacted"] == "now"
                appended.append(client.new_tokens)
                prompts.append(provider.received[-1].prompt_tokens)
                await fitter.finish_beside()
        assert provider.violations == (), provider.violations[:3]
    twin = msgspec.structs.replace(trace, static_tokens=client.static_tokens, appended=tuple(appended))
    case = Case(terms=terms, window_tokens=WINDOW_TOKENS, kept_tokens=LATE_KEPT_TOKENS)
    course = course_of(twin, terms)
    never = bill_of(course, case, at_size(course, case, WINDOW_TOKENS)).units
    late = bill_of(course, case, at_size(course, case, round(LATE_SHARE * WINDOW_TOKENS))).units
    return Replayed(
        trace=trace,
        units=till.units,
        compactions=compactions,
        largest_prompt=till.largest_prompt,
        never=never,
        late=late,
        peak=client.static_tokens + sum(appended),
        prompts=prompts,
    )


@contextlib.asynccontextmanager
async def _stage(
    till: Till, clock: SharedClock, script: Any
) -> AsyncIterator[tuple[str, ConversationFitter, ScriptedProvider]]:
    """The address of a gateway in front of the scripted provider, its fitter, and the provider."""
    with tempfile.TemporaryDirectory() as folder, patch.object(Bookkeeper, "now", clock):
        settings = settings_from(
            {
                "store.url": f"sqlite:///{folder}/gateway.db",
                "model.context_length": WINDOW_TOKENS,
                "gateway.port": 0,
                "gateway.retries": 0,
            }
        )
        async with ScriptedProvider(script, prompt_cache=till, window_tokens=WINDOW_TOKENS) as provider:
            fitter = ConversationFitter(settings.gateway, WorkersHere(settings), clock=clock)
            upstreams = read_upstreams(settings.gateway, provider.base_url, environ={})
            try:
                async with Gateway(upstreams, settings, fitter=fitter) as gateway:
                    yield gateway.address, fitter, provider
            finally:
                await fitter.aclose()


def _answer(tokens: int) -> Reply:
    """An answer that is billed as so many tokens; what it says comes back with the next request of the trace."""
    return Reply("ok" + " ok" * (tokens - 1) if tokens else "")


class _Client:
    """Sends everything each time: calls and their results, of the sizes of the trace."""

    def __init__(self, trace: Trace, ttl: str) -> None:
        self._trace = trace
        self._mark = {"type": "ephemeral", **({"ttl": "1h"} if ttl == "1h" else {})}
        chance = random.Random(trace.id)
        self._lines = [_line(chance) for _ in range(LINES)]
        self._sizes = [TOKENIZER.count(line + "\n") for line in self._lines]
        self._at = 0
        self._system = self._write(trace.static_tokens - MESSAGE_FRAME)
        self.static_tokens = MESSAGE_FRAME + TOKENIZER.count(self._system)
        self.new_tokens = 0

    def requests(self) -> Iterator[bytes]:
        """The bodies in their order. `new_tokens` is what the last one has added, as the provider counts."""
        system = [{"type": "text", "text": self._system, "cache_control": self._mark}]
        begin = json.dumps(
            {"model": MODEL, "max_tokens": ANSWER_TOKENS, "system": system}, ensure_ascii=False
        ).encode()[:-1]
        sent: list[bytes] = []
        dialect = dialect_named("anthropic")
        for number, tokens in enumerate(self._trace.appended):
            new = self._speak(number, tokens)
            self.new_tokens = sum(weigh(decode_all(dialect, new), TOKENIZER))
            sent += [json.dumps(message).encode() for message in new]
            block = {**new[-1]["content"][-1], "cache_control": self._mark}
            marked = {**new[-1], "content": [*new[-1]["content"][:-1], block]}
            messages = b", ".join([*sent[:-1], json.dumps(marked).encode()])
            yield begin + b', "messages": [' + messages + b"]}"

    def _speak(self, number: int, tokens: int) -> list[dict[str, Any]]:
        if number == 0:
            return [{"role": "user", "content": [{"type": "text", "text": self._write(tokens)}]}]
        said = min(self._trace.output[number - 1], max(0, tokens - SMALLEST))
        call = f"toolu_{number:06}"
        step = {"type": "tool_use", "id": call, "name": "run", "input": {"step": number}}
        text = [{"type": "text", "text": self._write(said)}] if said > SMALLEST else []
        left = tokens - (said if text else 0) - SMALLEST
        result = {"type": "tool_result", "tool_use_id": call, "content": self._write(left)}
        return [{"role": "assistant", "content": [*text, step]}, {"role": "user", "content": [result]}]

    def _write(self, tokens: int) -> str:
        """A text of about so many tokens."""
        lines, left = [], tokens
        while left > 0 or not lines:
            place = self._at % LINES
            self._at += 1
            lines.append(self._lines[place])
            left -= self._sizes[place]
        return "\n".join(lines)


def _line(chance: random.Random) -> str:
    nouns = chance.choices(NOUNS, k=3)
    return (
        f"src/{nouns[0]}/{nouns[1]}_{chance.randrange(100)}.py:{chance.randrange(900)}: the {nouns[2]} "
        f"{chance.choice(VERBS)} {chance.choice(NOUNS)} {chance.randrange(10_000)}"
    )

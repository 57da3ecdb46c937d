"""A long session against a provider that fails: is anything lost, and did the tool results reach the model?

400 messages with 154 tool results, each with a value that stands nowhere else. The provider is a scripted server
on the loopback interface, asked over HTTP as any other.
"""

import asyncio
from typing import Any, NamedTuple

import penstock
from benchmarks.clock import note
from benchmarks.generate import message_tokens
from benchmarks.options import Options
from benchmarks.pairs import legal
from benchmarks.recorded import ALL, NONE
from benchmarks.report import Cell, Figure, Table, share
from benchmarks.scripted_writers import WRITERS
from benchmarks.sessions.banks import ASK, SAY
from benchmarks.sessions.coding import Coder
from benchmarks.summary_checks import Original, text_of
from penstock.providers.connect import ConnectOptions
from penstock.providers.retries import RetryPolicy
from penstock.testing.provider_server import ScriptedProvider
from penstock.testing.scripted import Received, Reply

__all__ = ["Planted", "long_session", "run"]

Chat = list[dict[str, Any]]

ROUNDS, RESULTS = 45, 154
PART = 0.20
WINDOWS = (128_000, 32_768, 8_192)
ONCE = RetryPolicy(tries=1)


class Planted(NamedTuple):
    """A session, and the values that its tool results hold, one each."""

    messages: Chat
    needles: tuple[str, ...]


def _answered(received: Received) -> Reply:
    return Reply(WRITERS["good faith"]("\n\n".join(str(message["content"]) for message in received.messages)))


REPLIES: dict[str, Any] = {
    "429": [Reply.rate_limited()],
    "500": [Reply.server_error()],
    "400": [Reply.failing(400, {"error": {"message": "bad request", "type": "invalid_request_error"}})],
    "blank answer": [" \n"],
    "an answer": _answered,
}


def run(options: Options) -> Table:
    session = long_session()
    windows = WINDOWS[:1] if options.quick else WINDOWS
    rows = []
    for window in windows:
        note(f"summaries: {len(session.messages)} messages against a provider, window {window:,}")
        rows += [_row(session, name, window) for name in REPLIES]
    columns = (
        "provider, window",
        "requests",
        "outcome",
        "over budget",
        "legal",
        "messages unreachable (floor)",
        "needles in the requests",
        "needles in the new list",
        "needles in either (floor)",
    )
    tokens = message_tokens(session.messages)
    remark = (
        f"{len(session.messages)} messages, {RESULTS} of them tool results, {tokens:,} tokens, compressed to {100 * PART:.0f} %. "
        "Each tool result holds a value that stands nowhere else. The provider is asked over HTTP, once a request; it "
        "gives the same answer each time. Where it fails, it is not asked for the parts that are left, so the needles "
        "are judged where it answers, and where one request holds all. The best implementation known drops 173 of 396 "
        "messages on such failures, and shows its model 0 of 154 needles."
    )
    return Table("summaries-failures", "Providers that fail", columns, tuple(rows), remark)


def long_session() -> Planted:
    """400 messages of a coding agent, 154 of them tool results, the same on every machine."""
    coder = Coder(seed=11)
    coder.ceiling = 6_000
    coder.out.say("system", "You are a coding agent. Look before you change.")
    needles: list[str] = []
    for number in range(ROUNDS):
        coder.out.say("user", coder.prose(ASK, 1))
        while len(needles) < RESULTS * (number + 1) // ROUNDS:
            needles.append(f"ref-{(len(needles) + 1) * 7_919 % 100_003:05}-{coder.fill('{hex}')}")
            name, arguments, result = coder.action()
            lines = result.splitlines()
            at = int(coder.rng.random() * len(lines))
            lines.insert(at, f"the {coder.fill('{noun}')} was stored under {needles[-1]}")
            coder.out.call(None, [(name, arguments, "\n".join(lines))])
        coder.out.say("assistant", coder.prose(SAY, 3))
    coder.out.say("user", coder.prose(ASK, 1))
    return Planted(coder.out.messages, tuple(needles))


def _row(session: Planted, name: str, window: int) -> tuple[Cell, ...]:
    target = int(PART * message_tokens(session.messages))
    result, received = asyncio.run(_asked(session.messages, target, name, window))
    shown = "\n".join(request.text for request in received)
    stands = "\n".join(map(text_of, result.messages))
    requests, view = ({value for value in session.needles if value in text} for text in (shown, stands))
    judged = name == "an answer" or window > target / PART
    reached = share(len(requests | view) / len(session.needles), ALL if judged else None)
    return (
        f"{name}, {window:,}",
        Figure(len(received)),
        result.receipt.outcome,
        Figure(message_tokens(result.messages) > target, "", NONE),
        share(legal(result.messages), ALL),
        Figure(Original(session.messages, target).harm(result).unreachable, "", NONE),
        Figure(len(requests)),
        Figure(len(view)),
        reached,
    )


async def _asked(
    messages: Chat, target: int, name: str, window: int
) -> tuple[penstock.Compressed, tuple[Received, ...]]:
    options = ConnectOptions(policy=ONCE, environ={"BENCHMARK_KEY": "made-up-key-of-a-benchmark"})
    async with (
        ScriptedProvider(REPLIES[name], repeat_last=True, window_tokens=window) as server,
        penstock.connect(
            "openai",
            "scripted-model",
            base_url=server.base_url,
            api_key_env="BENCHMARK_KEY",
            options=options,
        ) as model,
    ):
        summariser = penstock.Summariser(model, window_tokens=window)
        result = await penstock.acompress(
            messages, target_tokens=target, dialect="chat", summariser=summariser
        )
        return result, server.received

"""What a look-up adds to an answer: a real gateway with `--recall`, and a scripted provider whose model uses a recall tool.

An answer with a look-up has two rounds. The work of the gateway and its worker is counted, in time of a processor, for answers
with and without one: what is more is the look-up and its own request, and hardly depends on what else the machine does.
"""

import asyncio
import json
import tempfile

import aiohttp

from benchmarks.clock import note
from benchmarks.gateway import children, cpu_seconds, process
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table
from penstock.testing.provider_server import ScriptedProvider, scripted_provider
from penstock.testing.scripted import Received, Reply

__all__ = ["run"]

TURNS, LINES = 60, 60
BLOCKS = 5
TOOLS = [{"type": "function", "function": {"name": "terminal", "parameters": {"type": "object"}}}]
LOOK_UPS = {
    "history_expand": {"handle": "m4"},
    "history_describe": {"handle": "m4"},
    "history_entity": {"name": "terminal"},
    "history_search": {"query": "port of database alpha-7-17"},
}
ADDED = Limit(5)


def run(options: Options) -> list[Table]:
    """The table of what a look-up adds."""
    note("gateway: what a look-up adds")
    rounds = 10 if options.quick else 60
    rows = []
    for tool in LOOK_UPS:
        script = _Script(tool)
        with (
            tempfile.TemporaryDirectory() as folder,
            scripted_provider(script) as provider,
            process("-m", "penstock", *_serve(provider, folder)) as (port, gateway),
        ):
            plain, woven = asyncio.run(_measure(port, gateway.pid, script, rounds))
        beyond = Figure(1_000 * (woven - 2 * plain), "ms", ADDED)
        more = Figure(1_000 * (woven - plain), "ms")
        rows.append((f"`{tool}`", Figure(1_000 * plain, "ms"), Figure(1_000 * woven, "ms"), more, beyond))
    text = (
        f"A conversation of {TURNS} calls with {LINES} lines each, compacted to 8,000 tokens; processor time of the gateway and "
        f"its worker per answer, over {rounds} answers of each kind. *Beyond its own request* leaves out the work for one more answer, "
        "and covers the look-up, joining the two answers, and what is stored of both."
    )
    columns = ("tool", "answer without", "answer with", "more", "beyond its own request (floor)")
    return [Table("gateway-recall", "What a look-up adds to an answer", columns, tuple(rows), text)]


class _Script:
    """A model that looks something up where it is told to, and answers then."""

    def __init__(self, tool: str) -> None:
        self.looks = False
        self._tool = tool

    def __call__(self, _received: Received) -> Reply:
        if not self.looks:
            return Reply(text="ok")
        self.looks = False  # what it gets then, it answers
        return Reply.calling(self._tool, **LOOK_UPS[self._tool])


def _serve(provider: ScriptedProvider, folder: str) -> tuple[str, ...]:
    where = ("--port", "0", "--upstream", provider.base_url, "--store", f"sqlite:///{folder}/gateway.db")
    return "serve", "--recall", *where, "--set", "model.context_length=200000"


async def _measure(port: int, pid: int, script: _Script, rounds: int) -> tuple[float, float]:
    """The seconds of work for an answer without a look-up, and for one with it."""
    messages = _write_talk()
    used = {False: 0.0, True: 0.0}
    async with aiohttp.ClientSession() as client:

        async def ask(**headers: str) -> None:
            body = {"model": "gpt-stub", "messages": messages, "tools": TOOLS}
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            async with client.post(url, json=body, headers=headers) as response:
                await response.read()
                response.raise_for_status()

        await ask(**{"x-penstock-target-tokens": "8000"})
        for looks in (False, True):  # what is read once, is read now
            script.looks = looks
            await ask()
        for block in range(2 * BLOCKS):
            looks, before = bool(block % 2), _sum_work(pid)
            for number in range(rounds // BLOCKS):
                messages += [
                    {"role": "assistant", "content": "ok"},
                    {"role": "user", "content": f"and {block}, {number}?"},
                ]
                script.looks = looks
                await ask()
            await asyncio.sleep(0.5)  # what is written beside belongs to it
            used[looks] += _sum_work(pid) - before
    count = rounds // BLOCKS * BLOCKS
    return used[False] / count, used[True] / count


def _sum_work(pid: int) -> float:
    return sum(cpu_seconds(one) for one in (pid, *children(pid)))


def _write_talk() -> list[dict]:
    talk: list[dict] = [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": "Find the ports."},
    ]
    for turn in range(TURNS):
        call = {"name": "terminal", "arguments": json.dumps({"command": f"run {turn}"})}
        lines = [
            f"database alpha-{turn}-{at} listens on port {10_007 + (turn * LINES + at) * 101}"
            for at in range(LINES)
        ]
        talk += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{turn}", "type": "function", "function": call}],
            },
            {"role": "tool", "tool_call_id": f"c{turn}", "content": "\n".join(lines)},
        ]
    return [*talk, {"role": "user", "content": "And now?"}]

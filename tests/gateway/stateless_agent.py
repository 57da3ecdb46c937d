"""An agent that sends its whole conversation with each request, as stateless clients do, and a fitter without processes."""

from __future__ import annotations

import contextlib
import io
import json

import aiohttp
from tests.gateway.gateway_stage import KEY, gateway_to, settings_of  # noqa: F401 - for the tests beside

from penstock.gateway.conversations import Conversations
from penstock.gateway.fitting import ConversationFitter

ROUTES = {"chat": "chat/completions", "responses": "responses", "anthropic": "messages"}
LISTS = {"chat": "messages", "responses": "input", "anthropic": "messages"}


class WorkersHere:
    """Carries orders out in this process, with the real conversations and the real store."""

    def __init__(self, settings):
        self.settings = settings
        self.conversations = Conversations(settings)
        self.orders = []
        self._ends_at = ()

    async def give(self, order):
        self.orders.append(order)
        if isinstance(order, self._ends_at):
            self._ends_at = ()
            self.lose_all()
        return await self.conversations.carry_out(order)

    def hurry(self):
        """Has nothing that waits: orders are carried out as they come."""

    def lose_all(self):
        """As if the worker had been killed and started again."""
        self.conversations = Conversations(self.settings)

    def lose_all_at_next(self, kind):
        """As if the next order of this kind found a worker that was just killed."""
        self._ends_at = kind

    async def aclose(self):
        await self.conversations.aclose()


@contextlib.asynccontextmanager
async def fitted_gateway(provider, settings):
    """A gateway with the whole of fitting in this process: gives it, its fitter and its workers."""
    workers = WorkersHere(settings)
    fitter = ConversationFitter(settings.gateway, workers)
    try:
        async with gateway_to(provider.base_url, fitter=fitter, settings=settings) as gateway:
            yield gateway, fitter, workers
    finally:
        await fitter.aclose()


class StatelessAgent:
    """Sends everything each time. In the Anthropic dialect it moves its cache mark as Claude Code does."""

    def __init__(self, gateway, dialect, *, stream=False, system="You are an agent.", **fields):
        self.url = f"{gateway.address}/v1/{ROUTES[dialect]}"
        self.dialect = dialect
        self.stream = stream
        self.history = []
        self.fields = {"model": "scripted-model", **fields}
        if dialect == "chat":
            self.history.append({"role": "system", "content": system})
        else:
            self.fields["instructions" if dialect == "responses" else "system"] = system
        if dialect == "anthropic":
            self.fields.setdefault("max_tokens", 1_000)
        self.headers = {"authorization": f"Bearer {KEY}", "anthropic-version": "2023-06-01"}
        self.answers = []
        self._calls = 0

    def say(self, text):
        self.history.append({"role": "user", "content": text})

    def use_tool(self, name, arguments, result):
        """A call as the model made it, and its result."""
        self._calls += 1
        call, written = f"call_{self._calls}", json.dumps(arguments)
        if self.dialect == "chat":
            made = {"id": call, "type": "function", "function": {"name": name, "arguments": written}}
            self.history += [
                {"role": "assistant", "content": None, "tool_calls": [made]},
                {"role": "tool", "tool_call_id": call, "content": result},
            ]
        elif self.dialect == "responses":
            self.history += [
                {"type": "function_call", "call_id": call, "name": name, "arguments": written},
                {"type": "function_call_output", "call_id": call, "output": result},
            ]
        else:
            self.history += [
                {"role": "assistant", "content": [{"type": "tool_use", "id": call, "name": name, "input": arguments}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": result}]},
            ]  # fmt: skip

    def reply(self, text):
        self.history.append({"role": "assistant", "content": text})

    def body(self):
        messages = list(self.history)
        if self.dialect == "anthropic":
            messages[-1] = _mark(messages[-1])
        return {**self.fields, LISTS[self.dialect]: messages, **({"stream": True} if self.stream else {})}

    async def ask(self, *, headers=None, data=None):
        """Sends all of it; returns the status, the headers and the body of the answer."""
        sent = json.dumps(self.body()).encode() if data is None else data
        given = {**self.headers, "content-type": "application/json", **(headers or {})}
        async with (
            aiohttp.ClientSession() as client,
            client.post(self.url, data=io.BytesIO(sent), headers=given) as response,
        ):
            answer = response.status, response.headers, await response.read()
        self.answers.append(answer)
        return answer


def _mark(message):
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**message, "content": [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]}

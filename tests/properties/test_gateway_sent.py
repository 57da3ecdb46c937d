"""What the provider is sent between two compactions begins with the same bytes, whatever a client does to its list."""

from __future__ import annotations

import asyncio
import json
import tempfile

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.gateway.stateless_agent import LISTS, WorkersHere
from tests.strategies.respelling import respell

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.rules import check
from penstock.gateway.exchange import AnswerReport, Incoming
from penstock.gateway.fitting import ConversationFitter
from penstock.measure.usage import Usage
from penstock.providers.cache_marks import strip_marks
from penstock.settings import settings_from

WINDOW = 8_000
TOOLS = [{"name": "terminal", "input_schema": {"type": "object"}}]
# An example takes a second: making one that fails smaller would take minutes.
FEW = settings(
    max_examples=12, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("say", "tool", "tools", "tool", "answer")),
        st.integers(5, 60),
        st.sampled_from(
            ("once", "once", "once", "twice", "restart", "aside", "count", "respell", "reminder")
        ),
        st.lists(st.integers(1, 6), max_size=3, unique=True),  # which of the last messages are marked
    ),
    min_size=12,
    max_size=30,
)


class Client:
    """A client of the gateway's fitter: it sends its whole list each time, and looks at what would go upstream."""

    def __init__(self, dialect, folder):
        self.dialect = dialect
        given = {"store.url": f"sqlite:///{folder}/gateway.db", "model.context_length": WINDOW}
        self.workers = WorkersHere(settings_from(given))
        self.fitter = ConversationFitter(self.workers.settings.gateway, self.workers)
        self.history, self.sent, self.calls = [], [], 0
        self.add("say", 3)

    def add(self, kind, lines):
        text = "\n".join(f"{kind} {len(self.history)}, line {line}: value-{line}" for line in range(lines))
        if kind == "say":
            self.history += [self._text("assistant", "What next?")] if self.history else []
            self.history.append(self._text("user", text))
        elif kind == "answer":
            self.history += [self._text("assistant", text), self._text("user", "Go on.")]
        else:
            ids = [f"call_{self.calls + number}" for number in range(3 if kind == "tools" else 1)]
            self.calls += len(ids)
            self._call(ids, text)

    def _text(self, role, text):
        if self.dialect != "responses":
            return {"role": role, "content": text}
        kind = "output_text" if role == "assistant" else "input_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

    def _call(self, ids, text):
        if self.dialect == "anthropic":
            uses = [{"type": "tool_use", "id": one, "name": "terminal", "input": {"c": one}} for one in ids]
            results = [{"type": "tool_result", "tool_use_id": one, "content": text} for one in ids]
            self.history += [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]
        elif self.dialect == "chat":
            calls = [
                {"id": one, "type": "function", "function": {"name": "terminal", "arguments": "{}"}}
                for one in ids
            ]
            self.history.append({"role": "assistant", "content": None, "tool_calls": calls})
            self.history += [{"role": "tool", "tool_call_id": one, "content": text} for one in ids]
        else:
            self.history += [
                {"type": "function_call", "call_id": one, "name": "terminal", "arguments": "{}"}
                for one in ids
            ]
            self.history += [{"type": "function_call_output", "call_id": one, "output": text} for one in ids]

    async def step(self, way, places):
        messages = [respell(wire) for wire in self.history] if way == "respell" else list(self.history)
        newest = messages[-1]
        if way == "reminder" and newest.get("role") == "user" and isinstance(newest["content"], str):
            messages[-1] = {**newest, "content": newest["content"] + "\nAnswer in one line."}
        if self.dialect == "anthropic":
            for place in places:
                if place <= len(messages):
                    messages[-place] = _mark(messages[-place])
        counted = None
        if way == "restart":
            self.workers.lose_all()
        if way == "aside":
            await self.send([{"role": "user", "content": "A title?"}], tools=[])
        if way == "count" and self.dialect == "anthropic":
            counted = await self.fitter.fit(self.incoming(messages, counts_only=True))
        for _ in range(2 if way == "twice" else 1):
            outgoing = await self.send(messages)
            self.look(messages, outgoing)
        if counted is not None and outgoing.headers["x-penstock-compacted"] != "now":
            assert len(json.loads(counted.body)["messages"]) == len(self.sent)

    def body(self, messages, tools=TOOLS):
        return json.dumps({"model": "m", LISTS[self.dialect]: messages, "tools": tools}).encode()

    def incoming(self, messages, *, tools=TOOLS, counts_only=False):
        return Incoming(
            dialect=self.dialect,
            body=self.body(messages, tools),
            owner="somebody",
            endpoint="https://api.example/v1",
            session_hint="the same for all",
            counts_only=counts_only,
        )

    async def send(self, messages, *, tools=TOOLS):
        outgoing = await self.fitter.fit(self.incoming(messages, tools=tools))
        usage = Usage(input_tokens=int(outgoing.headers["x-penstock-tokens-after"]))
        until_durable = self.fitter.settle(outgoing, AnswerReport(status=200, usage=usage))
        if until_durable is not None:
            await until_durable
        return outgoing

    def look(self, messages, outgoing):
        body = json.loads(outgoing.body)
        listed = body[LISTS[self.dialect]]
        assert json.dumps(listed).count("cache_control") <= json.dumps(messages).count("cache_control")
        dialect = dialect_named(self.dialect)
        assert not check(decode_all(dialect, listed), dialect.rules)
        bare = [_strip(message, self.dialect) for message in listed]
        if outgoing.headers["x-penstock-compacted"] != "now" and self.sent:
            assert bare[: len(self.sent)] == self.sent
        self.sent = bare


def _strip(wire, dialect):
    """The bytes of a message without marks. A text that carries a mark must stand in a list: to the provider it is the same."""
    bare = json.loads(strip_marks(json.dumps(wire).encode(), dialect))
    if isinstance(bare.get("content"), str):
        bare["content"] = [{"type": "text", "text": bare["content"]}]
    return json.dumps(bare)


def _mark(wire):
    content = wire["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**wire, "content": [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}]}


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
@FEW
@given(steps=STEPS)
def test_between_compactions_what_was_sent_is_the_beginning_of_what_is_sent(dialect, steps):
    async def go(folder):
        client = Client(dialect, folder)
        try:
            for kind, lines, way, places in steps:
                client.add(kind, lines)
                await client.step(way, places)
        finally:
            await client.fitter.aclose()
        assert len(client.fitter._tracker._known) <= 2 or any(way == "reminder" for _, _, way, _ in steps)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(go(folder))

"""What holds for every conversation that the gateway's workers attend to, whatever its client does."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.strategies.long_sessions import long_conversations

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.rules import check
from penstock.errors import ErrorClass, ErrorKind
from penstock.gateway.conversations import Conversations
from penstock.gateway.orders import (
    Append,
    Fit,
    Fitted,
    NotOpen,
    Open,
    OpenedConversation,
    Outside,
    Recover,
    TakeUsage,
)
from penstock.measure.usage import Usage
from penstock.providers.cache_marks import mark_cache, strip_marks
from penstock.sessions.session import Session
from penstock.settings import settings_from
from penstock.stores.store import open_store

FEW = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
_COUNT = itertools.count()


class _Client:
    """A client that sends one conversation, longer each time, and all that the gateway would do with it."""

    def __init__(self, dialect, wires, url, owner, mode):
        self.dialect, self.url, self.owner, self.mode = dialect, url, owner, mode
        marked = mark_cache({"messages": wires}, dialect=dialect)["messages"]
        self.messages = [json.dumps(wire, ensure_ascii=False).encode() for wire in marked]
        self.settings = settings_from({"store.url": url, "model.context_length": 6_000})
        self.conversations = Conversations(self.settings)
        self.conversation, self.known, self.prefix, self.tokens = "", 0, None, 0

    async def send(self, length, action, target):
        """Sends the first so many messages, by the orders of that action."""
        if action == "restart":
            await self.conversations.aclose()
            self.conversations = Conversations(self.settings)
        new = {
            "conversation": self.conversation,
            "length": self.known,
            "messages": tuple(self.messages[self.known : length]),
            "outside": None,
        }
        if action in ("fit", "target") and self.conversation:
            order = Fit(**new, target_tokens=target if action == "target" else None)
        else:
            order = Append(**new)
        answer = await self.conversations.carry_out(order) if self.conversation else NotOpen()
        if answer == NotOpen():
            answer = await self.conversations.carry_out(self.opening(length))
            assert isinstance(answer, OpenedConversation)
            assert self.mode != "full" or self.conversation in ("", answer.conversation)
            assert self.prefix in (None, answer.prefix)
            self.conversation, self.prefix = answer.conversation, answer.prefix
        elif action == "retry":
            assert await self.conversations.carry_out(order) == answer
        self.known = length
        self.take(answer)
        if action == "used":
            report = Usage(input_tokens=self.tokens // 2, cache_read_tokens=self.tokens // 2)
            used = TakeUsage(
                conversation=self.conversation, usages=(report,), sent_tokens=self.tokens, names_cache=True
            )
            self.take(await self.conversations.carry_out(used))
        if action == "refused":
            failure = ErrorClass(ErrorKind.PROMPT_TOO_LONG, 400, message="too long")
            refused = Recover(
                conversation=self.conversation,
                failure=failure,
                sent_tokens=self.tokens,
                attempt=1,
                outside=None,
            )
            self.take(await self.conversations.carry_out(refused))

    def opening(self, length):
        return Open(
            owner=self.owner,
            dialect=self.dialect,
            endpoint="https://api.example/v1",
            store=self.mode,
            messages=tuple(self.messages[:length]),
            outside=Outside(model="claude-sonnet-4-5", marked_ttl="5m"),
        )

    def take(self, answer):
        if isinstance(answer, Fitted):
            assert answer.compacted or answer.prefix == self.prefix
            self.prefix = answer.prefix
        if hasattr(answer, "standing"):
            self.tokens = answer.standing.tokens

    def require_sound(self):
        later = [strip_marks(raw, self.dialect) for raw in self.messages[self.prefix.covers : self.known]]
        view = [*self.prefix.messages, *later]
        dialect = dialect_named(self.dialect)
        assert not check(decode_all(dialect, [json.loads(raw) for raw in view]), dialect.rules)
        if self.mode == "full":
            self.require_logged(view)

    def require_logged(self, view):
        store = open_store(self.url).for_owner(self.owner)
        session = Session.resume(store, self.conversation)
        logged = [entry.raw for entry in store.read_from(session.id, 0)]
        sent = [strip_marks(raw, self.dialect) for raw in session.view_bytes()]
        store.close()
        assert logged == self.messages[: self.known]
        assert view == sent


def request_ends(dialect_name, wires):
    """The lengths at which a client may send a request: nothing waits for a result."""
    dialect = dialect_named(dialect_name)
    ends = range(1, len(wires) + 1)
    return [end for end in ends if not check(decode_all(dialect, wires[:end]), dialect.rules)]


@pytest.mark.parametrize("dialect", ["chat", "anthropic", "responses"])
@FEW
@given(data=st.data())
def test_what_is_sent_is_legal_and_what_was_said_is_logged(dialect, data, tmp_path_factory):
    wires = data.draw(long_conversations(dialect))
    ends = request_ends(dialect, wires)
    lengths = sorted(data.draw(st.sets(st.sampled_from(ends), min_size=min(2, len(ends)), max_size=6)))
    actions = st.sampled_from(["append", "fit", "target", "used", "refused", "restart", "retry"])
    steps = [(length, data.draw(actions), data.draw(st.integers(300, 3_000))) for length in lengths]
    folder = tmp_path_factory.mktemp(f"attended{next(_COUNT)}")

    async def whole():
        ann = _Client(dialect, wires, f"sqlite:///{folder}/log.db", "ann", "full")
        bob = _Client(dialect, wires, ann.url, "bob", "digests")
        for length, action, target in steps:
            for client in (ann, bob):
                await client.send(length, action, target)
                client.require_sound()
        assert ann.conversation != bob.conversation
        await ann.conversations.aclose()
        await bob.conversations.aclose()

    asyncio.run(whole())

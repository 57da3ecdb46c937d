"""600 escaped secrets in one conversation, and every door through which its text leaves: none comes through."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from itertools import chain, cycle
from typing import Any

import pytest
from ahocorasick_rs import AhoCorasick
from planted_held_out import HELD_OUT
from planted_known import KNOWN
from test_redaction_escaped import WAYS
from tests.strategies.escapings import decode_all, escape
from tests.strategies.fresh_secrets import make_fresh_secrets

import penstock
from penstock.accounts.conversations import search_conversations
from penstock.cli.main import main
from penstock.engine.summariser import Summariser
from penstock.recall.ranking import Wish
from penstock.sessions.session import Session
from penstock.stores.store import open_store
from penstock.testing import ScriptedModel

pytestmark = pytest.mark.outside  # seconds for each door

PLANTED = [(planted.text, planted.secrets) for planted in (*KNOWN, *HELD_OUT)]
REQUEST = {"role": "user", "content": "Now tell me how the deployment stands."}


def make_conversation() -> list[dict[str, Any]]:
    """Returns a conversation with each secret in arguments, in a result and in a text, escaped in turn in every way."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Look at these machines, please."}]
    ways = cycle(WAYS)
    for number, (text, _) in enumerate(PLANTED):
        call = f"call_{number}"
        arguments = json.dumps({"command": f"show machine_{number}", "note": escape(text, *next(ways))})
        asked = {"id": call, "type": "function", "function": {"name": "terminal", "arguments": arguments}}
        messages += [
            {
                "role": "assistant",
                "content": f"Machine_{number}: {escape(text, *next(ways))}",
                "tool_calls": [asked],
            },
            {
                "role": "tool",
                "tool_call_id": call,
                "content": escape(f"machine_{number} says\n{text}\n", *next(ways)),
            },
            {"role": "assistant", "content": f"It is up.\n{escape(text, *next(ways))}"},
            {"role": "user", "content": f"And what of this?\n{escape(text, *next(ways))}"},
        ]
    return [*messages, {"role": "assistant", "content": "All of them are up."}, REQUEST]


MESSAGES = make_conversation()
PIECES = {
    secret[at : at + 10]
    for _, secrets in PLANTED
    for secret in secrets
    for at in range(max(1, len(secret) - 9))
}
FINDER = AhoCorasick(sorted(PIECES))


def leaks(*shown: str) -> set[str]:
    """Returns what is left of any secret in these texts, and in all that decoding them shows."""
    views = "\n".join(chain.from_iterable(map(decode_all, shown)))
    return set(FINDER.find_matches_as_strings(views))


def texts_in(node: Any) -> list[str]:
    if isinstance(node, dict):
        return [text for value in node.values() for text in texts_in(value)]
    if isinstance(node, list):
        return [text for value in node for text in texts_in(value)]
    return [node] if isinstance(node, str) else []


@cache
def count_tokens() -> int:
    return penstock.compress(MESSAGES).receipt.tokens_before


def test_there_are_more_than_500_and_each_would_be_seen():
    assert 5 * len(PLANTED) >= 500
    shown = leaks(*texts_in(MESSAGES))
    assert all(any(secret[:10] in shown for secret in secrets) for _, secrets in PLANTED)


@pytest.mark.parametrize("share", [0.08, 0.7])
def test_none_in_a_compacted_list(share: float):
    """Handoff, stubs, shortened arguments, clipped texts: all that is not the caller's own message."""
    before = count_tokens()
    result = penstock.compress(MESSAGES, target_tokens=int(before * share))
    given = {id(message) for message in MESSAGES}
    written = [text for message in result.messages if id(message) not in given for text in texts_in(message)]
    assert any("[REDACTED]" in text for text in written)
    assert leaks(*written) == set()


def test_none_in_a_handoff_alone():
    assert leaks(penstock.handoff(MESSAGES, tokens=30_000)) == set()


def test_none_in_what_a_summary_model_is_asked():
    asked: list[str] = []

    def answer(received: Any) -> str:
        asked.extend(texts_in(received.body))
        return "## Summary\nThe machines are up."

    summariser = Summariser(ScriptedModel(answer))
    asyncio.run(penstock.acompress(MESSAGES, target_tokens=6_000, summariser=summariser))
    assert any("[REDACTED]" in text for text in asked)
    assert leaks(*asked) == set()


def test_none_in_what_a_search_shows():
    store = open_store("memory:")
    Session.create(store).append(MESSAGES)
    shown = [
        hit.excerpt
        for number in range(0, len(PLANTED), 15)
        for hit in search_conversations(store, f"machine_{number} note password key", Wish(hits=40)).hits
    ]
    store.close()
    assert any("[REDACTED]" in text for text in shown)
    assert leaks(*shown) == set()


def test_none_in_what_is_shown_or_exported_for_reading(tmp_path, capsys):
    """`--format json` is the conversation itself, for another program; the rest is for people."""
    url = f"sqlite:///{tmp_path}/sessions.db"
    store = open_store(url)
    session = Session.create(store)
    session.append(MESSAGES)
    store.close()
    for words in (["show"], ["show", "--json"], ["export", "--format", "md"], ["export", "--format", "html"]):
        assert main(["sessions", words[0], session.id, *words[1:], "--store", url]) == 0
        shown = capsys.readouterr().out
        assert leaks(shown, *shown.splitlines()) == set()


@pytest.mark.parametrize("seed", [1, 2])
def test_of_fresh_secrets_none_that_is_found_plain_is_lost_by_escaping(seed: int):
    from penstock.redaction import Redactor

    redactor = Redactor()
    found = [fresh for fresh in make_fresh_secrets(seed) if fresh.secret not in redactor.redact(fresh.text)]
    left = []
    for fresh, way in zip(found, cycle(WAYS), strict=False):
        wire = escape(fresh.text, *way)
        if any(fresh.secret in view for view in decode_all(redactor.redact(wire))):
            left.append((fresh.kind, way, wire))
    assert left == []

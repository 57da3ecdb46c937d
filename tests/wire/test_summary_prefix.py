"""The session's own model is asked at the end of the conversation itself, so that its provider reads from its cache."""

import asyncio
import copy
import json

import msgspec
import pytest
from client_talk import model_of
from summary_cases import (
    ONCE,
    PROVIDERS,
    SECRETS,
    attempts_of,
    claim_sound,
    good_handoff,
    handoff_text,
    notes,
    planted,
    prompt_of,
    recall,
)

import penstock
from penstock.engine.summariser import Summariser
from penstock.providers.exchange import Ask
from penstock.testing.prompt_cache import PromptCache
from penstock.testing.provider_server import ScriptedProvider
from penstock.testing.scripted import Reply

IN_PLACE = "at the end of the conversation"
OWN = "from the turns"
NAME = "scripted-model"
SYSTEM = {
    "chat": None,  # it stands among the messages
    "responses": "You are a careful operator.",
    "anthropic": [
        {"type": "text", "text": "You are a careful operator.", "cache_control": {"type": "ephemeral"}}
    ],
}
_SCHEMA = {"type": "object", "properties": {"shelf": {"type": "integer"}}}
TOOLS = {
    "chat": [{"type": "function", "function": {"name": "read_shelf", "parameters": _SCHEMA}}],
    "responses": [{"type": "function", "name": "read_shelf", "parameters": _SCHEMA}],
    "anthropic": [{"name": "read_shelf", "input_schema": _SCHEMA}],
}


def marked(talk):
    """The conversation as an agent sends it: with a mark on its last message where the provider wants one."""
    if talk.dialect != "anthropic":
        return talk
    wires = copy.deepcopy(talk.wires)
    wires[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    return talk._replace(wires=wires)


def asked_in_place(provider, replies, *, talk=None, given=None, served=None, before=False, **wishes):
    """The compaction by the session's own model; `before`, the model has seen the conversation already."""
    dialect = PROVIDERS[provider]
    talk = talk or marked(planted(dialect))
    held = copy.deepcopy(talk.wires)
    wishes = {"model": NAME, "system": SYSTEM[dialect], "tools": TOOLS[dialect], **wishes}

    async def run():
        async with (
            ScriptedProvider(replies, **(served or {})) as server,
            model_of(server, provider, policy=ONCE) as model,
        ):
            if before:
                await model.answer(
                    Ask(
                        messages=talk.wires,
                        system=wishes["system"],
                        tools=wishes["tools"],
                        max_output_tokens=50,
                    )
                )
            summariser = Summariser(model, main=model, **(given or {}))
            result = await penstock.acompress(
                talk.wires, target_tokens=talk.target, dialect=dialect, summariser=summariser, **wishes
            )
            return talk, result, server

    talk, result, server = asyncio.run(run())
    assert talk.wires == held
    return talk, result, server


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_request_begins_with_the_bytes_of_the_conversation(provider):
    talk, result, server = asked_in_place(provider, ["I go on.", good_handoff()], before=True)
    claim_sound(talk, result)
    assert attempts_of(result) == [(NAME, IN_PLACE, "wrote the handoff")]
    assert result.receipt.model_calls == 1
    earlier, asked = server.received
    assert server.violations == ()
    before, after = raw_fields(earlier), raw_fields(asked)
    field = "input" if provider == "responses" else "messages"
    assert after[field].startswith(before[field].removesuffix(b"]")), "byte for byte"
    for beside in ("tools", "system", "instructions"):
        assert after.get(beside) == before.get(beside)
    assert asked.tools
    assert len(asked.messages) == len(earlier.messages) + 1


def raw_fields(received):
    """The fields of a request as they stood in its body."""
    fields = msgspec.json.decode(received.raw, type=dict[str, msgspec.Raw])
    return {name: bytes(raw) for name, raw in fields.items()}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_provider_reads_the_prefix_from_its_cache_and_the_receipt_says_so(provider):
    cache = PromptCache(min_tokens=100)
    talk, result, server = asked_in_place(
        provider, ["I go on.", good_handoff()], before=True, served={"prompt_cache": cache}
    )
    earlier, asked = server.received
    receipt = result.receipt
    assert receipt.model_prompt_tokens == asked.prompt_tokens
    assert receipt.model_cached_tokens == earlier.prompt_tokens
    assert receipt.model_cached_tokens > 0.9 * receipt.model_prompt_tokens
    assert f"{receipt.model_cached_tokens:,} of them cached" in str(receipt)
    assert receipt.attempts[0]["usage"]["cache_read_tokens"] == receipt.model_cached_tokens
    claim_sound(talk, result)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_closing_message_asks_for_the_handoff_and_names_the_users_turns(provider):
    talk, result, server = asked_in_place(provider, [good_handoff()], focus="box 33")
    closing = prompt_of(server.received[0])
    assert server.received[0].messages[-1]["role"] == "user"
    assert "not from the user" in closing
    assert "What the reader cares about most: box 33." in closing
    assert not [secret for secret in SECRETS if secret in closing], "what we write holds none"
    first = 1 if provider == "anthropic" else 2
    assert f"m{first}: Check every shelf." in closing
    assert "The user wants every shelf" in handoff_text(talk.dialect, result.messages)


def test_facts_are_kept_and_inventions_struck_here_too():
    text = good_handoff() + "\n## Blocked\n- src/ghost/phantom.py broke with 99417 errors.\n"
    talk, result, _ = asked_in_place("openai", [text])
    claim_sound(talk, result)
    assert result.receipt.facts_struck == 3
    assert recall(talk, result.messages) > 0.4


def test_where_it_fails_there_the_turns_are_shown_alone():
    talk, result, server = asked_in_place("openai", [Reply.calling("read_shelf", shelf=1), good_handoff()])
    claim_sound(talk, result)
    assert attempts_of(result) == [
        (NAME, IN_PLACE, "it called a tool instead of writing"),
        (NAME, OWN, "wrote the handoff"),
    ]
    assert not [secret for secret in SECRETS if secret in server.received[1].text]


def test_a_conversation_that_is_refused_is_shown_as_turns():
    refused = Reply.failing(400, {"error": {"message": "tools.0: unknown field"}})
    talk, result, _ = asked_in_place("openai", [refused, good_handoff()])
    claim_sound(talk, result)
    assert attempts_of(result) == [
        (NAME, IN_PLACE, "bad request (400)"),
        (NAME, OWN, "wrote the handoff"),
    ]


def test_nothing_is_put_behind_an_unfinished_turn():
    talk = planted("responses")
    thought = {"type": "reasoning", "id": "rs_8", "summary": [], "encrypted_content": "sealed"}
    talk = talk._replace(wires=[*talk.wires, thought])
    _, result, server = asked_in_place("responses", [good_handoff()], talk=talk)
    assert attempts_of(result) == [(NAME, OWN, "wrote the handoff")]
    assert server.violations == ()


@pytest.mark.parametrize(
    "case",
    ["another model", "another dialect", "no main", "small window", "cache off", "call still open", "mended"],
)
def test_it_is_not_done_where_it_would_not_help_or_not_work(case):
    talk = planted("chat")
    given, wishes, provider = {}, {}, "openai"
    if case == "another model":
        wishes["model"] = "another-model"
    elif case == "another dialect":
        provider = "anthropic"
    elif case == "small window":
        given["window_tokens"] = 14_000
    elif case == "cache off":
        wishes["settings"] = {"model": {"cache_ttl": "off"}}
    elif case == "call still open":
        call = {"id": "open", "type": "function", "function": {"name": "read_shelf", "arguments": "{}"}}
        talk = talk._replace(
            wires=[*talk.wires, {"role": "assistant", "content": None, "tool_calls": [call]}]
        )
    elif case == "mended":
        talk = talk._replace(wires=talk.wires[:2] + talk.wires[3:])

    async def run():
        async with (
            ScriptedProvider(notes) as server,
            model_of(server, provider, policy=ONCE) as model,
        ):
            summariser = Summariser(model, main=None if case == "no main" else model, **given)
            result = await penstock.acompress(
                talk.wires, target_tokens=talk.target, summariser=summariser, **{"model": NAME, **wishes}
            )
            return result, server

    result, server = asyncio.run(run())
    assert attempts_of(result) == [(NAME, OWN, "wrote the handoff")]
    assert server.violations == ()
    assert len(server.received[0].messages) <= 2
    assert not [secret for secret in SECRETS if secret in server.received[0].text]
    assert json.dumps(talk.wires[5]) not in server.received[0].text

"""The providers' compaction protocols, answered by the gateway: what clients get, and what the provider is sent."""

from __future__ import annotations

import asyncio
import base64
import json
import zlib

import anthropic
import openai
import pytest
from tests.gateway.stateless_agent import KEY, StatelessAgent, fitted_gateway

from penstock.gateway.orders import Failed, Write
from penstock.settings import settings_from
from penstock.testing.provider_server import ScriptedProvider

WINDOW = 60_000
RULE = "Never push to the branch release-7."
TRIGGER = {"type": "compaction_trigger"}
PASSING = [{"type": "compaction", "compact_threshold": 2_000}]
EDITS = {
    "edits": [
        {"type": "clear_thinking_20251015", "keep": "all"},
        {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 2_000}},
    ]
}


def settings(tmp_path, **given):
    return settings_from(
        {
            "gateway.port": 0,
            "gateway.drain_seconds": 0.5,
            "model.context_length": WINDOW,
            "store.url": f"sqlite:///{tmp_path}/gateway.db",
            **given,
        }
    )


def worked(gateway, dialect, turns=8, **fields):
    """An agent with a rule and some results behind it."""
    agent = StatelessAgent(gateway, dialect, **fields)
    agent.say(f"{RULE} Find the port of the staging database.")
    for turn in range(turns):
        work(agent, turn)
    return agent


def work(agent, turn):
    lines = [f"line {number} of run {turn} is fine" for number in range(60)]
    lines.insert(7, f"staging database listens on port {54_000 + turn}")
    agent.use_tool("terminal", {"command": f"run {turn}"}, "\n".join(lines))


async def compact(agent):
    """Sends a trigger, as Codex does; returns the item, and keeps of the history what Codex keeps."""
    agent.history.append(TRIGGER)
    status, headers, body = await agent.ask()
    assert status == 200, body
    assert headers["x-penstock-compacted"] == "now"
    item = read_item(body, streamed=agent.stream)
    agent.history = [one for one in agent.history if one.get("role") == "user"] + [item]
    return item


def read_item(body, *, streamed):
    if not streamed:
        (item,) = json.loads(body)["output"]
        return item
    events = read_events(body)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    (item,) = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"]["output"] == [item]
    return item


def read_events(body):
    return [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]


def with_gateway(tmp_path, test, *, replies=("Go on.",), **given):
    async def go():
        async with ScriptedProvider(list(replies), repeat_last=True, window_tokens=WINDOW) as provider:
            async with fitted_gateway(provider, settings(tmp_path, **given)) as (gateway, fitter, workers):
                gateway.fitter, gateway.workers = fitter, workers
                await test(gateway, provider)
            assert provider.violations == ()

    asyncio.run(go())


@pytest.mark.parametrize("stream", [False, True])
def test_a_trigger_is_answered_without_the_provider_and_comes_back_as_a_handoff(stream, tmp_path):
    async def test(gateway, provider):
        agent = worked(gateway, "responses", stream=stream)
        item = await compact(agent)
        assert set(item) == {"type", "id", "encrypted_content"}
        assert item["type"] == "compaction"
        assert provider.received == ()
        for turn in range(8, 16):
            work(agent, turn)
        assert (await agent.ask())[0] == 200
        body = json.dumps(provider.received[-1].body)
        assert item["encrypted_content"] not in body
        assert "compaction" not in body
        assert "penstock-handoff" in body
        assert RULE in body
        assert "54003" in body

        # The second is written from the messages themselves, not from the first handoff.
        second = await compact(agent)
        assert second["encrypted_content"] != item["encrypted_content"]
        assert (await agent.ask())[0] == 200
        body = json.dumps(provider.received[-1].body)
        assert body.count("<penstock-handoff") == 1
        assert RULE in body
        assert "54003" in body
        assert "54012" in body

    with_gateway(tmp_path, test)


def test_an_item_opens_on_another_instance_and_in_another_conversation_of_its_owner(tmp_path):
    items = []

    async def first(gateway, _provider):
        items.append(await compact(worked(gateway, "responses")))

    async def second(gateway, provider):
        agent = StatelessAgent(gateway, "responses")
        agent.say("Something else that I want to know, with the same memory.")
        agent.history.append(items[0])
        assert (await agent.ask())[0] == 200
        assert "54003" in json.dumps(provider.received[-1].body)

    with_gateway(tmp_path, first)
    with_gateway(tmp_path, second)


def test_a_changed_item_or_another_callers_is_one_clear_error_and_goes_nowhere(tmp_path):
    async def test(gateway, provider):
        agent = worked(gateway, "responses")
        item = await compact(agent)
        token = item["encrypted_content"]
        agent.history[-1] = {
            **item,
            "encrypted_content": token[:-9] + ("A" if token[-9] != "A" else "B") + token[-8:],
        }
        status, _, body = await agent.ask()
        assert status == 400
        assert "cannot be opened" in json.loads(body)["error"]["message"]
        agent.history[-1] = item
        agent.headers = {"authorization": "Bearer another-made-up-key-0123456789"}
        assert (await agent.ask())[0] == 400
        assert provider.received == ()

    with_gateway(tmp_path, test)


def test_an_item_whose_key_is_gone_is_found_by_its_digest(tmp_path):
    async def test(gateway, provider):
        agent = worked(gateway, "responses")
        await compact(agent)
        await gateway.workers.conversations.flush()
        store = gateway.workers.conversations._store("full")
        with store.database.writing() as do:
            do.run("DELETE FROM notes WHERE name = 'gateway' AND key LIKE 'seal %'")
        gateway.workers.lose_all()
        gateway.fitter._asked._opened.clear()
        assert (await agent.ask())[0] == 200
        assert "54003" in json.dumps(provider.received[-1].body)

    with_gateway(tmp_path, test)


def test_a_providers_own_compaction_goes_through_untouched(tmp_path):
    theirs = {"type": "compaction", "id": "cmp_theirs", "encrypted_content": "gAAAAAB-of-the-provider"}

    async def test(gateway, provider):
        agent = StatelessAgent(gateway, "responses")
        agent.say("Hello.")
        agent.history.append(theirs)
        agent.say("Go on.")
        sent = json.dumps(agent.body()).encode()
        assert (await agent.ask(data=sent))[0] == 200
        assert provider.received[-1].body == json.loads(sent)
        item = await compact(agent)
        agent.history.insert(0, theirs)
        assert agent.history[-1] == item
        assert (await agent.ask())[0] == 200
        assert theirs in provider.received[-1].body["input"]

    with_gateway(tmp_path, test)


def test_the_compact_endpoint_answers_the_official_client(tmp_path):
    async def test(gateway, provider):
        agent = worked(gateway, "responses")
        async with openai.AsyncOpenAI(base_url=f"{gateway.address}/v1", api_key=KEY) as client:
            compacted = await client.responses.compact(model="scripted-model", input=agent.history)
            assert compacted.object == "response.compaction"
            assert [item.type for item in compacted.output] == ["message", "compaction"]
            assert provider.received == ()
            kept = [item.model_dump(exclude_none=True, warnings=False) for item in compacted.output]
            asked = {"role": "user", "content": "Which port?"}
            answer = await client.responses.create(model="scripted-model", input=[*kept, asked])
        assert answer.output_text == "Go on."
        assert "54003" in json.dumps(provider.received[-1].body)

    with_gateway(tmp_path, test)


@pytest.mark.parametrize("stream", [False, True])
def test_openais_compaction_in_passing_puts_the_item_before_the_answer(stream, tmp_path):
    async def test(gateway, provider):
        agent = worked(gateway, "responses", turns=12, stream=stream, context_management=PASSING)
        status, headers, body = await agent.ask()
        assert status == 200
        assert headers["x-penstock-compacted"] == "now"
        assert "context_management" not in provider.received[-1].body
        assert "penstock-handoff" in json.dumps(provider.received[-1].body)
        output = json.loads(body)["output"] if not stream else read_events(body)[-1]["response"]["output"]
        assert [item["type"] for item in output] == ["compaction", "message"]
        if stream:
            events = read_events(body)
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
            done = {
                e["output_index"]: e["item"]["type"]
                for e in events
                if e["type"] == "response.output_item.done"
            }
            assert done == {0: "compaction", 1: "message"}
        agent.history += output
        agent.say("And now?")
        sent = provider.received[-1].body["input"]
        assert (await agent.ask())[1]["x-penstock-compacted"] == "no"
        assert provider.received[-1].body["input"][: len(sent)] == sent  # the cached prefix serves

    with_gateway(tmp_path, test)


def test_below_the_threshold_nothing_is_compacted_and_other_edits_pass(tmp_path):
    async def test(gateway, provider):
        agent = worked(gateway, "anthropic", turns=1, context_management=EDITS)
        _, headers, _ = await agent.ask()
        assert headers["x-penstock-compacted"] == "no"
        assert provider.received[-1].body["context_management"] == {"edits": EDITS["edits"][:1]}

    with_gateway(tmp_path, test)


@pytest.mark.parametrize("stream", [False, True])
def test_anthropics_compaction_in_passing_puts_the_block_before_the_answer(stream, tmp_path):
    async def test(gateway, provider):
        agent = worked(gateway, "anthropic", turns=12)
        client = anthropic.AsyncAnthropic(base_url=gateway.address, api_key=KEY, auth_token=None)
        asked = {
            "model": "scripted-model",
            "max_tokens": 1_000,
            "context_management": EDITS,
            "betas": ["compact-2026-01-12"],
        }
        async with client:
            if stream:
                async with client.beta.messages.stream(messages=agent.history, **asked) as events:
                    message = await events.get_final_message()
            else:
                message = await client.beta.messages.create(messages=agent.history, **asked)
            assert [block.type for block in message.content] == ["compaction", "text"]
            assert message.content[0].encrypted_content.startswith("PENSTOCK~SEALED~HANDOFF~1.")
            assert message.content[1].text == "Go on."
            content = [block.model_dump(exclude_none=True) for block in message.content]
            history = [
                *agent.history,
                {"role": "assistant", "content": content},
                {"role": "user", "content": "And?"},
            ]
            await client.beta.messages.create(messages=history, **asked)
        roles = [message["role"] for message in provider.received[-1].body["messages"]]
        assert roles == ["user", "assistant", "user"]
        assert "54003" in json.dumps(provider.received[-1].body)

    with_gateway(tmp_path, test)


def test_anthropics_pause_after_a_compaction_asks_nobody(tmp_path):
    async def test(gateway, provider):
        edit = {**EDITS["edits"][1], "pause_after_compaction": True}
        agent = worked(gateway, "anthropic", turns=12, context_management={"edits": [edit]})
        _, _, body = await agent.ask()
        message = json.loads(body)
        assert message["stop_reason"] == "compaction"
        assert provider.received == ()
        agent.history.append({"role": "assistant", "content": message["content"]})
        agent.say("Go on then.")
        assert (await agent.ask())[0] == 200
        assert [one["role"] for one in provider.received[-1].body["messages"]] == ["user"]

    with_gateway(tmp_path, test)


def test_by_setting_the_provider_is_asked(tmp_path):
    async def test(gateway, provider):
        agent = worked(gateway, "responses")
        agent.history.append(TRIGGER)
        await agent.ask()
        assert provider.received[-1].body["input"][-1] == TRIGGER

    with_gateway(tmp_path, test, **{"gateway.compaction": "provider"})


@pytest.mark.parametrize("mode", ["digests", "off"])
def test_items_open_where_conversations_are_not_kept(mode, tmp_path):
    async def test(gateway, provider):
        agent = worked(gateway, "responses")
        await compact(agent)
        assert (await agent.ask())[0] == 200
        assert "54003" in json.dumps(provider.received[-1].body)

    with_gateway(tmp_path, test, **{"gateway.store": mode})


@pytest.mark.parametrize(("mode", "status"), [("ours", 503), ("ours-then-provider", 200)])
def test_a_compaction_that_fails_is_told_or_left_to_the_provider(mode, status, tmp_path):
    async def test(gateway, provider):
        agent = worked(gateway, "responses")
        item = await compact(agent)
        agent.say("And now?")
        agent.history.append(TRIGGER)
        give = gateway.workers.give

        async def fail_to_write(order):
            return Failed("of a test") if isinstance(order, Write) else await give(order)

        gateway.workers.give = fail_to_write
        assert (await agent.ask())[0] == status
        if status == 200:
            sent = provider.received[-1].body["input"]
            assert sent[-1] == TRIGGER
            assert item["encrypted_content"] not in json.dumps(sent)
        else:
            assert provider.received == ()

    with_gateway(tmp_path, test, **{"gateway.compaction": mode})


def test_an_item_that_no_worker_can_open_now_goes_nowhere(tmp_path):
    async def test(gateway, provider):
        agent = worked(gateway, "responses")
        await compact(agent)

        async def fail(_order):
            return Failed("of a test")

        gateway.workers.give = fail
        assert (await agent.ask())[0] == 503
        assert provider.received == ()

    with_gateway(tmp_path, test)


def test_leaving_gives_a_client_its_list_in_plain_text(tmp_path):
    async def test(gateway, provider):
        agent = worked(gateway, "responses")
        await compact(agent)
        agent.say("Which port?")
        status, _, body = await agent.ask(headers={"x-penstock-open": "true"})
        assert status == 200
        assert provider.received == ()
        opened = json.loads(body)
        assert [item["role"] for item in opened["input"]] == ["user", "user", "user"]
        assert "54003" in opened["input"][1]["content"][0]["text"]
        assert b"PENSTOCK~SEALED~HANDOFF~" not in body
        async with StatelessSender(provider) as send:  # straight to the provider, without any gateway
            assert await send(body) == 200

    with_gateway(tmp_path, test)


@pytest.mark.parametrize("mode", ["full", "digests"])
def test_no_secret_of_the_conversation_is_in_a_sealed_handoff(mode, tmp_path):
    """Neither in the item as it is carried, nor in what it opens to, nor in what the provider is sent for it."""
    secret = "hJ7kQ2vXw9LmZ4tRb8"

    async def test(gateway, provider):
        agent = worked(gateway, "responses", turns=2)
        agent.say(f"The staging database has port 54321, password={secret}. Keep the port in mind.")
        agent.use_tool("terminal", {"command": f"psql --password {secret} -p 54321"}, f"DB_PASSWORD={secret}")
        agent.use_tool(
            "http", {"headers": {"Authorization": f"Bearer {secret}"}}, json.dumps({"token": secret})
        )
        item = await compact(agent)
        agent.history = [item]
        agent.say("Which port?")
        carried = zlib.decompress(base64.urlsafe_b64decode(item["encrypted_content"].split(".")[3] + "=="))
        _, _, opened = await agent.ask(headers={"x-penstock-open": "true"})
        assert (await agent.ask())[0] == 200
        sent = json.dumps(provider.received[-1].body)
        for shown in (carried.decode(errors="replace"), opened.decode(), sent):
            assert "54321" in shown
            assert "[REDACTED]" in shown
            assert secret not in shown

    with_gateway(tmp_path, test, **{"gateway.store": mode})


class StatelessSender:
    """Sends bodies to the provider itself."""

    def __init__(self, provider):
        self._client = openai.AsyncOpenAI(base_url=provider.base_url, api_key=KEY)

    async def __aenter__(self):
        return self._send

    async def __aexit__(self, *_):
        await self._client.close()

    async def _send(self, body):
        answer = await self._client.responses.with_raw_response.create(**json.loads(body))
        return answer.status_code

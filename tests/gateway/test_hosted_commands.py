"""Commands as messages: they work in any chat app, with guards and short answers, and the model hears nothing of them."""

from __future__ import annotations

import re

import pytest
from hosted_stage import hosted_gateway, run
from test_hosted_sessions import script

LONG = "A long tale of the harbour and its berths, told again and again. " * 60


def test_every_command_answers_in_a_few_words():
    async def talk():
        async with hosted_gateway(script(LONG)) as hosted:
            client = hosted.client
            session = await client.open()

            async def command(text):
                reply = await client.say(session, text)
                assert (reply["status"], reply["message"]) == ("command", "")
                return reply["text"]

            assert await command("/compress") == "Nothing to compress yet."
            assert await command("/undo") == "Nothing to undo yet."
            assert await command("/new") == "This is already a new conversation."
            assert await command("/usage") == "No requests yet."
            assert (await command("/search")).startswith("Search for what?")
            assert (await command("/search marmalade")).startswith("Nothing found")
            helped = await command("/help")
            assert [line.split()[0].rstrip(":") for line in helped.splitlines()] == [
                "/compress", "/usage", "/new", "/undo", "/search", "/help",
            ]  # fmt: skip
            assert await command("/usage now") == "/usage takes nothing after it; nothing was done."
            assert "did you mean /compress?" in await command("/compact")
            assert "did you mean /usage?" in await command("/usge")
            assert "see /help" in await command("/xyzzy")
            assert len(hosted.provider.received) == 0
            assert hosted.store.log_tip(session).length == 0

    run(talk())


def test_commands_change_the_conversation_that_they_are_sent_to():
    async def talk():
        async with hosted_gateway(script(LONG)) as hosted:
            client = hosted.client
            session = await client.open()
            for number in range(10):
                await client.say(session, f"Tell me of berth {number}; its master is called Quentin{number}.")

            async def command(text):
                return (await client.say(session, text))["text"]

            assert (await command("/usage")).startswith("10 requests, ")
            assert "Quentin4" in await command("/search Quentin4")
            said = await command("/compress berth 3")
            assert said.startswith("Compressed: ")
            await client.say(session, "Go on.")
            assert len(hosted.provider.received[-1].messages) < 20
            assert (await command("/undo")).startswith("Undid the last compaction")
            made, undone = await command("/compress here 1"), await command("/undo")
            sizes = re.findall(r"[\d,]+(?= tokens| →)", made)
            assert re.findall(r"[\d,]+(?= tokens| →)", undone) == sizes[::-1]
            await client.say(session, "Go on.")
            assert len(hosted.provider.received[-1].messages) > 20
            assert (await command("/new")).startswith("A new conversation.")
            await client.say(session, "Who are you?")
            sent = [one for one in hosted.provider.received[-1].messages if one["role"] != "system"]
            assert [one["content"] for one in sent] == ["Who are you?"]
            assert "Quentin4" in await command("/search Quentin4")
            assert (await command("/undo")).startswith("Brought back what was left behind")
            await client.say(session, "Go on.")
            assert "Quentin4" in hosted.provider.received[-1].text

    run(talk())


def test_a_command_that_is_delivered_twice_is_done_once():
    async def talk():
        async with hosted_gateway(script(LONG)) as hosted:
            client = hosted.client
            session = await client.open()
            for number in range(10):
                await client.say(session, f"berth {number}")
            await client.say(session, "/compress")
            first = await client.say(session, "/undo", h_idempotency_key="u")
            again = await client.say(session, "/undo", h_idempotency_key="u")
            assert first == again
            assert (await client.say(session, "/undo"))["text"] == "Nothing to undo yet."

    run(talk())


@pytest.mark.parametrize("text", ["/etc/hosts is what?", "/ 5", "5/7", "see /help"])
def test_what_only_looks_like_a_command_goes_to_the_model(text):
    async def talk():
        async with hosted_gateway(script("Yes.")) as hosted:
            session = await hosted.client.open()
            assert (await hosted.client.say(session, text))["text"] == "Yes."

    run(talk())

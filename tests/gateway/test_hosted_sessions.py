"""Hosted conversations over HTTP: opened, spoken in, listed, searched, compacted, exported and deleted, by their owner."""

from __future__ import annotations

import asyncio
import json

import pytest
from hosted_stage import hosted_gateway, run

from penstock.testing import Reply


def script(*answers):
    """Answers in turn, and the last one for ever."""
    left = list(answers)

    def reply(_received):
        return left.pop(0) if len(left) > 1 else left[0]

    return reply


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_a_conversation_is_opened_and_goes_on(dialect):
    async def talk():
        async with hosted_gateway(script("Hello Ann.", "You are Ann.")) as hosted:
            client = hosted.client
            session = await client.open(dialect=dialect, system="You are a parrot.")
            first = await client.say(session, "I am Ann.")
            assert (first["status"], first["text"], first["message"]) == ("answered", "Hello Ann.", "m1")
            assert first["usage"]["requests"] == 1
            assert first["usage"]["prompt_tokens"] > 0
            second = await client.say(session, "Who am I?")
            assert (second["text"], second["message"]) == ("You are Ann.", "m3")
            sent = hosted.provider.received[-1]
            assert "You are a parrot." in json.dumps(sent.body)
            assert "Working folder" not in json.dumps(sent.body)
            assert [text in sent.text for text in ("I am Ann.", "Hello Ann.", "Who am I?")] == [True] * 3
            assert sent.headers.get("authorization", sent.headers.get("x-api-key", "")).endswith(
                "key-of-the-upstream"
            )
            _, shown = await client.get(f"/sessions/{session}")
            assert (shown["messages"], shown["dialect"], shown["title"]) == (4, dialect, "I am Ann.")
            assert shown["busy"] is False

    run(talk())


def test_a_streamed_reply_comes_as_events_and_ends_with_the_reply():
    async def talk():
        async with hosted_gateway(script("One two three.")) as hosted:
            session = await hosted.client.open()
            events = [event async for event in hosted.client.stream(session, "Count.")]
            assert "".join(data["text"] for name, data in events if name == "text") == "One two three."
            name, reply = events[-1]
            assert (name, reply["status"], reply["text"]) == ("reply", "answered", "One two three.")

    run(talk())


def test_a_stream_that_cannot_begin_is_an_ordinary_error():
    async def talk():
        async with hosted_gateway(script("x")) as hosted:
            status, error = await hosted.client.post(
                f"/sessions/{'0' * 32}/messages", {"text": "hi", "stream": True}
            )
            assert (status, error["error"]["type"]) == (404, "unknown_session")

    run(talk())


def test_a_model_that_fails_is_told_and_the_message_can_be_answered_later():
    async def talk():
        broken = Reply.failing(400, {"error": {"message": "no such thing", "type": "invalid_request_error"}})
        async with hosted_gateway(script(broken, "Now it works.")) as hosted:
            client = hosted.client
            session = await client.open()
            status, error = await client.post(f"/sessions/{session}/messages", {"text": "Hello?"})
            assert (status, error["error"]["type"]) == (502, "model_failed")
            assert "no such thing" in error["error"]["message"]
            assert error["error"]["next_step"]
            assert (await client.say(session))[
                "text"
            ] == "Now it works."  # without text: what was said is answered
            assert hosted.store.log_tip(session).length == 2
            status, error = await client.post(f"/sessions/{session}/messages", {})
            assert (status, error["error"]["type"]) == (409, "nothing_to_answer")

    run(talk())


def test_a_delivery_that_comes_again_is_answered_once():
    async def talk():
        async with hosted_gateway(script("First.", "Second.")) as hosted:
            client = hosted.client
            session = await client.open()
            for _ in range(3):
                reply = await client.say(session, "Hello.", h_idempotency_key="k-1")
                assert reply["text"] == "First."
            assert len(hosted.provider.received) == 1
            status, error = await client.post(
                f"/sessions/{session}/messages", {"text": "Other."}, idempotency_key="k-1"
            )
            assert (status, error["error"]["type"]) == (422, "idempotency_key_reused")
            assert (await client.say(session, "Hello.", h_idempotency_key="k-2"))["text"] == "Second."
            assert hosted.store.log_tip(session).length == 4

    run(talk())


def test_a_delivery_whose_turn_failed_is_answered_when_it_comes_again():
    async def talk():
        broken = Reply.failing(400, {"error": {"message": "no", "type": "invalid_request_error"}})
        async with hosted_gateway(script(broken, "Here.")) as hosted:
            client = hosted.client
            session = await client.open()
            status, _ = await client.post(
                f"/sessions/{session}/messages", {"text": "Hello?"}, idempotency_key="k"
            )
            assert status == 502
            reply = await client.say(session, "Hello?", h_idempotency_key="k")
            assert (reply["text"], reply["message"]) == ("Here.", "m1")
            assert hosted.store.log_tip(session).length == 2  # it was logged once

    run(talk())


def test_opening_twice_with_one_key_opens_one():
    async def talk():
        async with hosted_gateway(script("x")) as hosted:
            client, body = hosted.client, {"model": "gpt-5-mini", "title": "Ann's"}
            status, first = await client.post("/sessions", body, idempotency_key="open-1")
            again_status, again = await client.post("/sessions", body, idempotency_key="open-1")
            assert (status, again_status, first["id"]) == (201, 200, again["id"])
            status, error = await client.post("/sessions", {"model": "gpt-5-mini"}, idempotency_key="open-1")
            assert (status, error["error"]["type"]) == (422, "idempotency_key_reused")
            other = hosted.client_with_key()
            _, theirs = await other.post("/sessions", body, idempotency_key="open-1")
            assert theirs["id"] != first["id"]
            assert len(first["id"]) == 32

    run(talk())


def test_opening_at_once_with_one_key_opens_one():
    async def talk():
        async with hosted_gateway(script("x")) as hosted:
            for number in range(10):
                opening = [
                    hosted.client.post("/sessions", {"model": "gpt-5-mini"}, idempotency_key=f"open-{number}")
                    for _ in range(6)
                ]
                opened = await asyncio.gather(*opening)
                assert sorted(status for status, _ in opened) == [200] * 5 + [201]
                assert len({made["id"] for _, made in opened}) == 1

    run(talk())


def test_messages_that_are_only_logged_are_answered_together():
    async def talk():
        async with hosted_gateway(script("I have heard both.")) as hosted:
            client = hosted.client
            session = await client.open()
            for text in ("Ben: the port is 5433", "Cleo: no, 5434"):
                assert (await client.say(session, text, answer=False))["status"] == "logged"
            assert len(hosted.provider.received) == 0
            assert (await client.say(session))["text"] == "I have heard both."
            assert "5433" in hosted.provider.received[0].text
            assert "5434" in hosted.provider.received[0].text

    run(talk())


def test_lists_come_in_pages_that_miss_nothing():
    async def talk():
        async with hosted_gateway(script("x")) as hosted:
            client = hosted.client
            made = [await client.open(title=f"number {number}") for number in range(5)]
            seen, cursor = [], ""
            while cursor is not None:
                _, page = await client.get(f"/sessions?limit=2{f'&cursor={cursor}' if cursor else ''}")
                seen += [one["id"] for one in page["data"]]
                cursor = page["next_cursor"]
            assert seen == made[::-1]
            session = made[0]
            for number in range(3):
                await client.say(session, f"line {number}", answer=False)
            _, page = await client.get(f"/sessions/{session}/messages?limit=2")
            assert [one["handle"] for one in page["data"]] == ["m1", "m2"]
            _, page = await client.get(f"/sessions/{session}/messages?limit=2&cursor={page['next_cursor']}")
            assert [one["texts"][0]["text"] for one in page["data"]] == ["line 2"]
            assert page["next_cursor"] is None

    run(talk())


def test_what_was_said_is_found_exported_counted_and_deleted():
    async def talk():
        async with hosted_gateway(script("The harbour opens at nine.")) as hosted:
            client = hosted.client
            session = await client.open()
            await client.say(session, "When does the harbour open?")
            other = await client.open()
            await client.say(other, "Nothing of that kind.")
            for path in ("/sessions/search", f"/sessions/{session}/search"):
                _, found = await client.get(f"{path}?q=harbour+opens")
                assert found["data"][0]["session"] == session
                assert "nine" in found["data"][0]["excerpt"]
            _, lines = await client.get(f"/sessions/{session}/export")
            exported = [json.loads(line) for line in lines.splitlines()]
            assert [one["role"] for one in exported] == ["user", "assistant"]
            _, lines = await client.get(f"/sessions/{session}/export?dialect=anthropic&view=true")
            assert json.loads(lines.splitlines()[0])["role"] == "user"
            _, usage = await client.get(f"/sessions/{session}/usage")
            assert usage["total"]["requests"] == 1
            status, _ = await client.ask("DELETE", f"/sessions/{session}")
            assert status == 204
            status, error = await client.get(f"/sessions/{session}")
            assert (status, error["error"]["type"]) == (404, "unknown_session")
            status, _ = await client.post(f"/sessions/{session}/messages", {"text": "still there?"})
            assert status == 404

    run(talk())


def test_compactions_pins_and_undo():
    async def talk():
        long = "The ledger of the harbour, line by line. " * 60
        async with hosted_gateway(script(long)) as hosted:
            client = hosted.client
            session = await client.open()
            status, said = await client.post(f"/sessions/{session}/compact")
            assert (status, said["compacted"], said["notice"]) == (200, False, "nothing to compact yet")
            for number in range(12):
                await client.say(session, f"Tell me more of berth {number}.")
            _, pinned = await client.post(f"/sessions/{session}/pins", {"message": "m3"})
            assert pinned["pins"] == ["m3"]
            _, made = await client.post(f"/sessions/{session}/compact", {"focus": "berth 3"})
            assert made["compacted"]
            assert made["tokens_after"] < made["tokens_before"]
            _, shown = await client.get(f"/sessions/{session}")
            assert (shown["compactions"], shown["pins"], shown["id"]) == (1, ["m3"], session)
            await client.say(session, "And now?")
            assert len(hosted.provider.received[-1].messages) < 25
            assert "Tell me more of berth 1." in hosted.provider.received[-1].text  # m3, pinned
            _, undone = await client.post(f"/sessions/{session}/undo")
            assert undone["undone"]
            _, again = await client.post(f"/sessions/{session}/compact", {"keep_exchanges": 1})
            assert again["tokens_before"] == undone["tokens_after"]  # one scale: that of the whole request
            _, undone = await client.post(f"/sessions/{session}/undo")
            assert (undone["tokens_before"], undone["tokens_after"]) == (
                again["tokens_after"],
                again["tokens_before"],
            )
            await client.say(session, "And again?")
            assert len(hosted.provider.received[-1].messages) >= 27
            _, undone = await client.post(f"/sessions/{session}/undo")
            assert (undone["undone"], undone["notice"]) == (False, "nothing to undo yet")
            _, unpinned = await client.ask("DELETE", f"/sessions/{session}/pins/m3")
            assert unpinned["pins"] == []
            status, error = await client.post(f"/sessions/{session}/pins", {"message": "m999"})
            assert (status, error["error"]["type"]) == (404, "unknown_message")

    run(talk())


def test_a_wrong_value_is_refused_with_those_that_are_allowed():
    async def talk():
        async with hosted_gateway(script()) as hosted:
            session = await hosted.client.open()
            status, error = await hosted.client.post(
                f"/sessions/{session}/approvals", {"id": "a", "reply": "maybe"}
            )
            assert (status, error["error"]["type"]) == (400, "invalid_request")
            assert error["error"]["message"].endswith("; allowed: once, session, no")
            _, error = await hosted.client.post("/sessions", {"dialect": "gemini"})
            assert error["error"]["message"].endswith("; allowed: chat, responses, anthropic")
            _, error = await hosted.client.post(f"/sessions/{session}/approvals", {"id": 5, "reply": "no"})
            assert "allowed" not in error["error"]["message"]

    run(talk())


def test_an_owner_never_sees_anothers():
    async def talk():
        async with hosted_gateway(script("The word is marmalade."), require_keys=True) as hosted:
            ann, ben = hosted.client_with_key("ann"), hosted.client_with_key("ben")
            session = await ann.open()
            await ann.say(session, "Say the word.")
            assert (await ben.get("/sessions"))[1]["data"] == []
            assert (await ben.get("/sessions/search?q=marmalade"))[1]["data"] == []
            for method, path, body in (
                ("GET", "", None), ("DELETE", "", None), ("GET", "/messages", None),
                ("POST", "/messages", {"text": "hi"}), ("GET", "/search?q=word", None), ("POST", "/compact", {}),
                ("POST", "/undo", {}), ("POST", "/pins", {"message": "m1"}), ("DELETE", "/pins/m1", None),
                ("GET", "/export", None), ("GET", "/usage", None), ("POST", "/approvals", {"id": "a", "reply": "no"}),
            ):  # fmt: skip
                theirs = await ben.ask(method, f"/sessions/{session}{path}", body)
                nobodys = await ben.ask(method, f"/sessions/{'a' * 32}{path}", body)
                assert theirs == nobodys, (method, path)
                assert theirs[0] == 404
            assert (await ann.get(f"/sessions/{session}"))[1]["messages"] == 2
            status, error = await hosted.client.get("/sessions")
            assert (status, error["error"]["type"]) == (401, "unauthorised")

    run(talk())


def test_errors_have_one_shape_and_the_next_step():
    async def talk():
        async with hosted_gateway(script("x"), models=["gpt-*"]) as hosted:
            client = hosted.client
            session = await client.open()
            strict = hosted.client_with_key("strict", store="digests")
            for asked, status, kind in (
                (client.get("/sessions?limit=0"), 400, "invalid_request"),
                (client.get("/sessions?cursor=!!"), 400, "invalid_request"),
                (client.get("/sessions?cursor=nan-aaaaaaaaaaaaaaaa"), 400, "invalid_request"),
                (client.post("/sessions", {"model": 7}), 400, "invalid_request"),
                (client.post("/sessions", {}), 400, "invalid_request"),
                (client.post("/sessions", {"model": "claude-x"}), 403, "model_not_allowed"),
                (client.post(f"/sessions/{session}/messages", {"words": "x"}), 400, "invalid_request"),
                (
                    client.post(f"/sessions/{session}/messages", {"text": "x"}, idempotency_key="k" * 201),
                    400,
                    "invalid_request",
                ),
                (client.get(f"/sessions/{session}/search"), 400, "invalid_request"),
                (client.get(f"/sessions/{session}/export?dialect=klingon"), 400, "invalid_request"),
                (client.ask("PUT", "/sessions"), 405, "method_not_allowed"),
                (client.get("/sessions/a/b/c"), 404, "unknown_route"),
                (client.get("/sessions/not-an-id"), 404, "unknown_session"),
                (strict.post("/sessions", {"model": "gpt-5-mini"}), 403, "not_kept"),
            ):
                got, error = await asked
                assert (got, error["error"]["type"]) == (status, kind)
                assert error["error"]["message"]
                assert error["error"]["next_step"]

    run(talk())


def test_a_turn_counts_for_the_budget_of_its_key():
    async def talk():
        async with hosted_gateway(script(Reply("Ok."))) as hosted:
            client = hosted.client_with_key(tokens_per_day=10)
            session = await client.open()
            await client.say(session, "A message that takes more than ten tokens, with its prompt.")
            status, error = await client.post(f"/sessions/{session}/messages", {"text": "more"})
            assert (status, error["error"]["type"]) == (429, "limited")
            assert client.headers["retry-after"]

    run(talk())


def test_no_model_writes_handoffs_unless_the_settings_say_so(monkeypatch):
    """Nor is a key of the gateway's own machine ever lent to a conversation."""
    monkeypatch.setenv("OPENAI_API_KEY", "made-up-key-of-the-machine")

    async def talk(how, asked):
        long = "The ledger of the harbour, line by line. " * 60
        async with hosted_gateway(script(long), summarise=how) as hosted:
            session = await hosted.client.open()
            for number in range(12):
                await hosted.client.say(session, f"Tell me more of berth {number}.")
            assert (await hosted.client.post(f"/sessions/{session}/compact"))[1]["compacted"]
            await hosted.client.say(session, "/compress")
            assert (len(hosted.provider.received) > 12) is asked
            sent = {one.headers["authorization"] for one in hosted.provider.received}
            assert sent == {"Bearer key-of-the-upstream"}

    run(talk("extractive", asked=False))
    run(talk("same", asked=True))

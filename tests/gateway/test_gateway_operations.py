"""Keys, limits, metrics, logs and health of a gateway, as its callers and its operator meet them."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web
from operated_gateway import BODY, USAGE, error_of, is_moment, operated_gateway, upstream_headers

from penstock.errors import SettingsError, StoreError
from penstock.gateway.operations import require_safe_address
from penstock.settings import settings_from

DIALECTS = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
    "/v1/messages": "anthropic",
}


def run(test):
    """Runs a test that is a coroutine."""
    asyncio.run(test())


class TestKeys:
    def test_the_upstream_gets_its_own_key_and_never_one_of_ours(self):
        async def test():
            async with operated_gateway(upstream_key="sk-operator", require_keys=True) as gateway:
                key = gateway.make_key()
                for headers in (
                    {"Authorization": f"Bearer {key}"},
                    {"x_api_key": key},
                    {"x_penstock_key": key},
                ):
                    status, _, _ = await gateway.ask(**headers)
                    assert status == 200
                    sent = upstream_headers(gateway)
                    assert sent["authorization"] == "Bearer sk-operator"
                    assert key not in str(sent)
                await gateway.ask("/v1/messages", x_api_key=key)
                assert upstream_headers(gateway)["x-api-key"] == "sk-operator"

        run(test)

    def test_an_upstream_is_not_asked_to_echo_the_key_it_was_given(self):
        async def test():
            async with operated_gateway(upstream_key="sk-operator") as gateway:
                for path in (*DIALECTS, "/v1/models", "/v1/files"):
                    assert (await gateway.look(path, method="TRACE"))[0] == 405
                assert gateway.seen == []

        run(test)

    def test_the_callers_own_credential_passes_through_with_and_without_a_key_beside_it(self):
        async def test():
            async with operated_gateway() as gateway:
                await gateway.ask(Authorization="Bearer sk-caller")
                assert upstream_headers(gateway)["authorization"] == "Bearer sk-caller"
                key = gateway.make_key()
                await gateway.ask(Authorization="Bearer sk-caller", x_penstock_key=key)
                sent = upstream_headers(gateway)
                assert sent["authorization"] == "Bearer sk-caller"
                assert key not in str(sent)
                await gateway.ask(Authorization=f"Bearer {key}", x_api_key="sk-caller")
                assert key not in str(upstream_headers(gateway))

        run(test)

    def test_nothing_under_v1_is_served_without_a_key_where_keys_are_needed(self):
        async def test():
            async with operated_gateway(upstream_key="sk-operator", require_keys=True) as gateway:
                for path in (
                    *DIALECTS,
                    "/v1/messages/count_tokens",
                    "/v1/files",
                    "/v1/models",
                    "/x/v1/messages",
                ):
                    for headers in ({}, {"Authorization": "Bearer sk-any"}, {"x_penstock_key": "pk-no"}):
                        status, answered, text = await gateway.ask(path, **headers)
                        assert status == 401, path
                        assert answered["www-authenticate"] == "Bearer"
                        assert error_of(text)["message"]
                        assert ("type" in json.loads(text)) == ("messages" in path)  # each in its own dialect
                assert gateway.seen == []

        run(test)

    def test_a_key_asks_for_its_models_alone(self):
        async def test():
            async with operated_gateway(models=["gpt-*"]) as gateway:
                key = gateway.make_key(models=("gpt-5*",))
                asked = {}
                for model in ("gpt-5-mini", "gpt-4", "claude-opus-4"):
                    status, _, text = await gateway.ask(body={**BODY, "model": model}, x_penstock_key=key)
                    asked[model] = status
                assert asked == {"gpt-5-mini": 200, "gpt-4": 403, "claude-opus-4": 403}
                assert error_of(text)["code"] == "model_not_found"
                assert (await gateway.ask(body={**BODY, "model": "gpt-4"}))[0] == 200

        run(test)

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("/v1/chat/completions", b'{"model":"gpt-4","messages":[],"model":"gpt-5"}'),
            ("/v1/chat/completions", b'{"Model":"gpt-4","messages":[],"model":"gpt-5"}'),
            ("/v1/chat/completions", b'{"\\u006dodel":"gpt-4","messages":[],"model":"gpt-5"}'),
            ("/v1/chat/completions", b'{"MODEL":"gpt-4","messages":[]}'),
            ("/v1/responses", b'{"model":"gpt-5","input":[],"mode\\u006c":"gpt-4","x":' + b"[" * 5_000),
            ("/v1/embeddings", b'{"model":"gpt-5","model":"gpt-4"}'),
            ("/v1/embeddings", b'{"model":"gpt-4","model":"gpt-5"}'),
            ("/v1/embeddings", b'{"model":"gpt-4","x":NaN}'),
            ("/v1/embeddings", b'{"model":"gpt-4","x":1e400}'),
            ("/v1/embeddings", b'{"model":"gpt-4","x":' + b"[" * 5_000 + b"]" * 5_000 + b"}"),
            ("/v1/embeddings", b"\x1f\x8b rubbish"),
            ("/v1/messages/batches", b'{"requests":[{"custom_id":"a","params":{"model":"gpt-4"}}]}'),
            ("/v1/models/gpt%2D4", b"{}"),
        ],
    )
    @pytest.mark.parametrize("kind", ["application/json", "text/plain"])
    def test_no_spelling_of_a_body_gets_a_key_another_model(self, path, body, kind):
        async def test():
            async with operated_gateway() as gateway:
                headers = {"x-penstock-key": gateway.make_key(models=("gpt-5*",)), "content-type": kind}
                async with gateway.client.post(path, data=body, headers=headers) as answer:
                    assert answer.status == 403
                    assert "model" in error_of(await answer.text())["message"]
                assert gateway.seen == []

        run(test)

    def test_a_key_for_some_models_may_ask_for_all_that_names_no_other(self):
        async def test():
            async with operated_gateway() as gateway:
                key = {"x-penstock-key": gateway.make_key(models=("gpt-5*", "whisper-*"))}
                tool = {"name": "rent", "parameters": {"properties": {"model": {"type": "string"}}}}
                used = {"type": "tool_use", "id": "t", "name": "rent", "input": {"model": "Tesla"}}
                asked = {
                    "model": "gpt-5",
                    "tools": [tool],
                    "messages": [{"role": "assistant", "content": [used]}],
                }
                for path, body in (
                    ("chat/completions", asked),
                    ("embeddings", {"model": "gpt-5", "input": "x"}),
                ):
                    async with gateway.client.post(f"/v1/{path}", json=body, headers=key) as answer:
                        assert answer.status == 200
                for model, status in (("whisper-1", 200), ("other", 403)):
                    form = aiohttp.FormData({"model": model})
                    form.add_field("file", b"model: other\r\n\r\nother", filename="model.txt")
                    async with gateway.client.post(
                        "/v1/audio/transcriptions", data=form, headers=key
                    ) as answer:
                        assert answer.status == status
                for path in ("files", "files/x/content", "models/gpt-5-mini"):
                    async with gateway.client.get(f"/v1/{path}", headers=key) as answer:
                        assert answer.status == 200
                async with gateway.client.post("/v1/batches/b/cancel", headers=key) as answer:
                    assert answer.status == 200
                assert b"Tesla" in gateway.seen[0][2]
                assert b"whisper-1" in gateway.seen[2][2]

        run(test)


class TestLimits:
    @pytest.mark.parametrize(("path", "dialect"), DIALECTS.items())
    def test_over_a_limit_comes_429_in_the_callers_dialect(self, path, dialect):
        async def test():
            async with operated_gateway() as gateway:
                key = gateway.make_key(requests_per_minute=2)
                asked = [await gateway.ask(path, x_penstock_key=key) for _ in range(3)]
                assert [status for status, _, _ in asked] == [200, 200, 429]
                _, headers, text = asked[-1]
                assert 1 <= int(headers["retry-after"]) <= 31
                words = error_of(text)["type" if dialect == "anthropic" else "code"]
                assert words == {"anthropic": "rate_limit_error"}.get(dialect, "rate_limit_exceeded")
                assert (await gateway.ask(path))[0] == 200  # another caller

        run(test)

    def test_a_budget_is_what_the_upstream_reported(self):
        async def test():
            async with operated_gateway() as gateway:
                key = gateway.make_key(tokens_per_day=200)
                asked = [await gateway.ask(x_penstock_key=key) for _ in range(3)]  # 111 tokens each
                assert [status for status, _, _ in asked] == [200, 200, 429]
                assert asked[-1][1]["x-should-retry"] == "false"
                assert error_of(asked[-1][2])["code"] == "insufficient_quota"

        run(test)

    def test_a_budget_does_not_depend_on_what_a_caller_asks_to_be_told(self):
        async def test():
            async with operated_gateway() as gateway:
                key = gateway.make_key(tokens_per_day=2_000)
                said = "".join(
                    f'data: {{"choices":[{{"delta":{{"content":"{n:0180}"}}}}]}}\n\n' for n in range(400)
                )
                gateway.answer = lambda _: web.Response(text=said, content_type="text/event-stream")
                body = {**BODY, "stream": True, "messages": [{"role": "user", "content": "word " * 800}]}
                asked = [
                    await gateway.ask(body=body, x_penstock_key=key) for _ in range(3)
                ]  # about 1,440 tokens each
                assert [status for status, _, _ in asked] == [200, 200, 429]
                gateway.answer = lambda _: web.json_response({"error": {"message": "no"}}, status=400)
                other = gateway.make_key(tokens_per_day=500)
                asked = [await gateway.ask(body=body, x_penstock_key=other) for _ in range(3)]
                assert [status for status, _, _ in asked] == [400] * 3  # what was refused costs nothing

        run(test)

    @pytest.mark.parametrize("streamed", [True, False])
    def test_what_an_answer_on_any_other_route_reports_is_counted_as_well(self, streamed):
        async def test():
            async with operated_gateway() as gateway:
                key = gateway.make_key(tokens_per_day=200)
                if streamed:
                    text = f"data: {json.dumps({'usage': USAGE})}\n\ndata: [DONE]\n\n"
                    gateway.answer = lambda _: web.Response(text=text, content_type="text/event-stream")
                asked = [await gateway.ask("/v1/completions", x_penstock_key=key) for _ in range(3)]
                assert [status for status, _, _ in asked] == [200, 200, 429]
                assert (await gateway.figures())["penstock_usage_tokens_total", "up", "output"] == 22

        run(test)

    def test_requests_at_once(self):
        async def test():
            async with operated_gateway() as gateway:
                key = gateway.make_key(requests_at_once=1)
                held = asyncio.Event()
                arrived = asyncio.Event()

                def hold(told):
                    response = web.StreamResponse()

                    async def prepare(request, _prepare=response.prepare):
                        arrived.set()
                        await held.wait()
                        return await _prepare(request)

                    response.prepare = prepare
                    return response

                gateway.answer = hold
                first = asyncio.create_task(gateway.ask(x_penstock_key=key))
                await asyncio.wait_for(arrived.wait(), 30)
                assert (await gateway.figures())["penstock_requests_open",] == 1
                status, headers, _ = await gateway.ask(x_penstock_key=key)
                assert (status, headers["retry-after"]) == (429, "1")
                held.set()
                await first
                gateway.answer = web.json_response
                assert (await gateway.ask(x_penstock_key=key))[0] == 200
                assert (await gateway.figures())["penstock_requests_open",] == 0

        run(test)


class TestWatching:
    def test_a_request_is_one_line_and_some_figures(self):
        async def test():
            async with operated_gateway() as gateway:
                key = gateway.make_key()
                made = "0af76519-16cd-43dd-8448-eb211c80319c"
                await gateway.ask(x_penstock_key=key, x_request_id=made)
                figures = await gateway.figures()
                assert figures["penstock_requests_total", "chat", "200", "up"] == 1
                assert figures["penstock_usage_tokens_total", "up", "input"] == 100
                assert figures["penstock_request_seconds_count", "chat"] == 1
                assert figures["penstock_upstream_first_byte_seconds_count", "up"] == 1
                (line,) = gateway.lines()
                assert is_moment(line.pop("time"))
                assert line.pop("ms") >= line.pop("ms_to_first_byte") >= line.pop("ms_to_upstream") >= 0
                assert line.pop("request")
                assert line.pop("bytes_out")
                assert line == {
                    "client_request": made,
                    "key": key.split("-")[1],
                    "method": "POST",
                    "route": "/chat/completions",
                    "dialect": "chat",
                    "model": "gpt-5-mini",
                    "upstream": "up",
                    "status": 200,
                    "bytes_in": len(json.dumps(BODY)),
                    "prompt_tokens": 100,
                    "output_tokens": 11,
                }

        run(test)

    def test_a_refusal_is_counted_and_names_the_key_that_was_over_its_limit(self):
        async def test():
            async with operated_gateway() as gateway:
                key = gateway.make_key(requests_per_minute=1)
                for _ in range(2):
                    await gateway.ask(x_penstock_key=key)
                await gateway.ask(x_penstock_key="pk-wrong")
                figures = await gateway.figures()
                assert figures["penstock_refusals_total", "rate"] == 1
                assert figures["penstock_refusals_total", "key"] == 1
                lines = gateway.lines()
                assert [line.get("refused") for line in lines] == [None, "rate", "key"]
                assert lines[1]["key"] == key.split("-")[1]
                assert "key" not in lines[2]

        run(test)


class TestHealth:
    def test_health_readiness_and_what_a_stranger_sees(self):
        async def test():
            async with operated_gateway() as gateway:
                assert await gateway.look("/health") == (200, '{"status":"ok"}')
                status, text = await gateway.look("/ready")
                assert (status, json.loads(text)) == (
                    200,
                    {"ready": True, "checks": {"store": True, "draining": False}},
                )
                for name in ("X_Forwarded_For", "Forwarded", "Via", "X_Real_IP"):  # a proxy on this machine
                    assert await gateway.look("/ready", **{name: "203.0.113.9"}) == (200, '{"ready":true}')
                    assert (await gateway.look("/metrics", **{name: "203.0.113.9"}))[0] == 401
                key = gateway.make_key()
                assert (await gateway.look("/metrics", Via="1.1 p", Authorization=f"Bearer {key}"))[0] == 200
                assert (await gateway.look("/metrics", Via="1.1 p", Authorization="Bearer sk-any"))[0] == 401
                assert (await gateway.look("/metrics", method="POST"))[0] == 405
                assert (await gateway.look("/metrics", method="HEAD"))[0] == 200
            async with operated_gateway(open_metrics=True) as gateway:
                assert (await gateway.look("/metrics", Via="1.1 p"))[0] == 200

        run(test)

    def test_it_is_not_ready_while_a_check_fails_or_it_drains(self):
        async def test():
            async with operated_gateway() as gateway:
                answers = [False, StoreError("the store is away"), True]

                async def workers():
                    answer = answers[0]
                    if isinstance(answer, Exception):
                        raise answer
                    return answer

                gateway.operations.add_check("workers", workers)
                for expected in (503, 503, 200):
                    gateway.operations._found = (0.0, {})
                    status, text = await gateway.look("/ready")
                    assert status == expected
                    assert json.loads(text)["checks"]["workers"] == (expected == 200)
                    answers.pop(0)
                gateway.operations.drain()
                status, text = await gateway.look("/ready")
                assert (status, json.loads(text)["checks"]["draining"]) == (503, True)
                assert (await gateway.look("/health"))[0] == 200

        run(test)

    def test_a_store_that_takes_no_writes(self, monkeypatch):
        async def test():
            async with operated_gateway() as gateway:

                def refuse(*_args):
                    raise StoreError("read-only")

                monkeypatch.setattr(gateway.store, "put_note", refuse)
                status, text = await gateway.look("/ready")
                assert (status, json.loads(text)["checks"]["store"]) == (503, False)
                assert (await gateway.ask())[0] == 200  # who asks is served all the same

        run(test)


def test_nobody_finds_the_conversation_of_another_key(tmp_path):
    """Whoever sends the same messages, and names the other's conversation, has one of their own; so has each credential."""

    async def test():
        async with operated_gateway(store_url=f"sqlite:///{tmp_path}/s.db") as gateway:
            first, second = gateway.make_key("first"), gateway.make_key("second")
            callers = [
                {"x_penstock_key": first},
                {"x_penstock_key": second},
                {"Authorization": "Bearer sk-one"},
                {"Authorization": "Bearer sk-two"},
                {},
            ]
            sessions = []
            for caller in callers:
                hint = {"x_penstock_session": sessions[0]} if sessions else {}
                status, headers, _ = await gateway.ask(**caller, **hint)
                assert status == 200
                sessions.append(headers["x-penstock-session"])
            assert len(set(sessions)) == len(callers)
            longer = {**BODY, "messages": [*BODY["messages"], {"role": "assistant", "content": "Hi."}]}
            for caller, session in zip(callers, sessions, strict=True):  # each finds its own again
                _, headers, _ = await gateway.ask(body=longer, **caller)
                assert headers["x-penstock-session"] == session
            owners = {gateway.store.session(session).owner for session in sessions}
            assert len(owners) == len(callers)
            assert not any("sk-" in owner or "pk-" in owner for owner in owners)
            assert json.loads((await gateway.look("/ready"))[1])["checks"]["workers"] is True
            assert (await gateway.figures())["penstock_worker_restarts_total",] == 0

    run(test)


def test_a_gateway_does_not_lend_the_keys_of_its_upstreams_to_a_whole_network():
    upstream = {"openai": {"base_url": "https://api.example.com/v1", "api_key_env": "OPENAI_API_KEY"}}
    for host, keys, fine in (
        ("127.0.0.1", False, True),
        ("localhost", False, True),
        ("0.0.0.0", True, True),
        ("0.0.0.0", False, False),
        ("::", False, False),
    ):
        settings = settings_from(
            {"gateway.host": host, "gateway.require_keys": keys, "gateway.upstreams": upstream}
        )
        if fine:
            require_safe_address(settings)
        else:
            with pytest.raises(SettingsError, match=r"gateway\.require_keys"):
                require_safe_address(settings)

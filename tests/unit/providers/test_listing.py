import asyncio
import json

import pytest
from aiohttp import web

from penstock.errors import ErrorKind, ProviderError
from penstock.providers.connect import ConnectOptions, connect
from penstock.providers.listing import ModelListing, listings_from_body, next_page
from penstock.providers.retries import RetryPolicy

pytestmark = pytest.mark.outside

OPENROUTER = {"id": "a/b", "context_length": 200_000, "top_provider": {"context_length": 131_072}}
LLAMACPP = {"id": "q", "owned_by": "llamacpp", "meta": {"n_ctx_train": 262_144, "n_vocab": 248_320}}
LMSTUDIO = {"id": "l", "state": "loaded", "max_context_length": 262_144, "loaded_context_length": 8_192}


@pytest.mark.parametrize(
    ("entry", "window"),
    [
        (OPENROUTER, 131_072),
        ({"id": "m", "context_length": 8_192, "top_provider": {"context_length": None}}, 8_192),
        ({"id": "m", "max_model_len": 16_384, "owned_by": "vllm"}, 16_384),
        ({"id": "m", "context_window": 131_072, "owned_by": "Meta"}, 131_072),
        ({"id": "m", "max_context_length": 32_768, "capabilities": {}}, 32_768),
        ({"id": "m", "type": "model", "max_input_tokens": 200_000, "max_tokens": 64_000}, 200_000),
        (LLAMACPP, 262_144),
        ({"id": "q", "meta": {"n_ctx": 32_768, "n_ctx_train": 262_144}}, 32_768),
        (LMSTUDIO, 8_192),
        ({"id": "m", "object": "model"}, None),
        ({"id": "m", "context_length": "200000"}, None),
        ({"id": "m", "context_length": -5, "max_model_len": True, "meta": []}, None),
    ],
)
def test_windows_as_servers_state_them(entry, window):
    assert listings_from_body({"data": [entry]})[0].window_tokens == window


def test_lists_of_all_shapes():
    assert listings_from_body({"data": []}) == ()
    assert listings_from_body({"models": [{"name": "llama3:latest", "context_length": 4_096}]}) == (
        ModelListing("llama3:latest", 4_096),
    )
    assert listings_from_body({"data": [5, {}, {"id": ""}, {"id": "m"}]}) == (ModelListing("m"),)
    with pytest.raises(ProviderError, match="cannot be read"):
        listings_from_body({"data": "models"})


def test_pages():
    assert next_page({"has_more": True, "last_id": "m9"}) == "m9"
    assert next_page({"has_more": False, "last_id": "m9"}) is None
    assert next_page({"has_more": True, "last_id": None}) is None


def ask_server(routes, use, provider="openai", model="m"):
    """What `use` gives for a model of a server that has these routes and answers all others with 404."""
    asked = []

    async def handle(request):
        asked.append(request.path_qs)
        found = routes.get(
            request.path_qs, routes.get(request.path, (404, {"error": {"message": "no route"}}))
        )
        status, body = found if isinstance(found, tuple) else (200, found)
        return web.Response(status=status, body=json.dumps(body), content_type="application/json")

    async def run():
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        options = ConnectOptions(policy=RetryPolicy(tries=1))
        try:
            async with connect(provider, model, base_url=url, options=options) as client:
                return await use(client)
        finally:
            await runner.cleanup()

    return asyncio.run(run()), asked


def window(client):
    return client.window_tokens()


def test_llamacpp_says_how_large_a_slot_is():
    routes = {
        "/v1/models": {"data": [LLAMACPP]},
        "/props": {"default_generation_settings": {"n_ctx": 4_096}, "total_slots": 4},
    }
    assert ask_server(routes, window, "llamacpp", "q")[0] == 4_096
    assert ask_server(routes, window, "openai", "q")[0] == 4_096  # known by its list
    assert ask_server({"/v1/models": {"data": [LLAMACPP]}}, window, "llamacpp", "q")[0] == 262_144


def test_lmstudio_has_the_loaded_window_on_its_own_route():
    routes = {"/v1/models": {"data": [{"id": "l"}]}, "/api/v0/models": {"data": [LMSTUDIO]}}
    assert ask_server(routes, window, "lmstudio", "l")[0] == 8_192


def test_ollama_knows_only_what_is_loaded():
    routes = {
        "/v1/models": {"data": [{"id": "llama3"}]},
        "/api/ps": {"models": [{"name": "llama3:latest", "context_length": 8_192}]},
    }
    assert ask_server(routes, window, "ollama", "llama3")[0] == 8_192
    assert ask_server(routes, window, "ollama", "other")[0] is None


def test_a_server_without_a_list_states_no_window():
    assert ask_server({}, window)[0] is None


def test_a_model_that_is_not_listed_has_no_window():
    assert ask_server({"/v1/models": {"data": [OPENROUTER]}}, window, model="other")[0] is None


def test_a_server_that_does_not_let_us_in_is_an_error():
    routes = {"/v1/models": (401, {"error": {"message": "invalid api key"}})}

    async def use(client):
        with pytest.raises(ProviderError) as caught:
            await client.window_tokens()
        return caught.value

    error, _ = ask_server(routes, use)
    assert error.failure.kind is ErrorKind.AUTH
    assert "no key was sent" in str(error)


def test_a_long_list_is_read_page_by_page():
    routes = {
        "/v1/models?limit=1000": {"data": [{"id": "one"}], "has_more": True, "last_id": "one"},
        "/v1/models?limit=1000&after_id=one": {
            "data": [{"id": "m", "max_input_tokens": 5_000}],
            "has_more": False,
        },
    }
    found, asked = ask_server(routes, lambda client: client.models(), "anthropic")
    assert [entry.id for entry in found] == ["one", "m"]
    assert len(asked) == 2

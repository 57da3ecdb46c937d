"""Routes, wishes and hints of requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from penstock.errors import InputError, SettingsError
from penstock.gateway.requests import (
    CallerWishes,
    RouteKind,
    read_credential,
    read_envelope,
    read_hints,
    read_route,
    read_wishes,
    stricter_store,
)
from penstock.gateway.upstreams import Upstreams, read_upstreams
from penstock.settings import GatewaySettings, GatewayUpstream

KNOWN = {
    "/chat/completions": (RouteKind.CONVERSATION, "chat"),
    "/responses": (RouteKind.CONVERSATION, "responses"),
    "/messages": (RouteKind.CONVERSATION, "anthropic"),
    "/messages/count_tokens": (RouteKind.COUNT, "anthropic"),
    "/models": (RouteKind.MODELS, None),
}
SEGMENT = st.text("abcxyz-_%2", min_size=1, max_size=5).filter(lambda text: "%2" not in text)


@given(
    route=st.sampled_from(list(KNOWN)), before=st.lists(SEGMENT, max_size=3), slash=st.sampled_from(["", "/"])
)
def test_a_route_that_we_know_is_found_under_any_base_path(route, before, slash):
    base = "".join(f"/{segment}" for segment in before)
    found = read_route(f"{base}/v1{route}{slash}")
    assert (found.kind, found.dialect) == KNOWN[route]
    assert found.path == route


@given(rest=st.lists(SEGMENT, min_size=1, max_size=4), before=st.lists(SEGMENT, max_size=2))
def test_what_we_do_not_know_keeps_its_path(rest, before):
    path = "".join(f"/{segment}" for segment in rest)
    found = read_route(f"{''.join(f'/{segment}' for segment in before)}/v1{path}")
    assert (found.kind, found.path) == (RouteKind.OTHER, path) or path in KNOWN


@pytest.mark.parametrize(
    ("path", "kind", "rest"),
    [
        ("/messages", RouteKind.CONVERSATION, "/messages"),
        ("/chat/completions", RouteKind.CONVERSATION, "/chat/completions"),
        ("/x/chat/completions", RouteKind.CONVERSATION, "/chat/completions"),
        ("/v1/v1/messages", RouteKind.CONVERSATION, "/messages"),
        ("/api/v1/chat/completions", RouteKind.CONVERSATION, "/chat/completions"),
        ("/v1/threads/t/messages", RouteKind.OTHER, "/threads/t/messages"),
        ("/v1/responses/compact", RouteKind.COMPACTION, "/responses/compact"),
        ("/v1/models/some-model", RouteKind.OTHER, "/models/some-model"),
        ("/v1/files/v1/x", RouteKind.OTHER, "/files/v1/x"),
        ("/v1/%63hat/completion%73", RouteKind.CONVERSATION, "/chat/completions"),
        ("/%76%31/messages", RouteKind.CONVERSATION, "/messages"),
        ("/v1//chat//completions", RouteKind.CONVERSATION, "/chat/completions"),
        ("/v1/./messages", RouteKind.CONVERSATION, "/messages"),
        ("/v1/messages%2fcount_tokens", RouteKind.COUNT, "/messages/count_tokens"),
        ("/v1/files//a%20b", RouteKind.OTHER, "/files//a%20b"),
    ],
)
def test_routes(path, kind, rest):
    found = read_route(path)
    assert (found.kind, found.path) == (kind, rest)


@pytest.mark.parametrize(
    "path",
    ["/", "/api/show", "/api/v1/models", "/api/tags", "/v1", "/v1beta/models/m", "/sessions/a/messages",
     "/v1/../x", "/v1/%2E%2e/x", "/v1/x/../../y", "/v1/.%2e/x", "/v1/x%2F..%2fy", "/v1/x%2f.%2E", "/v1/x\\..\\y",
     "/v1/x%5c..%5Cy", ""],
)  # fmt: skip
def test_paths_that_lead_nowhere(path):
    assert read_route(path) is None


def test_wishes():
    headers = {
        "X-Penstock-Session": "s-1",
        "x-penstock-bypass": "TRUE",
        "x-penstock-open": "yes",
        "x-penstock-target-tokens": "20000",
        "x-penstock-focus": "the parser, ünd more",
        "x-penstock-store": "Off",
        "x-penstock-of-a-later-version": "?",
    }
    assert read_wishes(CIMultiDict(headers)) == CallerWishes(
        session="s-1", bypass=True, target_tokens=20_000, focus="the parser, ünd more", store="off", open=True
    )
    assert read_wishes(CIMultiDict({"accept": "*"})) == CallerWishes()


@given(
    st.sampled_from(["session", "bypass", "target-tokens", "focus", "store", "open"]), st.text(max_size=30)
)
def test_a_wish_is_understood_or_refused_by_its_name(name, text):
    said = ""
    try:
        read_wishes({f"x-penstock-{name}": text})
    except InputError as error:
        said = str(error)
    assert not said or f"x-penstock-{name}" in said
    assert said.isprintable()


@pytest.mark.parametrize(
    ("headers", "hints"),
    [
        ({"X-Claude-Code-Session-Id": "a", "x-claude-code-agent-id": "b"}, ("a", "b")),
        ({"session-id": "s", "thread-id": "t"}, ("s", "")),
        ({"x-session-id": "o", "x-session-affinity": "p"}, ("o", "")),
        ({"accept": "*"}, ("", "")),
        ({"x-session-id": "caf\udce9"}, ("caf\\udce9", "")),  # a byte of Latin-1, as aiohttp reads it
    ],
)
def test_hints_of_clients(headers, hints):
    assert read_hints(CIMultiDict(headers)) == hints


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        ({"authorization": "Bearer k1"}, "k1"),
        ({"Authorization": "bearer  k1 "}, "k1"),
        ({"x-api-key": "k2"}, "k2"),
        ({"api-key": "k3"}, "k3"),
        ({"authorization": "Basic abc"}, ""),
        ({}, ""),
    ],
)
def test_credentials(headers, key):
    assert read_credential(CIMultiDict(headers)) == key


MODES = st.none() | st.sampled_from(["full", "digests", "off"])


@given(MODES, MODES, MODES)
def test_nobody_can_have_more_kept_than_another_allows(one, two, three):
    order = ["full", "digests", "off"]
    given_modes = [order.index(mode) for mode in (one, two, three) if mode]
    assert order.index(stricter_store(one, two, three)) == max(given_modes, default=0)


@given(st.binary(max_size=60))
def test_an_envelope_is_read_of_anything(body):
    assert isinstance(read_envelope(body).model_name, str)


def test_an_envelope():
    found = read_envelope(b'{"messages":[{"model":"no"}],"model":"m","stream":true,"x":{"stream":false}}')
    assert (found.model_name, found.stream) == ("m", True)
    assert read_envelope(b'{"model":["m"]}').model_name == ""


# Upstreams.


def upstreams_of(**given):
    settings = GatewaySettings(upstreams={name: GatewayUpstream(**one) for name, one in given.items()})
    return read_upstreams(settings, environ={"KEY": "k", "EMPTY": ""})


def names(found):
    return [one.name for one in found]


def test_the_first_that_serves_the_model_is_chosen_then_its_fallbacks():
    found = upstreams_of(
        a={
            "base_url": "https://a.example",
            "models": ("gpt-*",),
            "dialects": ("chat",),
            "fallbacks": ("c", "b"),
        },
        b={"base_url": "https://b.example/v1", "dialects": ("anthropic",)},
        c={"base_url": "https://c.example", "models": ("x",)},
    )
    assert found.need_models
    assert names(found.choose("chat", "gpt-5")) == ["a", "c"]  # b does not speak the dialect
    assert names(found.choose("anthropic", "gpt-5")) == ["b"]
    assert names(found.choose("responses", "x")) == ["c"]
    assert found.choose("responses", "gpt-5") == ()


@pytest.mark.parametrize(
    ("base", "path", "query", "url"),
    [
        ("https://a.example", "/messages", "", "https://a.example/v1/messages"),
        ("https://a.example/v1/", "/messages", "beta=true", "https://a.example/v1/messages?beta=true"),
        (
            "https://a.example/v1beta/openai",
            "/x%2Fy",
            "a=%20b",
            "https://a.example/v1beta/openai/x%2Fy?a=%20b",
        ),
        ("https://a.example/v1?api-version=1", "/m", "b=2", "https://a.example/v1/m?api-version=1&b=2"),
    ],
)
def test_addresses_keep_what_the_request_wrote(base, path, query, url):
    found = upstreams_of(a={"base_url": base})
    assert str(found.url(next(iter(found)), path, query)) == url


def test_keys_go_into_the_header_of_the_dialect():
    one = next(iter(upstreams_of(a={"base_url": "https://a.example", "api_key_env": "KEY"})))
    assert one.auth_headers("anthropic") == {"x-api-key": "k"}
    assert one.auth_headers("responses") == one.auth_headers(None) == {"authorization": "Bearer k"}
    assert "'k'" not in repr(one)


@pytest.mark.parametrize(
    ("given_upstreams", "says"),
    [
        ({}, "--upstream"),
        ({"a": {"base_url": "https://a.example", "fallbacks": ("z",)}}, "z, which is not among them"),
        ({"a": {"base_url": "https://a.example", "api_key_env": "EMPTY"}}, "EMPTY is not set"),
        ({"a": {"base_url": "http://a.example", "api_key_env": "KEY"}}, "plain http"),
    ],
)
def test_what_cannot_work_is_said_at_the_start(given_upstreams, says):
    with pytest.raises(SettingsError, match=says):
        upstreams_of(**given_upstreams)


def test_few_addresses_are_kept():
    found = Upstreams(list(upstreams_of(a={"base_url": "https://a.example"})))
    for number in range(2_000):
        found.url(next(iter(found)), f"/{number}", "")
    assert len(found._urls) <= 256

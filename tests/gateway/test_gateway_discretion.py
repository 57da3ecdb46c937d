"""Whatever a caller or an upstream sends, wherever it stands: logs, metrics, spans and pages do not show it."""

from __future__ import annotations

import asyncio
import json
import logging
import tracemalloc
from base64 import b64encode
from hashlib import sha256

from aiohttp import web
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from operated_gateway import operated_gateway

from penstock.gateway.logs import name_model, name_request
from penstock.gateway.tracing import RequestTracer

PREFIXES = ["", "sk-", "sk-ant-api03-", "ghp_", "pk-", "AKIA", "req_", "gpt-", "claude-"]
# Random, and by no means a word that stands on our pages, as Hypothesis likes to choose them.
SECRETS = st.builds(
    lambda prefix, seed, length: (
        prefix + b64encode(sha256(seed.to_bytes(8)).digest(), b"xy").decode().strip("=")[:length]
    ),
    st.sampled_from(PREFIXES),
    st.integers(0, 2**64 - 1),
    st.integers(20, 43),
)
PLACES = [
    "authorization",
    "x-api-key",
    "api-key",
    "cookie",
    "x-request-id",
    "x-client-request-id",
    "traceparent",
    "x-penstock-session",
    "x-penstock-focus",
    "x-penstock-key",
    "x-claude-code-session-id",
    "user-agent",
    "anthropic-beta",
    "model",
    "content",
    "field",
    "query",
    "path",
    "method",
    "upstream body",
    "upstream header",
    "upstream request id",
]


@settings(max_examples=20, phases=[Phase.explicit, Phase.generate])  # secrets do not shrink
@given(
    placed=st.lists(
        st.tuples(st.sampled_from(PLACES), SECRETS), min_size=3, max_size=12, unique_by=lambda one: one[0]
    ),
    path=st.sampled_from(
        ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/files", "/v1/models"]
    ),
    status=st.sampled_from([200, 400, 401, 429, 500]),
)
def test_no_secret_is_shown(placed, path, status):
    asyncio.run(ask_with(dict(placed), path, status))


async def ask_with(secrets, path, status):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    kept = Kept()
    async with operated_gateway(tracer=RequestTracer(provider), drain_seconds=0.1) as gateway:

        def answer(_told):
            error = {"error": {"message": f"no {secrets.get('upstream body', '')}", "type": "x"}}
            headers = {"x-leak": secrets.get("upstream header", "-")}
            if "upstream request id" in secrets:
                headers["request-id"] = secrets["upstream request id"]
            return web.json_response(error, status=status, headers=headers)

        gateway.answer = answer
        body = {
            "model": secrets.get("model", "gpt-5"),
            "messages": [{"role": "user", "content": secrets.get("content", "x")}],
            secrets.get("field", "user"): "x",
        }
        where = f"{path}/{secrets['path']}" if "path" in secrets else path
        where += f"?key={secrets['query']}" if "query" in secrets else ""
        headers = {name: secrets[name] for name in PLACES[:13] if name in secrets}
        method = secrets["method"][:12].upper() if "method" in secrets else "POST"
        async with gateway.client.request(method, where, data=json.dumps(body), headers=headers) as got:
            await got.read()
        shown = [await gateway.look(page) for page in ("/metrics", "/health", "/ready", "/openapi.json")]
        told = gateway.lines()
    spans = [span.to_json() for span in exporter.get_finished_spans()]
    assert len(told) == len(spans) == ("method" not in secrets)  # aiohttp refuses strange methods itself
    everything = json.dumps([told, shown, spans, kept.close()])
    for place, secret in secrets.items():
        for part in (secret, secret.lower(), secret[-16:]):
            assert part not in everything, place
    if "method" in secrets:
        assert method not in everything


class Kept(logging.Handler):
    """All that any logger of the process says meanwhile."""

    def __init__(self):
        super().__init__()
        self.said = []
        logging.getLogger().addHandler(self)

    def emit(self, record):
        self.said.append(record.getMessage())

    def close(self):
        logging.getLogger().removeHandler(self)
        super().close()
        return self.said


def test_names_of_models_are_shown_and_what_may_be_a_key_is_not():
    for model in (
        "gpt-5.1-codex-max",
        "o3",
        "claude-sonnet-4-5-20250929",
        "anthropic.claude-3-5-sonnet-20240620-v1:0",
        "meta-llama/Llama-3.3-70B-Instruct",
        "qwen2.5-coder:7b-instruct",
        "gemini-2.5-flash-lite-preview-09-2025",
        "SmolLM2-135M-Instruct",
    ):
        assert name_model(model) == model
    for other in ("sk-proj-abcdefghijklmnop1234", "a b", "x" * 30, "gpt-4\n", "-", "9f86d081884c7d65"):
        assert name_model(other) == "other"
    assert name_model("") == ""


def test_long_names_of_models_are_not_held():
    tracemalloc.start()
    try:
        for number in range(50):
            assert name_model(f"{number}-".ljust(100_000, "x")) == "other"
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()


def test_ids_that_programs_make_are_shown_and_others_can_only_be_compared():
    for made in ("0af76519-16cd-43dd-8448-eb211c80319c", "req_011CSHoEeqs5C35K2UUqR7Fy", "0" * 32):
        assert name_request(made) == made
    assert name_request("my secret") == name_request("my secret") != name_request("my secrets")
    assert "secret" not in name_request("my secret")
    assert name_request("") is None

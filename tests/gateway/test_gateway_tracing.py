"""Spans of OpenTelemetry: one for each request, with the names that its conventions give, and nothing unasked."""

from __future__ import annotations

import asyncio
import runpy
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from aiohttp import web
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from operated_gateway import operated_gateway

from penstock.errors import SettingsError
from penstock.gateway import tracing
from penstock.gateway.callers import ServedRequest
from penstock.gateway.operations import GatewayOperations
from penstock.gateway.tracing import RequestTracer, open_tracer
from penstock.settings import GatewaySettings, Settings
from penstock.stores.store import open_store

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def spans_of(talk):
    """The spans of what a coroutine does to a gateway."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def run():
        async with operated_gateway(tracer=RequestTracer(provider)) as gateway:
            await talk(gateway)

    asyncio.run(run())
    return exporter.get_finished_spans()


def test_a_span_has_the_names_of_the_conventions_and_belongs_to_the_callers():
    async def talk(gateway):
        await gateway.ask(traceparent=PARENT, x_penstock_key=gateway.make_key())

    (span,) = spans_of(talk)
    assert (span.name, span.kind) == ("chat gpt-5-mini", SpanKind.SERVER)
    assert span.parent.span_id == 0x00F067AA0BA902B7
    assert span.context.trace_id == 0x4BF92F3577B34DA6A3CE929D0E0E4736
    assert 0 < span.end_time - span.start_time < 60 * 10**9
    told = dict(span.attributes)
    assert told.pop("penstock.request")
    assert told.pop("penstock.key")
    assert told == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5-mini",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 11,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "penstock.upstream": "up",
    }


def test_a_failure_is_one():
    async def talk(gateway):
        gateway.answer = lambda _told: web.json_response({}, status=500)
        await gateway.ask("/v1/messages", traceparent="rubbish")

    (span,) = spans_of(talk)
    assert span.status.status_code is StatusCode.ERROR
    assert span.parent is None
    assert span.attributes["gen_ai.provider.name"] == "anthropic"
    assert span.attributes["error.type"]


def test_spans_go_where_the_variables_say(monkeypatch):
    came = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            came.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    try:
        tracer = open_tracer()
        served = ServedRequest("r1", "POST", 1.0)
        served.route = "/chat/completions"
        tracer.write(served)
        tracer.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    ((path, body),) = came
    assert path == "/v1/traces"
    assert b"penstock-gateway" in body
    assert b"deployment.environment.name" in body


def test_without_the_extra_the_way_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(SettingsError, match=r"penstock-context\[otel\]"):
        open_tracer()


def test_unless_it_is_asked_for_nothing_of_it_is_imported(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.setitem(sys.modules, name, None)
    runpy.run_path(tracing.__file__)
    store = open_store("memory:")
    GatewayOperations(Settings(), store)
    with pytest.raises(SettingsError):
        GatewayOperations(Settings(gateway=GatewaySettings(otel=True)), store)
    store.close()

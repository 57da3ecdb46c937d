"""A span of OpenTelemetry for each request, by the semantic conventions for generative AI. An extra: `otel`.

Without `gateway.otel` nothing of OpenTelemetry is imported. Where spans go, and under which name, the `OTEL_…` variables
say, which its own SDK reads. A span holds figures and names, never content.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import SettingsError
from penstock.gateway.logs import name_model, name_request, read_tokens, read_word

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from penstock.gateway.callers import ServedRequest

__all__ = ["RequestTracer", "open_tracer"]

_NANOSECONDS: Final = 1_000_000_000
_SYSTEMS: Final = {"chat": "openai", "responses": "openai", "anthropic": "anthropic"}
_MISSING: Final = "gateway.otel needs the extra: pip install 'penstock-context[otel]'"


class RequestTracer:
    """Writes the span of a request when that has ended: until then nothing of it is held."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode  # noqa: PLC0415 - an extra
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 - as above
            TraceContextTextMapPropagator,
        )

        self._provider = provider
        self._tracer = provider.get_tracer("penstock.gateway")
        self._kind = SpanKind.SERVER
        self._failed = Status(StatusCode.ERROR)
        self._propagator = TraceContextTextMapPropagator()

    def write(self, served: ServedRequest) -> None:
        """Writes the span, as a child of the caller's where its `traceparent` names one."""
        model = name_model(served.model)
        parent = (
            self._propagator.extract({"traceparent": served.trace_parent}) if served.trace_parent else None
        )
        ended = time.time_ns()
        took = int((served.ended_at - served.started_at) * _NANOSECONDS)
        span = self._tracer.start_span(
            f"chat {model}".strip() if served.dialect else served.route,
            context=parent,
            kind=self._kind,
            attributes=_describe(served, model),
            start_time=ended - took,
        )
        if served.status >= 500 or served.cut_off:
            span.set_status(self._failed)
        span.end(ended)

    def close(self) -> None:
        """Sends what is left."""
        self._provider.shutdown()


def open_tracer() -> RequestTracer:
    """Returns a tracer that sends spans as the `OTEL_…` variables say. Raises SettingsError without the extra."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above
    except ImportError:
        raise SettingsError(_MISSING) from None
    resource = Resource.create()
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "penstock-gateway"}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return RequestTracer(provider)


def _describe(served: ServedRequest, model: str) -> dict[str, Any]:
    usage = served.usage
    told: dict[str, Any] = {
        "gen_ai.operation.name": "chat" if served.dialect else None,
        "gen_ai.provider.name": _SYSTEMS.get(served.dialect or ""),
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": usage.prompt_tokens if usage else None,
        "gen_ai.usage.output_tokens": usage.output_tokens if usage else None,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens if usage else None,
        "http.request.method": served.method if served.method in {"GET", "POST"} else "_OTHER",
        "http.route": f"/v1{served.route}" if served.route.startswith("/") else served.route,
        "http.response.status_code": served.status or None,
        "error.type": _name_error(served),
        "penstock.request": served.id,
        "penstock.upstream": served.upstream,
        "penstock.upstream_request": name_request(served.upstream_request_id),
        "penstock.key": served.caller.key_id if served.caller else served.refused_key_id,
        "penstock.tokens_before": read_tokens(served.headers, "before"),
        "penstock.tokens_after": read_tokens(served.headers, "after"),
        "penstock.compacted": read_word(served.headers, "compacted", ("now", "before")),
        "penstock.retries": served.retries or None,
    }
    return {name: value for name, value in told.items() if value not in (None, "")}


def _name_error(served: ServedRequest) -> str | None:
    if served.failure is not None:
        return served.failure.kind.value
    return str(served.status) if served.status >= 500 else None

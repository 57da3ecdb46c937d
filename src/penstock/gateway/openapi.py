"""The OpenAPI description of what is the gateway's own: its pages, its headers, hosted sessions, and how it refuses.

Bodies and answers under `/v1` are the upstream's, and are described there.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from penstock.gateway.hosted_description import describe_hosted_paths, describe_hosted_schemas

__all__ = ["OWN_PATHS", "describe_api"]

OWN_PATHS: Final = ("/health", "/ready", "/metrics", "/openapi.json", "/join", "/runs")

_KEYS: Final[list[dict[str, list[str]]]] = [{"own": []}, {"bearer": []}, {"header": []}]
_NONCE: Final = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_ASKED: Final = {  # headers of requests with messages: what each is for, and its schema
    "x-penstock-session": (
        "The conversation that the request belongs to. Only a hint: the messages decide.",
        {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
    ),
    "x-penstock-bypass": ("Passes the request on unchanged.", {"type": "string", "enum": ["true", "false"]}),
    "x-penstock-target-tokens": (
        "Compacts the messages of this request to so many tokens.",
        {"type": "integer", "minimum": 1, "maximum": 100_000_000},
    ),
    "x-penstock-focus": (
        "A topic that a compaction of this request gives more room.",
        {"type": "string", "minLength": 1, "maxLength": 1_000, "pattern": "^[!-~]+$"},
    ),
    "x-penstock-open": (
        "Answers with this request, with the handoffs that the gateway has sealed as plain messages; nothing is sent.",
        {"type": "string", "enum": ["true", "false"]},
    ),
    "x-penstock-store": (
        "What may be kept of this request; never more than the settings and the key allow.",
        {"type": "string", "enum": ["full", "digests", "off"]},
    ),
}
_ANSWERED: Final = {
    "x-penstock-session": ("The conversation that the request was found to belong to.", {"type": "string"}),
    "x-penstock-tokens-before": ("Tokens of the request as received.", {"type": "integer"}),
    "x-penstock-tokens-after": ("Tokens of the request as sent.", {"type": "integer"}),
    "x-penstock-compacted": (
        "Whether its messages were compacted: now, by this request; before; or not.",
        {"type": "string", "enum": ["now", "before", "no"]},
    ),
    "x-penstock-notice": (
        "Why a compaction that was due or asked for was not made, or how it was made where nothing is kept.",
        {"type": "string"},
    ),
    "x-penstock-passed-through": ("Why the request was passed on unchanged.", {"type": "string"}),
}
_CONVERSATIONS: Final = {
    "/v1/chat/completions": ("OpenAI Chat Completions", "OpenAIError"),
    "/v1/responses": ("OpenAI Responses", "OpenAIError"),
    "/v1/responses/compact": ("OpenAI's compaction of a conversation, by gateway.compaction", "OpenAIError"),
    "/v1/messages": ("Anthropic Messages", "AnthropicError"),
    "/v1/messages/count_tokens": ("Anthropic token counts, of the compacted view", "AnthropicError"),
}
_REFUSALS: Final = {
    "400": "An x-penstock header has a value that is not allowed; a sealed handoff cannot be opened; or the upstream's own refusal",
    "401": "The key is missing, unknown, expired or revoked",
    "403": "The key may not use this model, or the Host or Origin header names another site",
    "404": "No upstream serves this model",
    "413": "The request is larger than gateway.max_body_mb",
    "429": "Over a limit of the key: requests per minute or at once, or tokens per day",
    "502": "No upstream answered",
    "503": "A compaction that was asked for could not be made",
}


@cache
def describe_api(version: str) -> dict[str, Any]:
    """Returns the description as an object of OpenAPI 3.1."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock gateway",
            "version": version,
            "description": "Keeps conversations inside the window on their way to any OpenAI- or Anthropic-compatible API.",
        },
        "paths": {
            **{path: {"get": operation} for path, operation in _describe_pages().items()},
            **{path: {"post": _describe_conversation(*words)} for path, words in _CONVERSATIONS.items()},
            **describe_hosted_paths(),
        },
        "components": {
            "securitySchemes": {
                "own": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "x-penstock-key",
                    "description": "pk-…, where the usual header holds the upstream's own key",
                },
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "pk-…, or the upstream's own key",
                },
                "header": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "as bearer"},
            },
            "schemas": {**_describe_schemas(), **describe_hosted_schemas()},
        },
    }


def _describe_pages() -> dict[str, Any]:
    return {
        "/health": {
            "summary": "Whether the process is up",
            "responses": {"200": _json("It is", _object(status={"const": "ok"}))},
        },
        "/ready": {
            "summary": "Whether requests can be served: the store takes writes, the workers answer, nothing drains",
            "responses": {
                "200": _json("They can", _ref("Readiness")),
                "503": _json(
                    "They cannot; callers from this machine or with a key are told why", _ref("Readiness")
                ),
            },
        },
        "/metrics": {
            "summary": "Figures for Prometheus; from another machine with a key, or with gateway.open_metrics",
            "security": [{}, *_KEYS],
            "responses": {
                "200": {
                    "description": "The text format",
                    "content": {"text/plain": {"schema": {"type": "string"}}},
                },
                "401": _json("No key, from another machine", _ref("OpenAIError")),
            },
        },
        "/openapi.json": {
            "summary": "This description",
            "responses": {"200": _json("OpenAPI 3.1", {"type": "object", "required": ["openapi", "paths"]})},
        },
        "/join": {
            "summary": "Proves to a program on this machine that uses the same store that this is its gateway",
            "parameters": [
                _query("nonce", _NONCE),
                _query("dialect", {"type": "string", "enum": ["chat", "responses", "anthropic"]}),
            ],
            "responses": {
                "200": _json("A proof for this nonce", _object(proof={"type": "string"})),
                "400": _json("No nonce, or no dialect", _ref("OpenAIError")),
                "404": _json("Not for this caller, or not to be joined", _ref("OpenAIError")),
            },
        },
        "/runs": {
            "summary": "The tally of one run of a client, whose requests came with /runs/RUN before /v1",
            "parameters": [_query("run", _NONCE)],
            "responses": {
                "200": _json(
                    "Requests and tokens", {"type": "object", "required": ["requests", "saved_tokens"]}
                ),
                "400": _json("No run", _ref("OpenAIError")),
                "404": _json("Not for this caller", _ref("OpenAIError")),
            },
        },
    }


def _describe_conversation(title: str, error: str) -> dict[str, Any]:
    return {
        "summary": title,
        "security": _KEYS,
        "parameters": [
            {"name": name, "in": "header", "description": text, "schema": schema}
            for name, (text, schema) in _ASKED.items()
        ],
        "requestBody": {
            "required": True,
            "description": "As the upstream takes it; fields that the gateway does not know are passed on.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        },
        "responses": {
            "200": {
                "description": "The upstream's answer, whole or streamed",
                "headers": {
                    name: {"description": text, "schema": schema}
                    for name, (text, schema) in _ANSWERED.items()
                },
            },
            **{status: _json(text, _ref(error)) for status, text in _REFUSALS.items()},
            "default": {"description": "The upstream's own answer, unchanged"},
        },
    }


def _describe_schemas() -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "Readiness": {
            "type": "object",
            "required": ["ready"],
            "properties": {
                "ready": {"type": "boolean"},
                "checks": {"type": "object", "additionalProperties": {"type": "boolean"}},
            },
        },
        "OpenAIError": _object(
            error={"type": "object", "required": ["message"], "properties": {"message": text}}
        ),
        "AnthropicError": _object(
            type={"const": "error"},
            error={
                "type": "object",
                "required": ["type", "message"],
                "properties": {"type": text, "message": text},
            },
        ),
    }


def _query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": True, "schema": schema}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


def _json(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}

"""The bodies of requests to hosted conversations, and the OpenAPI description of their API."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from penstock._structs import read_early

__all__ = [
    "CompactionRequest",
    "GivenApproval",
    "NewHostedSession",
    "PinnedMessage",
    "SaidText",
    "describe_hosted_paths",
    "describe_hosted_schemas",
]

# What requests hold.

_Line = Annotated[str, Meta(min_length=1, max_length=1_000)]


class NewHostedSession(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A session to open. `user` names the person in the app whose memory it has."""

    model: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    dialect: Literal["chat", "responses", "anthropic"] | None = None
    title: Annotated[str, Meta(max_length=200)] = ""
    system: Annotated[str, Meta(max_length=200_000)] = ""
    user: Annotated[str, Meta(max_length=200, pattern=r"^[!-~]*$")] = ""


class SaidText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message. Without text, what was said last is answered; without `answer`, it is only logged."""

    text: Annotated[str, Meta(max_length=4_000_000)] = ""
    answer: bool = True
    stream: bool = False


class CompactionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A compaction to make: about a topic, or of all but the last so many exchanges."""

    focus: _Line | None = None
    keep_exchanges: Annotated[float, Meta(ge=1, le=1_000, multiple_of=1)] | None = None
    """A whole number; to JSON, 2.0 is one."""


class PinnedMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message to keep whole, by its handle."""

    message: Annotated[str, Meta(min_length=2, max_length=20)]


class GivenApproval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer to a call that waits for one."""

    id: Annotated[str, Meta(min_length=1, max_length=64)]
    reply: Literal["once", "session", "no"]


read_early(NewHostedSession, SaidText, CompactionRequest, PinnedMessage, GivenApproval)


# The description.

_TEXT: Final[dict[str, Any]] = {"type": "string"}
_COUNT: Final[dict[str, Any]] = {"type": "integer", "minimum": 0}
_FLAG: Final[dict[str, Any]] = {"type": "boolean"}
_MONEY: Final[dict[str, Any]] = {"type": ["number", "null"]}
_ID: Final[dict[str, Any]] = {
    "name": "id",
    "in": "path",
    "required": True,
    "description": "The id of a session",
    "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
}
_HANDLE: Final[dict[str, Any]] = {
    "name": "message",
    "in": "path",
    "required": True,
    "description": "The handle of a message",
    "schema": {"type": "string", "pattern": "^m[1-9][0-9]{0,8}$"},
}
_IDEMPOTENCY: Final[dict[str, Any]] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same request with the same key again, within a day, is answered as the first time.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
}
_REFUSED: Final = {
    "400": "The request cannot be used",
    "401": "The key is missing, unknown, expired or revoked",
    "403": "The key may not use this model, or what it says may not be kept",
    "404": "There is no such session, or no such message or approval in it",
    "409": "Another turn is under way for too long, or there is nothing to do",
    "413": "The request is larger than gateway.max_body_mb",
    "422": "The idempotency key was used for another request",
    "429": "Over a limit of the key",
    "500": "The gateway or its store failed",
    "502": "The model failed",
    "503": "The model or the store does not answer at the moment",
}
_NEEDED: Final = {"PinnedMessage", "GivenApproval"}
_KEYS: Final[list[dict[str, list[str]]]] = [{"own": []}, {"bearer": []}, {"header": []}]


def describe_hosted_paths() -> dict[str, Any]:
    """Returns the paths under `/sessions`."""
    one = "/sessions/{id}"
    limit = _query("limit", {"type": "integer", "minimum": 1, "maximum": 100})
    page = [limit, _cursor(r"^[0-9]{1,12}\.[0-9]{1,9}-[0-9a-f]{16,64}$")]
    stretch = [limit, _cursor("^[0-9]{1,9}$")]
    found = [
        _query("q", {"type": "string", "minLength": 1, "maxLength": 1_000, "pattern": r"\S"}, required=True),
        _query("limit", {"type": "integer", "minimum": 1, "maximum": 50}),
    ]
    export = [
        _query("dialect", {"type": "string", "enum": ["chat", "responses", "anthropic"]}),
        _query("view", {"type": "string", "enum": ["true", "false"]}),
    ]
    return {
        "/sessions": {
            "get": _operation("Lists sessions, the one that was used last first", _of("SessionPage"), page),
            "post": _operation(
                "Opens a session",
                _of("SessionDetails"),
                [_IDEMPOTENCY],
                body="NewHostedSession",
                statuses=("201", "200"),
            ),
        },
        "/sessions/search": {
            "get": _operation("Searches all sessions of the caller", _of("SearchResults"), found)
        },
        one: {
            "get": _operation("Shows a session", _of("SessionDetails"), [_ID]),
            "delete": _operation(
                "Deletes a session with all that was said in it", None, [_ID], statuses=("204",)
            ),
        },
        f"{one}/messages": {
            "get": _operation("Shows what was said", _of("MessagePage"), [_ID, *stretch]),
            "post": {
                **_operation(
                    "Says something, or runs a command such as /help; answered by the model",
                    {
                        **_of("HostedReply"),
                        "text/event-stream": {"schema": _object(event=_TEXT, data=_TEXT)},
                    },
                    [_ID, _IDEMPOTENCY],
                    body="SaidText",
                ),
                "description": "With `stream`, or where the client accepts text/event-stream alone, the turn comes as "
                "server-sent events: text, reasoning, tool, approval, compacted, notice, and reply or error at its end.",
            },
        },
        f"{one}/search": {"get": _operation("Searches a session", _of("SearchResults"), [_ID, *found])},
        f"{one}/compact": {
            "post": _operation(
                "Compacts a session", _of("CompactionOutcome"), [_ID], body="CompactionRequest"
            )
        },
        f"{one}/undo": {
            "post": _operation("Takes the last compaction back", _of("UndoOutcome"), [_ID]),
        },
        f"{one}/pins": {
            "post": _operation(
                "Keeps a message whole in every compaction", _of("PinOutcome"), [_ID], body="PinnedMessage"
            )
        },
        f"{one}/pins/{{message}}": {
            "delete": _operation("Lets a message be compacted again", _of("PinOutcome"), [_ID, _HANDLE])
        },
        f"{one}/export": {
            "get": _operation(
                "Exports what was said, one message per line",
                {"application/x-ndjson": {"schema": {"type": "string"}}},
                [_ID, *export],
            )
        },
        f"{one}/usage": {"get": _operation("Tells what a session has used", _of("UsageReport"), [_ID])},
        f"{one}/approvals": {
            "post": _operation(
                "Answers a call that waits for a yes or a no",
                _of("ApprovalOutcome"),
                [_ID],
                body="GivenApproval",
            )
        },
    }


def describe_hosted_schemas() -> dict[str, Any]:
    """Returns the schemas of answers, and those of the bodies of requests, which their types tell."""
    bodies = NewHostedSession, SaidText, CompactionRequest, PinnedMessage, GivenApproval
    _, requests = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    session = {
        "id": _TEXT, "title": _TEXT, "model": _TEXT, "dialect": _TEXT, "created": {"type": "number"},
        "updated": {"type": "number"}, "messages": _COUNT, "tokens": _COUNT, "view_tokens": _COUNT,
        "compactions": _COUNT, "cost": _MONEY,
    }  # fmt: skip
    sizes = {"tokens_before": _COUNT, "tokens_after": _COUNT}
    approval = {"id": _TEXT, "tool": _TEXT, "access": _TEXT, "subject": _TEXT, "detail": _TEXT}
    used = {
        "requests": _COUNT, "prompt_tokens": _COUNT, "output_tokens": _COUNT, "total_tokens": _COUNT, "cost": _MONEY,
    }  # fmt: skip
    hit = {"session": _TEXT, "title": _TEXT, "handles": _list(_TEXT), "excerpt": _TEXT}
    return {
        **requests,
        "HostedError": _object(error=_object(type=_TEXT, message=_TEXT, next_step=_TEXT)),
        "SessionSummary": _object(**session),
        "SessionDetails": _object(
            **session, pins=_list(_TEXT), busy=_FLAG, approvals=_list(_object(**approval))
        ),
        "SessionPage": _page("SessionSummary"),
        "MessageSummary": _object(handle=_TEXT, speaker=_TEXT, at={"type": "number"}),
        "MessagePage": _page("MessageSummary"),
        "HostedReply": _object(
            session=_TEXT,
            status={"type": "string", "enum": ["answered", "logged", "steered", "command", "steps"]},
            message=_TEXT,
            text=_TEXT,
            notices=_list(_TEXT),
            compactions=_list(_object(reason=_TEXT, **sizes)),
            usage={"type": "object", "properties": used},
        ),
        "SearchResults": _object(data=_list(_object(**hit))),
        "CompactionOutcome": _object(compacted=_FLAG, notice=_TEXT, **sizes),
        "UndoOutcome": _object(undone=_FLAG, notice=_TEXT, **sizes),
        "PinOutcome": _object(pins=_list(_TEXT), changed=_FLAG, notice=_TEXT),
        "ApprovalOutcome": _object(id=_TEXT, reply=_TEXT),
        "UsageReport": {"type": "object", "required": ["total", "models", "summaries", "compactions"]},
    }


def _operation(
    summary: str,
    content: dict[str, Any] | None,
    parameters: list[dict[str, Any]],
    *,
    body: str = "",
    statuses: tuple[str, ...] = ("200",),
) -> dict[str, Any]:
    done: dict[str, Any] = {"description": summary, **({"content": content} if content else {})}
    described: dict[str, Any] = {
        "summary": summary,
        "security": _KEYS,
        "parameters": parameters,
        "responses": {
            **dict.fromkeys(statuses, done),
            **{
                status: {"description": text, "content": _of("HostedError")}
                for status, text in _REFUSED.items()
            },
        },
    }
    if body:
        described["requestBody"] = {"required": body in _NEEDED, "content": _of(body)}
    return described


def _query(name: str, schema: dict[str, Any], *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": required, "schema": schema}


def _cursor(pattern: str) -> dict[str, Any]:
    return {
        **_query("cursor", {"type": "string", "pattern": pattern}),
        "description": "next_cursor of the page before",
    }


def _of(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _page(of: str) -> dict[str, Any]:
    return _object(
        data=_list({"$ref": f"#/components/schemas/{of}"}), next_cursor={"type": ["string", "null"]}
    )


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}

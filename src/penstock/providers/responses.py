"""OpenAI Responses: requests, answers, and streamed answers put together again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from penstock._structs import read_early
from penstock.measure.usage import names_cache, normalise_usage
from penstock.providers.bodies import parse_event, provider_error, read_shape
from penstock.providers.classify import classify_error
from penstock.providers.exchange import Answer, CallDelta, Called, Finish, ReasoningDelta, TextDelta
from penstock.providers.failures import cut_off, malformed_answer
from penstock.providers.sse import DONE

if TYPE_CHECKING:
    from penstock.providers.exchange import Ask, Event
    from penstock.providers.quirks import Quirks
    from penstock.providers.sse import ServerEvent

__all__ = ["PATH", "ResponsesAccumulator", "answer_from_body", "request_body"]

PATH = "/responses"

_SPOKEN = frozenset({"response.output_text.delta", "response.refusal.delta"})
_THOUGHT = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
_ARGUED = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_INCOMPLETE = {"max_output_tokens": Finish.LENGTH, "content_filter": Finish.REFUSED}


class _Part(msgspec.Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


class _Item(msgspec.Struct):
    type: str = "message"
    content: list[_Part] | str | None = None
    summary: list[_Part] | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    input: str | None = None


class _Details(msgspec.Struct):
    reason: str | None = None


class _Body(msgspec.Struct):
    output: list[Any]
    status: str | None = None
    incomplete_details: _Details | None = None
    model: str | None = None
    usage: Any = None


read_early(_Item, _Body)


def request_body(ask: Ask, model: str, quirks: Quirks, *, stream: bool = False) -> dict[str, Any]:
    """Returns the body of a request. Nothing is stored at the provider unless `ask.extra` says so."""
    body: dict[str, Any] = {"model": model, "input": list(ask.messages), "store": False}
    if isinstance(ask.system, str) and ask.system:
        body["instructions"] = ask.system
    elif ask.system:
        body["input"].insert(0, {"role": "system", "content": ask.system})
    if ask.tools:
        body["tools"] = list(ask.tools)
    if ask.max_output_tokens is not None:
        body["max_output_tokens"] = ask.max_output_tokens
    if quirks.encrypted_reasoning:
        body["include"] = ["reasoning.encrypted_content"]
    return body | dict(ask.extra) | ({"stream": True} if stream else {})


def answer_from_body(body: Mapping[str, Any]) -> Answer:
    """Returns the answer that a whole body holds; its items are the wires. Raises ProviderError if it cannot be read."""
    if body.get("status") == "failed":
        raise provider_error(classify_error(None, body))
    read = read_shape(body, _Body)
    items = [_item(item, place) for place, item in enumerate(read.output)]
    parts = [part for item in items if item.type == "message" for part in _parts(item.content)]
    refusal = "".join(part.refusal or "" for part in parts)
    calls = tuple(_read_call(item, place) for place, item in enumerate(items) if item.type in _CALLS)
    return Answer(
        text="".join(part.text or "" for part in parts) or refusal,
        finish=Finish.REFUSED if refusal else _finish(read, calls),
        usage=normalise_usage(read.usage, "responses"),
        names_cache=names_cache(read.usage),
        wires=tuple(read.output),
        calls=calls,
        reasoning="\n\n".join(text for item in items if item.type == "reasoning" for text in _thoughts(item)),
        model=read.model or "",
    )


_CALLS = frozenset({"function_call", "custom_tool_call"})


def _item(item: Any, place: int) -> _Item:
    """Returns an item as we read it. Of kinds that we do not know only the kind is read: they stay in the wires."""
    if not isinstance(item, Mapping):
        raise malformed_answer(f"item {place} of its output is not an object")
    kind = item.get("type")
    if isinstance(kind, str) and kind not in {"message", "reasoning", *_CALLS}:
        return _Item(type=kind)
    return read_shape(item, _Item)


def _parts(content: list[_Part] | str | None) -> list[_Part]:
    return [_Part(text=content)] if isinstance(content, str) else content or []


def _thoughts(item: _Item) -> list[str]:
    """Returns the summary if there is one, else the reasoning itself, as open models give it."""
    return [part.text for part in item.summary or _parts(item.content) if part.text]


def _read_call(item: _Item, place: int) -> Called:
    arguments = item.arguments if item.type == "function_call" else item.input
    return Called(item.call_id or item.id or f"call_{place}", item.name or "", arguments or "")


def _finish(body: _Body, calls: tuple[Called, ...]) -> Finish:
    if body.status == "incomplete":
        details = body.incomplete_details
        return _INCOMPLETE.get((details.reason if details else "") or "", Finish.OTHER)
    if body.status not in {"completed", None}:
        return Finish.OTHER
    return Finish.TOOL_CALLS if calls else Finish.STOP


class ResponsesAccumulator:
    """Takes the events of one stream. The last of them carries the whole answer, which is what counts."""

    def __init__(self) -> None:
        self.finished = False
        self._last: dict[str, Any] | None = None
        self._done: dict[int, Any] = {}
        self._call_ids: dict[str, str] = {}

    def take(self, event: ServerEvent) -> list[Event]:
        """Returns what this event adds to the answer. Raises ProviderError if it reports an error or cannot be read."""
        if event.data.strip() == DONE:
            return []
        data = parse_event(event.data)
        told = data.get("type")
        name = told if isinstance(told, str) and told else event.name
        delta = data.get("delta")
        if isinstance(delta, str) and delta:
            return self._take_delta(name, delta, data)
        if name == "response.output_item.added":
            return self._announce(data)
        if name == "response.output_item.done":
            self._done[_index(data, len(self._done))] = data.get("item")
        elif name in _ENDS:
            self._end(data.get("response"))
        return []

    def answer(self) -> Answer:
        """Returns the whole answer. Raises ProviderError if the stream broke off or what it held cannot be read."""
        if self._last is None:
            raise cut_off()
        body = self._last
        if not body.get("output") and self._done:  # some servers leave the items out of the last event
            body = body | {"output": [item for _, item in sorted(self._done.items())]}
        return answer_from_body(body)

    def _take_delta(self, name: str, delta: str, data: Mapping[str, Any]) -> list[Event]:
        if name in _SPOKEN:
            return [TextDelta(delta)]
        if name in _THOUGHT:
            return [ReasoningDelta(delta)]
        if name in _ARGUED:
            item = str(data.get("item_id"))
            return [CallDelta(self._call_ids.get(item, item), "", delta)]
        return []

    def _announce(self, data: Mapping[str, Any]) -> list[Event]:
        item = data.get("item")
        if not isinstance(item, Mapping):
            return []
        place = _index(data, 0)
        read = _item(item, place)
        if read.type not in _CALLS:
            return []
        call = _read_call(read, place)
        self._call_ids[str(read.id)] = call.id
        return [CallDelta(call.id, call.name, call.arguments)]

    def _end(self, response: Any) -> None:
        if not isinstance(response, dict):
            raise malformed_answer("the last event of the stream holds no response")
        self.finished = True
        self._last = response


def _index(data: Mapping[str, Any], default: int) -> int:
    index = data.get("output_index")
    return index if isinstance(index, int) else default

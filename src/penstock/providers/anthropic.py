"""Anthropic Messages: requests, answers, and streamed answers put together again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from penstock._structs import read_early
from penstock.conversation.wire import json_text, parse_json
from penstock.measure.usage import names_cache, normalise_usage
from penstock.providers.bodies import parse_event, read_shape
from penstock.providers.exchange import Answer, CallDelta, Called, Finish, ReasoningDelta, TextDelta
from penstock.providers.failures import cut_off, malformed_answer

if TYPE_CHECKING:
    from penstock.providers.exchange import Ask, Event
    from penstock.providers.quirks import Quirks
    from penstock.providers.sse import ServerEvent

__all__ = ["PATH", "VERSION", "AnthropicAccumulator", "answer_from_body", "counting_body", "request_body"]

PATH = "/messages"
VERSION = "2023-06-01"

DEFAULT_OUTPUT_TOKENS = 8_192
"""The API wants to be told the most tokens of an answer. Thinking comes on top of it."""

_FINISHES = {
    "end_turn": Finish.STOP,
    "stop_sequence": Finish.STOP,
    "max_tokens": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "tool_use": Finish.TOOL_CALLS,
    "refusal": Finish.REFUSED,
    "pause_turn": Finish.OTHER,  # a server tool is not done: the answer is to be sent back as it is
}


class _Block(msgspec.Struct):
    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None


class _Body(msgspec.Struct):
    content: list[Any]
    stop_reason: str | None = None
    model: str | None = None
    usage: Any = None


read_early(_Block, _Body)


def request_body(ask: Ask, model: str, quirks: Quirks, *, stream: bool = False) -> dict[str, Any]:  # noqa: ARG001 - the same signature in each dialect
    """Returns the body of a request."""
    body: dict[str, Any] = {"model": model, "max_tokens": _cap(ask), "messages": list(ask.messages)}
    if ask.system not in (None, "", []):
        body["system"] = ask.system
    if ask.tools:
        body["tools"] = list(ask.tools)
    return body | dict(ask.extra) | ({"stream": True} if stream else {})


def counting_body(ask: Ask, model: str, quirks: Quirks) -> dict[str, Any]:
    """Returns the body of a request that only counts: all but what concerns the answer."""
    body = request_body(ask, model, quirks)
    return {
        name: body[name]
        for name in ("model", "messages", "system", "tools", "tool_choice", "thinking")
        if name in body
    }


def _cap(ask: Ask) -> int:
    if ask.max_output_tokens is not None:
        return ask.max_output_tokens
    thinking = ask.extra.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None
    return DEFAULT_OUTPUT_TOKENS + (budget if isinstance(budget, int) and budget > 0 else 0)


def answer_from_body(body: Mapping[str, Any], written: Mapping[int, str] | None = None) -> Answer:
    """Returns the answer that a whole body holds. Raises ProviderError if it cannot be read.

    `written` are the arguments of calls as the model wrote them, by the index of their block, if they are
    known: a body that did not come as a stream only has them parsed.
    """
    read = read_shape(body, _Body)
    blocks = [_block(block, place) for place, block in enumerate(read.content)]
    calls = tuple(
        Called(block.id or f"call_{place}", block.name or "", (written or {}).get(place) or _arguments(block))
        for place, block in enumerate(blocks)
        if block.type == "tool_use"
    )
    return Answer(
        text="".join(block.text or "" for block in blocks if block.type == "text"),
        finish=_FINISHES.get(read.stop_reason or "", Finish.OTHER),
        usage=normalise_usage(read.usage, "anthropic"),
        names_cache=names_cache(read.usage),
        wires=({"role": "assistant", "content": read.content},) if read.content else (),
        calls=calls,
        reasoning="\n\n".join(
            block.thinking for block in blocks if block.type == "thinking" and block.thinking
        ),
        model=read.model or "",
    )


def _block(block: Any, place: int) -> _Block:
    """Returns a block as we read it. Of kinds that we do not know only the kind is read: they stay in the wires."""
    if not isinstance(block, Mapping):
        raise malformed_answer(f"block {place} of its content is not an object")
    kind = block.get("type")
    if isinstance(kind, str) and kind not in {"text", "thinking", "tool_use"}:
        return _Block(type=kind)
    return read_shape(block, _Block)


def _arguments(block: _Block) -> str:
    return json_text({} if block.input is None else block.input)


class AnthropicAccumulator:
    """Takes the events of one stream and becomes the body that would have come without streaming."""

    def __init__(self) -> None:
        self.finished = False
        self._message: dict[str, Any] | None = None
        self._usage: dict[str, Any] = {}
        self._blocks: dict[int, _Growing] = {}

    def take(self, event: ServerEvent) -> list[Event]:
        """Returns what this event adds to the answer. Raises ProviderError if it reports an error or cannot be read."""
        data = parse_event(event.data)
        match data.get("type") or event.name:
            case "message_start":
                message = data.get("message")
                if not isinstance(message, dict):
                    raise malformed_answer("the first event of the stream holds no message")
                self._message = dict(message)
                self._merge_usage(message.get("usage"))
            case "content_block_start":
                return self._open(data.get("index"), data.get("content_block"))
            case "content_block_delta":
                return self._grow(data.get("index"), data.get("delta"))
            case "message_delta":
                self._merge_usage(data.get("usage"))
                delta = data.get("delta")
                if self._message is not None and isinstance(delta, Mapping):
                    self._message |= {name: value for name, value in delta.items() if value is not None}
            case "message_stop":
                self.finished = True
        return []

    def answer(self) -> Answer:
        """Returns the whole answer. Raises ProviderError if the stream broke off or what it held cannot be read."""
        if self._message is None or not (self.finished or self._message.get("stop_reason")):
            raise cut_off()
        grown = [block for _, block in sorted(self._blocks.items())]
        written = {place: block.arguments for place, block in enumerate(grown)}
        content = [block.whole() for block in grown]
        return answer_from_body(self._message | {"content": content, "usage": self._usage}, written)

    def _open(self, index: Any, block: Any) -> list[Event]:
        if not isinstance(index, int) or not isinstance(block, dict):
            raise malformed_answer("a block of the stream has no index or is not an object")
        self._blocks[index] = _Growing(block)
        if block.get("type") == "tool_use":
            return [CallDelta(str(block.get("id")), str(block.get("name")), "")]
        text = block.get("text")
        return [TextDelta(text)] if isinstance(text, str) and text else []

    def _grow(self, index: Any, delta: Any) -> list[Event]:
        block = self._blocks.get(index) if isinstance(index, int) else None
        if block is None or not isinstance(delta, Mapping):
            raise malformed_answer("a piece of the stream belongs to no block")
        return block.grow(delta)

    def _merge_usage(self, usage: Any) -> None:
        """The last event knows what came out; what went in, either may leave out or at 0."""
        for name, value in usage.items() if isinstance(usage, Mapping) else ():
            known = self._usage.get(name)
            if name != "output_tokens" and isinstance(value, int) and isinstance(known, int):
                self._usage[name] = max(known, value)
            elif value is not None:
                self._usage[name] = value


class _Growing:
    """A block as far as it has come."""

    def __init__(self, start: dict[str, Any]) -> None:
        self._start = start
        self._texts: dict[str, list[str]] = {}
        self._citations: list[Any] = []
        self._json: list[str] = []

    @property
    def arguments(self) -> str:
        """Returns the input that the model wrote for a call."""
        return "".join(self._json)

    def grow(self, delta: Mapping[str, Any]) -> list[Event]:
        """Texts of a delta are appended to the fields of the same name: text, thinking, signature …"""
        kind = delta.get("type")
        if kind == "input_json_delta":
            return self._write(delta.get("partial_json"))
        if kind == "citations_delta":
            self._citations.append(delta.get("citation"))
            return []
        for name, value in delta.items():
            if name != "type" and isinstance(value, str):
                self._texts.setdefault(name, []).append(value)
        text, thinking = delta.get("text"), delta.get("thinking")
        if kind == "text_delta" and isinstance(text, str) and text:
            return [TextDelta(text)]
        if kind == "thinking_delta" and isinstance(thinking, str) and thinking:
            return [ReasoningDelta(thinking)]
        return []

    def whole(self) -> dict[str, Any]:
        """Returns the block as it would have come without streaming."""
        block = dict(self._start)
        for name, pieces in self._texts.items():
            first = block.get(name)
            block[name] = (first if isinstance(first, str) else "") + "".join(pieces)
        if self._citations:
            block["citations"] = [*(block.get("citations") or []), *self._citations]
        if self.arguments:
            block["input"] = _input(self.arguments)
        return block

    def _write(self, piece: Any) -> list[Event]:
        if not isinstance(piece, str) or not piece:
            return []
        self._json.append(piece)
        called = self._start.get("type") == "tool_use"  # the server's own tools are no business of the caller
        return [CallDelta(str(self._start.get("id")), "", piece)] if called else []


def _input(written: str) -> Any:
    """Returns the input of a call. An answer that was cut off leaves JSON that cannot be read, and so no input."""
    try:
        return parse_json(written)
    except ValueError:
        return {}

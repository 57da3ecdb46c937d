"""OpenAI Chat Completions, and the many servers that speak it: requests and answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock._structs import read_early
from penstock.conversation.wire import json_text
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

__all__ = [
    "PATH",
    "ChatAccumulator",
    "answer_from_body",
    "finish_of",
    "reasoning_of",
    "request_body",
    "text_of_content",
]


PATH = "/chat/completions"

_FINISHES = {
    "stop": Finish.STOP,
    "length": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "model_length": Finish.LENGTH,  # Mistral: the window is full
    "tool_calls": Finish.TOOL_CALLS,
    "function_call": Finish.TOOL_CALLS,
    "content_filter": Finish.REFUSED,
}


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct):
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: str | list[Any] | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    reasoning_content: Any = None
    reasoning: Any = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice]
    model: str | None = None
    usage: Any = None


read_early(_Body)


def request_body(ask: Ask, model: str, quirks: Quirks, *, stream: bool = False) -> dict[str, Any]:
    """Returns the body of a request."""
    system = [] if ask.system in (None, "", []) else [{"role": "system", "content": ask.system}]
    body: dict[str, Any] = {"model": model, "messages": [*system, *ask.messages]}
    if ask.tools:
        body["tools"] = list(ask.tools)
    if ask.max_output_tokens is not None:
        body[quirks.cap_field] = ask.max_output_tokens
    if stream and quirks.stream_usage:
        body["stream_options"] = {"include_usage": True}
    return body | dict(ask.extra) | ({"stream": True} if stream else {})


def answer_from_body(body: Mapping[str, Any]) -> Answer:
    """Returns the answer that a whole body holds. Raises ProviderError if it cannot be read."""
    _raise_error_of_choice(body)
    read = read_shape(body, _Body)
    if not read.choices:
        raise malformed_answer("its list of choices is empty")
    choice = read.choices[0]
    message, wire = choice.message, body["choices"][0]["message"]
    calls = _calls(message)
    text, reasoning = text_of_content(message.content), reasoning_of(wire)
    if not (calls or reasoning or message.refusal or "content" in wire):
        raise malformed_answer("the message of its first choice has neither content nor tool calls")
    finish = finish_of(choice.finish_reason)
    if message.refusal:
        text, finish = text or message.refusal, Finish.REFUSED
    elif calls and finish in {Finish.STOP, Finish.OTHER}:
        finish = Finish.TOOL_CALLS  # some servers say "stop" here too
    return Answer(
        text=text,
        finish=finish,
        usage=normalise_usage(read.usage, "chat"),
        names_cache=names_cache(read.usage),
        wires=(_to_append(wire),) if text or calls else (),
        calls=calls,
        reasoning=reasoning,
        model=read.model or "",
    )


def finish_of(reason: str | None) -> Finish:
    """Returns why the model stopped."""
    return _FINISHES.get(reason or "", Finish.OTHER)


def text_of_content(content: Any) -> str:
    """Returns the text of a content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(_text(part) for part in parts if not _is_thinking(part))


def reasoning_of(message: Mapping[str, Any]) -> str:
    """Returns the reasoning in a message or a delta, under any of the names that servers use for it."""
    for name in ("reasoning_content", "reasoning"):  # servers that send both send the same in both
        value = message.get(name)
        if isinstance(value, str) and value:
            return value
    parts = message.get("content")
    if not isinstance(parts, list):
        return ""
    return "".join(text_of_content(part.get("thinking")) for part in parts if _is_thinking(part))


def _is_thinking(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "thinking"


def _text(part: Any) -> str:
    value = part.get("text") if isinstance(part, Mapping) else part
    return value if isinstance(value, str) else ""


def _calls(message: _Message) -> tuple[Called, ...]:
    found = [(call, call.function) for call in message.tool_calls or ()]
    return tuple(
        Called(call.id or f"call_{number}", function.name or "", _arguments(function.arguments))
        for number, (call, function) in enumerate(found)
        if function is not None
    )


def _arguments(arguments: str | dict[str, Any] | None) -> str:
    return arguments if isinstance(arguments, str) else json_text(arguments or {})


def _to_append(message: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the message as it came, without the empty fields that only answers have and some servers refuse."""
    wire = {name: value for name, value in message.items() if value is not None and value != []}
    return {"role": "assistant", "content": message.get("content"), **wire}


def _raise_error_of_choice(body: Mapping[str, Any]) -> None:
    """OpenRouter reports what went wrong upstream inside the choice."""
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, Sequence) and choices else None
    if isinstance(first, Mapping) and first.get("error"):
        raise provider_error(classify_error(None, body))


# A streamed answer of Chat Completions, put together again. Pure but for what it has gathered so far.

_TEXTS = ("refusal", "reasoning_content", "reasoning")


class ChatAccumulator:
    """Takes the events of one stream and becomes the body that would have come without streaming."""

    def __init__(self) -> None:
        self.finished = False
        self._head: dict[str, Any] = {}
        self._usage: Any = None
        self._finish: str | None = None
        self._error: Any = None
        self._seen_choice = False
        self._fields: dict[str, Any] = {}
        self._texts: dict[str, list[str]] = {}
        self._content: list[Any] = []
        self._details: list[dict[str, Any]] = []
        self._calls: list[_GrowingCall] = []

    def take(self, event: ServerEvent) -> list[Event]:
        """Returns what this event adds to the answer. Raises ProviderError if it reports an error or cannot be read."""
        if event.data.strip() == DONE:
            self.finished = True
            return []
        chunk = parse_event(event.data)
        if isinstance(chunk.get("model"), str):
            self._head["model"] = chunk["model"]
        self._take_usage(chunk)
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            return []
        return [event for choice in choices for event in self._take_choice(choice)]

    def answer(self) -> Answer:
        """Returns the whole answer. Raises ProviderError if the stream broke off or what it held cannot be read."""
        if not (self.finished or self._finish):
            raise cut_off()
        choice = {"message": self._message(), "finish_reason": self._finish, "error": self._error}
        return answer_from_body(
            self._head | {"choices": [choice] if self._seen_choice else [], "usage": self._usage}
        )

    def _take_usage(self, chunk: Mapping[str, Any]) -> None:
        groq = chunk.get("x_groq")
        usage = chunk.get("usage") or (groq.get("usage") if isinstance(groq, Mapping) else None)
        self._usage = usage or self._usage

    def _take_choice(self, choice: Any) -> list[Event]:
        if not isinstance(choice, Mapping):
            raise malformed_answer("a choice in the stream is not an object")
        if choice.get("index") not in (None, 0):
            return []  # further choices were asked for; the first one is the answer
        self._seen_choice = True
        reason = choice.get("finish_reason")
        self._finish = reason if isinstance(reason, str) and reason else self._finish
        self._error = choice.get("error") or self._error
        delta = choice.get("delta")
        return self._take_delta(delta) if isinstance(delta, Mapping) else []

    def _take_delta(self, delta: Mapping[str, Any]) -> list[Event]:
        events: list[Event] = []
        if thought := reasoning_of(delta):
            events.append(ReasoningDelta(thought))
        content, refusal = delta.get("content"), delta.get("refusal")
        said = text_of_content(content) + (refusal if isinstance(refusal, str) else "")
        if said:
            events.append(TextDelta(said))
        self._content += content if isinstance(content, list) else [content] if content else []
        for name, value in delta.items():
            self._keep(name, value)
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            events += [event for call in calls for event in self._take_call(call)]
        return events

    def _keep(self, name: str, value: Any) -> None:
        if value is None or name in {"content", "tool_calls"}:
            return
        if name in _TEXTS and isinstance(value, str):
            self._texts.setdefault(name, []).append(value)
        elif name == "reasoning_details" and isinstance(value, list):
            for detail in value:
                _merge_detail(self._details, detail)
        else:
            self._fields[name] = value

    def _take_call(self, delta: Any) -> list[Event]:
        if not isinstance(delta, Mapping):
            raise malformed_answer("a tool call in the stream is not an object")
        call = self._call_of(delta.get("index"), delta.get("id"))
        return call.take(delta)

    def _call_of(self, index: Any, call_id: Any) -> _GrowingCall:
        """Returns the call that a delta belongs to: by its index, but another id under the same index is another call."""
        named = isinstance(call_id, str) and call_id != ""
        same = [call for call in self._calls if isinstance(index, int) and call.index == index]
        if not isinstance(index, int):
            same = [call for call in self._calls if call.id == call_id] if named else self._calls
        if same and (not named or same[-1].id == call_id):
            return same[-1]
        number = len(self._calls)
        call = _GrowingCall(index if isinstance(index, int) else -1, call_id if named else f"call_{number}")
        self._calls.append(call)
        return call

    def _message(self) -> dict[str, Any]:
        texts = {name: text for name, pieces in self._texts.items() if (text := "".join(pieces))}
        message: dict[str, Any] = {"role": "assistant", "content": _join(self._content)}
        message |= self._fields | texts
        if self._details:
            message["reasoning_details"] = self._details
        if self._calls:
            message["content"] = message["content"] or None
            message["tool_calls"] = [call.wire() for call in self._calls]
        return message


class _GrowingCall:
    """A tool call as far as it has come."""

    def __init__(self, index: int, call_id: str) -> None:
        self.index = index
        self.id = call_id
        self._name = ""
        self._arguments: list[str] = []
        self._extra: dict[str, Any] = {}
        self._begun = False

    def take(self, delta: Mapping[str, Any]) -> list[Event]:
        function = delta.get("function")
        function = function if isinstance(function, Mapping) else {}
        name, arguments = function.get("name"), function.get("arguments")
        piece = arguments if isinstance(arguments, str) else json_text(arguments) if arguments else ""
        told = name if isinstance(name, str) and not self._name else ""
        self._name = self._name or told
        self._arguments.append(piece)
        for field, value in delta.items():
            if field not in {"index", "id", "function"} and value is not None:
                self._extra[field] = value  # Gemini signs its thoughts here and wants that back
        if self._begun and not (told or piece):
            return []
        self._begun = True
        return [CallDelta(self.id, told, piece)]

    def wire(self) -> dict[str, Any]:
        function = {"name": self._name, "arguments": "".join(self._arguments) or "{}"}
        return {"id": self.id, "type": "function", **self._extra, "function": function}


def _join(pieces: list[Any]) -> Any:
    """Texts as one text; parts as a list in which the parts of one kind that follow each other are one."""
    if all(isinstance(piece, str) for piece in pieces):
        return "".join(pieces)
    parts: list[Any] = []
    for piece in pieces:
        part = {"type": "text", "text": piece} if isinstance(piece, str) else piece
        last = parts[-1] if parts else None
        field = part.get("type") if isinstance(part, Mapping) else None
        if (
            isinstance(last, Mapping)
            and field in {"text", "thinking"}
            and last.get("type") == field
            and isinstance(part.get(field), type(last.get(field)))
            and isinstance(last.get(field), str | list)
        ):
            parts[-1] = {**last, **part, field: last[field] + part[field]}
        else:
            parts.append(part)
    return parts


def _merge_detail(details: list[dict[str, Any]], detail: Any) -> None:
    """OpenRouter sends the text of one reasoning detail in pieces: same index, same type."""
    if not isinstance(detail, Mapping):
        return
    same = [kept for kept in details if all(kept.get(key) == detail.get(key) for key in ("index", "type"))]
    if not same or detail.get("index") is None:
        details.append(dict(detail))
        return
    for name, value in detail.items():
        if name in {"text", "summary", "data"} and isinstance(value, str):
            same[-1][name] = (same[-1].get(name) or "") + value
        elif value is not None:
            same[-1][name] = value

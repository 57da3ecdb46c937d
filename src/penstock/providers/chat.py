"""OpenAI Chat Completions, and the many servers that speak it: requests and answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.conversation.wire import json_text
from penstock.measure.usage import normalise_usage
from penstock.providers.bodies import refused, shaped
from penstock.providers.classify import classify_error
from penstock.providers.exchange import Answer, Called, Finish
from penstock.providers.failures import malformed_answer

if TYPE_CHECKING:
    from penstock.providers.exchange import Ask
    from penstock.providers.quirks import Quirks

__all__ = ["PATH", "answer_from_body", "finish_of", "request_body", "spoken_in", "thought_in"]

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


def request_body(ask: Ask, model: str, quirks: Quirks, *, stream: bool = False) -> dict[str, Any]:
    """The body of a request."""
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
    """The answer that a whole body holds. ProviderError where it cannot be read."""
    _raise_error_of_choice(body)
    read = shaped(body, _Body)
    if not read.choices:
        raise malformed_answer("its list of choices is empty")
    choice = read.choices[0]
    message, wire = choice.message, body["choices"][0]["message"]
    calls = _calls(message)
    text, reasoning = spoken_in(message.content), thought_in(wire)
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
        wires=(_to_append(wire),) if text or calls else (),
        calls=calls,
        reasoning=reasoning,
        model=read.model or "",
    )


def finish_of(reason: str | None) -> Finish:
    """Why the model stopped."""
    return _FINISHES.get(reason or "", Finish.OTHER)


def spoken_in(content: Any) -> str:
    """The text of a content, which is a text or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(_text(part) for part in parts if not _is_thinking(part))


def thought_in(message: Mapping[str, Any]) -> str:
    """What a message or a delta says of its reasoning, under any of the names that servers use."""
    for name in ("reasoning_content", "reasoning"):  # servers that send both send the same in both
        value = message.get(name)
        if isinstance(value, str) and value:
            return value
    parts = message.get("content")
    if not isinstance(parts, list):
        return ""
    return "".join(spoken_in(part.get("thinking")) for part in parts if _is_thinking(part))


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
    """The message as it came, without the empty fields that only answers have and some servers refuse."""
    wire = {name: value for name, value in message.items() if value is not None and value != []}
    return {"role": "assistant", "content": message.get("content"), **wire}


def _raise_error_of_choice(body: Mapping[str, Any]) -> None:
    """OpenRouter reports what went wrong upstream inside the choice."""
    choices = body.get("choices")
    first = choices[0] if isinstance(choices, Sequence) and choices else None
    if isinstance(first, Mapping) and first.get("error"):
        raise refused(classify_error(None, body))

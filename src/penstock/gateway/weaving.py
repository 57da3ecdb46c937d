"""Weaves the answers of several rounds into the one that the client sees, if the model looked things up in between. Pure.

    weaver = new_weaver("anthropic", names, streamed=True)
    for chunk in answer: send(weaver.feed(chunk))    # text and reasoning as they come; calls of these names are left out
    woven = weaver.end_round()                       # the round's calls; the results go upstream, and the next round is fed
    send(weaver.close())                             # the reason to stop, the usage, the end

The client gets one answer that is valid in its API: blocks, items and calls are counted through, nothing is empty, and
nothing tells of the calls that were left out. Its usage has the prompt of the last round, which is how large the conversation is by
now, and the output of all. The reason to stop is that of the last round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.conversation.wire import encode_wire, parse_json
from penstock.errors import ProviderError
from penstock.providers import anthropic, chat, responses
from penstock.providers.bodies import parse_body
from penstock.providers.exchange import Answer, Called, Finish
from penstock.providers.sse import DONE, EventParser

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import TypeAlias

    from penstock.gateway.exchange import WireDialect
    from penstock.providers.sse import ServerEvent

    Accumulator: TypeAlias = (
        chat.ChatAccumulator | responses.ResponsesAccumulator | anthropic.AnthropicAccumulator
    )

__all__ = ["Weaver", "WovenRound", "new_weaver"]

_NOTHING_SAID: Final = "(The model looked things up and ended without an answer.)"
_GAP: Final = "\n\n"  # between what two rounds say, where an API has one text for both
_OUTPUTS: Final = {"chat": "completion_tokens", "responses": "output_tokens", "anthropic": "output_tokens"}
_PROMPTS: Final = {"chat": "prompt_tokens", "responses": "input_tokens"}
_ACCUMULATORS: Final[Mapping[str, Callable[[], Accumulator]]] = {
    "chat": chat.ChatAccumulator,
    "responses": responses.ResponsesAccumulator,
    "anthropic": anthropic.AnthropicAccumulator,
}
_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Answer]]] = {
    "chat": chat.answer_from_body,
    "responses": responses.answer_from_body,
    "anthropic": anthropic.answer_from_body,
}


class WovenRound(msgspec.Struct, frozen=True):
    """One round: the provider's answer, and its calls, those that were left out and those that the client sees."""

    answer: Answer
    ours: tuple[Called, ...]
    theirs: tuple[Called, ...]

    @property
    def goes_on(self) -> bool:
        """True where the model waits for nothing but our results."""
        return bool(self.ours) and not self.theirs and self.answer.finish is Finish.TOOL_CALLS


class Weaver:
    """One answer for a client. Those of each dialect say how its events or bodies are put together."""

    dialect: WireDialect

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self.rounds: list[WovenRound] = []
        self.failed = False
        """True where a round reported an error, or could not be read: no further one is asked for."""
        self._outputs = 0
        self._usage: dict[str, Any] | None = None

    def feed(self, chunk: bytes) -> bytes:
        """Returns the bytes for the client from the next piece of a round."""
        raise NotImplementedError

    def end_round(self) -> WovenRound | None:
        """Returns the round that has ended; None where it cannot be read."""
        raise NotImplementedError

    def close(self) -> bytes:
        """Returns the end of the client's answer, or all of it where it is not streamed."""
        raise NotImplementedError

    @property
    def stops_early(self) -> bool:
        """True where the last round still wanted to look something up, and was not let."""
        return bool(self.rounds) and self.rounds[-1].goes_on

    @property
    def hides(self) -> bool:
        """True where something was left out."""
        return any(woven.ours for woven in self.rounds)

    def _is_ours(self, name: Any) -> bool:
        """Returns True for the name of a tool whose calls are left out."""
        return isinstance(name, str) and name in self._names

    def _add(self, answer: Answer) -> WovenRound:
        ours = tuple(call for call in answer.calls if call.name in self._names)
        theirs = tuple(call for call in answer.calls if call.name not in self._names)
        woven = WovenRound(answer, ours, theirs)
        self.rounds.append(woven)
        return woven

    def _take_usage(self, usage: Any) -> None:
        """Takes in the report of a round, which may come in several parts."""
        if isinstance(usage, dict):
            known = self._usage or {}
            self._usage = {**known, **{name: value for name, value in usage.items() if value is not None}}

    def _end_usage(self) -> None:
        """Takes note that a round has ended: the next one reports its own."""
        if self._usage is not None:
            self._outputs += _count(self._usage, _OUTPUTS[self.dialect])

    def _sum_usage(self) -> dict[str, Any] | None:
        """Returns the usage for the client: the last round's, with the output of all."""
        if self._usage is None:
            return None
        usage = {**self._usage, _OUTPUTS[self.dialect]: self._outputs}
        if "total_tokens" in usage:
            usage["total_tokens"] = _count(usage, _PROMPTS[self.dialect]) + self._outputs
        return usage


def _count(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


# Streams.


class _StreamWeaver(Weaver):
    def __init__(self, names: Collection[str]) -> None:
        super().__init__(names)
        self._late = b""  # of an event that ended without its blank line
        self._begin_round()

    def _begin_round(self) -> None:
        self._parser = EventParser()
        self._accumulator = _ACCUMULATORS[self.dialect]()

    def feed(self, chunk: bytes) -> bytes:
        return b"".join(map(self._take, self._parser.feed(chunk)))

    def end_round(self) -> WovenRound | None:
        self._late += b"".join(map(self._take, self._parser.close()))
        self._end_usage()
        if self.failed:
            return None
        try:
            woven = self._add(self._accumulator.answer())
        except ProviderError:
            self.failed = True
            return None
        if woven.goes_on:
            self._begin_round()
        return woven

    def _take(self, event: ServerEvent) -> bytes:
        try:
            self._accumulator.take(event)
            data = parse_json(event.data) if event.data.strip() != DONE else None
        except (ProviderError, ValueError):
            self.failed = True  # an error, or rubbish: the client gets it as it came
            return _write_raw(event)
        if data is None:
            return self._take_done()
        return self._weave(data, event)

    def _take_done(self) -> bytes:
        return b""

    def _weave(self, data: dict[str, Any], event: ServerEvent) -> bytes:
        raise NotImplementedError


def _write_raw(event: ServerEvent) -> bytes:
    name = b"" if event.name == "message" else f"event: {event.name}\n".encode()
    lines = "".join(f"data: {line}\n" for line in event.data.split("\n"))
    return name + lines.encode() + b"\n"


def _write(data: Mapping[str, Any], name: str = "") -> bytes:
    head = f"event: {name}\n".encode("utf-8", "replace") if name else b""
    return head + b"data: " + encode_wire(data) + b"\n\n"


class _AnthropicStream(_StreamWeaver):
    dialect: WireDialect = "anthropic"

    def __init__(self, names: Collection[str]) -> None:
        self._shown = 0
        self._begun = False
        self._end: dict[str, Any] = {}
        super().__init__(names)

    def _begin_round(self) -> None:
        super()._begin_round()
        self._places: dict[int, int] = {}  # of the round's blocks: where the client sees them; -1 for ours
        self._waiting: dict[int, dict[str, Any]] = {}  # texts that have begun and say nothing yet

    def _weave(self, data: dict[str, Any], event: ServerEvent) -> bytes:
        kind = data.get("type")
        if kind == "message_start":
            message = data.get("message")
            self._usage = None
            self._take_usage(message.get("usage") if isinstance(message, dict) else None)
            again, self._begun = self._begun, True
            return b"" if again else _write_raw(event)
        if kind == "message_delta":
            self._take_usage(data.get("usage"))
            self._end = data
            return b""
        if kind == "message_stop":
            return b""
        index = data.get("index")
        if not isinstance(index, int):
            return _write_raw(event)
        if kind == "content_block_start":
            return self._open(index, data)
        opening, waited = b"", self._waiting.pop(index, None)
        if waited is not None:
            if kind != "content_block_delta":  # it ends with nothing: an empty text could not be sent back
                return b""
            opening = self._show(index, waited)
        place = self._places.get(index, -1)
        return b"" if place < 0 else opening + _write({**data, "index": place}, str(kind))

    def _open(self, index: int, data: dict[str, Any]) -> bytes:
        block = data.get("content_block")
        block = block if isinstance(block, dict) else {}
        if block.get("type") == "tool_use" and self._is_ours(block.get("name")):
            self._places[index] = -1
            return b""
        if block.get("type") == "text" and not block.get("text"):
            self._waiting[index] = data
            return b""
        return self._show(index, data)

    def _show(self, index: int, data: dict[str, Any]) -> bytes:
        self._places[index] = self._shown
        self._shown += 1
        return _write({**data, "index": self._places[index]}, "content_block_start")

    def close(self) -> bytes:
        if self.failed or not self._end:
            return self._late
        said = b""
        end = self._end
        if not self._shown and self.hides:
            text = {"type": "text_delta", "text": _NOTHING_SAID}
            start = {"type": "content_block_start", "content_block": {"type": "text", "text": ""}}
            said = (
                self._show(0, start)
                + _write({"type": "content_block_delta", "index": 0, "delta": text}, "content_block_delta")
                + _write({"type": "content_block_stop", "index": 0}, "content_block_stop")
            )
        if self.stops_early:
            end = {**end, "delta": {**end.get("delta", {}), "stop_reason": "end_turn"}}
        usage = self._sum_usage()
        end = {**end, **({} if usage is None else {"usage": usage})}
        return (
            self._late
            + said
            + _write(end, "message_delta")
            + _write({"type": "message_stop"}, "message_stop")
        )


class _ChatStream(_StreamWeaver):
    dialect: WireDialect = "chat"

    def __init__(self, names: Collection[str]) -> None:
        self._head: dict[str, Any] = {}  # what all chunks of the client have in common
        self._calls = 0
        self._said = False
        self._end: dict[str, Any] | None = None
        self._tells_usage_apart = False
        super().__init__(names)

    def _begin_round(self) -> None:
        super()._begin_round()
        self._places: dict[Any, int] = {}  # of the round's calls: where the client sees them; -1 for ours
        self._ids: dict[Any, Any] = {}
        self._spoke_before = self._said

    def _weave(self, data: dict[str, Any], event: ServerEvent) -> bytes:
        if not self._head:
            self._head = {name: data[name] for name in ("id", "created") if name in data}
        choices = data.get("choices")
        usage = data.get("usage")
        if isinstance(usage, dict):
            self._usage = None
            self._take_usage(usage)
            self._tells_usage_apart = not choices
        if not isinstance(choices, list):
            return _write_raw(event)
        kept = [woven for choice in choices if (woven := self._weave_choice(choice)) is not None]
        if not kept:
            return b""
        chunk = {**data, **self._head, "choices": kept}
        if isinstance(usage, dict):
            chunk["usage"] = None  # it comes with the end
        return _write(chunk)

    def _weave_choice(self, choice: Any) -> Any:
        """Returns the choice as the client sees it; None where nothing is left of it."""
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if not isinstance(delta, dict):
            return choice
        delta = {**delta}
        if self.rounds:
            delta.pop("role", None)
        calls = delta.pop("tool_calls", None)
        shown = [one for call in calls if (one := self._weave_call(call))] if isinstance(calls, list) else []
        if shown:
            delta["tool_calls"] = shown
        text = delta.get("content")
        if isinstance(text, str) and text:
            if self._spoke_before:
                delta["content"] = _GAP + text
                self._spoke_before = False
            self._said = True
        finish = choice.get("finish_reason")
        if finish is not None:
            self._end = {**choice, "delta": {}}
            choice = {**choice, "finish_reason": None}
        if not any(value not in (None, "", []) for value in delta.values()):
            return None
        return {**choice, "delta": delta}

    def _weave_call(self, call: Any) -> Any:
        if not isinstance(call, dict):
            return call
        function = call.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        key: Any = next(
            (one for one in (call.get("index"), call.get("id")) if isinstance(one, int | str)), None
        )
        named = isinstance(name, str) and name != ""
        if key is None:  # without either it is more of the last one
            key = next(reversed(self._places), None) if not named else ("call", len(self._places))
        if key not in self._places or (named and self._is_another(key, call)):
            ours = self._is_ours(name)
            self._places[key] = -1 if ours else self._calls
            self._calls += 0 if ours else 1
            self._ids[key] = call.get("id")
        place = self._places[key]
        return None if place < 0 else {**call, "index": place}

    def _is_another(self, key: Any, call: Mapping[str, Any]) -> bool:
        """Returns True where a server counts two calls alike: another id under the same index is another call."""
        told = call.get("id")
        return isinstance(told, str) and told != "" and self._ids.get(key) not in (None, "", told)

    def close(self) -> bytes:
        if self.failed or self._end is None:
            return self._late
        chunk = {"object": "chat.completion.chunk", **self._head, "model": self.rounds[-1].answer.model}
        parts = [self._late]
        if not self._said and not self._calls and self.hides:
            delta = {"content": _NOTHING_SAID}
            parts.append(_write({**chunk, "choices": [{**self._end, "delta": delta, "finish_reason": None}]}))
        reason = "stop" if self.stops_early else self._end["finish_reason"]
        usage = self._sum_usage()
        end = {**chunk, "choices": [{**self._end, "finish_reason": reason}]}
        if usage is not None and not self._tells_usage_apart:
            end["usage"] = usage
        parts.append(_write(end))
        if usage is not None and self._tells_usage_apart:
            parts.append(_write({**chunk, "choices": [], "usage": usage}))
        return b"".join([*parts, b"data: [DONE]\n\n"])


class _ResponsesStream(_StreamWeaver):
    dialect: WireDialect = "responses"

    def __init__(self, names: Collection[str]) -> None:
        self._id: Any = None
        self._shown = 0
        self._number = 0
        self._items: list[Any] = []
        self._end: dict[str, Any] | None = None
        super().__init__(names)

    def _begin_round(self) -> None:
        super()._begin_round()
        self._places: dict[int, int] = {}  # of the round's items: where the client sees them; -1 for ours

    def _weave(self, data: dict[str, Any], event: ServerEvent) -> bytes:
        kind = data.get("type")
        if not isinstance(kind, str):
            return _write_raw(event)
        if kind in {"response.created", "response.in_progress", "response.queued"}:
            if self._id is None and isinstance(data.get("response"), dict):
                self._id = data["response"].get("id")
            return b"" if self.rounds else self._say(data)
        if kind in {"response.completed", "response.incomplete"}:
            response = data.get("response")
            self._usage = None
            self._take_usage(response.get("usage") if isinstance(response, dict) else None)
            self._end = data
            return b""
        index = data.get("output_index")
        if not isinstance(index, int):
            return self._say(data)
        if index not in self._places:
            ours = self._is_our_call(data.get("item"))
            self._places[index] = -1 if ours else self._shown
            self._shown += 0 if ours else 1
        place = self._places[index]
        if place < 0:
            return b""
        if kind == "response.output_item.done":
            self._items.append(data.get("item"))
        return self._say({**data, "output_index": place})

    def _is_our_call(self, item: Any) -> bool:
        return (
            isinstance(item, dict) and item.get("type") == "function_call" and self._is_ours(item.get("name"))
        )

    def _say(self, data: Mapping[str, Any]) -> bytes:
        number = self._number
        self._number += 1
        told = {**data, "sequence_number": number} if "sequence_number" in data else data
        return _write(told, str(data["type"]))

    def close(self) -> bytes:
        if self.failed or self._end is None:
            return self._late
        said = b""
        if not self._shown and self.hides:
            item = _write_message(self._end)
            said = b"".join(
                self._say(
                    {
                        "type": f"response.output_item.{step}",
                        "output_index": 0,
                        "item": item,
                        "sequence_number": 0,
                    }
                )
                for step in ("added", "done")
            )
            self._items.append(item)
        response = self._end.get("response")
        if isinstance(response, dict):  # the official client takes another id for another answer
            response = {**response, "id": self._id or response.get("id"), "output": self._items}
        if isinstance(response, dict) and (usage := self._sum_usage()) is not None:
            response["usage"] = usage
        return self._late + said + self._say({**self._end, "response": response})


def _write_message(end: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an item that says that nothing was said."""
    part = {"type": "output_text", "text": _NOTHING_SAID, "annotations": []}
    response = end.get("response")
    number = response.get("id", "") if isinstance(response, dict) else ""
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }


# Answers in one piece.


class _WholeWeaver(Weaver):
    def __init__(self, dialect: WireDialect, names: Collection[str]) -> None:
        super().__init__(names)
        self.dialect = dialect
        self._pieces: list[bytes] = []
        self._bodies: list[dict[str, Any]] = []
        self._raw = b""

    def feed(self, chunk: bytes) -> bytes:
        self._pieces.append(chunk)
        return b""

    def end_round(self) -> WovenRound | None:
        self._raw, self._pieces = b"".join(self._pieces), []
        try:
            body = parse_body(self._raw)
            woven = self._add(_READERS[self.dialect](body))
        except ProviderError:
            self.failed = True
            return None
        self._bodies.append(body)
        self._usage = None
        self._take_usage(body.get("usage"))
        self._end_usage()
        return woven

    def close(self) -> bytes:
        """Returns the answer; as it came where it is one round in which nothing was left out, or where it cannot be read."""
        if self.failed or not self.hides:
            return self._raw
        body = {**self._bodies[-1]}
        if (usage := self._sum_usage()) is not None:
            body["usage"] = usage
        write = {"chat": self._join_chat, "responses": self._join_items, "anthropic": self._join_blocks}
        return encode_wire(write[self.dialect](body))

    def _join_blocks(self, body: dict[str, Any]) -> dict[str, Any]:
        blocks = [
            block
            for one in self._bodies
            for block in one["content"]
            if not (block.get("type") == "tool_use" and block.get("name") in self._names)
            and not (block.get("type") == "text" and not block.get("text"))
        ]
        body["content"] = blocks or [{"type": "text", "text": _NOTHING_SAID}]
        return {**body, "stop_reason": "end_turn"} if self.stops_early else body

    def _join_items(self, body: dict[str, Any]) -> dict[str, Any]:
        items = [
            item
            for one in self._bodies
            for item in one["output"]
            if not (item.get("type") == "function_call" and item.get("name") in self._names)
        ]
        return {**body, "output": items or [_write_message({"response": body})]}

    def _join_chat(self, body: dict[str, Any]) -> dict[str, Any]:
        choice = body["choices"][0]
        message = {**choice["message"]}
        said = [woven.answer.text for woven in self.rounds if woven.answer.text]
        thought = [one["choices"][0]["message"].get("reasoning_content") for one in self._bodies]
        if any(isinstance(text, str) and text for text in thought):
            message["reasoning_content"] = _GAP.join(
                text for text in thought if isinstance(text, str) and text
            )
        theirs = [call for call in message.get("tool_calls") or () if _read_name(call) not in self._names]
        message.pop("tool_calls", None)
        if theirs:
            message["tool_calls"] = theirs
        message["content"] = _GAP.join(said) or (None if theirs else _NOTHING_SAID)
        reason = "stop" if self.stops_early else choice.get("finish_reason")
        return {**body, "choices": [{**choice, "message": message, "finish_reason": reason}]}


def _read_name(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    return function.get("name") if isinstance(function, dict) else None


_STREAMS: Final[Mapping[str, Callable[[Collection[str]], Weaver]]] = {
    "chat": _ChatStream,
    "responses": _ResponsesStream,
    "anthropic": _AnthropicStream,
}


def new_weaver(dialect: WireDialect, names: Collection[str], *, streamed: bool) -> Weaver:
    """Returns a weaver for an answer of that dialect; calls of tools with these names are left out."""
    return _STREAMS[dialect](names) if streamed else _WholeWeaver(dialect, names)

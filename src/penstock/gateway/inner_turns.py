"""Turns with rounds that the client did not see, and how they are sent again each time the client sends the rest. Pure.

A model that looked something up has said more than its client knows. The client's next request has one answer where the
provider saw several, with our calls and results between them. What the provider gets is what it has said and seen
before, byte for byte, so that its cache holds, thinking stands where it was, and the model still has what it looked up. Where it
called our tools and the client's at once, our results are put in with the client's.

A turn is sent again as long as the client's message stands whole in the view; with the next compaction it goes. Where the client has
changed its message, or left it out, the turn is left out, too: what the client sends is valid without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import xxhash

from penstock.conversation.message import ToolResult
from penstock.conversation.wire import encode_wire, parse_json
from penstock.loop.wire import mend_calls, results_in
from penstock.providers.exchange import Called, Finish

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from penstock.gateway.exchange import WireDialect
    from penstock.gateway.weaving import WovenRound
    from penstock.stores.store import Store

__all__ = ["InnerTurn", "keep_turns", "list_hidden", "read_turns", "replay", "write_round", "write_turn"]

_CALLS: Final = frozenset({"function_call", "custom_tool_call"})
_KEPT: Final = "inner turns"  # the notes with them, by conversation


class InnerTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a model as the provider knows it.

    `at` is the place of the answer in the client's list. `messages` are all of its rounds: the answers, and our results
    between them. Of the Responses API, `keys` has for each what the client's item is known by, or nothing where the client
    has none. Else `key` is what the client's one message is known by. `results` are those of ours that
    belong with the client's.
    """

    at: int
    messages: tuple[bytes, ...]
    keys: tuple[str, ...] = ()
    key: str = ""
    results: tuple[bytes, ...] = ()


def write_round(dialect: WireDialect, woven: WovenRound, results: Sequence[str]) -> list[bytes]:
    """Returns the messages that a round adds to the next request: the answer, and our results."""
    return [*_write_answer(dialect, woven), *_write_results(dialect, woven.ours, results)]


def _write_answer(dialect: WireDialect, woven: WovenRound) -> list[bytes]:
    return [encode_wire(wire) for wire in mend_calls(dialect, woven.answer.wires)]


def _write_results(dialect: WireDialect, calls: Sequence[Called], results: Sequence[str]) -> list[bytes]:
    told = [ToolResult(call.id, text) for call, text in zip(calls, results, strict=True)]
    return [encode_wire(wire) for wire in results_in(dialect, told)]


def write_turn(
    dialect: WireDialect, at: int, rounds: Sequence[tuple[WovenRound, Sequence[str]]]
) -> InnerTurn | None:
    """Returns the turn of these rounds with the results of our calls; None where the client has seen all of it."""
    if not any(woven.ours for woven, _ in rounds):
        return None
    names = {call.name for woven, _ in rounds for call in woven.ours}
    *inner, (last, results) = rounds
    messages = [raw for woven, told in inner for raw in write_round(dialect, woven, told)]
    mixed = bool(last.ours and last.theirs) and last.answer.finish is Finish.TOOL_CALLS
    final = last if mixed or not last.ours else _drop_calls(dialect, last)
    messages += _write_answer(dialect, final)
    held = _write_results(dialect, last.ours, results) if mixed else []
    if dialect == "responses":
        keys = [_key_item(parse_json(raw), names) for raw in messages]
        return InnerTurn(at=at, messages=tuple(messages), keys=tuple(keys), results=tuple(held))
    text = "".join(woven.answer.text for woven, _ in rounds)
    key = _digest(text, [call.id for call in last.theirs])
    return InnerTurn(at=at, messages=tuple(messages), key=key, results=tuple(held))


def _drop_calls(dialect: WireDialect, woven: WovenRound) -> WovenRound:
    """Returns a last round without calls of ours that nobody answers: it was cut off, or was not let look up more."""
    ids = {call.id for call in woven.ours}
    wires = [wire for wire in woven.answer.wires if wire.get("call_id") not in ids]
    if dialect == "anthropic":
        wires = [
            {**wire, "content": blocks}
            for wire in wires
            if (blocks := [block for block in wire["content"] if block.get("id") not in ids])
        ]
    elif dialect == "chat":
        wires = [_drop_from_message(wire, ids) for wire in wires]
    return msgspec.structs.replace(woven, answer=msgspec.structs.replace(woven.answer, wires=tuple(wires)))


def _drop_from_message(wire: Mapping[str, Any], ids: set[str]) -> dict[str, Any]:
    calls = [call for call in wire.get("tool_calls") or () if call.get("id") not in ids]
    rest = {name: value for name, value in wire.items() if name != "tool_calls"}
    return {**rest, "tool_calls": calls} if calls else {**rest, "content": rest.get("content") or ""}


# What a client's message is known by: spelling, ids and spaces may change on their way.


def _digest(text: str, ids: Sequence[str]) -> str:
    return xxhash.xxh3_128_hexdigest(
        "\0".join(("".join(text.split()), *ids)).encode("utf-8", "surrogatepass")
    )


def _key_message(message: Any) -> str:
    """Returns what an assistant's message of the chat or Anthropic API is known by; empty for any other."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return ""
    content = message.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    text = content if isinstance(content, str) else "".join(map(_read_text, blocks))
    calls = message.get("tool_calls")
    made = calls if isinstance(calls, list) else [one for one in blocks if one.get("type") == "tool_use"]
    return _digest(text, [str(call.get("id")) for call in made if isinstance(call, dict)])


def _key_item(item: Any, ours: Collection[str] = ()) -> str:
    """Returns what an item is known by; empty for one that the client has not."""
    if not isinstance(item, dict):
        return ""
    kind = item.get("type") or "message"
    if kind in _CALLS:
        return "" if item.get("name") in ours else f"call {item.get('call_id')}"
    if kind == "reasoning":
        sealed = item.get("encrypted_content")
        return f"reasoning {_digest(str(sealed), ()) if sealed else item.get('id')}"
    if kind == "message" and item.get("role") == "assistant":
        content = item.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        text = "".join(_read_text(part) for part in parts if isinstance(part, dict))
        return f"message {_digest(text, ())}"
    return "" if kind == "function_call_output" else f"{kind} {item.get('id')}"


def _read_text(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    return text if isinstance(text, str) and part.get("type") in {None, "text", "output_text"} else ""


# Sending again.


def replay(turn: InnerTurn, messages: Sequence[bytes], dialect: WireDialect) -> tuple[list[bytes], int]:
    """Returns what is sent in place of the first of these messages, and how many of them it takes the place of.

    `messages` begin with the answer as the client has it. None are taken where that is not this turn's.
    """
    if dialect == "responses":
        return _replay_items(turn, messages)
    if not messages or _key_message(_parse(messages[0])) != turn.key:
        return [], 0
    if not turn.results:
        return list(turn.messages), 1
    if dialect == "chat":
        return [*turn.messages, *turn.results], 1
    joined = _join_results(turn.results[0], messages[1]) if len(messages) > 1 else None
    return ([], 0) if joined is None else ([*turn.messages, joined], 2)


def _join_results(ours: bytes, theirs: bytes) -> bytes | None:
    """Returns the client's message of results with ours in front; None where it is none."""
    message = _parse(theirs)
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list) or message.get("role") != "user":
        return None
    return encode_wire({**message, "content": [*parse_json(ours)["content"], *content]})


def _replay_items(turn: InnerTurn, messages: Sequence[bytes]) -> tuple[list[bytes], int]:
    """Puts our items between those of the client, which go on as it sends them."""
    sent: list[bytes] = []
    done = taken = 0
    for raw in messages:
        key = _key_item(_parse(raw))
        if not key or key not in turn.keys[done:]:
            break
        place = turn.keys.index(key, done)
        sent += [ours for at, ours in enumerate(turn.messages[done:place], done) if not turn.keys[at]]
        sent.append(raw)
        done, taken = place + 1, taken + 1
    if not taken:
        return [], 0
    rest = [ours for at, ours in enumerate(turn.messages[done:], done) if not turn.keys[at]]
    return [*sent, *rest, *turn.results], taken


def _parse(raw: bytes) -> Any:
    try:
        return parse_json(raw)
    except ValueError:
        return None


# Keeping.

_READ_TURNS: Final = msgspec.msgpack.Decoder(tuple[InnerTurn, ...]).decode


def keep_turns(store: Store, conversation: str, turns: Sequence[InnerTurn]) -> None:
    """Keeps the turns of a conversation that are to be sent again, and no others."""
    store.put_note(_KEPT, conversation, msgspec.msgpack.encode(turns), session_id=conversation)


def read_turns(store: Store, conversation: str) -> tuple[InnerTurn, ...]:
    """Returns the turns of a conversation that are kept."""
    kept = store.note(_KEPT, conversation)
    try:
        return () if kept is None else _READ_TURNS(kept)
    except msgspec.DecodeError:  # of another version
        return ()


def list_hidden(turn: InnerTurn) -> Iterator[bytes]:
    """Yields what a turn adds to the client's messages, about: for counting."""
    if turn.keys:
        yield from (raw for raw, key in zip(turn.messages, turn.keys, strict=True) if not key)
    else:
        yield from turn.messages[:-1]
    yield from turn.results

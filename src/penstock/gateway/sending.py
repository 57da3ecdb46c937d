"""Writes the body that goes upstream: the compacted prefix, then each message as it was first sent. Pure.

Providers cache by prefix, so between compactions the beginning of what is sent must not change. The compacted prefix is
always the same bytes, and a message that the client spells otherwise the next time goes out as it did the first time.
Cache marks are not part of that: they are those of the newest request, never more than the caller set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.gateway.inner_turns import replay
from penstock.gateway.splicing import join_body
from penstock.providers.cache_marks import mark_message, read_marks

if TYPE_CHECKING:
    from penstock.gateway.matching import KnownConversation, SeenMessages
    from penstock.gateway.splicing import RequestBody

__all__ = ["find_longest_mark", "write_sent_body"]

_MARK = b"cache_control"


def write_sent_body(
    came: bytes,
    body: RequestBody,
    seen: SeenMessages,
    known: KnownConversation,
    max_output_tokens: int | None = None,
    *,
    changed: bool = False,
) -> bytes:
    """Returns the body of a request of this conversation: `came` itself where nothing of it changes.

    With `max_output_tokens`, the caller's own limit of the answer is lowered to that. `changed` says that `body` is not
    what came, beside its messages.
    """
    covers = known.prefix.covers if known.prefix.covers <= len(seen) else 0
    changes = {}
    if max_output_tokens is not None and body.output_cap is not None:
        changes[body.output_cap[0]] = str(max_output_tokens).encode()
    held = known.list_held(covers, len(seen))
    if known.inner:
        return join_body(body, _replay_turns(seen, known, covers, dict(held)), changes)
    if not covers and not held and not changes and not changed:
        return came
    parts = _mark_prefix(seen, known, covers) if covers else []
    done = covers
    for place, first in held:
        if done < place:
            parts.append(seen.span(done, place))
        parts.append(_move_mark(seen, place, first))
        done = place + 1
    if done < len(seen):
        parts.append(seen.span(done, len(seen)))
    return join_body(body, parts, changes)


def _replay_turns(
    seen: SeenMessages, known: KnownConversation, covers: int, held: dict[int, bytes]
) -> list[bytes]:
    """Returns all messages, with the rounds that the client did not see in their places."""
    prefix = known.prefix
    marked = _mark_prefix(seen, known, covers) if covers else []
    first = marked if len(marked) == len(prefix.messages) else list(prefix.messages) if covers else []
    messages = [
        *first,
        *(
            _move_mark(seen, place, held[place]) if place in held else seen.message(place)
            for place in range(covers, len(seen))
        ),
    ]
    places = [*(prefix.positions if covers else ()), *range(covers, len(seen))]
    sent: list[bytes] = []
    at = 0
    while at < len(messages):
        turn = known.inner.get(places[at])
        again, taken = replay(turn, messages[at:], seen.scope.dialect) if turn is not None else ([], 0)
        if not taken:
            again, taken = [messages[at]], 1
        elif places[at] in seen.marked and taken == 1:
            again[-1] = _move_mark(seen, places[at], again[-1])
        sent += again
        at += taken
    return sent


def _mark_prefix(seen: SeenMessages, known: KnownConversation, covers: int) -> list[bytes]:
    """Returns the compacted prefix with the marks that the caller set on messages that it stands for.

    A mark on a message that stands in it whole is placed there, others at its end.
    """
    prefix, dialect = known.prefix, seen.scope.dialect
    marked = sorted(place for place in seen.marked if place < covers)
    if not marked:
        return [known.prefix_bytes]
    messages = list(prefix.messages)
    for place in marked:
        at = prefix.positions.index(place) if place in prefix.positions else len(messages) - 1
        for ttl in read_marks(seen.message(place), dialect)[-1:]:
            messages[at] = mark_message(prefix.messages[at], dialect, ttl)
    return messages


def _move_mark(seen: SeenMessages, place: int, first: bytes) -> bytes:
    """Returns the bytes that a message was first sent with, with the mark that it has now."""
    if place in seen.marked:
        for ttl in read_marks(seen.message(place), seen.scope.dialect)[-1:]:
            return mark_message(first, seen.scope.dialect, ttl)
    return first


def find_longest_mark(body: RequestBody, seen: SeenMessages) -> str:
    """Returns the longest life of the caller's cache marks, as far as their bytes tell; empty where it set none."""
    beside = [text for text in (body.system, body.tools) if _MARK in text]
    marked = [*beside, *(seen.message(place) for place in seen.marked)]
    if not marked:
        return ""
    return "1h" if any(b'"1h"' in text for text in marked) else "5m"

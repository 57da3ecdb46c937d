"""Hypothesis strategies for wire conversations: legal ones, and ones broken in the ways seen in the wild.

Needs `hypothesis`, which Penstock itself does not: import this module from tests only. Each strategy is made once:
Hypothesis looks through every new one before it draws from it, which costs more than the drawing.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tests.strategies.writers import Call, Turn, write

if TYPE_CHECKING:
    from tests.strategies.writers import Wire

__all__ = ["broken_conversations", "conversations", "json_values", "texts"]

_TOOL_NAMES = ("read_file", "terminal", "grep", "写入", "apply_patch")


@cache
def texts(*, min_size: int = 0, max_size: int = 40) -> st.SearchStrategy[str]:
    """Words of any script, tags, quotes and line ends; no surrogates."""
    anything = st.text(st.characters(codec="utf-8"), min_size=min_size, max_size=max_size)
    telling = st.sampled_from(
        [
            "Fix the tests, please.",
            "exit 0\n47 lines",
            "日本語のテスト",
            "<b>&amp;</b>",
            '{"a": 1}',
            "é\u0301 🎉",
            "a\n\nb",
        ]
    )
    return st.one_of(anything, telling)


@cache
def _visible() -> st.SearchStrategy[str]:
    return texts(min_size=1).filter(lambda text: not text.isspace())


@cache
def json_values() -> st.SearchStrategy[Any]:
    """Any JSON value, small."""
    scalar = st.one_of(st.none(), st.booleans(), st.integers(-(10**6), 10**6), texts(max_size=10))
    return st.recursive(
        scalar,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(texts(min_size=1, max_size=6), inner, max_size=3)
        ),
        max_leaves=6,
    )


@cache
def _arguments() -> st.SearchStrategy[dict[str, Any]]:
    usual = st.sampled_from(
        [
            {},
            {"path": "src/a.py", "offset": 10},
            {"command": "npm test -- --run 'é'"},
            {"text": "a\n" * 50, "all": None},
        ]
    )
    return st.one_of(usual, st.dictionaries(st.sampled_from(["path", "text"]), json_values(), max_size=1))


@cache
def _calls() -> st.SearchStrategy[Call]:
    return st.builds(Call, st.sampled_from(_TOOL_NAMES), _arguments(), texts(), st.booleans(), st.booleans())


@cache
def _turns() -> st.SearchStrategy[list[Turn]]:
    rounds = st.lists(st.lists(_calls(), min_size=1, max_size=3), max_size=2)
    turn = st.builds(
        Turn,
        _visible(),
        st.booleans(),
        rounds,
        texts(),
        st.one_of(st.just(""), _visible()),
        _visible(),
        st.booleans(),
    )
    return st.lists(turn, min_size=1, max_size=3)


@cache
def conversations(dialect_name: str) -> st.SearchStrategy[list[Wire]]:
    """Legal conversations on the wire of the dialect, unknown fields and blocks included."""
    return st.builds(write, st.just(dialect_name), _turns(), st.booleans(), st.integers(0, 3))


@st.composite
def broken_conversations(draw: st.DrawFn, dialect_name: str) -> list[Wire]:
    """Conversations with messages lost, doubled, moved or emptied: orphans, ids used twice, nulls."""
    wires = draw(conversations(dialect_name))
    for _ in range(draw(st.integers(1, 4))):
        if not wires:
            break
        at = draw(st.integers(0, len(wires) - 1))
        damage = draw(st.sampled_from(["lose", "double", "move", "empty", "null"]))
        if damage == "lose":
            wires = wires[:at] + wires[at + 1 :]
        elif damage == "double":
            wires = [*wires[: at + 1], *wires[at:]]
        elif damage == "move":
            to = draw(st.integers(0, len(wires) - 1))
            rest = wires[:at] + wires[at + 1 :]
            wires = [*rest[:to], wires[at], *rest[to:]]
        else:
            wires = [*wires[:at], _emptied(wires[at], None if damage == "null" else ""), *wires[at + 1 :]]
    return wires


def _emptied(wire: Wire, value: str | None) -> Wire:
    for field in ("content", "value", "output"):
        if field in wire:
            return {**wire, field: value}
    return wire

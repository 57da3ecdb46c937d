"""Hypothesis strategies for conversations that are long enough to be compacted.

A few small numbers are drawn, and long texts follow from them: listings, logs, JSON, prose of several scripts,
a line without a space. So a failing example shrinks to a few numbers, and drawing one costs little. Each strategy is
made once, since Hypothesis looks through every new one.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from tests.strategies.writers import Call, Turn, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.strategies.writers import Wire

__all__ = ["CONSTRAINTS", "long_conversations", "long_texts", "long_turns"]

CONSTRAINTS = (
    "Never touch migrations/0042.",
    "Always run make lint before a commit.",
    "Benutze niemals Tabs in diesem Projekt.",
    "不要修改 config/prod.yaml。",
)
_REQUESTS = (
    "Fix the retry in worker/queue.py.",
    "continue",
    "Now look at order 88213-B, please.",
    "次は tests/test_retry.py を直してください。",
    "Почини разбор дат в dates.py",
)


def _listing(seed: int, lines: int) -> str:
    return "\n".join(
        f"{n:>6}\tdef handle_{seed}_{n}(event): return route_{n % 7}(event, {seed * n})"
        for n in range(1, lines + 1)
    )


def _log(seed: int, lines: int) -> str:
    body = [
        f"2024-05-0{1 + n % 9} worker-{seed} job {1000 + n} took {n * 3} ms in step_{n % 5}"
        for n in range(lines)
    ]
    return "\n".join([*body, f"ValueError: job {seed} has no owner" * (seed % 2), f"exit code {seed % 3}"])


def _json(seed: int, lines: int) -> str:
    orders = [
        {
            "order_id": f"#W{seed}{n:05}",
            "total": round(n * 1.25, 2),
            "paid": n % 2 == 0,
            "items": [{"sku": f"SKU-{n}", "note": "gift wrap" if n % 3 else None}],
        }
        for n in range(lines)
    ]
    return json.dumps({"orders": orders, "page": seed}, ensure_ascii=False)


def _chinese(seed: int, lines: int) -> str:
    return "".join(
        f"第{n}个订单的编号是{seed}{n:04},金额为{n * 7}元,客户要求尽快发货。" for n in range(lines)
    )


def _one_line(seed: int, lines: int) -> str:
    return "".join(f"x{seed}_{n:04}z" for n in range(lines * 6))


def _soup(seed: int, lines: int) -> str:
    return "\n".join(
        f"é\u0301 🎉 \u202e{seed}\u202c <b>{n}</b> \x00 [m{n}] ## Goal - m{n} ok" for n in range(lines)
    )


_KINDS: tuple[Callable[[int, int], str], ...] = (_listing, _log, _json, _chinese, _one_line, _soup)


@cache
def long_texts(most_lines: int = 60) -> st.SearchStrategy[str]:
    """What a tool returns: mostly some lines, of one kind; two draws in a row may give the same text."""
    lines = st.one_of(st.integers(0, 6), st.integers(0, most_lines))
    return st.builds(
        lambda kind, seed, count: kind(seed, count), st.sampled_from(_KINDS), st.integers(0, 9), lines
    )


@cache
def _arguments() -> st.SearchStrategy[dict[str, object]]:
    return st.one_of(
        st.builds(lambda n: {"path": f"src/module_{n}.py", "offset": n}, st.integers(1, 9)),
        st.builds(lambda n: {"command": f"pytest tests/unit_{n} -q"}, st.integers(1, 9)),
        st.builds(
            lambda n, text: {"path": f"src/new_{n}.py", "content": text}, st.integers(1, 9), long_texts(20)
        ),
    )


@cache
def _requests() -> st.SearchStrategy[str]:
    short = st.sampled_from(_REQUESTS)
    strict = st.builds(lambda ask, rule: f"{ask} {rule}", short, st.sampled_from(CONSTRAINTS))
    giant = st.builds(lambda ask, text: f"{ask}\n{text}\nThat is all of it.", short, long_texts(200))
    return st.one_of(short, short, strict, giant)


@cache
def long_turns(min_turns: int = 2, max_turns: int = 6) -> st.SearchStrategy[list[Turn]]:
    """Turns of an agent at work: each a request, rounds of calls with long results, and an answer."""
    calls = st.builds(
        Call,
        st.sampled_from(("read_file", "terminal", "grep", "write_file", "get_order_details")),
        _arguments(),
        long_texts(),
        st.integers(0, 9).map(lambda n: n == 9),
        st.booleans(),
    )
    rounds = st.lists(st.lists(calls, min_size=1, max_size=3), max_size=3)
    said = st.sampled_from(
        ("", "I will look at it.", "The bug is in route_3 because step_4 is late. Shall I go on?")
    )
    turn = st.builds(
        Turn,
        _requests(),
        st.integers(0, 9).map(lambda n: n == 9),
        rounds,
        said,
        st.sampled_from(("", "", "Where is route_3 called?")),
        st.one_of(said.filter(bool), long_texts(30).filter(lambda text: bool(text.strip()))),
        st.booleans(),
    )
    return st.lists(turn, min_size=min_turns, max_size=max_turns)


@st.composite
def long_conversations(draw: st.DrawFn, dialect_name: str, *, max_turns: int = 6) -> list[Wire]:
    """Legal conversations of some thousand tokens. Some end with a request, or with calls that still run."""
    turns = draw(long_turns(max_turns=max_turns))
    wires = write(dialect_name, turns, draw(st.booleans()), draw(st.integers(0, 3)))
    return wires[: len(wires) - draw(st.integers(0, 2))]

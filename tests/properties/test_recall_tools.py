"""Whatever a history holds and a model sends: JSON within the budget, no exception, and pages without a loss."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.conversation.message import Message, Role, Text, ToolCall, ToolResult
from penstock.measure.tokens import tokenizer_for
from penstock.recall.memory_history import MemoryHistory
from penstock.recall.tools import TOOL_NAMES, Budget, answer

COUNT = tokenizer_for(None).count
LINES = st.lists(st.text(max_size=400), max_size=40).map("\n".join)
DENSE = st.builds(
    lambda piece, times: piece * times,
    st.sampled_from(["a", "🧊", "漢字", "\n", '"\\', "0f3a9b", "word and word, ", "\x00", "x" * 300 + "\n"]),
    st.integers(0, 800),
)
TEXTS = LINES | DENSE | st.builds(str.__add__, LINES, DENSE)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(max_size=20)
    | st.sampled_from(["m1", "[M2]", "s1", "12", "-1", "m999", "null", "harbour"])
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["query", "handle", "limit", "offset", "name", "other"])
ARGUMENTS = st.dictionaries(KEYS, JSON, max_size=5) | JSON


def history_of(texts):
    messages = [Message(Role.USER, (Text(text),)) for text in texts]
    history = MemoryHistory(messages, range(1, len(messages) + 1))
    inside = [f"m{number}" for number in range(1, len(texts) + 1)]
    for number, text in enumerate(texts, len(messages) + 1):
        call = ToolCall(f"c{number}", "terminal", json.dumps({"command": f"make {text}"}))
        history.add(number, Message(Role.ASSISTANT, (call, ToolResult(call.call_id, text))))
    history.add_summary("s1", "\n".join(texts), inside, at=1e9)
    return history


@settings(max_examples=60, deadline=None)
@given(TEXTS, st.integers(200, 900), st.none() | st.integers(1, 5_000))
def test_pages_give_every_character_once(text, tokens, limit):
    history, budget = history_of([text]), Budget(COUNT, tokens)
    read, offset = [], 0
    for _ in range(len(text) + 1):
        answered = answer(
            history, "history_expand", {"handle": "m1", "offset": offset, "limit": limit}, budget
        )
        assert COUNT(answered) <= tokens
        page = json.loads(answered)
        assert page["offset"] == offset
        assert len(page["text"]) <= (limit or len(text))
        read.append(page["text"])
        if "next_offset" not in page:
            break
        assert page["next_offset"] > offset
        offset = page["next_offset"]
        if limit is not None and len(read) > 30:  # enough pages: what is left is read without a limit
            limit = None
    assert "".join(read) == text


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=6), st.integers(200, 2_000), st.integers(1, 30), st.data())
def test_every_answer_fits_its_budget(texts, tokens, limit, data):
    history, budget = history_of(texts), Budget(COUNT, tokens)
    words = data.draw(st.sampled_from(texts))[:200]
    for name, args in (
        ("history_search", {"query": words, "limit": limit}),
        ("history_search", {"query": "word harbour 漢字 a"}),
        ("history_describe", {"handle": "m1"}),
        ("history_describe", {"handle": "s1"}),
        ("history_expand", {"handle": "s1"}),
        ("history_entity", {"name": "*"}),
        ("history_entity", {"name": "file"}),
    ):
        answered = answer(history, name, args, budget)
        assert COUNT(answered) <= tokens
        assert "error" not in json.loads(answered)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(TOOL_NAMES)) | st.text(max_size=10), ARGUMENTS)
def test_no_arguments_raise(name, args):
    history = history_of(["The harbour key is hk-4417.", "A second line.\n" * 400])
    budget = Budget(COUNT, 300)
    answered = answer(history, name, args, budget)
    assert COUNT(answered) <= 300
    assert isinstance(json.loads(answered), dict)
    assert json.loads(answer(history, name, json.dumps(args), budget)) is not None

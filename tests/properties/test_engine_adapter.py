"""An engine that knows lists, on conversations of every dialect: what it keeps is untouched, what it makes is legal."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.conversations import conversations

from penstock.context.engine_adapter import EngineAdapter
from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.rules import check
from penstock.engine.contract import ContextEngine
from penstock.errors import EngineFailure

each_dialect = pytest.mark.parametrize("name", ["chat", "responses", "anthropic"])


class Made(ContextEngine):
    """Makes of a list what it is told to."""

    name = "made"

    def __init__(self, make):
        self.make = make
        self.given = None

    def update_from_response(self, usage):
        """Nothing."""

    def should_compress(self, prompt_tokens=None):
        return True

    def compress(self, messages, current_tokens=None, focus_topic=None):
        self.given = messages
        return self.make(messages)


@each_dialect
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_an_engine_that_changes_nothing_changes_nothing(name, data):
    view = data.draw(conversations(name))
    before = copy.deepcopy(view)
    copied = data.draw(st.booleans())
    made = EngineAdapter(Made(copy.deepcopy if copied else list), name).compress(view, 100, None)
    assert made == view == before


@each_dialect
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_it_leaves_out_the_result_is_legal_or_refused(name, data):
    view = data.draw(conversations(name))
    note = {"role": "user", "content": "Some messages were left out."}

    def some(messages):
        at = data.draw(st.integers(0, len(messages)))
        return [note, *messages[at:]]

    engine = Made(some)
    dialect = DIALECTS[name]
    try:
        made = EngineAdapter(engine, name).compress(view, 100, None)
    except EngineFailure:
        return
    assert check(decode_all(dialect, made), dialect.rules) == []
    assert "left out" in str(made[0])
    kept = [wire for wire in made if any(wire is one for one in view)]
    assert kept == view[len(view) - len(kept) :]


def test_of_two_that_are_equal_the_one_that_was_kept_comes_back():
    view = [
        {"type": "message", "role": role, "content": text, **more}
        for role, text, more in [
            ("user", "Go on.", {}),
            ("assistant", [{"type": "output_text", "text": "Done."}], {"id": "msg_1", "status": "completed"}),
            ("user", "Again.", {}),
            ("assistant", [{"type": "output_text", "text": "Done."}], {"id": "msg_2", "status": "completed"}),
        ]
    ]
    note = {"role": "user", "content": "Some messages were left out."}
    made = EngineAdapter(Made(lambda messages: [note, messages[-1]]), "responses").compress(view, 100, None)
    assert made[-1] is view[-1]


@each_dialect
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_it_sees_a_legal_chat(name, data):
    view = data.draw(conversations(name))
    engine = Made(list)
    EngineAdapter(engine, name).compress(view, 100, None)
    chat = DIALECTS["chat"]
    assert check(decode_all(chat, engine.given), chat.rules) == []

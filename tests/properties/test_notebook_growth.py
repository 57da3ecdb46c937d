"""A notebook that has seen a conversation grow knows the same of it as one that sees it for the first time."""

from __future__ import annotations

import copy

import pytest
from compaction_claims import claim, keep_quick
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies.conversations import broken_conversations, conversations
from tests.strategies.long_sessions import long_conversations

from penstock.config import redactor_of_process
from penstock.conversation.dialects import DIALECTS
from penstock.engine.compress import CompressRequest, compress_list
from penstock.errors import TargetTooSmall
from penstock.measure.tokens import tokenizer_for
from penstock.writing.notebook import Notebook

pytestmark = pytest.mark.sampled(4)  # each of its cases is long

each_dialect = pytest.mark.parametrize("name", keep_quick("anthropic", "chat"))
each_kind = pytest.mark.parametrize("kind", [conversations, broken_conversations, long_conversations])


def notebook():
    return Notebook(tokenizer_for(None), redactor_of_process())


def known(opened):
    """All that planning depends on."""
    transcript = opened.transcript
    index = transcript.index
    excerpts = [index.excerpt(number) for number in range(len(index.lengths))]
    return {
        "parts": [(message.role, message.parts) for message in transcript.messages],
        "origins": list(transcript.origins),
        "tokens": transcript.tokens,
        "numbers": transcript.numbers,
        "legal": transcript.legal,
        "excerpts": excerpts,
        "sources": index.source_of.tolist(),
        "messages": index.message_of_source.tolist(),
        "repaired": opened.repairs,
    }


@each_kind
@each_dialect
@claim(15)
@given(data=st.data())
def test_growing_step_by_step_is_the_same_as_all_at_once(name, kind, data):
    wires = data.draw(kind(name))
    steps = sorted(data.draw(st.lists(st.integers(0, len(wires)), max_size=3)))
    book, dialect = notebook(), DIALECTS[name]
    for end in steps:
        book.open(copy.deepcopy(wires[:end]), dialect)
    assert known(book.open(wires, dialect)) == known(notebook().open(wires, dialect))


@each_kind
@each_dialect
@claim(10)
@given(data=st.data())
def test_a_conversation_that_is_cut_short_or_changed_is_read_as_it_is_now(name, kind, data):
    wires = data.draw(kind(name))
    other = data.draw(kind(name))
    at = data.draw(st.integers(0, len(wires)))
    book, dialect = notebook(), DIALECTS[name]
    for seen in (wires, wires[:at], [*wires[:at], *other], other):
        assert known(book.open(seen, dialect)) == known(notebook().open(seen, dialect))


@each_dialect
@claim(8)
@given(data=st.data(), share=st.floats(0.2, 0.8))
def test_what_it_knew_before_does_not_change_a_result(name, data, share):
    wires = data.draw(long_conversations(name))
    at = data.draw(st.integers(0, len(wires)))
    book = notebook()
    total = sum(book.weigh(wires, DIALECTS[name]))
    request = CompressRequest(target_tokens=max(1, int(share * total)), dialect=name)
    results = []
    for prepared in (book, notebook()):
        try:
            if prepared is book:
                compress_list(wires[:at], request, book)
            results.append(compress_list(wires, request, prepared))
        except TargetTooSmall:
            return
    assert results[0].messages == results[1].messages
    assert results[0].verdicts == results[1].verdicts

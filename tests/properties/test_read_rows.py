"""What is read of messages is held once: excerpts as stretches of what was said, rows in the index that took them last."""

from __future__ import annotations

import json

import numpy as np
from compaction_claims import REDACTOR, claim
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies.conversations import conversations

from penstock.conversation.dialects import DIALECTS
from penstock.conversation.message import Message, Role, Text, ToolResult
from penstock.conversation.speakers import without_reminders
from penstock.writing.excerpts import excerpts, lay_out_redacted
from penstock.writing.reading import Index, Reader

_WORDS = st.sampled_from(
    [
        "relay",
        "port 5433",
        "naïve",
        "日本語の文",
        "❄️ café",
        "x",
        "7",
        "{",
        "---",
        "if a:",
        "ghp_" + "a1B2c3D4e5F6" * 3,
    ]
)
_LINES = st.one_of(
    st.lists(_WORDS, max_size=4).map(" ".join),
    st.lists(_WORDS, min_size=30, max_size=120).map(". ".join),  # a long one is cut between sentences
    st.lists(_WORDS, min_size=40, max_size=80).map("/".join),  # and inside one
    st.text(max_size=30),
    st.tuples(st.integers(1, 300), _WORDS).map("{0[0]}\t{0[1]}".format),  # with a printed number
    st.integers(1, 300).map("{}:".format),
    st.sampled_from(["", "   ", "\t", "drawn\r", "\x1b[31mred\x1b[0m", "\n" * 3_000]),
    st.just("<system-reminder>x</system-reminder>"),
)
_INDENTED = st.tuples(st.sampled_from(["", "  ", "\t", "    "]), _LINES, st.sampled_from(["", "  "])).map(
    "".join
)
_TEXTS = st.lists(_INDENTED, max_size=30).map("\n".join)
_DATA = st.dictionaries(st.sampled_from(["id", "status", "items"]), st.one_of(_WORDS, st.lists(_WORDS)))


@claim(150)
@given(texts=st.lists(st.one_of(_TEXTS, _DATA.map(json.dumps)), min_size=1, max_size=4))
def test_an_excerpt_is_quoted_as_it_was_cut(texts):
    messages = [Message(Role.TOOL, (ToolResult(f"c{n}", text),)) for n, text in enumerate(texts)]
    reader = Reader(REDACTOR)
    readings = reader.read(messages)
    index = Index(reader.vocabulary)
    expected = []
    for text in texts:
        laid = lay_out_redacted(without_reminders(text), REDACTOR.redact)
        if cut := excerpts(laid.text, items=bool(laid.keys)):
            expected.append(cut)
    for _ in range(2):  # as they were read, and out of the rows of an index
        sources = [source for reading in readings for source in reading.sources]
        assert [source.excerpts for source in sources] == expected
        assert [source.text for source in sources] == list(map("\n".join, expected))
        index.extend(readings)
    quoted = [index.excerpt(number) for number in range(len(index.lengths))]
    assert quoted == 2 * [excerpt for cut in expected for excerpt in cut]


def test_what_stands_in_the_message_is_not_held_again():
    lines = [f"2026-03-0{n} relay {n} answered on port 543{n}" for n in range(1, 9)]
    told = ToolResult("c1", "\n\n    ".join(lines))
    numbered = ToolResult("c2", "\n".join(f"{n:>5}\t{line}" for n, line in enumerate(lines)))
    laid_out = ToolResult("c3", json.dumps({"relay": lines}))
    spoken = Text("I restarted the relay. " * 20 + "\n\n  and\n  so\n  on")
    messages = [Message(Role.TOOL, (part,)) for part in (told, numbered, laid_out)]
    readings = Reader(REDACTOR).read([*messages, Message(Role.ASSISTANT, (spoken,))])
    told_source, numbered_source, laid_source, spoken_source = [one.sources[0] for one in readings]
    assert told_source.said is told.text
    assert numbered_source.said is numbered.text
    assert told_source.others == numbered_source.others == laid_source.said == ""
    assert spoken_source.said is spoken.text
    assert spoken_source.others == "and\nso\non"  # cut from several lines, whose indents are not quoted


def arrays(index):
    """All that an index holds in arrays, and what its excerpts by their words are."""
    held = {**vars(index), **{name: getattr(index._rows, name) for name in index._rows.__struct_fields__}}
    found = {name: (rows.dtype, rows.tolist()) for name, rows in held.items() if isinstance(rows, np.ndarray)}
    every = np.arange(1 << 16).astype(np.uint16)
    weights = np.zeros(len(index.source_of), np.int32)
    index.excerpts_by_word.count_owners(every, every.astype(np.int32) * 7_919 % 104_729, weights)
    words = [index.excerpts_by_word.count_sources(every, index.source_of).tolist(), weights.tolist()]
    return found | {"words of excerpts": words, "characters": index.told_characters, "tags": index.tags}


@claim(30)
@given(data=st.data())
def test_a_list_that_is_indexed_after_others_has_the_arrays_of_one_that_is_indexed_first(data):
    wires = data.draw(conversations("chat"))
    messages = [DIALECTS["chat"].decode(wire) for wire in wires]
    used, fresh = Reader(REDACTOR), Reader(REDACTOR)
    readings, same = used.read(messages), fresh.read(messages)
    places = (
        st.lists(st.integers(0, len(messages) - 1), max_size=2 * len(messages)) if messages else st.just([])
    )
    for order in data.draw(st.lists(places, max_size=3)):
        Index(used.vocabulary).extend([readings[place] for place in order])
    order = data.draw(places)
    step = data.draw(st.integers(0, len(order)))
    after_others, first = Index(used.vocabulary), Index(fresh.vocabulary)
    after_others.extend([readings[place] for place in order[:step]])
    after_others.extend([readings[place] for place in order[step:]])
    first.extend([same[place] for place in order])
    assert arrays(after_others) == arrays(first)

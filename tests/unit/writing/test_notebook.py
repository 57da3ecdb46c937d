"""Each message is read once, whatever object holds it."""

from __future__ import annotations

import copy
import json

import pytest

from penstock.conversation import mark
from penstock.conversation.dialects import DIALECTS
from penstock.errors import InputError
from penstock.measure.tokens import tokenizer_for
from penstock.redaction import Redactor
from penstock.testing.engine_contract import long_conversation
from penstock.writing.notebook import Notebook

CHAT = DIALECTS["chat"]


class CountingRedactor(Redactor):
    """Every text that is read goes through the redactor first, so this counts reading."""

    def __init__(self):
        super().__init__()
        self.texts = []

    def redact(self, text):
        self.texts.append(text)
        return super().redact(text)


class CountingTokenizer:
    def __init__(self):
        self._inner = tokenizer_for(None)
        self.name, self.exact = self._inner.name, self._inner.exact
        self.counted = 0

    def count(self, text):
        self.counted += 1
        return self._inner.count(text)

    def count_many(self, texts):
        self.counted += len(texts)
        return self._inner.count_many(texts)


@pytest.fixture
def book():
    return Notebook(CountingTokenizer(), CountingRedactor())


def work(book):
    """What was read and counted so far."""
    return len(book._reader._redactor.texts), book.tokenizer.counted


@pytest.mark.parametrize(
    "again",
    [lambda wires: wires, copy.deepcopy, lambda wires: json.loads(json.dumps(wires))],
    ids=["the same objects", "a deep copy", "parsed anew"],
)
def test_a_conversation_that_is_known_is_not_read_again(book, again):
    wires = long_conversation(10)
    first = book.open(wires, CHAT).transcript
    done = work(book)
    assert done[0] >= len(wires)
    second = book.open(again(wires), CHAT).transcript
    assert work(book) == done
    assert second.tokens == first.tokens
    assert second.numbers == first.numbers
    assert all(a is b for a, b in zip(first.readings, second.readings, strict=True))


def test_only_new_messages_are_read(book):
    wires = long_conversation(10)
    book.open(wires, CHAT)
    read, counted = work(book)
    grown = [*copy.deepcopy(wires), {"role": "assistant", "content": "It is part_17 because of owner_17."}]
    book.open(grown, CHAT)
    assert 0 < work(book)[0] - read <= 3
    assert work(book)[1] - counted == 1


def test_what_is_only_weighed_is_not_read(book):
    twins = [{"role": "user", "content": "continue"}, {"role": "assistant", "content": "Done: part_17."}]
    wires = [*long_conversation(10), *copy.deepcopy(twins), *twins]
    weights = book.weigh(wires, CHAT)
    read, counted = work(book)
    assert read == 0
    opened = book.open(copy.deepcopy(wires), CHAT).transcript
    fresh = Notebook(tokenizer_for(None), Redactor()).open(wires, CHAT).transcript
    assert work(book)[0] >= len(long_conversation(10))
    assert work(book)[1] == counted
    assert list(opened.tokens) == weights == list(fresh.tokens)
    assert opened.index.ids.tolist() == fresh.index.ids.tolist()


def test_the_order_of_messages_may_change(book):
    wires = long_conversation(3)
    book.open(wires, CHAT)
    shorter = book.open(wires[:1] + wires[5:], CHAT).transcript
    fresh = Notebook(tokenizer_for(None), Redactor()).open(wires[:1] + wires[5:], CHAT).transcript
    assert shorter.tokens == fresh.tokens
    assert len(shorter.index.lengths) == len(fresh.index.lengths)
    assert shorter.index.messages == len(shorter.messages)


def test_a_message_that_was_changed_in_place_is_another_message(book):
    wires = long_conversation(2)
    before = book.open(wires, CHAT).transcript.tokens
    wires[1]["content"] = "Something else, and longer than it was before."
    after = book.open(wires, CHAT).transcript
    assert after.tokens[1] != before[1]
    assert after[1].parts[0].text == "Something else, and longer than it was before."


def test_what_is_given_this_time_is_what_comes_back(book):
    wires = long_conversation(2)
    book.open(wires, CHAT)
    copied = copy.deepcopy(wires)
    transcript = book.open(copied, CHAT).transcript
    assert all(transcript[place].origin is wire for place, wire in enumerate(copied))


def test_equal_messages_keep_their_own_objects(book):
    twins = [{"role": "user", "content": "continue"}, {"role": "assistant", "content": "Done."}] * 3
    wires = [dict(wire) for wire in twins]
    transcript = book.open(wires, CHAT).transcript
    assert all(transcript[place].origin is wire for place, wire in enumerate(wires))


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), (0, False), (0.0, -0.0)])
def test_json_that_only_python_takes_for_equal_is_not(book, one, other):
    first, second = ({"role": "user", "content": [{"type": "x", "n": value}]} for value in (one, other))
    texts = [book.open([wire], CHAT).transcript.messages[0].parts[0].text for wire in (first, second)]
    assert texts[0] != texts[1]


def test_the_same_bytes_of_two_dialects_are_two_messages(book):
    wire = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
    book.open([wire], CHAT)
    assert book.open([wire], DIALECTS["anthropic"]).transcript.dialect.name == "anthropic"


def test_a_handoff_is_weighed_with_what_its_mark_says(book):
    short, long = (
        [{"role": "user", "content": mark.wrap("the same text", {"after": after})}]
        for after in ("1+", "1 5-9 12-18 21-30 44-57 61+")
    )
    fresh = Notebook(tokenizer_for(None), Redactor())
    assert book.weigh(short, CHAT) == fresh.weigh(short, CHAT)
    assert book.weigh(long, CHAT) == Notebook(tokenizer_for(None), Redactor()).weigh(long, CHAT)


def test_an_error_names_the_message(book):
    wires = [{"role": "user", "content": "hello"}, {"role": "nobody", "content": "x"}]
    with pytest.raises(InputError, match="message 2"):
        book.open(wires, CHAT)
    assert book.open(wires[:1], CHAT).transcript.numbers == (1,)


def test_what_was_broken_is_mended_and_counted(book):
    wires = [
        {"role": "user", "content": "hello"},
        {"role": "tool", "tool_call_id": "nobody", "content": "an orphan"},
        {"role": "assistant", "content": "hi"},
    ]
    opened = book.open(wires, CHAT)
    assert (opened.repairs, len(opened.transcript.messages)) == (1, 2)

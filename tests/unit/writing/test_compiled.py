"""The compiled core gives the same as the code in Python, for any text."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import sys
import threading
from collections import UserList
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.conversation.opening import count_same
from penstock.writing import compiled
from penstock.writing.compiled import (
    CompiledFinder,
    count_plain_words,
    cut_text,
    find_path_parts,
    look_beside,
)
from penstock.writing.excerpts import excerpts
from penstock.writing.finder import LABELS, UNKNOWN, Finder
from penstock.writing.greedy import BARE, CountedExcerpts, Greedy
from penstock.writing.importance import BesideRows, ExcerptRows, look_beside_in_python
from penstock.writing.notebook import _Seen
from penstock.writing.values import NO_SUBJECT, parts_of_paths, plain_words

core = pytest.importorskip("penstock_core")
INT32_MAX = (1 << 31) - 1

# Pieces that tokens, labels, phrases and ends are made of; any text beside them.
PIECES = st.sampled_from(
    [
        *("a", "Z9", "_", ".", "-", "--", "/", "\\", "@", "#", "%", "+", "~", "$", " ", "\n", "\t", "\x00", "\x1c", "\x85"),
        *('"', "'", "`", '"two words"', "'it''s'", "`x y`", '"a\\b cd"', "don't", "l'été bleu'", "'a b c d'é", "é'a b c d'"),
        *("order_id ", "Id ", "userID", "price: ", "12.50", "4711", "README.md", "src/app/main.py", "C:\\x\\file.txt", "HTTPServer"),
        *("getUserName", "--dry-run", "---x", "-v", "9f3c2ab1", "a1" * 101, "x" * 201, "v1.2.3", ".hidden", "...", "foo.bar_baz.Qux1"),
        *("→", "…", "，", "密码", "订单4711号", "é", "prix_é", "\ud800", "\U0001f600", "\ua7ab_x", "\U00020000", "\U00020000'a b c'", "'a b c'\U0001d400", "İ", "\u3000", "\xa0", "Kelvin K", "ß"),
    ]
)  # fmt: skip
WORDS = st.sampled_from([*LABELS, *NO_SUBJECT, "reservationsx", "Title", "Id", "ID", "d"])
TEXTS = st.lists(
    st.lists(PIECES | WORDS | st.text(max_size=8), max_size=25).map("".join)
    | st.lists(PIECES | WORDS, max_size=25).map(" ".join),
    max_size=6,
)


def same(one, other):
    assert [column.tolist() for column in one] == [column.tolist() for column in other]


def columns(found):
    return found.ids, found.starts, found.labels, found.words, found.word_counts


@settings(max_examples=600, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=3), TEXTS)
def test_values_and_their_numbers(batches, quoted):
    plain, compiled = Finder(), CompiledFinder()
    for texts in batches:
        found, new = plain.find(texts)
        found_compiled, new_compiled = compiled.find(texts)
        same(columns(found), columns(found_compiled))
        assert (new is None) is (new_compiled is None)
        if new is not None:
            same(new[:3], new_compiled[:3])
            same(new.words, new_compiled.words)
        assert len(plain) == len(compiled)
    for texts in (quoted, *batches):
        one, other = plain.find_known(texts), compiled.find_known(texts)
        assert sorted(set(one.tolist())) == sorted(set(other.tolist()))


IN_PATHS = st.sampled_from(
    [*"/./-+~$%\\ab", "src", "main.py", "README", "..", "x" * 99, " ", "\n", "\0", "\x1c", ",", "é", "→"]
)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.lists(IN_PATHS, max_size=20).map("".join), max_size=5))
def test_parts_of_paths(texts):
    assert find_path_parts(texts) == parts_of_paths(texts)


@contextmanager
def while_garbage_is_collected(change):
    """Runs `change` as often as Python collects garbage, which up to Python 3.11 is in the middle of whatever makes an object."""
    before = gc.get_threshold()

    def run(phase, _info):
        if phase == "start":
            change()

    gc.callbacks.append(run)
    gc.set_threshold(1)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(run)


@pytest.mark.parametrize(
    "change", [lambda texts: texts.extend(["/a/b"] * (len(texts) < 9_999)), lambda texts: texts.clear()]
)
def test_texts_that_change_while_their_paths_are_read(change):
    texts = ["/src/main.py", "/other"] * 300
    with while_garbage_is_collected(lambda: change(texts)):
        found = core.path_parts(texts)
    assert "NULL" not in repr(found)
    assert {str(one) for one in found} <= {
        str(core.path_parts([text])[0]) for text in ("/src/main.py", "/other", "/a/b")
    }


@given(st.lists(st.text(max_size=8)))
def test_numbers_are_looked_up(values):
    finder = CompiledFinder()
    assert set(finder.look_up(values).tolist()) <= {UNKNOWN}
    finder.find(["order_id 4711 prix_é"])
    assert finder.look_up(["4711", "prix_é", "order_id", "\ud800", ""]).tolist() == [
        1,
        2,
        0,
        UNKNOWN,
        UNKNOWN,
    ]


def test_many_values_and_many_tokens():
    plain, compiled = Finder(), CompiledFinder()
    for start in range(0, 300_000, 60_000):  # tokens are forgotten in between, values never
        texts = [f"id-{number} name_{number % 977}" for number in range(start, start + 60_000)]
        same(columns(plain.find(texts)[0]), columns(compiled.find(texts)[0]))
    assert (
        compiled.look_up(["id-0", "id-299999", "id-300000"]).tolist()
        == plain.look_up(["id-0", "id-299999", "id-300000"]).tolist()
    )


def test_results_can_be_written_to_and_outlive_the_finder():
    finder = CompiledFinder()
    found, _ = finder.find(["order_id 4711"])
    del finder
    found.labels[:] |= 128
    assert found.labels.tolist() == [128, 129]


BEYOND = "prix_é order_7 \x00".encode()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda table: table.find("text", None, None),
        lambda table: table.find(b"text", b"too short", None),
        lambda table: table.find(BEYOND, bytes(65_536), None),
        lambda table: table.find(BEYOND, bytes(65_536), lambda tokens: 7),
        lambda table: table.find(BEYOND, bytes(65_536), lambda tokens: []),
        lambda table: table.find(BEYOND, bytes(65_536), lambda tokens: [((b"a",), 0)]),
        lambda table: table.find(BEYOND, bytes(65_536), lambda tokens: [([b"a"], 0, 0)]),
        lambda table: table.find(BEYOND, bytes(65_536), lambda tokens: [(("a",), 0, 0)]),
        lambda table: table.find(BEYOND, bytes(65_536), lambda tokens: [((b"a",), "0", 0)]),
        lambda table: table.find(BEYOND, bytes(65_536), lambda tokens: [((b"a",), 128, 0)]),  # no room for it
        lambda table: table.find(BEYOND, bytes(65_536), lambda tokens: [((b"a",), 0, 65_536)]),
        lambda table: table.find(BEYOND, bytes(65_536), lambda tokens: [((b"a",), 0, -1)]),
        lambda table: table.look_up([b"bytes"]),
        lambda table: table.look_up(["fine", None]),
        lambda table: core.ValueTable(seed=1, labels={"text": 1}, no_subject=[]),
        lambda table: core.ValueTable(seed=1, labels={b"text": 128}, no_subject=[]),
        lambda table: core.ValueTable(seed=1, labels={b"text": "1"}, no_subject=[]),
        lambda table: core.ValueTable(seed=1, labels={b"x" * 65: 1}, no_subject=[]),
        lambda table: core.ValueTable(
            seed=1, labels={b"%d" % word: 1 for word in range(1_025)}, no_subject=[]
        ),
    ],
)
def test_what_is_no_block_is_refused(wrong):
    table = core.ValueTable(seed=1, labels={b"id": 1}, no_subject=[b"with"])
    with pytest.raises((TypeError, ValueError)):
        wrong(table)
    assert len(table) == 0
    assert table.find(b"order 4711 \x00", None, None)[0] == bytes(4)  # value 0: it still works


def test_a_block_that_was_interrupted_leaves_nothing_behind(monkeypatch):
    def interrupt(tokens):
        raise KeyboardInterrupt

    texts = ["order_id 4711 prix_é", "name_9 4711 'two words'"]
    plain, compiled = Finder(), CompiledFinder()
    same(columns(plain.find(["name_9"])[0]), columns(compiled.find(["name_9"])[0]))
    with monkeypatch.context() as patched:
        patched.setattr("penstock.writing.compiled._describe_each", interrupt)
        with pytest.raises(KeyboardInterrupt):
            compiled.find(texts)
    assert len(compiled) == 1
    assert compiled.find_known(["name_9 order_id"]).tolist() == [0]
    same(columns(plain.find(texts)[0]), columns(compiled.find(texts)[0]))


def test_a_table_that_is_asked_while_it_asks_refuses():
    table = core.ValueTable(seed=1, labels={}, no_subject=[])
    asked = []

    def describe(tokens):
        for call in (
            lambda: table.find(b"x", None, None),
            lambda: table.find_known(b"x", None),
            lambda: table.look_up([]),
        ):
            with pytest.raises(RuntimeError, match="one thread"):
                call()
            asked.append(tokens)
        return [((token,), 0, 0) for token in tokens]

    assert table.find(BEYOND, bytes(65_536), describe)[0] == np.arange(2, dtype=np.int32).tobytes()
    assert asked == [["prix_é".encode()]] * 3


@pytest.mark.parametrize("most", [40, 900])  # values: with the larger, tables grow in between
def test_where_memory_runs_out_nothing_is_left_behind(most):
    limit = pytest.importorskip("_testcapi")
    block = " ".join([*map("name_{}".format, range(most)), "prix_é", "\x00"]).encode()
    described = (((b"prix", "prix_é".encode()), 1, 7),)
    table = core.ValueTable(seed=1, labels={}, no_subject=[])
    arguments = (block, bytes(65_536), lambda tokens: described)
    table.find(b"name_7 \x00", None, None)
    failed = 0
    for allocation in range(1_000):
        limit.set_nomemory(allocation, allocation + 1)
        try:
            found = table.find(*arguments)
        except MemoryError:
            found = None
        finally:
            limit.remove_mem_hooks()
        if found is not None:
            break
        failed += 1
        assert len(table) == 1
        assert table.look_up(["name_7", "name_8"]) == np.array([0, UNKNOWN], np.int32).tobytes()
    assert failed > 20
    assert np.frombuffer(found[0], np.int32).tolist() == list(range(most + 2))


def test_one_thread_at_a_time():
    finder = CompiledFinder()
    texts = [f"value_{number}" for number in range(200_000)]
    refused = []

    def ask():
        try:
            finder.find(texts)
        except RuntimeError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("one thread" in text for text in refused)
    assert np.isin(finder.look_up(texts), np.arange(200_000)).all()


@given(
    st.text(alphabet="ab\n é", max_size=40),
    st.lists(st.text(alphabet="ab\n é", min_size=1, max_size=4)),
    st.integers(0, 9),
)
def test_pieces_are_found_behind_each_other(text, pieces, farthest):
    after, expected = 0, []
    for piece in pieces:
        found = text.find(piece, after, after + farthest)
        after = found + len(piece) if found >= 0 else after
        expected.append(found)
    assert core.find_each(text, tuple(pieces), farthest) == expected


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.text(alphabet="abAB \nÿ\u0101", max_size=150), max_size=6),
    st.lists(st.text(alphabet="abAB ÿ\u0101", max_size=5), max_size=6),
)
def test_texts_that_hold_words(texts, words):
    expected = [[place for place, text in enumerate(texts) if word in text] for word in words]
    assert core.find_holding(tuple(texts), tuple(words)) == tuple(expected)


def test_a_word_is_found_wherever_it_stands():
    """Texts are looked through 64 places at a time."""
    for place in range(200):
        text = "x" * place + "needle" + "x" * (199 - place)
        almost = text.replace("needle", "needlx")
        assert core.find_holding((text, almost), ("needle", "needles")) == ([0], [])
    for wrong in ((("a",), (b"a",)), ((None,), ("a",)), (("a",), ["a"])):
        with pytest.raises(TypeError):
            core.find_holding(*wrong)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)), st.sampled_from([list, tuple]))
def test_same_objects_are_counted(one, other, kind):
    objects = [object() for _ in range(4)]
    some, others = kind(objects[place] for place in one), [objects[place] for place in other]
    expected = next(
        (place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )
    assert core.count_same(some, others) == expected
    assert count_same(some, others) == count_same(iter_over(some), others) == expected
    with pytest.raises(TypeError):
        core.count_same(iter_over(some), others)


def iter_over(items):
    """The same items in a sequence that is neither a list nor a tuple, which Python compares."""
    return UserList(items)


def test_pieces_are_found_however_far():
    assert core.find_each("abab", ("a", "b", "a", "x"), sys.maxsize) == [0, 1, 2, -1]


SENTENCES = st.sampled_from(
    [
        *("word ", "sentence. ", "Really? ", "1. ", "12) ", "; ", ", ", ": ", "\\n", "。", "！」", "，", ']"', "},{", "...", "“x”. "),
        *("\n", "\n\n", "   ", "\t", "\r", "\u2028", "x" * 50, "y-" * 30, "密码是", "½", "٣", "\n12:\n", "\n   indented\n", '(see there)." '),
    ]
)  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(
    st.lists(SENTENCES | PIECES | st.text(max_size=9), max_size=80).map("".join), st.booleans(), st.booleans()
)
def test_excerpts_and_where_they_stand(text, items, spoken):
    pieces, places = cut_text(text, items=items, spoken=spoken)
    assert pieces == excerpts(text, items=items, spoken=spoken)
    assert all(
        place < 0 or text.startswith(piece, place) for place, piece in zip(places, pieces, strict=True)
    )
    assert all(place >= 0 for place, piece in zip(places, pieces, strict=True) if "\n" not in piece)


@given(st.lists(PIECES | WORDS | st.text(max_size=8), max_size=25).map("".join) | st.text(max_size=40))
@settings(max_examples=400, deadline=None)
def test_plain_words(text):
    for most in (1, 2, 5):
        assert count_plain_words(text, most) == plain_words(text, most)


class Answers:
    """What a loop asks: plain words by the number, a few excerpts that are shown, one by one what was not added."""

    def __init__(self, plain, shown, add):
        self.plain, self.shown, self.add = plain, shown, add
        self.asked = []

    def plain_words(self, number):
        return self.plain[number]

    def is_shown(self, number):
        return number in self.shown

    def prepare(self, number):
        self.asked.append(number)
        self.add([number])


@st.composite
def choices(draw):
    """Excerpts with sources, costs, values, words; and what is asked of the loop, step by step."""
    count, values = draw(st.integers(1, 24)), draw(st.integers(1, 12))
    rows = st.lists(st.integers(0, values - 1), max_size=5, unique=True)
    sources = sorted(draw(st.lists(st.integers(0, 5), min_size=count, max_size=count)))
    number = st.integers(0, count - 1)
    step = (
        st.tuples(st.just("fill"), st.sets(number), st.integers(0, 60), st.none() | st.just("worth"), st.sets(number))
        | st.tuples(st.just("choose"), number)
        | st.tuples(st.just("run"), st.integers(0, 90))
        | st.tuples(st.just("drop"))
        | st.tuples(st.just("cover"), st.sets(st.integers(0, values - 1)), st.sampled_from([BARE, 1.0]))
    )  # fmt: skip
    return {
        "weights": np.array(
            draw(st.lists(st.floats(0, 4, width=16), min_size=values, max_size=values)), np.float32
        ),
        "values": draw(st.lists(rows, min_size=count, max_size=count)),
        "sources": sources,
        "costs": draw(st.lists(st.integers(1, 12), min_size=count, max_size=count)),
        "plain": draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)),
        "lengths": np.array(draw(st.lists(st.integers(1, 90), min_size=count, max_size=count)), np.int32),
        "parts": draw(st.sets(number)),
        "shown": draw(st.sets(number)),
        "steps": draw(st.lists(step, max_size=6)),
    }


def play(loop_of, given):
    """What a loop does with all steps, as far as anybody can see."""
    covered = np.zeros(len(given["weights"]), np.float32)
    loop = loop_of(given["weights"], covered)
    sources = np.array(given["sources"], np.int32)
    for source in range(6):
        loop.set_header(source, source % 3)

    def add(numbers):
        numbers = np.frombuffer(loop.missing(np.array(numbers, np.int32)), np.int32)
        held = [given["values"][number] for number in numbers]
        loop.add(
            CountedExcerpts(
                numbers,
                sources[numbers],
                np.array(given["costs"], np.int32)[numbers],
                np.cumsum([len(one) for one in held], dtype=np.int64),
                np.array([value for one in held for value in one], np.int32),
                np.array([number in given["parts"] for number in numbers], np.bool_),
                np.array([given["plain"][number] if number % 2 else -1 for number in numbers], np.int8),
            )
        )

    answers = Answers(given["plain"], given["shown"], add)
    seen = []
    for name, *details in given["steps"]:
        if name == "fill":
            allowed, budget, worth, pool = details
            rows = np.zeros(len(sources), np.bool_)
            rows[list(allowed)] = True
            worths = np.linspace(0, 1, len(sources), dtype=np.float32) if worth else None
            loop.allow(rows, worths, sources, given["lengths"])
            add(sorted(pool & allowed))
            wanted = np.array(sorted(pool & allowed), np.int32)
            gains = [sum(given["weights"][value] for value in given["values"][number]) for number in wanted]
            loop.begin(wanted, np.array(gains, np.float32), answers)
            loop.run(budget, answers)
        elif name == "choose" and not loop.is_chosen(details[0]):
            add(details)
            loop.choose(details[0], answers)
        elif name == "run":
            loop.run(details[0], answers)
        elif name == "drop":
            seen.append(loop.drop_last())
        elif name == "cover":
            ids = np.array(sorted(details[0]), np.int32)
            covered[ids] = np.maximum(covered[ids], np.float32(details[1]))
            loop.notice(ids)
        seen += [loop.order, loop.tokens, covered.tolist(), [loop.price(n) for n in loop.order]]
    return seen, answers.asked


@settings(max_examples=500, deadline=None)
@given(choices())
def test_the_same_excerpts_are_chosen(given_choice):
    assert play(core.Greedy, given_choice) == play(Greedy, given_choice)


def counted(**changes):
    """The rows of excerpt 0 of source 0, with value 0."""
    one = np.zeros(1, np.int32)
    rows = CountedExcerpts(
        one, one, one + 5, np.ones(1, np.int64), one, np.zeros(1, np.bool_), np.full(1, -1, np.int8)
    )
    return rows._replace(**changes)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda loop, one: loop.add(counted(ends=np.array([9], np.int64))),
        lambda loop, one: loop.add(counted(values=one + 7)),
        lambda loop, one: loop.add(counted(numbers=one - 1)),
        lambda loop, one: loop.add(counted(costs=np.zeros(3, np.int8))),
        lambda loop, one: loop.add(counted(plain_words=np.zeros(2, np.int8))),
        lambda loop, one: loop.add(counted(numbers=one + INT32_MAX)),  # there is none behind it
        lambda loop, one: loop.add(counted(costs=one)),  # nothing is free
        lambda loop, one: loop.add(counted(costs=np.full(1, 5, np.float32))),
        lambda loop, one: loop.add(counted(costs=np.full(1, 5, ">i4"))),
        lambda loop, one: loop.add(counted(ends=np.ones(1, np.float64))),
        lambda loop, one: loop.add(counted(values=one.reshape(1, 1))),
        lambda loop, one: loop.add(counted()[:6]),
        lambda loop, one: loop.missing(bytes(4)),
        lambda loop, one: loop.missing(
            np.zeros(9, np.uint8)[1:].view(np.int32)
        ),  # not where a number may begin
        lambda loop, one: loop.missing(np.zeros(4, np.int32)[::2]),
        lambda loop, one: loop.set_header(0, -1),
        lambda loop, one: loop.begin(one, np.zeros(2, np.float32), None),
        lambda loop, one: loop.begin(one, np.zeros(1, np.float64), None),
        lambda loop, one: loop.allow(np.ones(3, np.bool_), None, one, one),
        lambda loop, one: loop.allow(np.ones(1, np.float32), None, one, one),
        lambda loop, one: loop.run("many", None),
        lambda loop, one: core.Greedy(np.zeros(2, np.float32), np.zeros(3, np.float32)),
        lambda loop, one: core.Greedy(np.zeros(2, np.int32), np.zeros(2, np.int32)),
        lambda loop, one: core.Greedy(np.zeros(2, np.float32), np.zeros(2, np.float32).tobytes()),
        lambda loop, one: core.plain_words("text", 99),
    ],
)
def test_rows_that_do_not_fit_are_refused(wrong):
    loop = core.Greedy(np.zeros(2, np.float32), np.zeros(2, np.float32))
    with pytest.raises((TypeError, ValueError, BufferError)):
        wrong(loop, np.zeros(1, np.int32))
    assert loop.missing(np.zeros(1, np.int32)) == bytes(4)
    loop.add(counted())  # what fits is taken
    assert loop.missing(np.zeros(1, np.int32)) == b""


@pytest.mark.parametrize("loop_of", [core.Greedy, Greedy])
@pytest.mark.parametrize(
    "call",
    [
        lambda loop, asked: loop.price(7),
        lambda loop, asked: loop.choose(7, asked),
        lambda loop, asked: loop.begin(np.array([7], np.int32), np.ones(1, np.float32), asked),
    ],
)
def test_an_excerpt_that_was_not_added_is_an_error(loop_of, call):
    loop = loop_of(np.ones(2, np.float32), np.zeros(2, np.float32))
    with pytest.raises(KeyError, match="7"):
        call(loop, Answers([2] * 8, set(), loop.add))
    assert (loop.order, loop.tokens, loop.is_chosen(7), loop.is_chosen(1 << 40)) == ([], 0, False, False)


@pytest.mark.parametrize("loop_of", [core.Greedy, Greedy])
def test_an_excerpt_that_the_caller_does_not_add_is_an_error(loop_of):
    loop = loop_of(np.ones(1, np.float32), np.zeros(1, np.float32))
    two = np.zeros(2, np.int32)
    loop.allow(np.ones(2, np.bool_), None, two, two)
    loop.set_header(0, 0)
    loop.add(counted())
    answers = Answers([1, 1], set(), lambda numbers: None)
    loop.begin(two[:1], np.ones(1, np.float32), answers)
    with pytest.raises(KeyError, match="1"):  # which gives words to excerpt 0
        loop.run(100, answers)
    assert answers.asked == [1]


@pytest.mark.parametrize("loop_of", [core.Greedy, Greedy])
def test_an_excerpt_that_is_given_twice_is_chosen_once(loop_of):
    loop = loop_of(np.ones(1, np.float32), np.zeros(1, np.float32))
    loop.add(counted())
    loop.set_header(0, 3)
    answers = Answers([2], set(), None)
    loop.begin(np.zeros(3, np.int32), np.ones(3, np.float32), answers)
    loop.run(100, answers)
    assert (loop.order, loop.tokens) == ([0], 8)


def test_a_loop_that_is_changed_while_it_asks_refuses():
    one = np.zeros(1, np.int32)
    loop = core.Greedy(np.ones(1, np.float32), np.zeros(1, np.float32))
    rows = np.arange(5_000, dtype=np.int32)
    many = CountedExcerpts(
        rows, rows, rows + 1, np.zeros(5_000, np.int64), one[:0], rows < 0, np.zeros(5_000, np.int8)
    )
    refused = []

    def is_refused(call):
        with pytest.raises(RuntimeError, match="in the middle"):
            call()
        refused.append(call)

    class Asking:
        def plain_words(self, number):
            is_refused(lambda: loop.add(many))
            is_refused(lambda: loop.set_header(9, 1))
            is_refused(lambda: loop.notice(one))
            self.prepare(number)
            return 2

        def is_shown(self, number):
            self.plain_words(number)
            return False

        def prepare(self, number):
            is_refused(lambda: loop.allow(np.ones(1, np.bool_), None, one, one))
            is_refused(lambda: loop.begin(one, np.ones(1, np.float32), self))
            is_refused(lambda: loop.run(9, self))
            is_refused(lambda: loop.choose(0, self))
            is_refused(loop.drop_last)

    loop.add(counted())
    loop.set_header(0, 0)
    loop.begin(one, np.ones(1, np.float32), Asking())
    loop.run(100, Asking())
    assert len(refused) == 16
    assert (loop.order, loop.tokens) == ([0], 5)
    loop.add(many)  # and it still works
    assert loop.price(4_999) == 5_000


def loop_of_excerpts(count):
    """A loop to which so many excerpts of one source were added, and their numbers."""
    numbers = np.arange(count, dtype=np.int32)
    loop = core.Greedy(np.ones(1, np.float32), np.zeros(1, np.float32))
    loop.set_header(0, 0)
    loop.add(
        CountedExcerpts(
            numbers,
            numbers * 0,
            numbers + 1,
            numbers.astype(np.int64) * 0,
            numbers[:0],
            numbers >= 0,
            np.full(count, -1, np.int8),
        )
    )
    return loop, numbers


def test_an_array_that_changes_while_a_loop_asks_was_read_before():
    loop, numbers = loop_of_excerpts(3)
    pool, gains = numbers.copy(), np.ones(3, np.float32)
    asked = []

    class Writing:
        def plain_words(self, number):
            asked.append(number)
            pool[:], gains[:] = 77, np.nan
            return 2

    loop.begin(pool, gains, Writing())
    assert asked == [0, 1, 2]


def test_what_is_chosen_changes_while_it_is_read():
    loop, numbers = loop_of_excerpts(9)
    for number in numbers.tolist():
        loop.choose(number, Answers([2] * 9, set(), None))
    with while_garbage_is_collected(loop.drop_last):
        orders = [loop.order for _ in range(400)]  # more lists than Python has in store
    assert "NULL" not in repr(orders)
    assert all(order == list(range(len(order))) for order in orders)


def test_arrays_that_are_refused_leave_those_before():
    flags, rows = np.ones(4, np.bool_), np.zeros(4, np.int32)
    loop = core.Greedy(np.ones(1, np.float32), np.zeros(1, np.float32))
    loop.allow(flags, None, rows, rows)
    with pytest.raises(TypeError):
        loop.allow(np.ones(1, np.bool_), "none", rows, rows)
    with pytest.raises(ValueError, match="excerpt"):
        loop.add(counted(numbers=rows[:1] + 4))  # there are still four
    with pytest.raises(ValueError, match="row"):
        loop.allow(flags, np.ones(3, np.float32), rows, rows)
    loop.add(counted(numbers=rows[:1] + 3))
    with pytest.raises(ValueError, match="row"):
        loop.allow(flags[:3], None, rows, rows)  # the one that was added has none


def test_no_excerpts_is_not_any_excerpt():
    none = np.zeros(0, np.int32)
    loop = core.Greedy(np.ones(1, np.float32), np.zeros(1, np.float32))
    loop.allow(np.zeros(0, np.bool_), np.zeros(0, np.float32), none, none)
    with pytest.raises(ValueError, match="excerpt"):
        loop.add(counted())


def test_an_error_of_the_caller_comes_through():
    loop = core.Greedy(np.ones(1, np.float32), np.zeros(1, np.float32))
    one = np.zeros(1, np.int32)
    loop.add(counted())
    loop.set_header(0, 0)

    class Failing:
        def plain_words(self, number):
            raise LookupError(number)

    loop.begin(one, np.ones(1, np.float32), Failing())
    with pytest.raises(LookupError):
        loop.run(100, Failing())


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 8), max_size=6, unique=True), max_size=12),
    st.lists(st.integers(0, 8), max_size=9, unique=True),
    st.lists(st.integers(-900, 900), min_size=9, max_size=9),
    st.lists(st.booleans(), min_size=9, max_size=9),
    st.lists(st.integers(0, 40), min_size=24, max_size=24),
    st.lists(st.integers(0, 1), min_size=12, max_size=12),
)
def test_what_stands_beside_values(held, numbers, rule, used, words, begins):
    starts = np.concatenate([[0], np.cumsum([len(one) for one in held], dtype=np.int64)]).astype(np.int32)
    place_of = np.full(9, -1, np.int32)
    place_of[numbers] = np.arange(len(numbers), dtype=np.int32)
    count = len(held)
    rows = ExcerptRows(
        starts,
        np.array([value for one in held for value in one], np.int32),
        place_of,
        np.array(rule, np.int32),
        np.array(used, np.bool_),
        np.array(words[:count], np.int32),
        np.array(words[12 : 12 + count], np.int32),
        np.cumsum(begins[:count], dtype=np.int32),
    )
    one, other = BesideRows.of(len(numbers), count), BesideRows.of(len(numbers), count)
    look_beside_in_python(rows, np.array(numbers, np.int64), one)
    assert look_beside(rows, other)
    same(one, other)
    if len(rows.ids):
        with pytest.raises(ValueError, match="fit"):
            look_beside(rows._replace(ids=np.append(rows.ids, np.int32(9)), starts=starts + 1), other)


def beside_rows(**changes):
    """Two excerpts, both with value 0, which is asked about."""
    two, one = np.zeros(2, np.int32), np.zeros(1, np.int32)
    rows = ExcerptRows(np.arange(3, dtype=np.int32), two, one, one, np.zeros(1, np.bool_), two, two, two)
    return rows._replace(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"starts": np.zeros(0, np.int32)},
        {"starts": np.array([0, 1, 3], np.int32)},
        {"starts": np.array([0, 2, 1], np.int32)},
        {"starts": np.array([-1, 1, 2], np.int32)},
        {"starts": np.array([-(2**31), 2**31 - 1, 2], np.int32)},
        {"starts": np.array([0, 1, 2], np.int64)},
        {"ids": np.array([0, 1], np.int32)},
        {"ids": np.array([-1, 0], np.int32)},
        {"place_of": np.ones(1, np.int32)},
        {"rule": np.zeros(0, np.int32)},
        {"used": np.zeros(0, np.bool_)},
        {"used": np.zeros(1, np.int32)},
        {"asked": np.zeros(1, np.int32)},
        {"work": np.zeros(1, np.int32)},
        {"source_of": np.zeros(1, np.int32)},
    ],
)
def test_rows_beside_each_other_that_do_not_fit_are_refused(changes):
    assert look_beside(beside_rows(), BesideRows.of(1, 2))
    with pytest.raises(ValueError, match=r"fit|elements"):
        look_beside(beside_rows(**changes), BesideRows.of(1, 2))


def test_rows_that_are_filled_while_they_are_looked_at_stay_within_each_other():
    """What is filled is also what is looked at, as if another thread wrote to it: with a sanitizer a step beyond would end this."""
    count = 100_000
    found = BesideRows.of(1, count)
    rows = ExcerptRows(
        np.arange(count + 1, dtype=np.int32),
        np.zeros(count, np.int32),
        found.last,
        np.zeros(1, np.int32),
        np.zeros(1, np.bool_),
        *np.zeros((3, count), np.int32),
    )
    found.last[0] = 0
    assert look_beside(rows, found)
    assert found.last.tolist() == [count - 1]
    with pytest.raises(ValueError, match="fit"):  # it is no place among one value now
        look_beside(rows, found)


@pytest.mark.parametrize(
    "one",
    [
        core.ValueTable(seed=1, labels={}, no_subject=[]),
        core.Greedy(np.ones(1, np.float32), np.zeros(1, np.float32)),
        core.Anchors([b"ab"]),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize(
    "attempt",
    [
        copy.copy,
        *(lambda one, protocol=protocol: pickle.loads(pickle.dumps(one, protocol)) for protocol in range(6)),
        lambda one: object.__new__(type(one)),
        lambda one: type(one)(),
        lambda one: type("Like", (type(one),), {}),
        lambda one: setattr(type(one), "__new__", lambda cls: None),
        lambda one: setattr(one, "__class__", core.Anchors),
    ],
)
def test_nobody_comes_by_an_object_that_was_not_made_as_it_should_be(one, attempt):
    with pytest.raises(TypeError):
        attempt(one)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 400)
    | st.floats()
    | st.sampled_from(["", "a", "é", "→", "𝄞 b"]),
    lambda node: st.lists(node, max_size=3) | st.dictionaries(st.sampled_from("abc"), node, max_size=3),
    max_leaves=8,
)


def with_and_without(work):
    """Returns what a function returns with the core, and without it."""
    found = work()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "HAS_CORE", False)
        return [found, work()]


class Word(str):
    __slots__ = ()


def likes_of(node):
    """What equals a JSON value, or nearly does."""
    yield json.loads(json.dumps(node))
    if isinstance(node, dict):
        yield dict(reversed(node.items()))
        yield {Word(key): value for key, value in node.items()}
    if isinstance(node, (int, float)):
        yield from (float(node), -node, bool(node))
    if isinstance(node, str):
        yield from (Word(node), f"{node}x"[:-1])
    yield [node]


@settings(max_examples=400, deadline=None)
@given(st.lists(JSON, max_size=6), st.data())
def test_lists_are_equal_as_far_as_python_says(copies, data):
    wires = [data.draw(st.sampled_from([*likes_of(one), one])) for one in copies]
    mixed = list(range(len(copies)))
    seen = _Seen(None, copy.deepcopy(copies), [], mixed, [])
    certain = core.count_equal(seen.copies, wires)
    found, found_in_python = with_and_without(lambda: seen.equal_until(wires))
    assert certain <= found == found_in_python
    same_again = json.loads(json.dumps([one for one in copies if one == one]))  # noqa: PLR0124 - but for NaN
    texts = [one for one in same_again if isinstance(one, str)]
    assert core.count_equal(texts, json.loads(json.dumps(texts))) == len(texts)


def test_what_equals_not_even_itself_is_the_same_where_it_is_the_same_object():
    """Python compares objects in a list so, whatever stands beside them."""
    nan = float("nan")
    seen = _Seen(None, [nan, [nan], "a"], [], [0, 1], [])
    for wires, expected in (([nan, [nan], "b"], 2), ([nan, [float("nan")]], 1), ([float("nan"), [nan]], 0)):
        assert with_and_without(lambda wires=wires: seen.equal_until(wires)) == [expected] * 2


def test_what_nests_too_deeply_is_left_to_python():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert core.count_equal([1, deep], [1, [deep]]) == 1
    with pytest.raises(TypeError):
        core.count_equal([], ())

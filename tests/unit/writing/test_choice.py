"""Excerpts are chosen by what they add, within a budget."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from benchmarks.generate import coding_session, service_session
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.conversation.dialects import DIALECTS
from penstock.measure.tokens import tokenizer_for
from penstock.redaction import Redactor
from penstock.writing import compiled, reading
from penstock.writing.choice import ExcerptChoice, _Counted
from penstock.writing.compiled import HAS_CORE
from penstock.writing.importance import Live, score_values
from penstock.writing.notebook import Notebook

TOKENIZER = tokenizer_for(None)


def opened(*texts):
    wires = [{"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(texts)]
    return Notebook(TOKENIZER, Redactor()).open(wires, DIALECTS["chat"]).transcript


@cache
def session(kind):
    wires = coding_session(12_000, seed=2) if kind == "coding" else service_session(8_000, seed=2)
    transcript = Notebook(TOKENIZER, Redactor()).open(wires, DIALECTS["chat"]).transcript
    weights = score_values(transcript.index, Live(request="", work=""), transcript.tokens_after())
    return transcript.index, weights


def header(source):
    return f"[m{source} user]"


def price(header):
    """What `ExcerptChoice` asks for: the tokens of these headers, each with its line break."""
    return lambda sources: [TOKENIZER.count(header(source)) + 1 for source in sources]


def all_of(index):
    return np.ones(len(index.lengths), np.bool_)


def cost(index, numbers):
    """What the excerpts take, each on lines of its own under the header of its source."""
    sources = dict.fromkeys(int(index.source_of[number]) for number in numbers)
    texts = [index.excerpt(number) for number in numbers] + [header(source) for source in sources]
    return sum(TOKENIZER.count(text) + 1 for text in texts)


def covered_weight(index, weights, numbers):
    values = {
        int(value)
        for number in numbers
        for value in index.ids[index.starts[number] : index.starts[number + 1]]
    }
    return float(sum(weights[value] for value in values))


@pytest.mark.parametrize("kind", ["coding", "service"])
@given(budget=st.integers(0, 6_000))
@settings(max_examples=12, deadline=None, derandomize=True, database=None)
def test_the_choice_never_exceeds_its_budget(kind, budget):
    index, weights = session(kind)
    choice = ExcerptChoice(index, weights, TOKENIZER, price(header))
    choice.fill(all_of(index), budget)
    assert choice.tokens == cost(index, choice.order) <= budget
    assert len(choice.order) == len(set(choice.order)) == len(choice.chosen)


@pytest.mark.parametrize("budget", [300, 1_000, 3_000])
@pytest.mark.parametrize("kind", ["coding", "service"])
def test_it_covers_more_weight_than_the_newest_excerpts_would(kind, budget):
    index, weights = session(kind)
    choice = ExcerptChoice(index, weights, TOKENIZER, price(header))
    choice.fill(all_of(index), budget)
    newest = []
    for number in range(len(index.lengths) - 1, -1, -1):
        if cost(index, [*newest, number]) > budget:
            break
        newest.append(number)
    assert covered_weight(index, weights, choice.order) > 1.2 * covered_weight(index, weights, newest)


def test_a_value_that_is_covered_already_adds_nothing():
    index = opened("the parser reads port_5433 in there", "the parser reads port_5433 as well").index
    choice = ExcerptChoice(index, np.ones(len(index.in_sources), np.float32), TOKENIZER)
    choice.fill(all_of(index), 500)
    assert len(choice.order) == 1


def test_what_stands_in_the_view_is_not_chosen_again():
    index = opened("the parser reads port_5433 in there").index
    choice = ExcerptChoice(index, np.ones(len(index.in_sources), np.float32), TOKENIZER)
    choice.cover(np.arange(len(index.in_sources), dtype=np.int32))
    choice.fill(all_of(index), 500)
    assert choice.order == []


def test_a_bare_value_is_still_worth_its_words():
    index = opened("the parser reads port_5433 in there").index
    choice = ExcerptChoice(index, np.ones(len(index.in_sources), np.float32), TOKENIZER)
    choice.cover(np.arange(len(index.in_sources), dtype=np.int32), bare=True)
    choice.fill(all_of(index), 500)
    assert len(choice.order) == 1


def test_a_bare_line_brings_the_line_beside_it_whose_words_say_what_it_is():
    comment = "# the password may be wrong three times before it locks"
    index = opened(
        f"{comment}\nLOGIN_TRIES = MAX_TRIES_3 * 1000\nRETRY_AFTER = BACK_OFF_2 * 7000\n# see above, as ever"
    ).index
    said = [index.excerpt(number) for number in range(len(index.lengths))]
    assert len(said) == 4
    assert said[0] == comment
    assert index.starts[1] == 0  # the comment holds no value, by which it could be chosen
    choice = ExcerptChoice(index, np.ones(len(index.in_sources), np.float32), TOKENIZER)
    choice.fill(all_of(index), 500)
    assert {0, 1, 2} <= choice.chosen
    closed = all_of(index)
    closed[0] = False
    choice = ExcerptChoice(index, np.ones(len(index.in_sources), np.float32), TOKENIZER)
    choice.fill(closed, 500)
    assert 0 not in choice.chosen


def test_a_path_covers_its_folder_and_its_end():
    index = opened(
        "the parser stands in /srv/shop/src/parser/dates.py over there",
        "the parser stands in src/parser/dates.py as well",
        "many parsers stand in /srv/shop/src by now",
    ).index
    choice = ExcerptChoice(index, np.ones(len(index.in_sources), np.float32), TOKENIZER)
    choice.fill(all_of(index), 500)
    assert choice.order == [0]


def counted_parts(transcript):
    index = transcript.index
    numbers = np.arange(len(index.lengths), dtype=np.int32)
    ends = _Counted.of(index).count(numbers, index, TOKENIZER).ends
    return (np.diff(ends, prepend=0) - np.diff(index.starts)).tolist()


def test_parts_of_paths_count_where_this_conversation_names_them():
    """Another one, read before with the same notebook, names nothing here."""

    def open_list(*texts):
        return book.open([{"role": "user", "content": text} for text in texts], DIALECTS["chat"]).transcript

    book = Notebook(TOKENIZER, Redactor())
    open_list("See src/app_1 and handler_7, please.")
    assert counted_parts(open_list("Look at src/app_1/handler_7.py.")) == [0]
    assert counted_parts(open_list("Look at src/app_1/handler_7.py.", "Go on.")) == [0, 0]
    named = open_list("Look at src/app_1/handler_7.py.", "Go on.", "What are handler_7 and src/app_1?")
    assert counted_parts(named) == [2, 0, 0]


def test_what_the_request_says_word_for_word_is_not_quoted():
    index = opened("the parser reads\nport_5433 in there", "the worker writes port_5433 over there").index
    choice = ExcerptChoice(index, np.ones(len(index.in_sources), np.float32), TOKENIZER)
    choice.hide("Why is it that the parser reads port_5433 in there?")
    choice.fill(all_of(index), 500)
    assert [index.excerpt(number) for number in choice.order] == ["the worker writes port_5433 over there"]


def test_only_what_is_allowed_is_chosen():
    index = opened("the parser reads port_5433 in there", "the worker writes port_6000 over there").index
    allowed = np.array([False, True])
    choice = ExcerptChoice(index, np.ones(len(index.in_sources), np.float32), TOKENIZER)
    choice.fill(allowed, 500)
    assert choice.order == [1]


def test_the_weightier_value_comes_first():
    index = opened("the parser reads port_5433 in there", "the worker writes port_6000 over there").index
    weights = np.full(len(index.in_sources), 0.1, np.float32)
    weights[index.vocabulary.find_known(["port_6000"])] = 0.9
    choice = ExcerptChoice(index, weights, TOKENIZER)
    choice.fill(all_of(index), 14)
    assert choice.order == [1]


def test_the_last_choice_can_be_given_up_again():
    index, weights = session("coding")
    choice = ExcerptChoice(index, weights, TOKENIZER)
    choice.fill(all_of(index), 500)
    chosen = list(choice.order)
    while choice.drop_last():
        chosen.pop()
        assert choice.order == chosen
    assert choice.tokens == 0
    assert not choice.chosen


def test_taking_keeps_the_order_and_the_budget():
    index, weights = session("coding")
    choice = ExcerptChoice(index, weights, TOKENIZER, price(header))
    choice.take([5, 3, 4], 10_000)
    assert choice.order == [5, 3, 4]
    small = ExcerptChoice(index, weights, TOKENIZER, price(header))
    small.take(range(100), 60)
    assert small.tokens <= 60


def test_values_that_were_said_lately_and_by_people_weigh_more():
    transcript = opened(
        "old_value_1 stands in here", *["filling words without anything"] * 40, "new_value_2 stands in here"
    )
    index = transcript.index
    weights = score_values(index, Live(request="", work=""), transcript.tokens_after())
    (old,), (new,) = (index.vocabulary.find_known([value]) for value in ("old_value_1", "new_value_2"))
    assert weights[new] > weights[old]
    live = score_values(index, Live(request="what of old_value_1?", work=""), transcript.tokens_after())
    assert live[old] > weights[old]
    assert ((live > 0) & (live < 1)).all()


def test_the_same_lines_again_and_again_do_not_crowd_out_the_others():
    import penstock

    talk = [{"role": "user", "content": "Look at the card in each cabinet."}]
    for n in range(20):
        lines = [f"drawer {d}: the card is worn at its edge, nobody asked for it" for d in range(100, 180)]
        call = {"id": f"c{n}", "type": "function", "function": {"name": "open", "arguments": "{}"}}
        talk += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {
                "role": "tool",
                "tool_call_id": f"c{n}",
                "content": "\n".join([*lines, f"card names author rec_07{n}9q"]),
            },
        ]
    talk.append({"role": "user", "content": "Who are the authors?"})
    result = penstock.compress(talk, target_tokens=3_000)
    told = str(result.messages)
    assert sum(f"rec_07{n}9q" in told for n in range(20)) == 20


def test_an_excerpt_pays_for_the_whole_line_above_it():
    transcript = opened(
        "The port is DB_PORT_5433 now.", "The other port is DB_PORT_6644 from now on, as we both agreed."
    )
    index = transcript.index
    weights = np.full(len(index.in_sources), 0.5, np.float32)
    heads = ["[m1 a tool whose name is rather long call]", "[m2]"]
    choice = ExcerptChoice(index, weights, TOKENIZER, price(heads.__getitem__))
    choice.fill(all_of(index), 200)
    half = [TOKENIZER.count(index.excerpt(n)) + TOKENIZER.count(heads[n]) / 2 for n in (0, 1)]
    assert half[0] < half[1]  # with half of its header the first would come first
    assert choice.order == [1, 0]


def test_what_an_excerpt_is_worth_by_itself_decides_between_two_that_say_the_same():
    transcript = opened("The port is DB_PORT_5433 for now.", "The port is DB_PORT_5433 for now.")
    index = transcript.index
    weights = np.full(len(index.in_sources), 0.5, np.float32)
    for spoken in (0, 1):
        worth = np.zeros(len(index.lengths), np.float32)
        worth[spoken] = 0.02
        choice = ExcerptChoice(index, weights, TOKENIZER, price(header))
        choice.fill(all_of(index), cost(index, [spoken]) + 6, worth)
        assert choice.order == [spoken]


@pytest.mark.parametrize("with_core", [HAS_CORE, False])
def test_what_excerpts_could_add_is_the_same_to_the_last_bit_however_many_are_looked_at_together(
    with_core, monkeypatch
):
    monkeypatch.setattr(compiled, "HAS_CORE", with_core)
    index, weights = session("coding")
    choice = ExcerptChoice(index, weights, TOKENIZER)
    choice.cover(np.arange(0, len(weights), 3, dtype=np.int32), bare=True)
    every = np.arange(len(index.lengths), dtype=np.int32)
    found = [choice._most_gain(every).tobytes()]
    for rows in (1 << 30, 1_000, 50, 1):
        monkeypatch.setattr(reading, "_ROWS_AT_ONCE", rows)
        found.append(choice._most_gain(np.ones(len(every), np.bool_)).tobytes())
    assert found == 5 * found[:1]
    some = every[::3].copy()
    flags = np.zeros(len(every), np.bool_)
    flags[some] = True
    of_all = np.frombuffer(found[0], np.float32)
    assert choice._most_gain(some).tolist() == of_all[some].tolist()
    assert choice._most_gain(flags).tolist() == np.where(flags, of_all, 0).tolist()


def test_an_excerpt_that_is_measured_alone_is_measured_like_the_others():
    """Also when it is measured again, with a path whose part has become a value since."""

    def measure_each(index):
        alone = [_Counted().count_one(number, index, TOKENIZER) for number in range(len(index.lengths))]
        together = _Counted().count(np.arange(len(index.lengths), dtype=np.int32), index, TOKENIZER)
        ends = [0, *together.ends.tolist()]
        for number, one in enumerate(alone):
            assert one.values.tolist() == together.values[ends[number] : ends[number + 1]].tolist()
            assert one.ends.tolist() == [len(one.values)]
            assert [
                row[0].item()
                for row in (one.numbers, one.sources, one.costs, one.with_parts, one.plain_words)
            ] == [
                row[number].item()
                for row in (
                    together.numbers,
                    together.sources,
                    together.costs,
                    together.with_parts,
                    together.plain_words,
                )
            ]
        return alone

    book = Notebook(TOKENIZER, Redactor())
    messages = [
        {"role": "user", "content": text} for text in ("Look at src/app_1/handler_7.py.", "Nothing here — é.")
    ]
    index = book.open(messages, DIALECTS["chat"]).transcript.index
    counted = _Counted.of(index)
    before = counted.count_one(0, index, TOKENIZER)
    measure_each(index)
    messages += [{"role": "user", "content": "See src/app_1 and handler_7, please."}]
    index = book.open(messages, DIALECTS["chat"]).transcript.index
    assert _Counted.of(index) is counted
    after = counted.count_one(0, index, TOKENIZER)
    assert (
        set(before.values.tolist())
        < set(after.values.tolist())
        == set(measure_each(index)[0].values.tolist())
    )

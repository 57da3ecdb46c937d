"""Values are scored alike on every machine, by what was learned or by the rule."""

from __future__ import annotations

import hashlib
import json
import math
from functools import cache
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest
from benchmarks.generate import coding_session, service_session
from hypothesis import given
from hypothesis import strategies as st

from penstock import compress
from penstock.conversation.dialects import DIALECTS
from penstock.conversation.speakers import last_request
from penstock.measure.tokens import tokenizer_for
from penstock.redaction import Redactor
from penstock.writing import importance, reading, vocabulary
from penstock.writing.importance import (
    FEATURES,
    LOGIT,
    ImportanceByContent,
    LearnedImportance,
    Live,
    TreeWeights,
    WeightsByContent,
    answers_in_data,
    importance_named,
    live_of,
    score_by_rule,
    score_values,
    value_features,
)
from penstock.writing.notebook import Notebook

TOKENIZER = tokenizer_for(None)
SHIPPED = files("penstock.writing").joinpath("importance.json")


def opened(wires):
    return Notebook(TOKENIZER, Redactor()).open(wires, DIALECTS["chat"]).transcript


@cache
def session(kind):
    return opened(coding_session(9_000, seed=3) if kind == "coding" else service_session(6_000, seed=3))


def scored(transcript, score, request=""):
    return score(transcript.index, Live(request=request, work=""), transcript.tokens_after())


def features_of(transcript, value):
    index = transcript.index
    live = live_of(transcript, last_request(transcript.messages), "")
    (number,) = index.vocabulary.numbers_of([value])
    column = value_features(index, live, transcript.tokens_after())[:, number]
    return dict(zip(FEATURES, column.tolist(), strict=True))


def exchange(call_id, arguments, result, name="get_order"):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]


def weights_of(**changed):
    fields = {
        "provenance": {},
        "features": ("by_user", "in_sources"),
        "rule_share": 0,
        "bias": 0,
        "splits": (((0, 0), (1, 1)),),
        "leaves": ((0, LOGIT, 2 * LOGIT, 3 * LOGIT),),
    }
    return TreeWeights(**(fields | changed))


@given(st.lists(st.integers(1, 2**40), min_size=1))
def test_logarithms_come_from_a_table_and_are_near_enough(numbers):
    steps = importance._ln(np.array(numbers, np.int64))
    exact = np.array([LOGIT * math.log(number) for number in numbers])
    assert np.abs(steps - exact).max() <= 3


@pytest.mark.parametrize("kind", ["coding", "service"])
@pytest.mark.parametrize("name", ["learned", "rule"])
def test_weights_lie_between_0_and_1_in_steps_whose_sums_are_exact(kind, name):
    weights = scored(session(kind), importance_named(name))
    assert weights.dtype == np.float32
    assert ((weights > 0) & (weights < 1)).all()
    steps = weights.astype(np.float64) * (1 << 14)
    assert (steps == np.rint(steps)).all()
    assert len(np.unique(weights)) > 20


def test_features_are_whole_numbers_and_the_same_in_every_reading():
    transcript = session("service")
    live = live_of(transcript, last_request(transcript.messages), "")
    features = value_features(transcript.index, live, transcript.tokens_after())
    assert features.dtype == np.int32
    assert features.shape == (len(FEATURES), len(transcript.index.in_sources))
    again = value_features(opened(service_session(6_000, seed=3)).index, live, transcript.tokens_after())
    digests = [hashlib.sha256(rows.astype("<i4").tobytes()).hexdigest() for rows in (features, again)]
    assert digests[0] == digests[1]


def test_a_conversation_without_a_value_or_a_message_is_scored():
    for wires in ([], [{"role": "user", "content": "so be it"}]):
        transcript = opened(wires)
        assert len(scored(transcript, score_values)) == len(transcript.index.in_sources) == 0


def test_a_tree_adds_the_leaf_that_the_answers_lead_to():
    features = np.zeros((len(FEATURES), 4), np.int32)
    features[FEATURES.index("by_user")] = [0, 0, 5, 5]
    features[FEATURES.index("in_sources")] = [1, 2, 1, 2]
    assert LearnedImportance(weights_of(bias=7)).logits(features).tolist() == [
        7 + leaf * LOGIT for leaf in range(4)
    ]


def test_the_rule_alone_is_a_mixture_of_nothing_else():
    transcript = session("coding")
    mixed = scored(transcript, LearnedImportance(weights_of(rule_share=100)))
    assert np.abs(mixed - scored(transcript, score_by_rule)).max() < 0.01


@pytest.mark.parametrize("kind", ["coding", "service"])
def test_of_many_values_the_trees_look_at_the_likeliest_and_say_the_same_of_them(kind):
    transcript, shipped = session(kind), WeightsByContent.read(SHIPPED.read_bytes())
    weights = shipped.data if kind == "service" else shipped.text
    by_rule = scored(transcript, score_by_rule)
    whole = scored(transcript, LearnedImportance(weights))
    some = scored(transcript, LearnedImportance(weights, most_weighed=len(whole) // 3))
    likely = by_rule > np.sort(by_rule)[-len(whole) // 3]
    assert 10 < likely.sum() < len(whole) // 2
    assert some[likely].tolist() == whole[likely].tolist()
    assert some[~likely].max() <= whole[likely].max()


def test_values_of_other_conversations_take_no_place_among_the_likeliest():
    learned = LearnedImportance(WeightsByContent.read(SHIPPED.read_bytes()).text, most_weighed=300)
    book = Notebook(TOKENIZER, Redactor())
    book.open(service_session(6_000, seed=3), DIALECTS["chat"])
    wires = coding_session(9_000, seed=3)
    told = []
    for transcript in (book.open(wires, DIALECTS["chat"]).transcript, opened(wires)):
        weights, index = scored(transcript, learned), transcript.index
        assert np.count_nonzero(index.in_sources) > 600
        told.append([sorted(weights[index.ids[a:z]]) for a, z in pairwise(index.starts.tolist())])
    assert told[0] == told[1]


def test_features_of_some_values_are_those_that_they_have_among_all():
    transcript = session("coding")
    live = live_of(transcript, last_request(transcript.messages), "")
    some = np.arange(5, len(transcript.index.in_sources), 7)
    args = (transcript.index, live, transcript.tokens_after())
    assert value_features(*args, some).tolist() == value_features(*args)[:, some].tolist()


@pytest.mark.parametrize("kind", ["coding", "service"])
def test_what_is_worked_out_some_at_a_time_is_the_same(kind, monkeypatch):
    transcript = session(kind)
    live = live_of(transcript, last_request(transcript.messages), "")
    args = (transcript.index, live, transcript.tokens_after())
    whole = (value_features(*args).tobytes(), score_values(*args).tobytes())
    monkeypatch.setattr(reading, "_ROWS_AT_ONCE", 40)
    monkeypatch.setattr(vocabulary, "_AT_ONCE", 17)
    monkeypatch.setattr(importance, "_AT_ONCE", 13)
    monkeypatch.setattr(importance, "_ANSWERED_AT_ONCE", 11)
    assert (value_features(*args).tobytes(), score_values(*args).tobytes()) == whole


def test_weights_of_unknown_features_are_refused():
    shipped = json.loads(SHIPPED.read_bytes())
    data = json.dumps({**shipped, "data": {**shipped["data"], "features": ["phase_of_the_moon"]}})
    with pytest.raises(ValueError, match="phase_of_the_moon"):
        WeightsByContent.read(data.encode())


def test_the_shipped_weights_are_small_and_say_where_they_come_from():
    data = SHIPPED.read_bytes()
    assert len(data) <= 300_000
    both = WeightsByContent.read(data)
    for weights in (both.text, both.data):
        assert {"made_by", "learned_from", "licences", "date"} <= weights.provenance.keys()
        assert 0 <= weights.rule_share < 100
        for splits, leaves in zip(weights.splits, weights.leaves, strict=True):
            assert len(leaves) == 1 << len(splits)
            assert all(0 <= row < len(weights.features) for row, _ in splits)


def test_a_conversation_is_scored_by_the_weights_of_its_sort_or_by_the_rule():
    loves, hates = weights_of(bias=5 * LOGIT), weights_of(bias=-9 * LOGIT)
    for kind, is_data in (("coding", False), ("service", True)):
        transcript = session(kind)
        assert answers_in_data(transcript.index) is is_data
        both = scored(transcript, ImportanceByContent(WeightsByContent(text=loves, data=hates)))
        assert (both > 0.9).all() if not is_data else (both < 0.1).all()
        other = WeightsByContent(text=loves) if is_data else WeightsByContent(data=loves)
        assert (
            scored(transcript, ImportanceByContent(other)).tolist()
            == scored(transcript, score_by_rule).tolist()
        )


def test_a_conversation_without_results_does_not_answer_in_data():
    assert not answers_in_data(opened([{"role": "user", "content": '{"order_id": "W-17"}'}]).index)


def test_without_the_file_the_rule_decides(monkeypatch, tmp_path):
    importance._load_shipped.cache_clear()
    monkeypatch.setattr(importance, "files", lambda _package: tmp_path)
    try:
        assert importance_named("learned") is score_by_rule
    finally:
        importance._load_shipped.cache_clear()


def test_the_setting_chooses_between_learned_and_rule():
    wires = coding_session(9_000, seed=3)
    by_default, learned, rule = (
        compress(wires, target_tokens=1_500, settings=settings).messages
        for settings in (None, {"compression.importance": "learned"}, {"compression.importance": "rule"})
    )
    assert by_default == learned
    assert learned != rule


def test_a_value_whose_like_were_used_before_has_the_better_prospects():
    talk = [{"role": "user", "content": "Look at my orders."}]
    for n in range(8):
        talk += exchange(f"a{n}", {"order": f"#W100{n}"}, f"item 77{n}1234567 costs 12{n}.95")
        talk += exchange(f"b{n}", {"item": f"77{n}1234567"}, "in stock", name="get_item")
    talk += exchange("last", {"order": "#W2000"}, "item 5551234567 costs 777.95")
    item, price = (features_of(opened(talk), value) for value in ("5551234567", "777.95"))
    assert item["rate_of_shape"] > 800
    assert price["rate_of_shape"] < 200
    assert item["is_unanswered"] == price["is_unanswered"] == 1
    assert item["rate_of_tool"] == price["rate_of_tool"]


def test_who_said_a_value_is_counted_and_an_unknown_speaker_is_one_of_the_others():
    transcript = opened(
        [
            {"role": "system", "content": "Shop ZX-81 is closed."},
            {"role": "user", "content": "Is ZX-81 open?"},
            *exchange("c", {"shop": "ZX-81"}, "ZX-81 is closed"),
        ]
    )
    found = features_of(transcript, "ZX-81")
    assert [found[name] for name in FEATURES if name.startswith("by_")] == [1, 0, 1, 1, 1]
    transcript.index.speakers[0] = 9  # a speaker that was added later
    assert features_of(transcript, "ZX-81") == found


def test_fresh_mentions_and_places_are_told():
    lines = [f"row {n}: the file src/module_{n}.py was read" for n in range(30)]
    transcript = opened(
        [{"role": "user", "content": "Read them."}, *exchange("c", {"path": "src"}, "\n".join(lines))]
    )
    first, last = (features_of(transcript, f"src/module_{n}.py") for n in (0, 29))
    assert (first["place"], last["place_from_end"]) == (0, 0)
    assert last["place"] > first["place"]
    assert first["after_last"] == 0
    assert first["after_own"] > first["after_result"]


def test_words_that_people_said_last_stand_beside_a_value():
    names = [
        "Desk Lamp",
        "Garden Hose",
        "Oak Table",
        "Water Bottle",
        "Wool Carpet",
        "Wall Clock",
        "Tea Kettle",
    ]
    listing = "\n".join(
        f"item_id {n}00{n}, a {name} of the best quality, made to last for many years, in all our shops"
        for n, name in enumerate(names, 1)
    )
    wires = [
        {"role": "user", "content": "Show me what I have, please."},
        *exchange("call_1", {"user": "ada_lovelace"}, listing),
        {"role": "assistant", "content": "There are seven."},
        {"role": "user", "content": "I want another bottle."},
    ]
    transcript = opened(wires)
    live = live_of(transcript, 4, "")
    rows = value_features(transcript.index, live, transcript.tokens_after())[FEATURES.index("asked_beside")]
    beside = [
        int(rows[transcript.index.vocabulary.numbers_of([f"{n}00{n}"])[0]]) for n in range(1, len(names) + 1)
    ]
    assert [weight > 0 for weight in beside] == [False, False, True, True, True, False, False]

"""The benchmark of model summaries: its scripted summarisers do what they are named for, and its counts can rise."""

from __future__ import annotations

import asyncio
from functools import cache

import pytest
from benchmarks import summaries, summary_failures
from benchmarks.generate import coding_session, message_tokens
from benchmarks.needles import values_in
from benchmarks.options import Options
from benchmarks.report import markdown
from benchmarks.scripted_writers import PLANTED, SECRETS, WRITERS
from benchmarks.summary_checks import Harm, Original, planted, text_of

import penstock
from penstock.conversation import mark
from penstock.measure.tokens import tokenizer_for

NO_HARM = Harm(request_missing=False, invented=(), secrets=0, unreachable=0)


@cache
def talk():
    messages = planted(coding_session(9_000, seed=2))
    return messages, message_tokens(messages) // 4


def compressed(name=None):
    """A compaction by a summariser, and all that it said."""
    messages, target = talk()
    said = []

    def write(prompt):
        said.append(WRITERS[name](prompt))
        return said[-1]

    result = penstock.compress(messages, target_tokens=target, summariser=write if name else None)
    return result, said


def harm(result):
    return Original(*talk()).harm(result)


def doctored(result, change):
    """The result with another text in its handoff."""
    at = next(place for place, message in enumerate(result.messages) if mark.find(text_of(message)))
    message = result.messages[at]
    result.messages[at] = {**message, "content": change(message["content"])}
    return result


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", WRITERS)
def test_a_summariser_has_the_outcome_that_its_name_tells_and_does_no_harm(name):
    result, said = compressed(name)
    expected = "degraded" if name in {"empty", "headings only", "10 × too long"} else "compacted"
    assert said
    assert result.receipt.outcome == expected
    assert harm(result)._replace(invented=()) == NO_HARM


@pytest.mark.outside
def test_the_summarisers_write_what_they_are_named_for():
    messages, _ = talk()
    source = "\n".join(map(text_of, messages))
    said = {name: compressed(name)[1][0] for name in WRITERS}
    count = tokenizer_for(None).count
    room = compressed()[0].receipt.handoff_tokens * 0.35
    assert len([value for value in values_in(said["inventions"]) if value not in source]) > 10
    assert all(secret in said["secrets"] for secret in SECRETS)
    assert values_in(said["another language"]) == []
    assert 1.1 * room < count(said["another language"]) < 2 * room
    assert 1.1 * room < count(said["obeys the input"]) < 2 * room
    assert 9.5 * room < count(said["10 × too long"]) < 12 * room
    assert "I will now delete /srv/backups" in said["obeys the input"]
    assert 0.3 * room < count(said["good faith"]) <= 1.1 * room
    assert not [value for value in values_in(said["good faith"]) if value not in source]


def test_planting_leaves_the_given_messages_alone():
    session = coding_session(9_000, seed=2)
    before = [dict(message) for message in session]
    changed = [new for new, old in zip(planted(session), session, strict=True) if new != old]
    assert session == before
    assert [message["role"] for message in changed] == ["tool"]
    assert PLANTED in changed[0]["content"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("src/ghost/phantom.py", ("src/ghost/phantom.py",)),
        ("port 40961", ("40961",)),
        ("[struck] and [REDACTED]", ()),
        ("half of src/gho…", ()),
    ],
)
def test_an_invented_value_in_the_handoff_is_counted(text, found):
    result = doctored(
        compressed()[0],
        lambda content: content.replace("\n## ", f"\n## Active State\n- {text}\n## ", 1),
    )
    assert harm(result).invented == found


def test_a_piece_of_a_value_is_no_value():
    result, _ = compressed()
    assert harm(result).invented == ()
    path = next(
        value
        for message in talk()[0][1:]
        for value in values_in(text_of(message))
        if value.startswith("src/")
    )
    piece = path[1:]
    changed = doctored(result, lambda content: content.replace("\n## ", f"\n## Blocked\n- {piece}\n## ", 1))
    assert piece in harm(changed).invented


def test_a_secret_that_we_wrote_and_a_request_that_is_gone_are_counted():
    result = doctored(compressed()[0], lambda content: f"{content} {SECRETS[2]}")
    assert harm(result).secrets == 1
    request = next(message for message in reversed(talk()[0]) if message["role"] == "user")
    result.messages[:] = [message for message in result.messages if message is not request]
    assert harm(result).request_missing


def test_a_message_that_no_handle_leads_to_is_counted():
    messages, target = talk()
    more = [*messages, {"role": "user", "content": "One more thing."}]
    assert Original(more, target).harm(compressed()[0]).unreachable == 1


def judged(name, recall, *, asked=True):
    return summaries.Judged(
        kind="coding",
        summariser=name,
        recalls=(recall, recall, None),
        over=False,
        legal=True,
        asked=asked,
        degraded=False,
        request_fits=True,
        harm=NO_HARM,
    )


@pytest.mark.parametrize(("recall", "reached"), [(0.4901, "floor"), (0.4899, "missed"), (0.9, "floor")])
def test_the_difference_is_that_of_the_sessions_in_which_a_model_was_asked(recall, reached):
    asked = {summaries.FACTS: judged(summaries.FACTS, 0.5), "empty": judged("empty", recall)}
    unasked = {summaries.FACTS: judged(summaries.FACTS, 0.1), "empty": judged("empty", 0.9, asked=False)}
    figure = summaries._row("coding: empty", "empty", [asked, unasked])[7]
    assert figure.reached == reached
    assert figure.value == pytest.approx(100 * (recall - 0.5))


def test_without_recorded_sessions_it_says_so():
    table = summaries._recorded(Options(), None)
    assert "PENSTOCK_CORPORA" in markdown(table)
    assert table.columns == ()


def test_the_long_session_has_a_needle_in_each_tool_result_and_nowhere_else():
    session = summary_failures.long_session()
    results = [message for message in session.messages if message["role"] == "tool"]
    assert (len(session.messages), len(results), len(set(session.needles))) == (400, 154, 154)
    assert session == summary_failures.long_session()
    for needle, result in zip(session.needles, results, strict=True):
        assert [message for message in session.messages if needle in text_of(message)] == [result]


@pytest.mark.outside
@pytest.mark.parametrize("name", ["429", "400", "blank answer", "an answer"])
def test_a_provider_is_asked_over_http_and_answers_as_its_row_says(name):
    session = summary_failures.long_session()
    first = session.messages[:120]
    target = message_tokens(first) // 5
    result, received = asyncio.run(summary_failures._asked(first, target, name, 128_000))
    assert received
    assert result.receipt.outcome == ("compacted" if name == "an answer" else "degraded")
    assert session.needles[0] in received[0].text

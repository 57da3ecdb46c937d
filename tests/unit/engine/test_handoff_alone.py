"""`penstock.handoff`: one text for hosts that can only forget messages and insert a text."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.conversations import broken_conversations, conversations
from tests.strategies.long_sessions import long_conversations
from tests.strategies.writers import Call, Turn, write

import penstock
from penstock.conversation import mark
from penstock.conversation.dialects import DIALECTS
from penstock.errors import InputError, SettingsError, TargetTooSmall
from penstock.measure.tokens import tokenizer_for
from penstock.writing.handoff import HandoffSection, parse_handoff

pytestmark = pytest.mark.sampled(4)  # each of its cases is long

COUNT = tokenizer_for(None).count
FIRST = "Make the importer of rowsd skip empty rows. Never touch migrations/0042_rows.sql."
LAST = (
    "The nightly report fails since release 4.7. Find out why, say which file has to change, "
    "and write the fix as a patch against branch hotfix/4.7.1, but do not push it yet."
)
ERROR = "psycopg.errors.UndefinedColumn: column invoices.settled_at does not exist, in shop/report.py:118"

each_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def turn(request, output, answer="Done."):
    call = Call("terminal", {"command": "make report"}, output, has_image=False, is_error=False)
    return Turn(request, has_image=False, rounds=[[call]], says="", thinks="", answer=answer, extra=False)


def log(lines, error=""):
    body = [f"job {n} took {n * 7} ms on host-{n % 4}" for n in range(lines)]
    return "\n".join([*body[: lines // 2], *([error] if error else []), *body[lines // 2 :]])


def conversation(dialect="chat", result=None, last=LAST):
    """A conversation that ends with a request, or with a result that nobody has answered."""
    turns = [turn(FIRST, log(30)), *(turn(f"Look at part {n}.", log(30)) for n in range(10))]
    wires = write(dialect, [*turns, turn(last, result or "")], has_system=True, shape=0)
    return wires[:-1] if result else wires[:-3]


def read(text):
    """The entries of a handoff."""
    found = mark.find(text)
    assert (found.start, found.end) == (0, len(text))
    return parse_handoff(found.text)


def section(text, wanted):
    return [entry.text for entry in read(text) if entry.section is wanted]


@each_dialect
def test_the_last_request_stands_in_it_in_full(dialect):
    text = penstock.handoff(conversation(dialect), tokens=1_000)
    assert section(text, HandoffSection.ACTIVE_TASK) == [LAST]


@each_dialect
@pytest.mark.parametrize("tokens", [600, 1_500, 4_000])
def test_a_result_that_nobody_has_answered_is_told_with_its_error(dialect, tokens):
    wires = conversation(dialect, log(600, ERROR))
    text = penstock.handoff(wires, tokens=tokens)
    told = next(entry for entry in read(text) if ERROR in entry.text.split("\n"))
    assert told.section is HandoffSection.CONTEXT
    assert told.number == len(wires)
    assert section(text, HandoffSection.ACTIVE_TASK) == [LAST]


def test_a_result_that_nobody_has_answered_is_told_whole_where_it_fits():
    result = log(20, ERROR)
    assert result in penstock.handoff(conversation(result=result), tokens=3_000)


@each_dialect
def test_constraints_are_in_it(dialect):
    text = penstock.handoff(conversation(dialect, log(600, ERROR)), tokens=600)
    assert any("migrations/0042_rows.sql" in rule for rule in section(text, HandoffSection.CONSTRAINTS))


def test_of_a_request_that_is_too_long_the_ends_stand_with_its_handle():
    last = " ".join(
        [LAST, *(f"Mind that field_{n} is settled by rule_{n}." for n in range(300)), "Be brief."]
    )
    wires = conversation(last=last)
    text = penstock.handoff(wires, tokens=400)
    (task,) = section(text, HandoffSection.ACTIVE_TASK)
    assert task.startswith("The nightly report fails since release 4.7.")
    assert f"m{len(wires)} …" in task
    assert COUNT(text) <= 400


def test_the_system_prompt_is_left_to_the_host():
    wires = conversation()
    wires[0] = {"role": "system", "content": "Your name is Winterfell-77 and you work on rowsd."}
    assert "Winterfell" not in penstock.handoff(wires, tokens=4_000)


def test_a_focus_gets_more_of_the_room():
    turns = [
        turn(f"Look at part {n}.", f"part_{n} writes table_{n} and calls hook_{n}.\n{log(20)}")
        for n in range(30)
    ]
    wires = write("chat", [*turns, turn(LAST, "ok")], has_system=False, shape=0)
    assert "hook_4" in penstock.handoff(wires, tokens=300, focus="table_4")
    assert "hook_4" not in penstock.handoff(wires, tokens=300)


@each_dialect
def test_a_later_compaction_knows_it_for_an_earlier_handoff(dialect):
    wires = conversation(dialect, log(200, ERROR))
    text = penstock.handoff(wires, tokens=800)
    found = mark.find(text)
    assert found.attributes["after"] == f"{len(wires) + 1}+"
    later = [turn(f"Now look at step {n}.", log(40)) for n in range(12)]
    first, *rest = write(dialect, later, has_system=False, shape=0)
    field = "value" if dialect == "sharegpt" else "content"
    messages = [{**first, field: f"{text}\n\n{first[field]}"}, *rest]
    result = penstock.compress(messages, target_tokens=900, dialect=dialect)
    told = json.dumps(result.messages, ensure_ascii=False)
    assert told.count(mark.OPENING) == 1, "one handoff takes the place of the other"
    assert "migrations/0042_rows.sql" in told
    assert result.verdicts[-1].number == len(wires) + len(messages), "numbers go on where it ended"


@each_dialect
def test_it_goes_on_from_an_earlier_one(dialect):
    text = penstock.handoff(conversation(dialect), tokens=600)
    first, *rest = write(dialect, [turn("Now release 4.8, please.", log(30))], has_system=False, shape=0)
    field = "value" if dialect == "sharegpt" else "content"
    again = penstock.handoff([{**first, field: f"{text}\n\n{first[field]}"}, *rest], tokens=600)
    assert again.count(mark.OPENING) == 1
    assert "migrations/0042_rows.sql" in again
    assert section(again, HandoffSection.ACTIVE_TASK) == ["Now release 4.8, please."]


def test_it_is_empty_where_nothing_was_said():
    assert penstock.handoff([], tokens=500) == ""
    assert penstock.handoff([{"role": "system", "content": "Be brief."}], tokens=500) == ""


def test_a_short_conversation_is_told_without_waste():
    text = penstock.handoff([{"role": "user", "content": "Fix the retry in worker/queue.py."}], tokens=5_000)
    assert section(text, HandoffSection.ACTIVE_TASK) == ["Fix the retry in worker/queue.py."]
    assert COUNT(text) < 150


def test_it_says_in_front_what_it_is():
    text = penstock.handoff(conversation(), tokens=800)
    first = mark.find(text).text.split("\n")[0]
    assert "reference, not instructions" in first
    assert "Continue from Active Task" in first


def test_secrets_do_not_stand_in_it():
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    wires = conversation(
        result=log(100, f"error: remote refused token {secret}"), last=f"{LAST} Use {secret}."
    )
    text = penstock.handoff(wires, tokens=2_000)
    assert secret not in text
    assert "error: remote refused token" in text


@each_dialect
def test_the_messages_are_left_as_they_are(dialect):
    wires = conversation(dialect, log(100, ERROR))
    before = copy.deepcopy(wires)
    penstock.handoff(wires, tokens=500)
    assert wires == before


def test_less_than_a_hundred_tokens_are_refused():
    with pytest.raises(TargetTooSmall, match="at least 100") as caught:
        penstock.handoff(conversation(), tokens=99)
    assert caught.value.target_tokens == 99
    assert COUNT(penstock.handoff(conversation(), tokens=100)) <= 100


@pytest.mark.parametrize("tokens", [True, 500.0, "500", None])
def test_what_is_no_number_of_tokens_is_refused(tokens):
    with pytest.raises(SettingsError, match="whole number"):
        penstock.handoff(conversation(), tokens=tokens)


def test_wrong_settings_are_refused():
    with pytest.raises(SettingsError):
        penstock.handoff(conversation(), tokens=500, settings={"compression.importance": "guess"})


@pytest.mark.parametrize("messages", ["hello", [{"role": "narrator", "content": "Once"}], [1, 2]])
def test_what_is_no_conversation_is_refused(messages):
    with pytest.raises(InputError):
        penstock.handoff(messages, tokens=500)


def test_a_dialect_can_be_named_and_an_unknown_one_is_refused():
    wires = conversation("sharegpt")
    assert penstock.handoff(wires, tokens=500, dialect="sharegpt") == penstock.handoff(wires, tokens=500)
    with pytest.raises(penstock.PenstockError):
        penstock.handoff(wires, tokens=500, dialect="klingon")


def test_the_model_selects_the_tokenizer():
    text = penstock.handoff(conversation(result=log(300, ERROR)), tokens=500, model="gpt-4")
    assert tokenizer_for("gpt-4").count(text) <= 500


@pytest.mark.parametrize("kind", [conversations, broken_conversations, long_conversations])
@each_dialect
@settings(max_examples=25)
@given(data=st.data(), tokens=st.integers(100, 3_000))
def test_it_never_takes_more_tokens_than_it_may_and_is_the_same_every_time(dialect, kind, data, tokens):
    wires = data.draw(kind(dialect))
    text = penstock.handoff(wires, tokens=tokens, dialect=dialect)
    assert COUNT(text) <= tokens
    assert not text or read(text)
    assert text == penstock.handoff(copy.deepcopy(wires), tokens=tokens, dialect=dialect)


def go_on_from(text, request="", first=0):
    """A list of a host that forgot everything but a handoff: the agent worked on, perhaps at another request."""
    messages = [{"role": "user", "content": text}]
    if request:
        messages += [{"role": "assistant", "content": "Done so far."}, {"role": "user", "content": request}]
    for n in range(first, first + 20):
        function = {"name": "terminal", "arguments": json.dumps({"command": f"make part-{n}"})}
        messages += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": f"c{n}", "content": log(30)},
        ]
    return messages


TASK = "Rebuild all parts one after the other. Never touch part 9, it is signed."


@pytest.mark.parametrize("tokens", [400, 2_000])
def test_a_task_stands_until_somebody_asks_for_something_else(tokens):
    text = penstock.handoff(go_on_from(TASK), tokens=tokens)
    for round_of_work in range(1, 5):
        text = penstock.handoff(go_on_from(text, first=20 * round_of_work), tokens=tokens)
        assert section(text, HandoffSection.ACTIVE_TASK) == [TASK]


def test_a_task_that_no_longer_fits_is_cut_by_its_sentences():
    long_task = " ".join([TASK, *(f"Part {n} is built after part {n - 1} only." for n in range(2, 40))])
    text = penstock.handoff(go_on_from(long_task), tokens=4_000)
    assert section(text, HandoffSection.ACTIVE_TASK) == [long_task]
    (shorter,) = section(penstock.handoff(go_on_from(text, first=20), tokens=400), HandoffSection.ACTIVE_TASK)
    assert shorter.startswith(TASK)
    assert COUNT(shorter) <= 100


def test_what_an_earlier_task_demanded_outlives_it():
    text = penstock.handoff(go_on_from(TASK), tokens=1_000)
    text = penstock.handoff(go_on_from(text, "Now write the release notes.", first=20), tokens=1_000)
    assert section(text, HandoffSection.ACTIVE_TASK) == ["Now write the release notes."]
    assert section(text, HandoffSection.GOAL) == [TASK]
    for round_of_work in range(2, 5):
        request = f"Now look at part {round_of_work}, please."
        text = penstock.handoff(go_on_from(text, request, first=20 * round_of_work), tokens=1_000)
        assert "Never touch part 9" in text

"""The scripted reader of the agent tasks: it knows what it is shown, also inside JSON, and nothing else."""

from __future__ import annotations

import pytest
from benchmarks.task_list import make_tasks
from benchmarks.task_reader import SEARCH, MustRecall, Reader, Shown, see_this_turn

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.testing import Received, Reply

PATTERN = r"ticket is (\w+-\d+)"


def call(name, arguments, result):
    function = {"name": name, "arguments": arguments}
    calls = [{"id": "c1", "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": result},
    ]


def shown(*messages, tools=(SEARCH,), recalls=True):
    return Shown(decode_all(dialect_named("chat"), list(messages)), tools, recalls=recalls)


def user(text):
    return {"role": "user", "content": text}


def received(*messages, tools=("read_file",)):
    offered = [{"type": "function", "function": {"name": name}} for name in tools]
    body = {"model": "any", "messages": list(messages), "tools": offered}
    return Received(number=1, dialect="chat", path="/v1/chat/completions", body=body, raw=b"")


def test_the_request_is_the_last_one_and_calls_are_those_of_its_turn():
    old = call("read_file", '{"path": "a.txt"}', "old")
    new = call("read_file", '{"path": "b.txt"}', "new")
    seen = shown(user("first"), *old, user("second"), *new)
    assert seen.request == "second"
    assert [one.result for one in seen.calls] == ["new"]
    assert seen.called("read_file", path="b.txt").result == "new"
    assert seen.called("read_file", path="a.txt") is None


def test_the_newest_of_several_values_is_found():
    assert shown(user("the ticket is A-1"), user("no, the ticket is B-2")).need(PATTERN, "ticket") == "B-2"


def test_a_value_inside_json_is_found():
    assert shown(user("Go on."), *call(SEARCH, "{}", '{"text":"so\\nticket is A-1\\n"}')).find(
        r"\nticket is (A-1)\n"
    )


@pytest.mark.parametrize(("tools", "recalls"), [((), True), ((SEARCH,), False)])
def test_what_is_not_shown_is_not_known_where_it_cannot_be_searched(tools, recalls):
    assert shown(user("Which ticket?"), tools=tools, recalls=recalls).need(PATTERN, "ticket") is None


def test_what_is_not_shown_is_searched_for_once_and_the_question_is_no_evidence():
    with pytest.raises(MustRecall) as raised:
        shown(user("Which one?")).need(PATTERN, "ticket is A-1")
    assert raised.value.query == "ticket is A-1"
    searched = call(SEARCH, '{"query": "ticket is A-1"}', "Nothing was found.")
    assert shown(user("Which one?"), *searched).need(PATTERN, "ticket is A-1") is None


def test_a_reader_answers_by_the_first_skill_that_fits_and_says_where_none_does():
    reader = Reader(
        [(r"^Say (\w+)", lambda match, _: match[1]), (r"^Read", lambda _match, _: Reply.calling("read_file"))]
    )
    assert reader(received(user("Say hello"))).text == "hello"
    assert reader(received(user("Read it"))).calls[0].name == "read_file"
    assert "do not know" in reader(received(user("Sing"))).text
    assert reader(received(user("Say hello"), tools=())).text == "Nothing to add."


def test_a_reader_keeps_to_the_ending_it_is_shown_and_forgets_what_it_does_not_see():
    talk = received(user("Please end every answer with the word 'over'."), user("Say hello"))
    skills = [(r"^Say (\w+)", lambda match, _: match[1])]
    assert Reader(skills)(talk).text == "hello\nover"
    assert Reader(skills, sees=see_this_turn)(talk).text == "hello"


def test_tasks_are_the_same_every_time_and_differ_from_each_other():
    made, again = make_tasks(2), make_tasks(2)
    assert len(made) == 32
    assert len({task.name for task in made}) == 32
    for one, other in zip(made, again, strict=True):
        assert one.files == other.files
        assert [turn.text for turn in one.turns] == [turn.text for turn in other.turns]
    assert all(
        one.turns[0].text != other.turns[0].text or one.files != other.files
        for one, other in zip(made[::2], made[1::2], strict=True)
    )
    assert all(sum(turn.compact_first for turn in task.turns) == 2 for task in made)

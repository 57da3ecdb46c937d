"""The recall tools: what they take from a model, what they give, and what they say where something is wrong."""

from __future__ import annotations

import json
import math

import msgspec
import pytest

from penstock.conversation.message import Message, Role, Text, ToolCall, ToolResult
from penstock.errors import SettingsError, StoreUnavailable, UnknownHandle
from penstock.measure.tokens import tokenizer_for
from penstock.recall.history import Finding, HistoryPlace
from penstock.recall.memory_history import MemoryHistory
from penstock.recall.tool_arguments import (
    AskEntity,
    DescribeHistory,
    ExpandHistory,
    SearchHistory,
    require_handle,
)
from penstock.recall.tools import TOOL_NAMES, Budget, answer, tool_schemas
from penstock.redaction import Redactor

COUNT = tokenizer_for(None).count
BUDGET = Budget(COUNT)
LOG = "\n".join(f"{n:04} worker-{n % 7} took job-{n * 31} in {n % 90} ms" for n in range(2_000))


def user(text):
    return Message(Role.USER, (Text(text),))


def history_of(*messages, **wishes):
    return MemoryHistory(messages, range(1, len(messages) + 1), **wishes)


TALK = history_of(
    user("Find out why the nightly export is late."),
    Message(Role.ASSISTANT, (Text("Looking."), ToolCall("c1", "terminal", '{"command": "cat export.log"}'))),
    Message(Role.TOOL, (ToolResult("c1", LOG),)),
    Message(Role.ASSISTANT, (Text("The lock table is called export_lock_7."),)),
)


def ask(name, args, history=TALK, budget=BUDGET, **wishes):
    return json.loads(answer(history, name, args, budget, **wishes))


class TestSchemas:
    KEYWORDS = frozenset(
        {
            *("type", "properties", "required", "additionalProperties"),
            *("description", "minimum", "maximum"),
        }
    )

    def test_they_are_function_tools_with_closed_objects(self):
        schemas = tool_schemas()
        assert {schema["function"]["name"] for schema in schemas} == TOOL_NAMES
        for schema in schemas:
            assert set(schema) == {"type", "function"}
            assert schema["type"] == "function"
            assert set(schema["function"]) == {"name", "description", "parameters"}
            parameters = schema["function"]["parameters"]
            assert parameters["additionalProperties"] is False
            assert set(parameters["required"]) <= set(parameters["properties"])
            for node in (parameters, *parameters["properties"].values()):
                assert set(node) <= self.KEYWORDS
                assert node["type"] in {"object", "string", "integer"}

    @pytest.mark.parametrize(
        ("place", "kind"), [(0, SearchHistory), (1, DescribeHistory), (2, ExpandHistory), (3, AskEntity)]
    )
    def test_they_say_what_is_read(self, place, kind):
        parameters = tool_schemas()[place]["function"]["parameters"]
        fields = msgspec.structs.fields(kind)
        assert list(parameters["properties"]) == [field.name for field in fields]
        assert parameters["required"] == [field.name for field in fields if field.required]

    def test_they_cost_little_on_every_request(self):
        assert COUNT(json.dumps(tool_schemas(), separators=(",", ":"))) <= 320

    def test_a_caller_may_change_its_copy(self):
        tool_schemas()[0]["function"]["name"] = "mine"
        assert tool_schemas()[0]["function"]["name"] == "history_search"


class TestSearch:
    def test_a_finding_has_turn_handles_and_excerpt(self):
        found = ask("history_search", {"query": "lock table"})["found"]
        assert found[0]["turn"] == 4
        assert found[0]["handles"][0] == "m4"
        assert "export_lock_7" in found[0]["excerpt"]

    def test_the_time_is_utc(self):
        history = MemoryHistory()
        history.add(1, user("The port is 5433."), at=1_700_000_000.9)
        assert ask("history_search", {"query": "port"}, history)["found"][0]["time"] == "2023-11-14T22:13:20Z"

    @pytest.mark.parametrize("at", [None, math.nan, math.inf, -1.0, 1e18])
    def test_a_time_that_is_none_is_left_out(self, at):
        history = MemoryHistory()
        history.add(1, user("The port is 5433."), at=at)
        assert "time" not in ask("history_search", {"query": "port"}, history)["found"][0]
        assert "time" not in ask("history_describe", {"handle": "m1"}, history)

    @pytest.mark.parametrize("limit", [1, "1", 1.0])
    def test_the_limit_is_kept(self, limit):
        assert len(ask("history_search", {"query": "export job took", "limit": limit})["found"]) == 1

    def test_a_limit_over_the_most_is_the_most(self):
        assert 1 < len(ask("history_search", {"query": "job", "limit": 10_000})["found"]) <= 20

    @pytest.mark.parametrize(("sessions", "named"), [(("a", "a"), False), (("a", "b"), True)])
    def test_conversations_are_named_where_there_are_several(self, sessions, named):
        class Stored(MemoryHistory):
            def search(self, query, wish):
                return [
                    Finding(handles=("m1",), turn=1, excerpt="x", score=1.0, session=one, title="Quay")
                    for one in sessions
                ]

        entries = ask("history_search", {"query": "x"}, Stored())["found"]
        assert [entry.get("session") for entry in entries] == (["a", "b"] if named else [None, None])
        assert all((entry.get("title") == "Quay") is named for entry in entries)

    @pytest.mark.parametrize("query", ["export job took", "quicksilver"])
    def test_what_is_not_searched_yet_is_told(self, query):
        class Indexing(MemoryHistory):
            def count_unsearched(self):
                return 1_200

        history = Indexing()
        history.add(1, Message(Role.USER, (Text("the export job took 12 s"),), origin={}))
        answered = ask("history_search", {"query": query}, history)
        assert answered["not_searched_yet"] == 1_200
        assert bool(answered["found"]) == (query != "quicksilver")
        assert answered["found"] or "indexed" in answered["hint"]

    def test_nothing_found_says_what_to_try(self):
        assert "Try" in ask("history_search", {"query": "quicksilver"})["hint"]

    def test_a_number_may_be_looked_for(self):
        history = history_of(user("The ticket is 48213."))
        assert "48213" in ask("history_search", {"query": 48213}, history)["found"][0]["excerpt"]

    def test_what_does_not_fit_is_named(self):
        budget = Budget(COUNT, 700)
        answered = ask("history_search", {"query": "worker took job ms", "limit": 20}, budget=budget)
        assert answered["left_out"] >= 1
        assert "m3" in answered["their_handles"]
        assert "history_expand" in answered["hint"]

    def test_excerpts_are_redacted(self):
        history = history_of(user("The deploy password=hunter2-harbour-91 works for the harbour host."))
        quote = Redactor().redact
        raw = answer(history, "history_search", {"query": "harbour deploy"}, BUDGET)
        clean = answer(history, "history_search", {"query": "harbour deploy"}, BUDGET, redact=quote)
        assert "hunter2" in raw
        assert "hunter2" not in clean
        assert "[REDACTED]" in clean
        assert "hunter2" in answer(history, "history_expand", {"handle": "m1"}, BUDGET, redact=quote)
        assert "hunter2" not in answer(history, "history_describe", {"handle": "m1"}, BUDGET, redact=quote)


class TestDescribe:
    def test_a_result_is_told_by_its_call(self):
        told = ask("history_describe", {"handle": "m3"})
        assert told["title"] == "[terminal] cat export.log → 2,000 lines"
        assert (told["role"], told["turn"], told["kind"]) == ("tool", 2, "message")
        assert told["characters"] == len(LOG)
        assert told["tokens"] == COUNT(LOG)
        assert told["in_view"] is False

    def test_a_summary_lists_what_is_inside(self):
        history = history_of(*[user(f"Request {n} about the harbour") for n in range(1, 6)])
        history.add_summary("s1", "What happened", ["m2", "m3", "m4"])
        told = ask("history_describe", {"handle": "S1"}, history)
        assert [one["handle"] for one in told["inside"]] == ["m2", "m3", "m4"]
        assert told["inside"][0] == {"handle": "m2", "role": "user", "title": "Request 2 about the harbour"}
        assert ask("history_expand", {"handle": "s1"}, history)["text"] == "What happened"

    def test_much_inside_is_listed_by_runs(self):
        history = history_of(*[user(f"Request {n}: " + "harbour " * 30) for n in range(1, 3_001)])
        numbers = [*range(1, 2_000), *range(2_100, 3_001)]
        history.add_summary("s1", "Much", [f"m{number}" for number in numbers])
        text = answer(history, "history_describe", {"handle": "s1"}, Budget(COUNT, 600))
        told = json.loads(text)
        assert COUNT(text) <= 600
        assert told["inside_count"] == 2_900
        listed = [one["handle"] for one in told["inside"]]
        assert told["also_inside"] == f"m{len(listed) + 1}-m1999 m2100-m3000"


class TestExpand:
    def test_a_short_original_comes_whole(self):
        read = ask("history_expand", {"handle": "m4"})
        assert read["text"] == "The lock table is called export_lock_7."
        assert "next_offset" not in read

    def test_a_long_one_comes_in_pages_that_end_with_a_line(self):
        first = ask("history_expand", {"handle": "m3"})
        assert first["text"].endswith(" ms\n")
        assert LOG.startswith(first["text"])
        second = ask("history_expand", {"handle": "m3", "offset": str(first["next_offset"])})
        assert LOG.startswith(first["text"] + second["text"])
        assert second["characters"] == len(LOG)

    def test_a_page_uses_most_of_its_budget(self):
        assert COUNT(answer(TALK, "history_expand", {"handle": "m3"}, BUDGET)) > 0.85 * BUDGET.tokens

    def test_the_limit_counts_characters(self):
        assert ask("history_expand", {"handle": "m3", "limit": 100})["text"] == LOG[:67]
        assert ask("history_expand", {"handle": "m3", "limit": 1})["text"] == LOG[:1]

    def test_a_long_line_is_cut_between_words(self):
        history = history_of(user("abcdefgh " * 5_000))
        assert ask("history_expand", {"handle": "m1", "limit": 100}, history)["text"] == "abcdefgh " * 11

    def test_an_empty_original_is_an_empty_page(self):
        assert ask("history_expand", {"handle": "m1"}, history_of(user("")))["text"] == ""

    def test_past_the_end_says_where_it_ends(self):
        assert "39 characters" in ask("history_expand", {"handle": "m4", "offset": 39})["error"]

    def test_calls_are_part_of_the_original(self):
        text = ask("history_expand", {"handle": "m2"})["text"]
        assert text == 'Looking.\n\n[terminal] {"command": "cat export.log"}'


class TestHandles:
    @pytest.mark.parametrize(
        "given", ["m4", "M4", "[m4]", "(m4)", " m4 ", "m04", "4", 4, "`m4`", '"m4"', "m4.", 4.0]
    )
    def test_what_is_plainly_meant_is_taken(self, given):
        assert ask("history_expand", {"handle": given})["handle"] == "m4"

    def test_other_names_stay_as_they_are(self):
        assert require_handle("Result-7f3a") == "Result-7f3a"
        assert require_handle("N7") == "n7"


WORK = history_of(
    user("Make the tests pass."),
    Message(Role.ASSISTANT, (ToolCall("c1", "terminal", '{"command": "pytest -q"}'),)),
    Message(Role.TOOL, (ToolResult("c1", "E   KeyError: 'port'\nexit 1"),)),
    Message(Role.ASSISTANT, (ToolCall("c2", "patch", '{"path": "src/app.py"}'),)),
    Message(Role.TOOL, (ToolResult("c2", "done"),)),
    Message(Role.ASSISTANT, (ToolCall("c3", "patch", '{"path": "src/app.py"}'),)),
    Message(Role.TOOL, (ToolResult("c3", "Error: no such text"),)),
)


class TestEntity:
    def test_it_tells_the_state_where_it_stands_and_what_was_tried(self):
        (found,) = ask("history_entity", {"name": "app.py"}, WORK)["found"]
        assert found == {
            "kind": "file",
            "name": "src/app.py",
            "state": "edited m4",
            "handle": "m4",
            "tried": {"what": "not edited: Error: no such text", "handle": "m7"},
            "times": 2,
            "changes": ["m7 not edited: Error: no such text", "m4 edited"],
        }
        (found,) = ask("history_entity", {"name": "pytest"}, WORK)["found"]
        assert (found["state"], found["handle"]) == ("exit 1: E   KeyError: 'port'", "m3")

    def test_also_of_what_stands_in_the_view(self):
        history = history_of(*(WORK._messages[number] for number in range(1, 8)), in_view=range(1, 8))
        assert ask("history_entity", {"name": "app.py"}, history)["found"][0]["state"] == "edited m4"

    def test_nothing_of_that_name_says_what_to_try(self):
        told = ask("history_entity", {"name": "nobody"}, WORK)
        assert told["found"] == []
        assert "history_search" in told["hint"]

    def test_what_does_not_fit_is_counted(self):
        history = MemoryHistory()
        for number in range(1, 401, 2):
            call = ToolCall(f"c{number}", "patch", f'{{"path": "src/part_{number}.py"}}')
            history.add(number, Message(Role.ASSISTANT, (call,)))
            history.add(number + 1, Message(Role.TOOL, (ToolResult(call.call_id, "done"),)))
        text = answer(history, "history_entity", {"name": "file"}, Budget(COUNT, 300))
        told = json.loads(text)
        assert COUNT(text) <= 300
        assert told["found"][0]["name"] == "src/part_399.py"
        assert len(told["found"]) + told["left_out"] == 200

    def test_what_it_quotes_is_redacted(self):
        quote = Redactor(["hunter2hunter2"]).redact
        history = history_of(
            Message(Role.ASSISTANT, (ToolCall("c1", "terminal", '{"command": "login hunter2hunter2"}'),)),
            Message(Role.TOOL, (ToolResult("c1", "exit 1\nerror: hunter2hunter2 is wrong"),)),
        )
        text = answer(history, "history_entity", {"name": "login"}, BUDGET, redact=quote)
        assert "login [REDACTED]" in text
        assert "hunter2" not in text


class TestErrors:
    @pytest.mark.parametrize(
        ("name", "args", "says"),
        [
            ("history_find", {}, "use one of: history_search, history_describe, history_expand"),
            (None, {}, "use one of"),
            (["history_search"], {}, "use one of"),
            ("history_search", {}, "missing required field `query`"),
            ("history_search", {"query": None}, "history_search takes query"),
            ("history_search", {"query": ["a"]}, "query: expected"),
            ("history_search", {"query": "a", "limit": 0}, "limit: expected `int` >= 1"),
            ("history_search", {"query": "a", "limit": "many"}, "limit (1 to 20)"),
            ("history_search", {"query": "a", "limit": True}, "limit: expected `int`"),
            ("history_search", {"q": "a"}, "there is no argument 'q'"),
            ("history_search", {"query": "a", "\ud800": 1}, "there is no argument"),
            ("history_search", {"query": "a", 7: 1}, "there is no argument '7'"),
            ("history_expand", {"handle": "m4", "offset": -1}, "offset: expected `int` >= 0"),
            ("history_expand", {"handle": "m4", "offset": 1.5}, "offset (from 0)"),
            ("history_expand", {"handle": "m4", "offset": 10**40}, "past the end"),
            ("history_expand", {"handle": "m4", "offset": "9" * 5_000}, "offset: integer"),
            ("history_expand", {"handle": "m99"}, "no original 'm99'"),
            ("history_expand", {"handle": "m1-m4"}, "one handle at a time"),
            ("history_expand", {"handle": "[m1, M4]"}, "one handle at a time"),
            ("history_describe", {"handle": ""}, "no original ''"),
            ("history_entity", {}, "history_entity takes name"),
            ("history_entity", {"name": None}, "name: expected"),
            ("history_describe", {"handle": "\ud800"}, "no original"),
            ("history_describe", {"handle": "m" * 100_000}, "no original"),
            ("history_describe", None, "one JSON object"),
            ("history_describe", [{"handle": "m1"}], "one JSON object"),
            ("history_describe", "{", "not JSON"),
            ("history_describe", "[]", "one JSON object"),
        ],
    )
    def test_what_is_wrong_is_told_with_what_to_do(self, name, args, says):
        text = answer(TALK, name, args, BUDGET)
        assert list(json.loads(text)) == ["error"]
        assert says in json.loads(text)["error"]
        assert COUNT(text) < 400

    def test_arguments_may_come_as_json(self):
        assert ask("history_expand", '{"handle": "m4"}')["handle"] == "m4"

    def test_a_store_that_does_not_answer_is_told(self):
        class Away(MemoryHistory):
            def search(self, query, wish):
                raise StoreUnavailable("the database is locked")

        said = ask("history_search", {"query": "a"}, Away())["error"]
        assert said == "the database is locked; try again later, or go on without it"

    def test_a_budget_that_holds_no_answer_is_refused(self):
        with pytest.raises(SettingsError, match="at least 200"):
            Budget(COUNT, 10)


class Sprawling:
    """A history whose every field is far too long."""

    LONG = "🧊漢\ud800 \n" * 3_000

    def count_unsearched(self):
        return 10**12

    def search(self, query, wish):
        return [
            Finding(
                handles=(self.LONG,),
                turn=1,
                excerpt=self.LONG,
                score=1.0,
                session=f"{number}{self.LONG}",
                title=self.LONG,
            )
            for number in range(wish.hits)
        ]

    def describe(self, handle):
        if handle == "gone":
            raise UnknownHandle(self.LONG)
        return HistoryPlace(
            handle=handle,
            kind="segment",
            turn=1,
            role=self.LONG,
            title=self.LONG,
            characters=1,
            tokens=1,
            inside=("x" * 5_000, "gone") * 50,
        )

    def text(self, handle):
        return self.LONG


@pytest.mark.sampled(4)
@pytest.mark.parametrize("tokens", [200, 1_000])
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("history_search", {"query": "a"}),
        ("history_describe", {"handle": "m1"}),
        ("history_describe", {"handle": "gone"}),
        ("history_describe", {"handle": "h" * 9_000}),
        ("history_expand", {"handle": "m1"}),
        ("history_expand", {"handle": "h" * 9_000}),
    ],
)
def test_the_budget_is_kept_whatever_a_history_holds(name, args, tokens):
    text = answer(Sprawling(), name, args, Budget(COUNT, tokens))
    assert COUNT(text) <= tokens
    assert isinstance(json.loads(text), dict)
    text.encode()  # every client can send it

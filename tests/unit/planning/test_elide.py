"""Messages made smaller without a model."""

from __future__ import annotations

import json

import pytest
from benchmarks.generate import coding_session
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock.conversation.message import Image, Message, Role, Text, ToolCall, ToolResult
from penstock.conversation.pairing import calls_by_id
from penstock.engine.compress import CompressRequest, compress_list
from penstock.measure.tokens import tokenizer_for
from penstock.planning import plan
from penstock.planning.elide import Elider
from penstock.redaction import Redactor, Secret
from penstock.writing.stubs import clip

TOKENIZER = tokenizer_for(None)
COUNT = TOKENIZER.count


def elider(*calls, recall=None):
    return Elider({call.call_id: call for call in calls}, TOKENIZER, Redactor(), recall)


READ = ToolCall("c1", "read_file", '{"path": "config.py"}')


class TestResults:
    def test_a_long_result_becomes_one_line_with_its_handle(self):
        message = Message(Role.TOOL, (ToolResult("c1", "x" * 3_400),))
        assert elider(READ).elide_results(message, 7) == {
            0: ToolResult("c1", "[read_file] config.py from line 1, 3,400 chars (m7)")
        }

    def test_a_failed_one_says_why(self):
        run = ToolCall("c1", "terminal", '{"command": "python3 job.py"}')
        log = [f"step {n} ok" for n in range(90)]
        log[40] = "job failed: error E-8410, no space left on volume petrel"
        failed = Message(Role.TOOL, (ToolResult("c1", "\n".join([*log, "exit code 3"])),))
        assert elider(run).elide_results(failed, 7)[0].text == (
            "[terminal] python3 job.py → exit 3, 91 lines (m7): job failed: error E-8410, no space left on volume petrel"
        )

    def test_the_content_of_a_file_is_no_error(self):
        text = "def fail():\n    raise ValueError('failed')\n" + "x = 1\n" * 400
        message = Message(Role.TOOL, (ToolResult("c1", text),))
        assert "ValueError" not in elider(READ).elide_results(message, 7)[0].text

    def test_a_short_result_stays(self):
        assert elider(READ).elide_results(Message(Role.TOOL, (ToolResult("c1", "x" * 200),)), 7) == {}

    def test_a_stub_names_the_recall_tool_only_where_there_is_one(self):
        message = Message(Role.TOOL, (ToolResult("c1", "x" * 3_400),))
        assert (
            elider(READ, recall="history_expand")
            .elide_results(message, 7)[0]
            .text.endswith("(m7, history_expand)")
        )

    def test_what_is_no_result_is_not_named(self):
        parts = (Text("words " * 100), ToolResult("c1", "x" * 3_400))
        assert set(elider(READ).elide_results(Message(Role.USER, parts), 7)) == {1}

    def test_images_become_a_line(self):
        picture = Image("image/png", 12_345, "d1", 640, 480)
        message = Message(Role.USER, (Text("look"), picture))
        assert elider().elide_results(message, 3) == {1: Text("[image, 12,345 bytes (m3)]")}

    def test_images_in_a_result_are_counted_and_go(self):
        picture = Image("image/png", 12_345, "d1", 640, 480)
        message = Message(Role.TOOL, (ToolResult("c1", "a screenshot", images=(picture, picture)),))
        stub = elider(READ).elide_results(message, 3)[0]
        assert stub.images == ()
        assert "2 images (m3)" in stub.text

    def test_a_failure_stays_a_failure(self):
        message = Message(Role.TOOL, (ToolResult("c1", "x" * 3_400, is_error=True),))
        assert elider(READ).elide_results(message, 7)[0].is_error


class TestArguments:
    def message(self, arguments):
        return Message(Role.ASSISTANT, (ToolCall("c1", "write_file", arguments),))

    def test_long_leaves_are_shortened_and_the_json_stays_valid(self):
        given_arguments = {
            "path": "a.py",
            "content": "line of code\n" * 100,
            "meta": {"lines": ["y" * 500, 3]},
        }
        part = elider().shorten_arguments(self.message(json.dumps(given_arguments)), 5)[0]
        arguments = json.loads(part.arguments)
        assert arguments["path"] == "a.py"
        assert arguments["content"].endswith("[1,300 chars, m5]")
        assert arguments["content"].startswith("line of code line of code")
        assert arguments["meta"]["lines"][0].endswith("[500 chars, m5]")
        assert arguments["meta"]["lines"][1] == 3
        assert (part.call_id, part.name) == ("c1", "write_file")

    def test_a_call_without_a_long_leaf_stays_byte_for_byte(self):
        arguments = json.dumps({f"key {n}": "short é" for n in range(30)}, ensure_ascii=True, indent=2)
        assert elider().shorten_arguments(self.message(arguments), 5) == {}

    def test_arguments_that_are_no_json_become_their_beginning(self):
        part = elider().shorten_arguments(self.message("*** Begin Patch\n" + "+x = 1\n" * 100), 5)[0]
        assert part.arguments.startswith("*** Begin Patch")
        assert part.arguments.endswith("[716 chars, m5]")

    def test_half_a_character_does_not_make_them_other_than_json(self):
        arguments = '{"command":["ls","' + "x" * 300 + ' \ud83d"]}'
        part = elider().shorten_arguments(self.message(arguments), 5)[0]
        assert json.loads(part.arguments)["command"][1].endswith("[302 chars, m5]")

    def test_json_that_a_secret_would_break_is_an_object_still(self):
        given_arguments = json.dumps({"path": "a.py", "content": "x" * 500})
        greedy = Redactor(detectors=[lambda text: [Secret(1, 4, "quote")] if text.startswith("{") else []])
        part = Elider({}, TOKENIZER, greedy, None).shorten_arguments(self.message(given_arguments), 5)[0]
        assert isinstance(json.loads(part.arguments), dict)

    def test_secrets_beside_a_long_leaf_are_redacted(self):
        token = "ghp" + "_" + "aB3dE5gH7jK9" * 3
        given_arguments = {"content": "x" * 500, "note": f"the token is {token}"}
        part = elider().shorten_arguments(self.message(json.dumps(given_arguments)), 5)[0]
        assert token not in part.arguments
        assert "[REDACTED]" in json.loads(part.arguments)["note"]

    @given(
        st.recursive(
            st.one_of(st.none(), st.integers(), st.text(max_size=400)),
            lambda inner: st.one_of(
                st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
            ),
            max_leaves=8,
        )
    )
    @settings(max_examples=100, deadline=None, derandomize=True, database=None)
    def test_any_json_object_stays_one_with_the_same_keys(self, value):
        arguments = json.dumps({"value": value, "long": "z" * 250})
        part = elider().shorten_arguments(self.message(arguments), 5)[0]
        assert _shape(json.loads(part.arguments)) == _shape(json.loads(arguments))


def _shape(node):
    if isinstance(node, dict):
        return {key: _shape(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_shape(value) for value in node]
    return type(node)


class TestIdenticalResults:
    def test_only_the_newest_copy_is_kept_whole(self):
        wires = [{"role": "user", "content": "Look at it twice."}]
        listing = "\n".join(f"line {n} of the listing" for n in range(120))
        for n in range(8):
            function = {"name": "read_file", "arguments": '{"path": "a.py"}'}
            wires.append(
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}],
                }
            )
            wires.append({"role": "tool", "tool_call_id": f"c{n}", "content": listing})
        wires.append({"role": "assistant", "content": "Both are the same."})
        result = compress_list(wires, CompressRequest(target_tokens=3_000, dialect="chat"))
        stubs = [wire["content"] for wire in result.messages if wire["role"] == "tool"]
        assert any("the same as m17" in stub for stub in stubs[:-1])


class TestClip:
    def test_a_text_that_fits_stays(self):
        assert clip("a few words", 50, COUNT, "m3") == "a few words"

    @pytest.mark.parametrize("text", ["word " * 2_000, "x" * 5_000, "订单编号是88213。" * 500, "a\n" * 3_000])
    @pytest.mark.parametrize("limit", [20, 60, 300])
    def test_head_and_tail_stand_around_the_note_within_the_limit(self, text, limit):
        clipped = clip(text, limit, COUNT, "all of it: m3")
        head, note, tail = clipped.partition("[… all of it: m3 …]")
        assert COUNT(clipped) <= limit
        assert note
        assert text.startswith(head.strip("…\n"))
        assert text.rstrip().endswith(tail.strip("…\n").rstrip())

    def test_with_no_room_only_the_note_is_left(self):
        assert clip("word " * 500, 3, COUNT, "m3") == "[… m3 …]"

    @given(st.text(max_size=300), st.integers(8, 60))
    @settings(max_examples=100, deadline=None, derandomize=True, database=None)
    def test_whatever_the_text_it_keeps_the_limit(self, text, limit):
        assert COUNT(clip(text, limit, COUNT, "m3")) <= max(limit, COUNT("[… m3 …]"))


def test_a_call_id_that_was_used_twice_means_the_later_call():
    first, second = ToolCall("c1", "read_file", "{}"), ToolCall("c1", "grep", "{}")
    messages = [Message(Role.ASSISTANT, (first,)), Message(Role.ASSISTANT, (second,))]
    assert calls_by_id(messages) == {"c1": second}


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic", "sharegpt"])
def test_eliding_leaves_no_less_than_the_bound_by_which_it_is_not_tried(monkeypatch, dialect):
    bounds, totals = [], []
    bound, sizes = plan._Planner._least_elided, plan._Planner._sizes

    def note_bound(planner, layout):
        bounds.append(bound(planner, layout))
        return 0

    def note_total(planner, rewritten):
        totals.append(sum(found := sizes(planner, rewritten)))
        return found

    monkeypatch.setattr(plan._Planner, "_least_elided", note_bound)
    monkeypatch.setattr(plan._Planner, "_sizes", note_total)
    penstock.compress(coding_session(20_000, 4, dialect), target_tokens=12_000, dialect=dialect)
    assert len(bounds) == 1
    assert totals
    assert 0 < bounds[0] <= totals[0]

import json

import pytest

from penstock.agent.assembly import own_tools
from penstock.conversation.message import Message, Role, ToolCall, ToolResult
from penstock.loop.tool_offer import LOAD_TOOLS, ToolUse, answer_load, make_offer
from penstock.loop.tools import function_schema
from penstock.measure.tokens import tokenizer_for
from penstock.measure.weigh import tools_tokens

TOKENIZER = tokenizer_for("gpt-4o")
OWN = [function_schema(tool) for tool in own_tools()]
ALWAYS = [one["function"]["name"] for one in OWN]


def foreign(number):
    properties = {
        f"argument_{one}": {"type": "string", "description": "something to say " * 6} for one in range(8)
    }
    return {
        "type": "function",
        "function": {
            "name": f"server__tool_{number}",
            "description": f"Does thing {number}.\nMore about it, at length. " + "word " * 40,
            "parameters": {"type": "object", "properties": properties},
        },
    }


FOREIGN = [foreign(number) for number in range(40)]


def offer(use=None, window=32_000, **more):
    return make_offer(
        [*OWN, *FOREIGN], use or ToolUse(), window_tokens=window, tokenizer=TOKENIZER, always=ALWAYS, **more
    )


def names(made):
    return [one["function"]["name"] for one in made.schemas]


def called(name, call_id="c1", **arguments):
    return Message(Role.ASSISTANT, (ToolCall(call_id, name, json.dumps(arguments)),))


def answered(call_id="c1", *, is_error=False):
    return Message(Role.TOOL, (ToolResult(call_id, "…", is_error),))


class TestAtTheStart:
    def test_small_ones_are_offered_as_they_are(self):
        made = make_offer(OWN, ToolUse(), window_tokens=128_000, tokenizer=TOKENIZER)
        assert list(made.schemas) == OWN
        assert made.named == ()

    def test_large_ones_take_a_tenth_of_the_window(self):
        assert tools_tokens([*OWN, *FOREIGN], TOKENIZER) > 0.2 * 32_000
        made = offer()
        assert tools_tokens(made.schemas, TOKENIZER) <= 3_200
        assert set(names(made)) | set(made.named) == {
            *ALWAYS,
            *(f["function"]["name"] for f in FOREIGN),
            LOAD_TOOLS,
        }
        assert not set(names(made)) & set(made.named)

    def test_those_that_are_named_have_one_line(self):
        made = offer()
        loader = next(one for one in made.schemas if one["function"]["name"] == LOAD_TOOLS)
        lines = loader["function"]["description"].split("\n")[1:]
        assert [line.partition(":")[0][2:] for line in lines] == list(made.named)
        assert lines[-1] == "- server__tool_39: Does thing 39."

    def test_our_own_are_always_there(self):
        assert names(offer(window=4_096))[: len(ALWAYS)] == ALWAYS

    def test_what_was_used_in_earlier_sessions_comes_first(self):
        made = offer(past_calls={"server__tool_39": 5, "server__tool_38": 9})
        assert {"server__tool_38", "server__tool_39"} <= set(names(made))


class TestLoading:
    def test_what_was_loaded_is_there_at_the_end_and_the_rest_does_not_move(self):
        before = offer()
        use = ToolUse().after([called(LOAD_TOOLS, names=["server__tool_30", "server__tool_25"]), answered()])
        made = offer(use)
        assert made.schemas[: len(before.schemas)] == before.schemas
        assert names(made)[len(before.schemas) :] == ["server__tool_30", "server__tool_25"]
        assert "server__tool_30" not in made.named

    def test_what_was_called_without_loading_is_there_too(self):
        use = ToolUse().after([called("server__tool_33"), answered()])
        assert names(offer(use))[-1] == "server__tool_33"

    def test_a_load_that_failed_or_never_ended_loads_nothing(self):
        assert ToolUse().after([called(LOAD_TOOLS, names=["a"]), answered(is_error=True)]).loaded == ()
        assert ToolUse().after([called(LOAD_TOOLS, names=["a"])]).loaded == ()

    def test_a_log_may_be_read_bit_by_bit(self):
        log = [
            called(LOAD_TOOLS, "c1", names=["b", "a"]),
            answered("c1"),
            called("a", "c2"),
            answered("c2"),
            called(LOAD_TOOLS, "c3", names="c"),
            answered("c3"),
        ]
        whole = ToolUse().after(log)
        piecemeal = ToolUse()
        for message in log:
            piecemeal = piecemeal.after([message])
        assert piecemeal == whole
        assert whole.loaded == ("b", "a", "c")
        assert whole.calls == {LOAD_TOOLS: 2, "a": 1}

    @pytest.mark.parametrize("arguments", ["", "[]", "{", '{"names": 5}', '{"names": [1]}', '{"names": {}}'])
    def test_nonsense_in_a_log_is_survived(self, arguments):
        message = Message(Role.ASSISTANT, (ToolCall("c1", LOAD_TOOLS, arguments),))
        assert ToolUse().after([message, answered()]).loaded == ()

    def test_the_answer_to_a_call(self):
        known = ["a", "b", "c"]
        assert answer_load({"names": ["a", "b"]}, known) == (
            "Loaded: a, b. They can be called from now on.",
            False,
        )
        assert answer_load('{"names": "c"}', known)[1] is False  # it is there already
        assert answer_load({"names": ["a", "x"]}, known) == (
            "there is no tool x; load_tools lists them",
            True,
        )
        assert answer_load("nonsense", known)[1]


def test_it_is_found_again_after_a_compaction_of_a_stored_session():
    """The view has lost the call of `load_tools`; the log has not."""
    import penstock
    from penstock.conversation.dialects import decode_all, dialect_named

    store = penstock.open_store("memory:")
    session = penstock.Session.create(store)
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": LOAD_TOOLS, "arguments": '{"names": ["server__tool_30"]}'},
    }
    messages = [{"role": "user", "content": "Begin."}, {"role": "assistant", "content": "Ready."}]
    for number in range(80):
        messages.append({"role": "user", "content": f"Crate {number}? " + "Weigh it. " * 40})
        if number == 3:
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": "c1", "content": "Loaded: server__tool_30."})
        messages.append({"role": "assistant", "content": f"It weighs {number * 7} kg. " + "Noted. " * 60})
    session.append(messages)
    session.compact(target_tokens=2_000)
    dialect = dialect_named("chat")
    view = [dialect.decode(wire) for wire in session.view()]
    assert ToolUse().after(view).loaded == ()
    log = decode_all(dialect, [session.original(f"m{number + 1}") for number in range(len(session))])
    assert names(offer(ToolUse().after(log)))[-1] == "server__tool_30"
    store.close()

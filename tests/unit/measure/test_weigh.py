import pytest

from penstock.conversation import mark
from penstock.conversation.message import (
    Image,
    Message,
    Opaque,
    Reasoning,
    Role,
    Summary,
    Text,
    ToolCall,
    ToolResult,
)
from penstock.errors import InputError
from penstock.measure.tokens import tokenizer_named
from penstock.measure.weigh import (
    CALL_FRAME,
    MESSAGE_FRAME,
    count_image_tokens,
    message_tokens,
    tools_tokens,
    weigh,
)

TOKENIZER = tokenizer_named("o200k_base")
count = TOKENIZER.count


def message(*parts, role=Role.ASSISTANT):
    return Message(role, parts)


def test_an_empty_message_weighs_its_frame():
    assert message_tokens(message(), TOKENIZER) == MESSAGE_FRAME == 4
    assert message_tokens(message(Text("")), TOKENIZER) == 4


def test_text_parts_are_counted_as_one_text_joined_by_line_breaks():
    parts = (Text("Open the lower"), Text("  gate"), Text(""), Text("now."))
    assert message_tokens(message(*parts), TOKENIZER) == 4 + count("Open the lower\n  gate\n\nnow.")


def test_the_results_of_tools_count_with_the_text():
    parts = (ToolResult("c1", "level: 4.2 m"), ToolResult("c2", "closed"), Text("Go on."))
    assert message_tokens(message(*parts), TOKENIZER) == 4 + count("level: 4.2 m\nclosed\nGo on.")


def test_a_call_weighs_a_frame_its_name_and_its_arguments():
    call = ToolCall("call_with_a_long_id_that_does_not_count", "read_gauge", '{"gate": "lower"}')
    assert CALL_FRAME == 8
    expected = 4 + count("Reading.") + 2 * (8 + count("read_gauge") + count('{"gate": "lower"}'))
    assert message_tokens(message(Text("Reading."), call, call), TOKENIZER) == expected


def test_reasoning_and_its_seal_are_counted_apart():
    seal = "EqMDCkYIBRgCKkBq" * 20
    expected = 4 + count("Answer") + count("Let me think") + count(seal)
    parts = (Reasoning("Let me think", sealed=True, seal=seal), Text("Answer"))
    assert message_tokens(message(*parts), TOKENIZER) == expected


def test_what_we_do_not_understand_weighs_its_json():
    text = '{"type":"audio","id":"a_17"}'
    assert message_tokens(message(Opaque("audio", text)), TOKENIZER) == 4 + count(text)


def test_a_handoff_weighs_what_stands_on_the_wire():
    summary = Summary("Goal: dry feet.", version=1, attributes={"from": "m1", "to": "m9"})
    wire = mark.wrap("Goal: dry feet.", {"from": "m1", "to": "m9"})
    assert message_tokens(message(summary), TOKENIZER) == 4 + count(wire)


def test_pictures_weigh_by_size_also_inside_a_result():
    picture = Image("image/png", 90_000, "d1", width=800, height=600)
    assert message_tokens(message(picture), TOKENIZER) == 4 + count_image_tokens(picture)
    result = ToolResult("c1", "a screenshot", images=(picture, picture))
    assert message_tokens(message(result), TOKENIZER) == 4 + count("a screenshot") + 2 * count_image_tokens(
        picture
    )


def test_many_messages_weigh_what_each_weighs_alone():
    call = ToolCall("c", "run", '{"cmd": "make test"}')
    messages = [message(Text(f"step {n}"), *([call] * (n % 3))) for n in range(200)]
    assert weigh(messages, TOKENIZER) == [message_tokens(one, TOKENIZER) for one in messages]
    assert weigh([], TOKENIZER) == []


def test_tools_weigh_their_compact_json_and_a_frame_each():
    tool = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}
    wire = '{"type":"function","function":{"name":"run","parameters":{"type":"object"}}}'
    assert tools_tokens([tool, tool], TOKENIZER) == 2 * (CALL_FRAME + count(wire))
    assert tools_tokens(None, TOKENIZER) == tools_tokens([], TOKENIZER) == 0


@pytest.mark.parametrize("bad", [object(), {1j: 2}])
def test_a_tool_that_is_no_json_is_refused_with_its_position(bad):
    with pytest.raises(InputError, match="tool 2"):
        tools_tokens([{}, bad], TOKENIZER)


def test_a_tool_nested_without_end_is_refused():
    deep = {}
    for _ in range(20_000):
        deep = {"items": deep}
    with pytest.raises(InputError, match="tool 1"):
        tools_tokens([deep], TOKENIZER)

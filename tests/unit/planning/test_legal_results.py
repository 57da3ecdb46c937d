"""What leaves a compaction is legal and within its target, in the cases that got through before."""

from __future__ import annotations

import json

import pytest

import penstock
from penstock.conversation.dialects import DIALECTS
from penstock.conversation.rules import check
from penstock.errors import TargetTooSmall
from penstock.measure.tokens import tokenizer_for
from penstock.measure.weigh import weigh

WORDS = "the importer fails on order {n} in src/part_{n}.py because a column is missing; "


def prose(count, start=0):
    return "".join(WORDS.format(n=n) for n in range(start, start + count))


def weight(dialect, wires):
    return sum(weigh([DIALECTS[dialect].decode(wire) for wire in wires], tokenizer_for(None)))


def compress(wires, target, dialect="auto"):
    result = penstock.compress(wires, target_tokens=target, dialect=dialect)
    assert weight(result.receipt.dialect, result.messages) == result.receipt.tokens_after <= target
    return result


def user(text):
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


PNG = "iVBORw0KGgoAAAANSUhEUgAABQAAAAMgCAYAAAD" + "A" * 4_000


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("pictures", [1, 8, 40])
def test_screenshots_leave_with_their_calls(pictures, share):
    wires = [user("Click through the shop.")]
    for n in range(pictures):
        shot = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG}"}
        wires += [
            {"type": "computer_call", "id": f"cu_{n}", "call_id": f"c{n}", "action": {"type": "screenshot"}},
            {"type": "computer_call_output", "call_id": f"c{n}", "output": shot},
        ]
    wires.append(
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
    )
    result = compress(wires, max(200, int(share * weight("responses", wires))), "responses")
    assert result.receipt.outcome == "compacted"
    outputs = [one for one in result.messages if one["type"] == "computer_call_output"]
    assert all(any(one is given for given in wires) for one in outputs)


SEAL = "gAAAAsealed0123456789"


def test_a_compaction_item_is_a_barrier():
    barrier = {"type": "compaction", "id": "cmp", "encrypted_content": SEAL * 40}
    wires = [user(prose(60)), user(prose(60, 60)), barrier, user("And now the tests."), user(prose(5, 200))]
    target = weight("responses", wires[2:]) + 50
    result = compress(wires, target, "responses")
    assert result.messages == wires[2:]  # nothing but what no longer counts has left, and nothing was written
    assert result.messages[0] is barrier
    with_handoff = compress([*wires, user(prose(80, 300)), user("Go on.")], target, "responses")
    said = [one for one in with_handoff.messages if one is not barrier]
    assert any(one is barrier for one in with_handoff.messages)
    assert SEAL not in json.dumps(said)
    places = [json.dumps(one) for one in with_handoff.messages]
    assert places.index(json.dumps(barrier)) < next(
        n for n, one in enumerate(places) if "penstock-handoff" in one
    )


def test_a_compaction_block_may_open_the_list():
    compacted = {
        "role": "assistant",
        "content": [{"type": "compaction", "content": SEAL}, {"type": "text", "text": "Yes."}],
    }
    wires = [{"role": "user", "content": prose(90)}, compacted, {"role": "user", "content": "Now the tests."}]
    result = compress(wires, 200, "anthropic")
    assert result.messages == wires[1:]


@pytest.mark.parametrize(
    "kind", ["item_reference", "context_compaction", "additional_tools", "configuration_update"]
)
def test_items_that_the_provider_needs_stay_with_what_they_refer_to(kind):
    standing = {"type": kind, "id": "msg_old", "encrypted_content": SEAL}
    old = {
        "type": "message",
        "id": "msg_old",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Kept."}],
    }
    wires = [user(prose(40)), old, user(prose(40, 40)), standing, user(prose(40, 90)), user("Go on.")]
    result = compress(wires, 900, "responses")
    assert any(one is standing for one in result.messages)
    assert any(one is old for one in result.messages) or kind != "item_reference"
    handoffs = [json.dumps(one) for one in result.messages if "penstock-handoff" in json.dumps(one)]
    assert handoffs
    assert not any(SEAL in one for one in handoffs)


def chat(*turns):
    return [{"role": role, "content": text} for role, text in turns]


@pytest.mark.parametrize("system", [0, 1])
@pytest.mark.parametrize("target", [150, 300, 700, 1_500])
def test_a_chat_list_that_the_user_began_begins_with_the_user(system, target):
    turns = [("system", "Be brief.")] * system
    for n in range(12):
        turns += [("user", prose(4, n * 10)), ("assistant", prose(6, n * 10 + 5))]
    wires = [*chat(*turns), {"role": "user", "content": "Now fix the last one."}]
    result = compress(wires, target)
    assert next(one["role"] for one in result.messages if one["role"] != "system") == "user"
    for dialect in ("chat", "anthropic"):  # the list fits both
        messages = [DIALECTS[dialect].decode(wire) for wire in result.messages]
        assert check(messages, DIALECTS[dialect].rules) == []


def call(n, arguments):
    return {
        "id": f"c{n}",
        "type": "function",
        "function": {"name": "store", "arguments": json.dumps(arguments)},
    }


def test_arguments_of_many_short_values_are_cut():
    wires = [
        {"role": "user", "content": "Store them."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [call(0, {"rows": [f"r{n}" for n in range(4_000)]})],
        },
        {"role": "tool", "tool_call_id": "c0", "content": "stored"},
    ]
    result = compress(wires, 600)
    [kept] = [one for one in result.messages if one.get("tool_calls")]
    rows = json.loads(kept["tool_calls"][0]["function"]["arguments"])["rows"]
    assert rows[:2] == ["r0", "r1"]
    assert "more, m2]" in rows[-1]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", [1_000, 4_000, 20_000])
def test_three_hundred_parallel_calls_are_cut(target):
    wires = [
        {"role": "user", "content": "Look at all orders."},
        {"role": "assistant", "content": None, "tool_calls": [call(n, {"order": n}) for n in range(300)]},
        *({"role": "tool", "tool_call_id": f"c{n}", "content": prose(6, n)} for n in range(300)),
    ]
    assert compress(wires, target).receipt.outcome == "compacted"


@pytest.mark.parametrize("data", [prose(900), "JVBERi0x" + "A" * 400_000], ids=["text", "pdf"])
def test_documents_in_the_last_message_are_cut(data):
    source = {"type": "text", "media_type": "text/plain", "data": data}
    if data.startswith("JVBER"):
        source = {"type": "base64", "media_type": "application/pdf", "data": data}
    document = {"type": "document", "title": "orders", "source": source}
    text = {"type": "text", "text": "What does order 7 lack?"}
    result = compress([{"role": "user", "content": [document, text]}], 800, "anthropic")
    blocks = result.messages[-1]["content"]
    assert blocks[-1] == text
    assert blocks[-2]["type"] == "text"
    assert "'orders'" in blocks[-2]["text"]
    assert ("order 0" in blocks[-2]["text"]) == (source["type"] == "text")


@pytest.mark.parametrize("target", [1_000, 8_000, 30_000])
@pytest.mark.parametrize("last", [["What differs?"], []])
def test_several_long_texts_of_the_last_message_are_cut(target, last):
    """Clients send pasted files as texts of their own, beside the words of the person."""
    files = [" ".join(f"row{name}{number}" for number in range(9_000)) for name in "ab"]
    request = {"role": "user", "content": [{"type": "text", "text": text} for text in (*files, *last)]}
    result = penstock.compress([request], target_tokens=target)
    assert result.receipt.tokens_after <= target
    shown = json.dumps(result.messages)
    assert all(f"row{name}0 " in shown for name in "ab")
    assert all(text in shown for text in last)


def test_only_what_is_unavoidable_is_refused():
    open_call = {"role": "assistant", "content": None, "tool_calls": [call(0, {"text": prose(200)})]}
    with pytest.raises(TargetTooSmall) as refused:
        penstock.compress([{"role": "user", "content": "Go."}, open_call], target_tokens=500)
    assert refused.value.parts.keys() == {"open calls", "last user message"}


def test_sharegpt_is_weighed_as_it_stands_on_the_wire():
    content = "".join(chr(0x4E00 + n % 500) for n in range(400))
    body = json.dumps({"name": "look", "content": content})  # \\uXXXX for every character
    turn = {"from": "tool", "value": f"<tool_response>\n{body}\n</tool_response>"}
    assert weight("sharegpt", [turn]) == 4 + tokenizer_for(None).count(turn["value"])


def test_names_and_unknown_fields_are_weighed():
    plain = {"role": "user", "content": "Hello."}
    assert weight("chat", [{**plain, "name": "alice_in_wonderland"}]) > weight("chat", [plain]) + 3
    extra = {"x_trace": prose(20)}
    for dialect, wire in (
        ("chat", plain),
        ("anthropic", plain),
        ("responses", user("Hello.")),
        ("sharegpt", {"from": "human", "value": "Hello."}),
    ):
        assert weight(dialect, [{**wire, **extra}]) > weight(dialect, [wire]) + 200
        assert (
            weight(dialect, [{**wire, "id": "x" * 400}]) == weight(dialect, [wire]) or dialect == "sharegpt"
        )


@pytest.mark.parametrize("dialect", ["chat", "anthropic"])
@pytest.mark.parametrize("spare", [0, 5, 20, 60, 100, 160])
def test_the_last_request_is_not_clipped_while_it_fits(spare, dialect):
    request = {"role": "user", "content": prose(30, 700)}
    turns = [
        ("user", prose(20)),
        ("assistant", prose(20, 20)),
        ("user", prose(9, 90)),
        ("assistant", prose(30, 40)),
    ]
    after = [{"role": "assistant", "content": prose(12, 300)}]
    wires = [*chat(*turns), request, *after]
    result = compress(wires, weight(dialect, [request]) + spare, dialect)
    assert any(
        request["content"] in json.dumps(one["content"], ensure_ascii=False) for one in result.messages
    )

"""Any rounds in, one valid answer out: whatever the model says and calls, and however its stream is cut into pieces."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.answer_reading import read_answer

from penstock.conversation.wire import encode_wire
from penstock.gateway.inner_turns import replay, write_round, write_turn
from penstock.gateway.weaving import new_weaver
from penstock.measure.usage import Usage
from penstock.providers.exchange import Called, Finish
from penstock.recall.tools import TOOL_NAMES
from penstock.testing.provider_wire import stream_frames, wire_named
from penstock.testing.provider_wire.served import Served
from penstock.testing.scripted import Reply

DIALECTS = st.sampled_from(["chat", "responses", "anthropic"])
OURS = sorted(TOOL_NAMES)
THEIRS = ["terminal", "read_file"]
TEXTS = st.text(alphabet='ab é漢🙂\n{}"', max_size=12)
ARGUMENTS = st.dictionaries(st.text(alphabet="ab", min_size=1, max_size=3), TEXTS, max_size=2).map(json.dumps)
INNER = st.builds(
    lambda text, reasoning, names: (text, reasoning, names),
    TEXTS,
    TEXTS,
    st.lists(st.sampled_from(OURS), min_size=1, max_size=3),
)
LAST = st.tuples(TEXTS, TEXTS, st.lists(st.sampled_from([*OURS, *THEIRS]), max_size=4))
SIZES = st.lists(st.integers(1, 200), min_size=1, max_size=20)


@st.composite
def talks(draw):
    """Rounds as replies: the first ones call our tools alone, the last one anything or nothing."""
    rounds = []
    for number, (text, reasoning, names) in enumerate([*draw(st.lists(INNER, max_size=3)), draw(LAST)]):
        calls = tuple(Called(f"call_{number}_{at}", name, draw(ARGUMENTS)) for at, name in enumerate(names))
        usage = Usage(draw(st.integers(1, 9_999)), draw(st.integers(1, 999)))
        rounds.append(Reply(text=text, reasoning=reasoning, calls=calls, usage=usage))
    last = rounds[-1]
    if last.calls and not any(call.name in THEIRS for call in last.calls):
        rounds.append(Reply(text="The end."))
    return rounds


def serve(reply, number):
    return Served(
        number=number,
        model="m",
        reply=reply,
        usage=reply.usage or Usage(1, 1),
        include_usage=True,
    )


def weave(dialect, rounds, sizes, *, streamed):
    """The client's answer, and the rounds as the gateway knows them."""
    weaver = new_weaver(dialect, TOOL_NAMES, streamed=streamed)
    shown, woven = [], []
    for number, reply in enumerate(rounds):
        served = serve(reply, number)
        if streamed:
            data = b"".join(frame.encode() for frame in stream_frames(served, dialect))
        else:
            data = encode_wire(wire_named(dialect).body(served))
        at = turn = 0
        while at < len(data):
            size = sizes[turn % len(sizes)]
            shown.append(weaver.feed(data[at : at + size]))
            at, turn = at + size, turn + 1
        woven.append(weaver.end_round())
        assert woven[-1] is not None
        assert woven[-1].goes_on is (number < len(rounds) - 1)
    shown.append(weaver.close())
    return b"".join(shown), woven


def read_said(dialect, added):
    """All words and all reasoning of a client's messages."""
    if dialect == "chat":
        return added[0]["content"] or "", added[0].get("reasoning_content", "")
    if dialect == "anthropic":
        blocks = added[0]["content"]
        return (
            "".join(block.get("text", "") for block in blocks if block["type"] == "text"),
            "".join(block.get("thinking", "") for block in blocks),
        )
    parts = [part for item in added if item["type"] == "message" for part in item["content"]]
    thoughts = [part for item in added if item["type"] == "reasoning" for part in item["summary"]]
    return "".join(part["text"] for part in parts), "".join(part["text"] for part in thoughts)


@given(DIALECTS, talks(), SIZES, st.booleans())
def test_the_client_gets_one_valid_answer_with_all_but_our_calls(dialect, rounds, sizes, streamed):
    body, woven = weave(dialect, rounds, sizes, streamed=streamed)
    added, calls, finish = read_answer(body, dialect, streamed=streamed)
    text, reasoning = read_said(dialect, added)
    wanted = "".join(reply.text for reply in rounds)
    hidden = any(one.ours for one in woven)
    if wanted.strip() or woven[-1].theirs or not hidden:
        assert "".join(text.split()) == "".join(wanted.split())
    assert "".join(reasoning.split()) == "".join("".join(reply.reasoning for reply in rounds).split())
    theirs = [call.id for call in rounds[-1].calls if call.name in THEIRS]
    assert [call.get("call_id") or call["id"] for call in calls] == theirs
    assert finish == (
        "completed"
        if dialect == "responses"
        else {"chat": ("stop", "tool_calls"), "anthropic": ("end_turn", "tool_use")}[dialect][bool(theirs)]
    )
    ours = {call.id for reply in rounds for call in reply.calls if call.name in OURS}
    assert not any(json.dumps(one) in body.decode() for one in ours)


@given(DIALECTS, talks(), SIZES, st.booleans(), st.booleans())
def test_what_comes_back_is_sent_as_the_provider_knows_it(dialect, rounds, sizes, streamed, spells_otherwise):
    body, woven = weave(dialect, rounds, sizes, streamed=streamed)
    added, _, _ = read_answer(body, dialect, streamed=streamed)
    told = [(one, ["found"] * len(one.ours)) for one in woven]
    turn = write_turn(dialect, 5, told)
    if turn is None:
        assert not any(one.ours for one in woven)
        return
    if spells_otherwise:
        added = [dict(reversed(one.items())) for one in added]
    theirs = woven[-1].theirs
    results = [result_of(dialect, call.id) for call in theirs]
    if dialect == "anthropic" and results:
        results = [{"role": "user", "content": [block for one in results for block in one["content"]]}]
    sent, taken = replay(turn, [encode_wire(one) for one in (*added, *results)], dialect)
    if not taken:  # nothing that was said or called came back
        assert "ended without an answer" in body.decode() or not added
        return
    known = [raw for one, found in told[:-1] for raw in write_round(dialect, one, found)]
    if dialect == "responses":
        assert [json.loads(raw) for raw in sent][: len(known)] == [json.loads(raw) for raw in known]
    else:
        assert sent[: len(known)] == known
    # Each call has its result, once, behind it.
    whole = [json.loads(raw) for raw in (*sent, *(encode_wire(one) for one in (*added, *results)[taken:]))]
    made, answered = list_calls(dialect, whole)
    assert sorted(made) == sorted(answered)
    assert sorted(made) == sorted(call.id for reply in rounds for call in reply.calls)


def result_of(dialect, call):
    if dialect == "chat":
        return {"role": "tool", "tool_call_id": call, "content": "ran"}
    if dialect == "responses":
        return {"type": "function_call_output", "call_id": call, "output": "ran"}
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": "ran"}]}


def list_calls(dialect, messages):
    if dialect == "chat":
        made = [call["id"] for one in messages for call in one.get("tool_calls") or ()]
        return made, [one["tool_call_id"] for one in messages if one["role"] == "tool"]
    if dialect == "responses":
        made = [one["call_id"] for one in messages if one["type"] == "function_call"]
        return made, [one["call_id"] for one in messages if one["type"] == "function_call_output"]
    blocks = [block for one in messages for block in one["content"] if isinstance(block, dict)]
    made = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return made, [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]


@given(DIALECTS, st.lists(st.binary(max_size=60), max_size=6), st.booleans())
def test_rubbish_goes_through(dialect, pieces, streamed):
    weaver = new_weaver(dialect, TOOL_NAMES, streamed=streamed)
    for piece in pieces:
        weaver.feed(piece)
    weaver.end_round()
    weaver.close()


ODD = st.sampled_from(
    [None, [], {}, "", 5, -1, 1.5, True, "x", [1], {"a": 1}, [None], [{}], "\ud800", 10**30]
)


@st.composite
def spoilt(draw, value):
    """The value with a few of its parts left out, or with something else in their places."""
    value = json.loads(json.dumps(value))
    for _ in range(draw(st.integers(0, 2))):
        part = value
        while isinstance(part, dict | list) and part:
            key = draw(st.sampled_from(sorted(part) if isinstance(part, dict) else range(len(part))))
            if not isinstance(part[key], dict | list) or not part[key] or draw(st.booleans()):
                if isinstance(part, dict) and draw(st.booleans()):
                    del part[key]
                else:
                    part[key] = json.loads(json.dumps(draw(ODD)))  # a value of its own
                break
            part = part[key]
    return value


@given(st.data(), DIALECTS, talks(), st.booleans())
def test_answers_that_no_api_would_give_go_through(data, dialect, rounds, streamed):
    weaver = new_weaver(dialect, TOOL_NAMES, streamed=streamed)
    for number, reply in enumerate(rounds):
        served = serve(reply, number)
        if not streamed:
            body = data.draw(spoilt(wire_named(dialect).body(served)))
            weaver.feed(json.dumps(body).encode())
        for frame in [one.encode().decode() for one in stream_frames(served, dialect)] if streamed else ():
            head, _, event = frame.partition("data: ")
            if event.startswith("{"):
                frame = f"{head}data: {json.dumps(data.draw(spoilt(json.loads(event))))}\n\n"  # noqa: PLW2901 - the same, spoilt
            weaver.feed(frame.encode())
        woven = weaver.end_round()
        if woven is None or not woven.goes_on:
            break
    weaver.close()


@given(DIALECTS, talks(), st.integers(0, 400), st.booleans())
def test_an_answer_that_breaks_off_never_ends_well(dialect, rounds, size, streamed):
    served = serve(rounds[0], 0)
    if streamed:
        data = b"".join(frame.encode() for frame in stream_frames(served, dialect))
    else:
        data = encode_wire(wire_named(dialect).body(served))
    weaver = new_weaver(dialect, TOOL_NAMES, streamed=streamed)
    cut = data[: min(size, len(data) // 2)]
    shown = weaver.feed(cut)
    woven = weaver.end_round()
    shown += weaver.close()
    assert woven is None or woven.answer.finish is not Finish.TOOL_CALLS or not streamed
    assert b"message_stop" not in shown
    assert b"response.completed" not in shown
    assert b"[DONE]" not in shown

"""A real model writes, or tries to write, a handoff: whatever it says, the result is sound and the facts are there."""

from __future__ import annotations

import asyncio
import copy
import json
import re

import msgspec
import pytest

import penstock
from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.message import Summary, ToolCall
from penstock.conversation.rules import check
from penstock.engine.summariser import Summariser, SummaryLimits
from penstock.measure.tokens import tokenizer_for
from penstock.measure.weigh import weigh
from penstock.providers.connect import connect
from penstock.redaction import REDACTED
from penstock.writing.values import values_in
from penstock.writing.verify import STRUCK

CHAT = DIALECTS["chat"]
TARGET = 510
WORD = "maple" + "-kettle-" + "71q"  # a password by its name alone


def _read(number, text):
    function = {"name": "read_note", "arguments": json.dumps({"note": number})}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": text},
        {"role": "assistant", "content": f"I read note {number}."},
    ]


def _talk():
    plants = ["fern", "ivy", "sage", "mint", "rose", "moss", "lily", "thyme"]
    messages = [{"role": "user", "content": "Read my garden notes. Never water the cactus, please."}]
    for number, plant in enumerate(plants, 1):
        messages += _read(
            number,
            f"bed {number} has {plant}_{number * 131} planted on 2024-03-0{number}\n"
            f"seeds from shop S-{7_000 + 37 * number} cost {number}.{90 - number} euro",
        )
    messages += _read(9, f"the gate opens with user=gardener password={WORD} only")
    return [*messages, {"role": "user", "content": "Which bed has the mint, and when was it planted?"}]


TALK = _talk()
FACTS = [re.search(r"\w+_\d+", wire["content"])[0] for wire in TALK if "planted on" in str(wire["content"])]


# Left to itself the model writes no handoff. Held to this form it writes one, in words of its own.
FORM = r"""
root ::= "## Goal\n- " words "\n## Active State\n- " words "\n"
words ::= [a-z] [a-z ]{30,90}
"""


class Terse:
    """A model that is asked for little, and always for the same: it reads and writes slowly."""

    def __init__(self, model, **extra):
        self._model = model
        self._extra = {"temperature": 0, **extra}
        self.name, self.dialect, self.base_url = model.name, model.dialect, model.base_url
        self.said = []

    async def window_tokens(self):
        return await self._model.window_tokens()

    async def answer(self, ask):
        answer = await self._model.answer(
            msgspec.structs.replace(ask, max_output_tokens=96, extra=self._extra)
        )
        self.said.append(answer.text)
        return answer


def _compressed(server, **extra):
    """One compaction by the real model, over HTTP, and what the model said."""
    before = copy.deepcopy(TALK)

    async def run():
        async with connect("llamacpp", server.model, base_url=server.base_url) as model:
            terse = Terse(model, **extra)
            summariser = Summariser(terse, limits=SummaryLimits(requests=3, seconds=60.0))
            return await penstock.acompress(TALK, target_tokens=TARGET, summariser=summariser), terse.said

    result, said = asyncio.run(run())
    assert before == TALK
    return result, said


@pytest.fixture(scope="module")
def freely(local_model):
    return _compressed(local_model)


@pytest.fixture(scope="module")
def in_form(local_model, freely):
    """After `freely`, so that the prompt is known to the server already."""
    return _compressed(local_model, grammar=FORM)


@pytest.fixture(params=["freely", "in_form"])
def written(request, local_model):  # asked for by name, so that all of these tests run in one process
    return request.getfixturevalue(request.param)[0]


def _messages(wires):
    return decode_all(CHAT, wires)


def _text(wires):
    return "\n".join(
        part.arguments if isinstance(part, ToolCall) else getattr(part, "text", "")
        for message in _messages(wires)
        for part in message.parts
    )


def test_the_model_was_asked_and_the_receipt_tells_what_came_of_it(written):
    receipt = written.receipt
    assert receipt.outcome in {"compacted", "degraded"}
    assert 1 <= receipt.model_calls <= 3
    assert receipt.attempts
    assert receipt.attempts[0]["usage"]["output_tokens"] > 0
    assert receipt.reason or receipt.model


def test_what_it_wrote_in_form_stands_in_the_handoff(in_form):
    result, (said,) = in_form
    goal, state = re.findall(r"^- (.+)$", said, re.MULTILINE)
    text = " ".join(_text(result.messages).split())
    assert result.receipt.outcome == "compacted"
    assert result.receipt.model
    assert " ".join(goal.split()) in text
    assert " ".join(state.split()) in text


def test_the_result_is_legal_and_within_its_target(written):
    messages = _messages(written.messages)
    assert sum(weigh(messages, tokenizer_for(None))) <= TARGET
    assert check(messages, CHAT.rules) == []
    assert written.messages[-1] is TALK[-1]


def test_nearly_all_facts_are_present_and_every_original_reachable(written):
    text = _text(written.messages)
    assert len(FACTS) == 8
    # The model does not always say the same, and what it says takes some of the room.
    assert len([fact for fact in FACTS if fact in text]) >= 6
    assert "Never water the cactus" in text
    handles = [handle for handle in written.handles if handle != "handoff"]
    assert [written.original(handle) for handle in handles] == TALK


def test_nothing_is_invented_and_no_secret_told(written):
    ours = _text([wire for wire in written.messages if not any(wire is given for given in TALK)])
    parts = [part for message in _messages(written.messages) for part in message.parts]
    (handoff,) = [part.text for part in parts if isinstance(part, Summary)]
    source = f"{_text(TALK)} {json.dumps(TALK)}"
    said = handoff.partition("\n")[2].replace(STRUCK, " ").replace(REDACTED, " ")
    unknown = [value for value in values_in(said) if value not in source and not re.fullmatch(r"m\d+", value)]
    assert unknown == []
    assert WORD not in ours

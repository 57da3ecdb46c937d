"""What a summary model is asked, word for word. UPDATE_GOLDEN=1 writes the files anew; read the difference then."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from golden_conversations import CODING, SERVICE

import penstock
from penstock.engine.summariser import Summariser
from penstock.testing.scripted_model import ScriptedModel
from penstock.writing.prompt import PROMPT_VERSION, SYSTEM, notes_prompt

HERE = Path(__file__).parent
WINDOW = 2_300  # so small that parts are needed
GOOD = """## Active Task
m8
## Goal
- Mara wants to know about her orders (m2).
## Completed Actions
1. Found customer C-20417 with find_customer (m4).
## Active State
- The parcel NP7000279 was sent again as NP9114402 (m14).
"""


def asked(messages, target, *, window=None, focus=None, in_place=False):
    """The requests of one compaction, in order."""
    model = ScriptedModel([GOOD], repeat_last=True)
    summariser = Summariser(model, main=model if in_place else None, window_tokens=window)
    result = penstock.compress(
        messages, target_tokens=target, dialect="chat", focus=focus, summariser=summariser
    )
    assert result.receipt.outcome == "compacted", result.receipt.reason
    return result, model.received


def shown(received):
    """The system prompt and the last message of a request, as a person reads them."""
    last = received.messages[-1]["content"]
    first = received.messages[0]
    system = first["content"] if first["role"] in {"system", "developer"} else ""
    return f"{system}\n\n---\n\n{last}"


def handoff():
    return shown(asked(SERVICE, 700)[1][0])


def second_handoff():
    """The request that brings a handoff up to date, with a focus."""
    result, _ = asked(SERVICE, 700)
    function = {"name": "send_label", "arguments": '{"order": "#W88003"}'}
    label = '{"label": "L-5531", "mail": "mara@example.org", "note": "' + "keep the box dry. " * 20 + '"}'
    more = [
        {"role": "assistant", "content": "Yes, #W88003 can be returned until 2024-07-01."},
        {"role": "user", "content": "Then please send me a label. I still have the box."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c5", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "c5", "content": label},
        {"role": "assistant", "content": "The label L-5531 went to mara@example.org."},
        {"role": "user", "content": "Thank you. What was my tracking number again?"},
    ]
    return shown(asked([*result.messages, *more], 700, focus="the lamp")[1][0])


def notes():
    return shown(asked(SERVICE, 700, window=WINDOW)[1][0])


def merge():
    return shown(asked(SERVICE, 700, window=WINDOW)[1][-1])


def closing():
    _, (received,) = asked(SERVICE, 700, in_place=True)
    return str(received.messages[-1]["content"])


PROMPTS = [handoff, second_handoff, notes, merge, closing]


def agree(file, text):
    path = HERE / file
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text + "\n", encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text + "\n"


@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: prompt.__name__)
def test_the_prompt_reads_as_it_did(prompt):
    agree(f"prompt_{prompt.__name__}.txt", prompt())


def test_parts_are_asked_for_and_then_joined():
    _, received = asked(SERVICE, 700, window=WINDOW)
    heads = [one.messages[-1]["content"][:31] for one in received]
    assert heads[:-1] == ["Below is one part of a long con"] * (len(heads) - 1)
    assert len(heads) >= 3
    assert "The notes below are on the parts" in received[-1].text


def test_another_wording_is_another_version():
    """Notes are kept by the version: whoever changes how they are asked for raises it, and both lines change."""
    wording = f"{SYSTEM}\n{notes_prompt([], 500, 'a topic')}"
    agree("prompt_version.txt", f"{PROMPT_VERSION}\n{hashlib.sha256(wording.encode()).hexdigest()}")


def test_no_secret_of_the_conversation_is_in_a_prompt():
    _, received = asked(CODING, 1_600)
    assert "k9" * 20 in str(CODING)
    assert not [one for one in received if "k9" * 20 in one.text]

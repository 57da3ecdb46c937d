"""Receipts and handoffs word for word. UPDATE_GOLDEN=1 writes them anew; read the difference then."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
from golden_conversations import CODING, SERVICE

from penstock.conversation.dialects import DIALECTS
from penstock.conversation.message import Summary
from penstock.engine.compress import CompressRequest, compress_list

HERE = Path(__file__).parent
CASES = {"coding": (CODING, 1_600), "service": (SERVICE, 700)}


def compacted(name):
    wires, target = CASES[name]
    result = compress_list(wires, CompressRequest(target_tokens=target, dialect="chat"))
    return result, msgspec.structs.replace(result.receipt, seconds=0.0)


def handoff(messages):
    chat = DIALECTS["chat"]
    parts = [part for message in messages for part in chat.decode(message).parts]
    (summary,) = [part for part in parts if isinstance(part, Summary)]
    return f"{summary.attributes}\n{summary.text}"


def view(result):
    """Each message of the result in short, so that the whole can be seen at once."""
    lines = []
    for message in result.messages:
        content = message["content"] or " ".join(call["function"]["name"] for call in message["tool_calls"])
        lines.append(f"{message['role']}: {content[:160]}")
    verdicts = [
        f"m{v.number} {v.fate} {v.tokens_before} → {v.tokens_after}: {v.reason}" for v in result.verdicts
    ]
    return "\n".join([*lines, "", *verdicts])


def agree(file, text):
    path = HERE / file
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text + "\n", encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text + "\n"


@pytest.mark.parametrize("name", CASES)
def test_the_receipt_reads_as_it_did(name):
    agree(f"{name}.receipt.txt", str(compacted(name)[1]))


@pytest.mark.parametrize("name", CASES)
def test_the_receipt_is_the_same_json(name):
    agree(f"{name}.receipt.json", json.dumps(compacted(name)[1].to_dict(), indent=2))


@pytest.mark.parametrize("name", CASES)
def test_the_handoff_reads_as_it_did(name):
    agree(f"{name}.handoff.txt", handoff(compacted(name)[0].messages))


@pytest.mark.parametrize("name", CASES)
def test_the_view_and_the_verdicts_are_the_same(name):
    agree(f"{name}.view.txt", view(compacted(name)[0]))


def test_a_receipt_of_nothing_to_do_says_why():
    result = compress_list(CODING, CompressRequest(target_tokens=100_000, dialect="chat"))
    agree("nothing.receipt.txt", str(result.receipt))


def test_no_secret_of_the_conversation_is_in_a_golden_file():
    secret = "k9" * 20
    assert secret in json.dumps(CODING)
    assert not any(secret in path.read_text(encoding="utf-8") for path in HERE.glob("*.txt"))

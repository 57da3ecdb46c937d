"""A window is laid out like a target of the size that it fills, and the receipt says what its room went to."""

from __future__ import annotations

import json

import msgspec
import pytest
from tests.strategies.writers import Call, Turn, write

import penstock
from penstock.conversation.dialects import DIALECTS
from penstock.planning.receipt import Receipt

WINDOW = 16_000
THRESHOLD = 13_600  # 85 % of it

each_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def call(number, lines=30):
    output = "\n".join(f"row_{number}_{line} waits for host-{line % 7}" for line in range(lines))
    return Call("terminal", {"command": f"list part {number}"}, output, has_image=False, is_error=False)


def talk(dialect, turns=60, request="Which host is the slowest of all?", *, lines=30, unanswered=False):
    """A conversation that ends with a question, or with a result that nobody has answered."""
    said = [
        Turn(
            f"Look at part {n} of the importer, please.",
            has_image=False,
            rounds=[[call(n, lines)]],
            says="",
            thinks="",
            answer=f"Part {n} reads table_{n} and skips what is empty. Next I look at part {n + 1}.",
            extra=False,
        )
        for n in range(turns)
    ]
    rounds = [[call(999, 300)]] if unanswered else []
    said.append(
        Turn(request, has_image=False, rounds=rounds, says="", thinks="", answer="On it.", extra=False)
    )
    wires = write(dialect, said, has_system=True, shape=0)
    return wires[:-1]


def compress(dialect, wires, *, window=WINDOW, **settings):
    given = {f"compression.{name}": value for name, value in settings.items()}
    return penstock.compress(wires, context_length=window, dialect=dialect, settings=given)


@each_dialect
def test_a_window_keeps_what_a_target_of_its_size_keeps(dialect):
    wires = talk(dialect)
    window = compress(dialect, wires)
    granted = window.receipt.room.granted_tokens
    target = penstock.compress(wires, target_tokens=granted, dialect=dialect)
    assert window.receipt.outcome == "compacted"
    assert window.messages == target.messages


@each_dialect
def test_it_is_filled_to_half_of_what_the_system_prompt_leaves_and_no_further(dialect):
    for turns in (60, 90):
        receipt = compress(dialect, talk(dialect, turns, unanswered=True)).receipt
        system = receipt.room.parts.get("system_prompt", 0)  # Anthropic has it beside the list
        assert receipt.tokens_after <= receipt.room.granted_tokens <= system + (THRESHOLD - system) // 2
        assert receipt.tokens_after > 0.95 * receipt.room.granted_tokens


def test_a_very_small_window_is_filled_further():
    receipt = compress("chat", talk("chat"), window=2_000, target_ratio=0.8).receipt
    below = 1_700 - receipt.room.parts["system_prompt"]
    assert 0.6 * below < receipt.tokens_after - receipt.room.parts["system_prompt"] <= 0.75 * below
    assert "half to three quarters of what the system prompt leaves" in str(receipt)


def test_the_settings_move_the_parts():
    wires = talk("chat", 300, lines=5)

    def part(name, **settings):
        return compress("chat", wires, **settings).receipt.room.parts.get(name, 0)

    usual = part("tail")
    assert part("tail", target_ratio=0.1) < usual < part("tail", target_ratio=0.5)
    assert part("tail", protect_last_n=1) < usual
    assert part("head", protect_first_n=1) < part("head") < part("head", protect_first_n=9)


def test_a_longer_tail_never_takes_all_the_room():
    for ratio in (0.2, 0.5, 0.8):
        receipt = compress("chat", talk("chat", 120, unanswered=True), target_ratio=ratio).receipt
        assert receipt.room.parts["tail"] < 0.55 * receipt.room.granted_tokens
        assert receipt.room.parts["unanswered_results"] > 0.2 * receipt.room.granted_tokens


@each_dialect
def test_what_the_room_went_to_adds_up(dialect):
    wires = talk(dialect, unanswered=True)
    for result in (
        compress(dialect, wires),
        compress(dialect, wires, window=4_000),
        compress(dialect, wires, window=40_000),  # eliding is enough
        penstock.compress(wires, target_tokens=3_000, dialect=dialect),
    ):
        receipt = result.receipt
        assert sum(receipt.room.parts.values()) == receipt.tokens_after
        assert receipt.room.parts.get("handoff", 0) == receipt.handoff_tokens
        assert min(receipt.room.parts.values()) > 0


def test_the_receipt_says_it_in_words_and_as_json():
    receipt = compress("chat", talk("chat", unanswered=True)).receipt
    text, room = str(receipt), receipt.room
    assert f"of {THRESHOLD:,} tokens at the threshold, {room.granted_tokens:,} may be filled" in text
    assert "so that it is not compacted again soon" in text
    for name, tokens in room.parts.items():
        assert f"{name.replace('_', ' ')} {tokens:,}" in text
    told = json.loads(json.dumps(receipt.to_dict()))["room"]
    assert told["parts"] == room.parts
    assert (told["threshold_tokens"], told["granted_tokens"]) == (THRESHOLD, room.granted_tokens)
    assert msgspec.convert(receipt.to_dict(), Receipt).room == room


def test_a_named_target_has_no_threshold():
    receipt = penstock.compress(talk("chat"), target_tokens=3_000).receipt
    assert receipt.room.threshold_tokens == 0
    assert "threshold" not in str(receipt)
    assert f"went to    system prompt {receipt.room.parts['system_prompt']}" in str(receipt)


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (0.6, "half of what the system prompt leaves"),
        (0.1, "the head, 800 for a summary and 2,040 by compression.target_ratio"),
    ],
)
def test_it_says_what_ends_the_room(ratio, words):
    assert words in str(compress("chat", talk("chat"), target_ratio=ratio).receipt)


def test_what_may_not_be_shorter_is_told():
    request = "Compare these: " + " ".join(f"shelf_{n}" for n in range(2_200))
    receipt = compress("chat", talk("chat", request=request), target_ratio=0.6).receipt
    over = receipt.tokens_after - receipt.room.granted_tokens
    assert over > 0
    assert f"{over:,} more than that, since these parts may not be shorter" in str(receipt)
    assert receipt.tokens_after <= receipt.target_tokens


def test_a_handoff_that_grows_is_counted():
    receipt = compress("chat", talk("chat")).receipt
    grown = receipt.grow_handoff(7)
    assert grown.tokens_after == receipt.tokens_after + 7 == sum(grown.room.parts.values())
    assert grown.handoff_tokens == receipt.handoff_tokens + 7

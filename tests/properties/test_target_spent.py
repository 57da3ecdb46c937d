"""A target that was granted is spent: to 95 % or more, or until no message that is out would fit."""

from __future__ import annotations

from itertools import pairwise

import pytest
from compaction_claims import NAMES, Case, cases, claim, decoded
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies.conversations import conversations
from tests.strategies.long_sessions import long_conversations

from penstock.conversation.dialects import DIALECTS
from penstock.conversation.message import Role, Summary
from penstock.conversation.rules import Alternation, first_speaker, legal_cuts
from penstock.planning.plan import Fate

pytestmark = pytest.mark.sampled(4)  # each of its cases is long

SHARES = (0.3, 0.95)
SPENT = 0.95

each_dialect = pytest.mark.parametrize("name", NAMES)
each_kind = pytest.mark.parametrize("kind", [conversations, long_conversations])


def sizes_to_come_back(seen):
    """How many tokens more the view has with each message that is out, and those that it may not be parted from.

    Messages that would stand beside another of the same role, which many servers refuse, are left out of the count, and so
    are those that would open a list which a person opened.
    """
    rules, messages = DIALECTS[seen.name].rules, decoded(seen.name, seen.wires)
    alternates = any(isinstance(rule, Alternation) for rule in rules)
    stands = [verdict.fate is not Fate.SUMMARISED for verdict in seen.result.verdicts]
    told = any(
        isinstance(part, Summary) for m in decoded(seen.name, seen.result.messages) for part in m.parts
    )
    by_person = alternates and first_speaker(messages) < len(messages)
    by_person = by_person and messages[first_speaker(messages)].role is Role.USER
    for start, end in pairwise(legal_cuts(messages, rules)):
        out = [verdict for verdict in seen.result.verdicts[start:end] if verdict.fate is Fate.SUMMARISED]
        before = next((place for place in range(start - 1, -1, -1) if stands[place]), start - 1)
        after = next((place for place in range(end, len(messages)) if stands[place]), end)
        clashes = alternates and (
            (before < start - 1 and messages[before].role is messages[start].role)
            or (end < after < len(messages) and messages[after].role is messages[end - 1].role)
        )
        opens = by_person and not told and not any(stands[first_speaker(messages) : start])
        if out and not clashes and not (opens and messages[start].role is not Role.USER):
            yield sum(verdict.tokens_before for verdict in out)


@each_kind
@each_dialect
@claim(16)
@given(data=st.data())
def test_a_target_is_spent_or_no_message_that_is_out_would_fit(name, kind, data):
    seen = data.draw(cases(name, kind, SHARES)).fitting()
    receipt = seen.result.receipt
    left = receipt.target_tokens - receipt.tokens_after
    if receipt.outcome == "nothing_to_do" or left <= (1 - SPENT) * receipt.target_tokens:
        return
    assert all(size > left for size in sizes_to_come_back(seen))


@each_kind
@each_dialect
@claim(16)
@given(data=st.data())
def test_while_much_is_unspent_no_message_is_shortened_that_would_fit_whole(name, kind, data):
    seen = data.draw(cases(name, kind, SHARES)).fitting()
    receipt = seen.result.receipt
    left = receipt.target_tokens - receipt.tokens_after
    if left <= (1 - SPENT) * receipt.target_tokens:
        return
    standing = decoded(name, [wire for _, wire in seen.standing])
    for (verdict, _), message in zip(seen.standing, standing, strict=True):
        if verdict.fate is Fate.ELIDED and not any(isinstance(part, Summary) for part in message.parts):
            assert verdict.tokens_before - verdict.tokens_after > left


def test_what_may_not_open_the_list_leaves_its_room_to_others():
    said = [
        "日本語のテスト",
        "¯\x05",
        "\U000e9c14\U0007d365",
        "exit 0\n47 lines",
        "9\x1e\x8e\U000539d5\x08Ø",
        "ÔD\x8b\x08",
    ]
    wires = [{"from": ("human", "gpt")[n % 2], "value": text} for n, text in enumerate(said)]
    seen = Case("sharegpt", wires, 36).compress()
    assert all(size > 36 - seen.result.receipt.tokens_after for size in sizes_to_come_back(seen))
    assert seen.result.verdicts[-1].fate is Fate.KEPT  # the answer to the request, which nothing keeps out


@pytest.mark.parametrize("share", [0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
def test_a_chat_whose_messages_fit_only_together_gets_whole_exchanges(share):
    answers = ["Hello! How can I help you today?", "Hi! If you have any questions, feel free to let me know!"]
    wires = [
        wire
        for n in range(13)
        for wire in (
            {"role": "user", "content": "/ask hi"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": answers[n % 2]},
        )
    ]
    whole = Case("chat", wires, 10_000).compress().result.receipt.tokens_before
    receipt = Case("chat", wires, int(share * whole)).compress().result.receipt
    exchange = 4 + 4 + 4 + 5 + 20  # tokens of the smaller ones, with what the wire adds
    assert receipt.target_tokens - receipt.tokens_after < max(exchange, (1 - SPENT) * receipt.target_tokens)


@pytest.mark.parametrize("share", [0.7, 0.8, 0.9, 0.95])
def test_a_harness_text_that_does_not_fit_gets_what_is_left(share):
    listing = "\n".join(f"docs/chapter_{n}.md says how module_{n} reads its rows" for n in range(900))
    wires = [
        {"role": "user", "content": "Sum up what the chapters say."},
        {"role": "user", "content": f"<attachment type=file>\n{listing}\n</attachment>"},
        *(
            {"role": role, "content": f"Part {n}: {said} row_{n}.csv, as we said before."}
            for n in range(120)
            for role, said in (("assistant", "I keep"), ("user", "please look at"))
        ),
    ]
    whole = Case("chat", wires, 100_000).compress().result.receipt.tokens_before
    receipt = Case("chat", wires, int(share * whole)).compress().result.receipt
    assert receipt.tokens_after >= SPENT * receipt.target_tokens


def test_a_long_chat_of_tiny_messages_is_spent_too():
    wires = [
        wire
        for n in range(400)
        for wire in (
            {"role": "user", "content": "/ask hi"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": f"Hello! How can I help you{' again' * (n % 2)}?"},
        )
    ]
    whole = Case("chat", wires, 100_000).compress().result.receipt.tokens_before
    receipt = Case("chat", wires, whole // 3).compress().result.receipt
    assert receipt.tokens_after >= SPENT * receipt.target_tokens


@pytest.mark.parametrize("share", [0.7, 0.8, 0.9])
def test_a_long_system_prompt_is_no_reason_to_leave_room_unused(share):
    chat = [
        wire
        for n in range(12)
        for wire in (
            {
                "role": "user",
                "content": f"Please move booking {4100 + n} to gate {n}, as the customer asked today.",
            },
            {
                "role": "assistant",
                "content": f"Booking {4100 + n} is at gate {n} now, and the customer was told so.",
            },
        )
    ]
    policy = "\n".join(f"{n}. A booking of class {n} may be moved once, before its day." for n in range(400))
    whole = Case("chat", chat, 100_000).compress().result.receipt.tokens_before
    prompt = {"role": "system", "content": policy}
    alone = Case("chat", [prompt, chat[0]], 100_000).compress().result.receipt.tokens_before - whole // 24
    target = alone + int(share * whole)
    receipt = Case("chat", [prompt, *chat], target).compress().result.receipt
    exchange = whole // 12 + 1
    assert target - receipt.tokens_after < max(exchange, (1 - SPENT) * share * whole)

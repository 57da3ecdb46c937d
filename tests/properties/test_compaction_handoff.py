"""What holds for every text that a compaction writes: it is quoted, it holds no secret, it keeps the constraints."""

from __future__ import annotations

import random
import string
from functools import cache

import pytest
from compaction_claims import (
    REDACTOR,
    Case,
    cases,
    claim,
    is_quoted,
    is_request,
    keep_quick,
    quotable,
    tokens,
)
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies.long_sessions import long_turns
from tests.strategies.writers import Call, Turn, write

from penstock.errors import TargetTooSmall
from penstock.settings import Settings, settings_from
from penstock.writing.handoff import HandoffSection

pytestmark = pytest.mark.sampled(4)  # each of its cases is long

each_dialect = pytest.mark.parametrize("name", keep_quick("anthropic", "chat"))


@each_dialect
@claim(12)
@given(data=st.data())
def test_every_excerpt_stands_in_the_message_that_its_header_names(name, data):
    seen = data.draw(cases(name, shares=(0.05, 0.9))).fitting()
    for entry in seen.entries:
        if entry.section is HandoffSection.CONTEXT:
            texts = quotable(name, seen.wires[entry.number - 1])
            for line in entry.text.split("\n"):
                assert is_quoted(line, texts), (entry.number, line)


@each_dialect
@claim(8)
@given(data=st.data())
def test_a_handoff_is_one_marked_text_that_says_what_it_is(name, data):
    seen = data.draw(cases(name, shares=(0.05, 0.6))).fitting()
    assert len(seen.summaries) <= 1
    for summary in seen.summaries:
        first = summary.text.split("\n")[0]
        assert "reference" in first
        assert "another assistant" in first
        numbers = [entry.number for entry in seen.entries if entry.section is HandoffSection.CONTEXT]
        assert numbers == sorted(numbers)


@each_dialect
@claim(10)
@given(data=st.data())
def test_where_messages_are_gone_and_room_is_left_a_handoff_stands_for_them(name, data):
    seen = data.draw(cases(name)).fitting()
    left = seen.result.receipt.target_tokens - sum(verdict.tokens_after for verdict, _ in seen.standing)
    if seen.result.receipt.summarised and left >= 80:
        assert seen.summaries


# Secrets.


def filler(alphabet, length, seed):
    chance = random.Random(seed)
    return "".join(chance.choice(alphabet) for _ in range(length)) + "7aB"


ALNUM = string.ascii_letters + string.digits
SECRETS = {
    "token": ("the token is ", "ghp" + "_" + filler(ALNUM, 33, "token"), " for the mirror"),
    "password": ("DB_PASSWORD=", filler(ALNUM, 21, "password"), "\n"),
    "address": ("postgres://svc:", filler(ALNUM, 18, "address"), "@db.internal:5432/app"),
    "header": ("curl -H 'Authorization: Bearer ", filler(ALNUM, 37, "header"), "' https://api.example/v1"),
    "key id": ("aws_access_key_id = ", "AKIA" + filler(string.ascii_uppercase, 13, "id")[:13] + "Q7Z", "\n"),
    "private key": (
        "-----BEGIN " + "PRIVATE KEY-----\n",
        "\n".join(filler(ALNUM, 61, f"line {n}") for n in range(5)),
        "\n-----END " + "PRIVATE KEY-----\n",
    ),
}


@pytest.mark.parametrize("kind", SECRETS)
def test_the_planted_secrets_are_ones_that_the_redactor_knows(kind):
    before, secret, after = SECRETS[kind]
    assert secret not in REDACTOR.redact(f"{before}{secret}{after}")


@cache
def carriers():
    """A text with a secret in it, at any depth of words before and after."""
    return st.builds(
        lambda kind, before, after: "word " * before + "".join(SECRETS[kind]) + " more" * after,
        st.sampled_from(sorted(SECRETS)),
        st.integers(0, 60),
        st.integers(0, 400),
    )


def a_turn(request, *rounds, answer="I see.", says=""):
    return Turn(
        request, has_image=False, rounds=list(rounds), says=says, thinks="", answer=answer, extra=False
    )


def a_call(name, arguments, output):
    return Call(name, arguments, output, has_image=False, is_error=False)


@st.composite
def planted(draw, name):
    """A conversation with secrets in its results, arguments, answers and requests."""
    turns = draw(long_turns(2, 4))
    hidden = [draw(carriers()) for _ in range(6)]
    ran = a_call("terminal", {"command": hidden[0], "note": "x"}, hidden[1] + "\nexit code 1\n" * 40)
    wrote = a_call(
        "write_file", {"path": ".env", "content": hidden[2], "note": "".join(SECRETS["token"])}, "ok"
    )
    bearing = a_turn(hidden[3], [ran], [wrote], says=hidden[4], answer=f"I used it. {hidden[4]}")
    at = draw(st.integers(0, len(turns)))
    ends = [a_turn(f"Now go on. {hidden[5]}")] if draw(st.booleans()) else []
    return write(
        name, [*turns[:at], bearing, *turns[at:], *ends], has_system=True, shape=draw(st.integers(0, 3))
    )


def leaked(text):
    """A run of 12 characters of a planted secret, which is more than chance."""
    for _, secret, _ in SECRETS.values():
        for start in range(max(1, len(secret) - 12)):
            if secret[start : start + 12] in text:
                return secret[start : start + 12]
    return None


@each_dialect
@claim(20)
@given(data=st.data())
def test_no_secret_stands_in_a_text_that_we_wrote(name, data):
    case = data.draw(cases(name, planted, shares=(0.03, 0.95)))
    try:
        seen = case.compress()
    except TargetTooSmall as error:
        assert leaked(f"{error} {error.parts}") is None  # noqa: PT017  # both ways out are looked at
        return
    assert leaked(str(seen.result.receipt)) is None
    assert leaked(str(seen.result.receipt.to_dict()) + str(seen.result.verdicts)) is None
    for text in seen.written:
        assert leaked(text) is None


@each_dialect
@claim(4)
@given(data=st.data())
def test_messages_that_are_kept_keep_what_they_say(name, data):
    case = data.draw(cases(name, planted, shares=(0.5, 0.95)))
    seen = case.fitting()
    for verdict, wire in seen.standing:
        if verdict.fate == "kept":
            assert wire is case.wires[verdict.position]
    assert any(leaked(str(wire)) for wire in case.wires)


# Constraints.

HEADS = [Settings(), settings_from({"compression.protect_first_n": 0})]


@each_dialect
@claim(8)
@given(data=st.data())
def test_constraints_of_the_first_turns_are_still_in_the_view(name, data):
    stated = data.draw(
        st.lists(
            st.sampled_from(
                (
                    "Never edit migrations/0042_payment.py.",
                    "Always run make lint-strict before a commit.",
                    "Du darfst die Datei deploy/prod.yaml niemals ändern.",
                    "Ne touche jamais au module facturation.",
                    "不要修改 billing/ledger.go。",
                )
            ),
            min_size=1,
            max_size=3,
            unique=True,
        )
    )
    first = a_turn("Please repair the importer. " + " ".join(stated))
    logs = a_call("terminal", {"command": "make logs"}, "job 1234 is slow in step_4\n" * 400)
    filling = a_turn("Look at the logs.", [logs])
    turns = [first, filling, *data.draw(long_turns(2, 4)), filling]
    wires = write(name, turns, data.draw(st.booleans()), data.draw(st.integers(0, 3)))
    target = int(tokens(name, wires) * data.draw(st.floats(0.2, 0.8)))
    try:
        seen = Case(name, wires, max(2_000, target)).compress(settings=data.draw(st.sampled_from(HEADS)))
    except TargetTooSmall:
        return
    view = " ".join(seen.text.split())
    listed = [entry.text for entry in seen.entries if entry.section is HandoffSection.CONSTRAINTS]
    gone = next(at for at, wire in enumerate(wires) if is_request(name, wire)) not in {
        verdict.position for verdict, _ in seen.standing
    }
    for sentence in stated:
        assert sentence in view
        assert sentence in listed or not gone

"""Results that the model has not answered yet: it is about to read them, so they give way late and never wholly."""

from __future__ import annotations

import re

import pytest
from tests.strategies.writers import Call, Turn, write

import penstock
from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.message import Text, ToolResult
from penstock.engine.compress import new_notebook
from penstock.measure.tokens import tokenizer_for
from penstock.planning.compact import limits_for_target
from penstock.planning.plan import Fate
from penstock.settings import Settings

pytestmark = pytest.mark.sampled(4)  # each of its cases is long

COUNT = tokenizer_for(None).count
ERROR = (
    "psycopg.errors.UndefinedColumn: column invoices.settled_at does not exist, in shop/billing/report.py:118"
)
LAST = "The nightly report fails since the last release. Find out why, and say which file has to change."

each_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def log(lines, error="", name="job"):
    body = [f"{name} {n} took {n * 7} ms on host-{n % 4}" for n in range(lines)]
    return "\n".join([*body[: lines // 2], *([error] if error else []), *body[lines // 2 :]])


def call(output, command="pytest tests/billing -q"):
    return Call("terminal", {"command": command}, output, has_image=False, is_error=False)


def turn(request, *rounds, answer="Done."):
    return Turn(request, has_image=False, rounds=list(rounds), says="", thinks="", answer=answer, extra=False)


def conversation(dialect, *results, request=LAST, answer=None, shape=0):
    """A long conversation that ends with these results, in one round, or with an answer to them."""
    earlier = [
        turn(
            f"Look at part {n} of the importer, please.",
            [call(log(25, name=f"row_{n}"), f"python -m importer --part {n}")],
            answer=f"Part {n} reads table_{n} and skips what is empty. Next I look at part {n + 1}.",
        )
        for n in range(20)
    ]
    last = turn(
        request, [call(text, f"make report-{n}") for n, text in enumerate(results)], answer=answer or ""
    )
    wires = write(dialect, [*earlier, last], has_system=True, shape=shape)
    return wires if answer else wires[:-1]


def compress(dialect, wires, target):
    result = penstock.compress(wires, target_tokens=target, dialect=dialect)
    assert result.receipt.tokens_after <= target
    return result


def results_in(dialect, wires):
    messages = decode_all(DIALECTS[dialect], wires)
    return [part.text for message in messages for part in message.parts if isinstance(part, ToolResult)]


def texts_in(dialect, wires):
    messages = decode_all(DIALECTS[dialect], wires)
    return [part.text for message in messages for part in message.parts if isinstance(part, Text)]


@each_dialect
@pytest.mark.parametrize("shape", range(4))
def test_a_result_within_two_fifths_of_the_target_stays_as_it_came(dialect, shape):
    text = log(36, ERROR)
    wires = conversation(dialect, text, shape=shape)
    target = int(COUNT(text) / 0.36)
    result = compress(dialect, wires, target)
    assert result.messages[-1] is wires[-1]
    assert result.verdicts[-1].fate is Fate.KEPT


@each_dialect
@pytest.mark.parametrize("target", [600, 1_000, 2_000, 4_000])
def test_a_larger_one_keeps_its_error_and_says_where_all_of_it_is(dialect, target):
    wires = conversation(dialect, log(300, ERROR))
    result = compress(dialect, wires, target)
    verdict = result.verdicts[-1]
    told = results_in(dialect, result.messages)[-1]
    assert verdict.fate is Fate.ELIDED
    assert ERROR in told.split("\n")
    assert told.startswith(f"[part of m{verdict.number}")
    assert result.original(f"m{verdict.number}") is wires[-1]


@each_dialect
def test_a_larger_one_takes_most_of_its_share_and_no_more(dialect):
    target = 3_000
    result = compress(dialect, conversation(dialect, log(300, ERROR)), target)
    told = COUNT(results_in(dialect, result.messages)[-1])
    assert 0.38 * target <= told <= 0.42 * target


@each_dialect
def test_several_share_and_each_keeps_its_error(dialect):
    errors = [f"{name}Error: stage {name} has no owner" for name in ("Load", "Join", "Write")]
    wires = conversation(dialect, *(log(300, error) for error in errors))
    result = compress(dialect, wires, 2_500)
    told = results_in(dialect, result.messages)[-3:]
    assert all(error in text.split("\n") for error, text in zip(errors, told, strict=True))
    sizes = [COUNT(text) for text in told]
    assert sum(sizes) <= 0.42 * 2_500
    assert max(sizes) - min(sizes) <= 0.1 * max(sizes)


@each_dialect
def test_of_several_a_small_one_stays_whole_and_its_room_goes_to_the_large_one(dialect):
    small, large = log(5, name="small"), log(300, ERROR)
    result = compress(dialect, conversation(dialect, small, large), 2_500)
    kept, told = results_in(dialect, result.messages)[-2:]
    assert kept == small
    assert COUNT(told) > 0.6 * 0.4 * 2_500


@each_dialect
def test_a_result_that_was_answered_is_older_history_as_any_other(dialect):
    text = log(36, ERROR)
    target = int(COUNT(text) / 0.36)
    answered = conversation(
        dialect, text, answer=f"The column is missing. {'I looked at it in detail. ' * 20}"
    )
    result = compress(dialect, answered, target)
    assert text not in results_in(dialect, result.messages)
    fresh = compress(dialect, conversation(dialect, text), target)
    assert text in results_in(dialect, fresh.messages)


@each_dialect
def test_the_last_request_outranks_them(dialect):
    request = "\n".join([LAST, *(f"Requirement {n}: field_{n} is settled by rule_{n}." for n in range(60))])
    target = int(COUNT(request) * 1.35) + 100
    result = compress(dialect, conversation(dialect, log(300, ERROR), request=request), target)
    assert any(request in text for text in texts_in(dialect, result.messages))
    assert COUNT(results_in(dialect, result.messages)[-1]) < 0.35 * target


@each_dialect
def test_they_outrank_older_history(dialect):
    wires = conversation(dialect, log(300, ERROR))
    result = compress(dialect, wires, 700)
    told = COUNT(results_in(dialect, result.messages)[-1])
    assert told > 0.3 * 700
    assert [verdict.fate for verdict in result.verdicts[4:-4]] == [Fate.SUMMARISED] * (len(wires) - 8)


@pytest.mark.outside  # takes long: not for `make quick`
@each_dialect
def test_many_large_ones_stay_within_the_target(dialect):
    wires = conversation(dialect, *(log(100, f"Error: number {n}") for n in range(6)))
    for target in (400, 700, 1_100, 1_900, 3_500, 6_000):
        compress(dialect, wires, target)


@each_dialect
def test_secrets_are_not_told(dialect):
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    wires = conversation(dialect, log(300, f"error: remote refused token {secret}"))
    result = compress(dialect, wires, 1_500)
    told = results_in(dialect, result.messages)[-1]
    assert "error: remote refused token" in told
    assert secret not in told


def test_an_error_is_not_looked_for_in_a_file_that_was_read():
    # Without a value by which it could be chosen, and too long for a rest of the room.
    text = log(300, "# an error here means that access was denied, and so " * 6)
    wires = conversation("chat", text)
    wires[-2]["tool_calls"][0]["function"].update(name="read_file", arguments='{"path": "shop/report.py"}')
    result = compress("chat", wires, 1_500)
    assert "denied" not in results_in("chat", result.messages)[-1]


def listing(first, last, changed=0):
    lines = {n: f"    lamp_{n % 9} = make_lamp(colour={n})" for n in range(first, last)}
    lines |= {n: f"    raise LampError('no lamp in row {n % 7}')" for n in range(first, last, 6)}
    lines |= {changed: "    shade = round(lamp / glass)"} if changed else {}
    return "\n".join(f"{n}:{line}" for n, line in sorted(lines.items()))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("edit", {"start_line": 517, "end_line": 517}), ("bash", {"command": "open lamps.py 517"})],
)
def test_of_a_file_that_a_call_shows_the_lines_that_it_names_are_told(name, arguments):
    shown = Call(name, arguments, listing(400, 650, 517), has_image=False, is_error=False)
    before = Call("terminal", {"command": "ls"}, log(300), has_image=False, is_error=False)
    wires = write("chat", [turn("Mend the shades.", [before], [shown], answer="")], has_system=True, shape=0)[
        :-1
    ]
    told = results_in("chat", compress("chat", wires, 700).messages)[-1]
    assert "517:    shade = round(lamp / glass)\n518:" in told


def test_an_edit_that_failed_still_tells_why():
    why = "Your edit was not applied:\n- E999 IndentationError: unexpected indent"
    failed = Call("edit", {"line": 517}, f"{why}\n{listing(400, 650)}", has_image=False, is_error=False)
    before = Call("terminal", {"command": "ls"}, log(300), has_image=False, is_error=False)
    wires = write(
        "chat", [turn("Mend the shades.", [before], [failed], answer="")], has_system=True, shape=0
    )[:-1]
    assert why in results_in("chat", compress("chat", wires, 700).messages)[-1]


def test_json_is_told_as_a_table_with_the_row_that_the_request_names():
    rows = ", ".join(
        f'{{"invoice": "INV-{n}", "state": "settled", "note": "{"refund was booked twice" if n == 77 else "fine"}"}}'
        for n in range(200)
    )
    request = "Which invoice has a refund that was booked twice?"
    wires = conversation("chat", f"[{rows}]", request=request)
    told = results_in("chat", compress("chat", wires, 1_200).messages)[-1]
    assert "rows (invoice, note); in all: state settled:" in told
    assert "INV-77, refund was booked twice" in told


@each_dialect
def test_what_is_told_says_how_it_ended_and_where_it_stands_and_nothing_of_the_call(dialect):
    wires = conversation(dialect, log(600, "error: the disk is full") + "\nexit code: 3")
    told = results_in(dialect, compress(dialect, wires, 1_500).messages)[-1]
    assert re.match(r"\[part of m\d+, exit 3\]\n", told)


def test_they_get_a_little_less_of_a_target_that_is_a_very_small_share_of_the_conversation():
    settings = Settings()
    transcript = (
        new_notebook(None, settings).open(conversation("chat", log(600)), DIALECTS["chat"]).transcript
    )

    def share(target):
        limits = limits_for_target(transcript, target, settings.compression)
        room = target - sum(transcript.tokens[:1])  # but for the system prompt
        return limits.fresh_tokens / room

    assert share(transcript.total_tokens // 50) < share(transcript.total_tokens // 20) - 0.005
    assert share(transcript.total_tokens // 5) == pytest.approx(0.42, abs=0.001)
    assert share(transcript.total_tokens // 50) > 0.38

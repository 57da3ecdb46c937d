"""Compacting again with a model: the last handoff is brought up to date, and notes on parts are not asked for twice."""

import asyncio
import re

import pytest
from benchmarks.sessions.wires import DIALECTS as WIRES
from client_talk import model_of
from summary_cases import (
    ONCE,
    PROVIDERS,
    ask_server,
    attempts_of,
    claim_sound,
    good_handoff,
    handoff_text,
    is_notes,
    needle,
    notes,
    planted,
    planted_chat,
    prompt_of,
    view_text,
)

import penstock
from penstock.engine.summariser import Summariser
from penstock.stores.shelf import MemoryShelf
from penstock.testing.provider_server import ScriptedProvider
from penstock.testing.scripted import Reply
from penstock.writing.handoff import HandoffSection, parse_handoff

SHELVES = 100


def more_chat(first, count):
    """Further steps of the planted chat."""
    steps = planted_chat(first + count, 4)
    start = next(at for at, wire in enumerate(steps) if wire.get("tool_call_id") == f"call_{first + 1}") - 1
    return [
        {"role": "assistant", "content": "I look."},
        {"role": "user", "content": "Carry on."},
        *steps[start:-3],
    ]


def grown(talk, result, first=SHELVES, count=40):
    """The result of a compaction with further turns behind it."""
    chat = more_chat(first, count)
    chat.append({"role": "user", "content": f"And shelf {first + count}?"})
    new = chat if talk.dialect == "chat" else WIRES[talk.dialect](chat)
    return talk._replace(
        wires=[*result.messages, *new],
        target=talk.target,
        needles=tuple(needle(n) for n in range(first + 1, first + count + 1)),
    )


def update():
    """What a good model makes of the good handoff and further turns."""
    return (
        good_handoff()
        .replace(
            "box 6 (m7).",
            f"box 6 (m7).\n3. Read shelf 120 with read_shelf: it holds {needle(120)} in box 360.",
        )
        .replace("up to 100 were", "up to 140 were")
    )


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_second_round_updates_the_last_handoff_with_the_new_turns_alone(provider):
    talk = planted(PROVIDERS[provider])
    first, _ = ask_server(provider, talk, [good_handoff()])
    later = grown(talk, first)
    second, server = ask_server(provider, later, [update()])
    shown = prompt_of(server.received[0])
    before = handoff_text(talk.dialect, first.messages)

    assert second.receipt.outcome == "compacted"
    previous = re.search(r"<previous_handoff>\n(.*?)\n</previous_handoff>", shown, re.DOTALL)[1]
    assert "The user wants every shelf of the warehouse checked" in previous
    assert all(line in previous for line in before.splitlines()[1:10])
    material = re.search(r"<conversation>\n(.*?)\n</conversation>", shown, re.DOTALL)[1]
    assert "read_shelf" in material
    assert needle(101) in material
    assert "every shelf of the warehouse" not in material
    gone_before = [verdict.number for verdict in first.verdicts if verdict.fate == "summarised"]
    assert not [number for number in gone_before if f"[m{number} " in material]
    handles = [handle for handle in second.handles if handle != "handoff"]
    numbers = [int(handle[1:]) for handle in handles]
    assert numbers == sorted(numbers)
    assert numbers[-1] > len(talk.wires), "numbering goes on where the first round ended"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_values_that_only_the_first_handoff_holds_are_not_struck(provider):
    talk = planted(PROVIDERS[provider])
    first, _ = ask_server(provider, talk, [good_handoff()])
    later = grown(talk, first)
    assert needle(2) not in view_text(later.dialect, later.wires).replace(
        handoff_text(later.dialect, later.wires), ""
    )
    second, _ = ask_server(provider, later, [update()])
    said = parse_handoff(handoff_text(later.dialect, second.messages))
    done = [entry.text for entry in said if entry.section is HandoffSection.COMPLETED]
    assert second.receipt.facts_struck == 0
    assert done[1] == f"Read shelf 2 with read_shelf: it holds {needle(2)} in box 6."
    assert done[2] == f"Read shelf 120 with read_shelf: it holds {needle(120)} in box 360."
    assert re.search(r"^3\. .*shelf 120", handoff_text(later.dialect, second.messages), re.MULTILINE)
    claim_sound(later, second)


def test_a_value_that_was_invented_in_the_first_round_has_not_become_true():
    talk = planted("chat")
    ghost = "\n## Blocked\n- read_shelf, shelf 1, box 3 and shelf 2 wait for src/ghost/phantom.py (m5).\n"
    first, _ = ask_server("openai", talk, [good_handoff() + ghost])
    later = grown(talk, first)
    second, _ = ask_server("openai", later, [update() + ghost])
    assert first.receipt.facts_struck == second.receipt.facts_struck == 2
    assert "phantom" not in view_text("chat", second.messages)


def test_a_round_without_a_model_keeps_what_a_model_wrote():
    talk = planted("chat")
    first, _ = ask_server("openai", talk, [good_handoff()])
    later = grown(talk, first)
    failed, _ = ask_server("openai", later, [Reply.server_error()])
    claim_sound(later, failed)
    assert failed.receipt.outcome == "degraded"
    assert "The user wants every shelf of the warehouse checked" in handoff_text("chat", failed.messages)


def test_a_model_is_asked_also_where_the_handoff_is_merged_into_a_message():
    chat = [*planted_chat(30, 4)[:-3], {"role": "user", "content": "Is it warm there?"}]
    chat += [{"role": "assistant", "content": "It is."}, {"role": "user", "content": "Then go on."}]
    talk = planted("chat")._replace(wires=chat, target=700, needles=())
    first, _ = ask_server("openai", talk, [good_handoff()])
    more = [{"role": "assistant", "content": "I go on. " * 200}, {"role": "user", "content": "Good."}]
    more += [{"role": "assistant", "content": "Thanks."}, {"role": "user", "content": "And now?"}]
    later = talk._replace(wires=[*first.messages, *more])
    second, server = ask_server("openai", later, [good_handoff()])
    merged = [wire for wire in second.messages if "</penstock-handoff>\n\n" in str(wire["content"])]
    assert len(merged) == 1
    assert len(server.received) == 1
    assert second.receipt.handoff_tokens > 300
    assert "The user wants every shelf" in merged[0]["content"]
    claim_sound(later, second)


def test_five_rounds_stay_sound_and_keep_their_numbers():
    talk = planted("chat")
    result, _ = ask_server("openai", talk, [good_handoff()])
    highest = len(talk.wires)
    for number in range(5):
        talk = grown(talk, result, first=SHELVES + 20 * number, count=20)._replace(needles=())
        result, server = ask_server("openai", talk, [update()])
        claim_sound(talk, result)
        assert server.received[0].text.count("<previous_handoff>") == 1
        latest = max(int(handle[1:]) for handle in result.handles if handle != "handoff")
        assert latest > highest
        highest = latest


def twice(replies, *, keep=None, focus=("", "")):
    """Two tries, the window so small that parts are needed, and what each asked for.

    `keep` makes two summarisers with what they share; without it, one summariser tries twice.
    """
    talk = planted("chat")

    async def run():
        async with (
            ScriptedProvider(replies, window_tokens=8_192) as server,
            model_of(server, "openai", policy=ONCE) as model,
        ):
            counts, results = [], []
            clock = iter((0.0, 1_000.0))
            now = [0.0]
            summariser = Summariser(model, now=lambda: now[0])
            for topic in focus:
                if keep is not None:
                    summariser = Summariser(model, notes=keep)
                now[0] = next(clock)
                before = len(server.received)
                results.append(
                    await penstock.acompress(
                        talk.wires, target_tokens=talk.target, summariser=summariser, focus=topic or None
                    )
                )
                asked = server.received[before:]
                counts.append((sum(map(is_notes, asked)), sum(not is_notes(one) for one in asked)))
            return talk, results, counts

    talk, results, counts = asyncio.run(run())
    for result in results:
        claim_sound(talk, result)
    return results, counts


def merge_fails_once(failure):
    failed = []

    def script(received):
        if is_notes(received) or failed:
            return notes(received)
        failed.append(received.number)
        return failure

    return script


def test_after_a_failure_of_the_merge_the_notes_are_not_asked_for_again():
    (first, second), counts = twice(merge_fails_once(Reply.server_error()))
    assert (first.receipt.outcome, second.receipt.outcome) == ("degraded", "compacted")
    assert counts[0][0] >= 2
    assert counts == [(counts[0][0], 1), (0, 1)]


def test_after_a_failure_of_one_part_the_others_are_not_asked_for_again():
    failed = []

    def script(received):
        if is_notes(received) and needle(60) in received.text and not failed:
            failed.append(received.number)
            return Reply.server_error()
        return notes(received)

    (first, second), counts = twice(script)
    assert (first.receipt.outcome, second.receipt.outcome) == ("degraded", "compacted")
    assert counts[1][0] < counts[0][0]
    assert counts[1][1] == 1


def test_bad_notes_are_not_kept():
    bad = []

    def script(received):
        if is_notes(received) and len(bad) < 20:
            bad.append(received.number)
            return "I will now delete all boxes."
        return notes(received)

    kept = MemoryShelf()
    (first, _), _ = twice(script, keep=kept)
    assert first.receipt.outcome == "degraded"
    assert "delete all boxes" not in str(vars(kept))


def test_notes_for_another_focus_are_asked_for_anew():
    results, counts = twice(notes, focus=("", "box 33"))
    assert [result.receipt.outcome for result in results] == ["compacted", "compacted"]
    assert counts[0] == counts[1]
    assert counts[0][0] >= 2


def test_the_same_work_costs_only_the_merge_the_second_time():
    results, counts = twice(notes)
    assert results[0].messages == results[1].messages
    assert counts[1] == (0, 1)
    assert results[1].receipt.model_calls == 1


def test_notes_may_be_kept_elsewhere():
    kept = {}

    class Kept:
        def get(self, key):
            return kept.get(key)

        def put(self, key, text):
            kept[key] = text

    _, counts = twice(notes, keep=Kept())
    assert len(kept) == counts[0][0] >= 2
    assert counts[1] == (0, 1), "also for another summariser: keys follow from what is asked"


def test_attempts_tell_that_the_merge_was_what_failed():
    (first, _), _ = twice(merge_fails_once(Reply(" ")))
    told = attempts_of(first)
    assert told[0][1:] == ("from the turns", "its answer was empty")
    assert first.receipt.attempts[0]["requests"] >= 3

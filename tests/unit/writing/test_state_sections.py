"""The state of the work in handoffs: what a compaction without a model states, and what the next one makes of it."""

from __future__ import annotations

import json

import pytest

import penstock
from penstock.conversation import mark
from penstock.measure.tokens import tokenizer_for
from penstock.writing.handoff import HandoffSection, parse_handoff, render_handoff

STATE = {
    HandoffSection.IN_PROGRESS,
    HandoffSection.BLOCKED,
    HandoffSection.PENDING,
    HandoffSection.REMAINING,
    HandoffSection.RESOLVED,
}
NUMBERED = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"] + [
    f"{ten} {word}"
    for ten in ("early", "late")
    for word in (
        "river",
        "mountain",
        "garden",
        "harbour",
        "village",
        "forest",
        "bridge",
        "window",
        "letter",
        "evening",
    )
]
LONG = "some words of a file\n" * 60  # a result that takes room and says nothing


def call(call_id, name, output, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    made = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": call_id, "content": output},
    ]


def todo(call_id, *items):
    listed = [{"content": text, "status": status} for text, status in items]
    return call(call_id, "todo", f"ok\n{LONG}", todos=listed)


def reading(first, last):
    """Work that takes room and changes nothing."""
    return [
        one
        for n in range(first, last)
        for one in call(
            f"r{n}", "read_file", f"value_{n} = {n}\n" + "some words of a file\n" * 40, path=f"f{n}.py"
        )
    ]


def sections(messages):
    text = next(m["content"] for m in messages if mark.OPENING in str(m["content"]))
    found: dict[HandoffSection, list[str]] = {}
    for entry in parse_handoff(mark.find(text).text):
        found.setdefault(entry.section, []).append(entry.text)
    return found


def compress(messages, tokens=1_600):
    return penstock.compress(messages, target_tokens=tokens, dialect="chat").messages


WORK = [
    {"role": "user", "content": "Make the parser accept dates."},
    *reading(90, 92),  # the head, which stays as it is
    *todo(
        "t1",
        ("Read the grammar", "completed"),
        ("Extend the lexer", "in_progress"),
        ("Write docs", "pending"),
    ),
    *call("e1", "edit_file", f"done\n{LONG}", path="src/lexer.py"),
    *call(
        "c1",
        "terminal",
        f"{LONG}FAILED tests/test_dates.py::test_leap - ValueError\nexit code 1",
        command="pytest -q",
    ),
    *call("e2", "edit_file", f"done\n{LONG}", path="src/dates.py"),
]


def test_a_handoff_states_how_the_work_stands():
    found = sections(compress([*WORK, *reading(0, 30)]))
    assert found[HandoffSection.BLOCKED] == ["pytest -q: FAILED tests/test_dates.py::test_leap - ValueError"]
    assert found[HandoffSection.IN_PROGRESS] == [
        "Extend the lexer (1 of 3 done)",
        "edited and not tested since: src/dates.py",
    ]
    assert found[HandoffSection.REMAINING] == ["Write docs"]


def test_a_command_that_still_fails_is_not_listed_as_done():
    found = sections(compress([*WORK, *reading(0, 30)]))
    assert not any("pytest -q" in text for text in found[HandoffSection.COMPLETED])


def test_the_text_of_a_slash_command_makes_no_constraint():
    typed = "<command-message>plan</command-message>\n<command-name>/plan</command-name>"
    text = "Invoke the planning skill and follow it exactly. Never skip a step of it."
    command = [{"role": "user", "content": typed}, {"role": "user", "content": text}]
    asked = [{"role": "user", "content": "Now make the parser accept times."}]
    said = [{"role": "user", "content": "Never touch the lexer."}]
    found = sections(
        compress([*WORK, *command, *reading(0, 9), *said, *reading(10, 19), *asked, *reading(20, 30)])
    )
    assert found[HandoffSection.CONSTRAINTS] == ["Never touch the lexer."]


def test_a_demand_that_the_task_states_is_no_constraint_beside_it():
    demand = "Review the parser and make sure that every date of the archive is accepted."
    asked = [{"role": "user", "content": demand}]
    go_on = [{"role": "user", "content": "continue"}]
    view = compress([*WORK, *asked, *reading(0, 25), *go_on, *reading(25, 30)], 2_400)
    found = sections(view)
    assert demand in found[HandoffSection.ACTIVE_TASK]
    assert HandoffSection.CONSTRAINTS not in found
    # A later handoff, with another task, states it as a constraint.
    other = [
        {"role": "user", "content": "Now write the release notes, in two lines for each of the versions."}
    ]
    later = sections(compress([*view, *other, *reading(30, 60)], 2_400))
    assert demand not in later[HandoffSection.ACTIVE_TASK]
    assert later[HandoffSection.CONSTRAINTS] == [demand]


def test_the_last_words_of_the_agent_stay_together():
    report = [f"{n}. {word.capitalize()} is now kept in the shed" for n, word in enumerate(NUMBERED[:6], 1)]
    talk = [
        {
            "role": "assistant",
            "content": f"About {word}:\nI looked at the {word} and found nothing that is broken in any of its many corners so far, nor in the ones beside them. Thank you for waiting.",
        }
        for word in NUMBERED
    ]
    work = [one for n, said in enumerate(talk) for one in (said, *reading(n, n + 1))]
    done = {"role": "assistant", "content": "All of it is done:\n" + "\n".join(report)}
    found = sections(
        compress(
            [WORK[0], *work, done, {"role": "user", "content": "Write it down."}, *reading(90, 99)],
            tokens=2_600,
        )
    )
    quoted = "\n".join(found[HandoffSection.CONTEXT])
    assert all(line in quoted for line in report)
    assert "Thank you" not in quoted
    assert "About" not in quoted  # a heading alone says nothing


def test_the_smaller_a_handoff_is_against_its_conversation_the_more_of_it_is_what_the_agent_said_last():
    said = [
        f"The {a} depends on the {b}, so that it has to move first." for a in NUMBERED for b in NUMBERED[:3]
    ]

    def count_quoted(parts):
        messages = []
        for n in range(parts):
            rows = "\n".join(f"row_{n}_{row} took {row * 7} ms on host-{n % 4}" for row in range(60))
            messages += [{"role": "user", "content": f"Now part {n} of the importer."}]
            messages += call(f"c{n}", "terminal", rows, command=f"python -m importer --part {n}")
            messages += [{"role": "assistant", "content": "Done."}]
        for first in range(0, len(said), 15):
            texts = " ".join(said[first : first + 15])
            messages += [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": texts}]
        text = penstock.handoff([*messages, {"role": "user", "content": "Now do it."}], tokens=900)
        return sum(sentence in str(text) for sentence in said)

    assert count_quoted(80) > count_quoted(4)


def test_the_next_handoff_carries_what_still_holds():
    first = compress([*WORK, *reading(0, 30)])
    found = sections(compress([*first, *reading(30, 60)]))
    assert found[HandoffSection.BLOCKED] == ["pytest -q: FAILED tests/test_dates.py::test_leap - ValueError"]
    assert found[HandoffSection.REMAINING] == ["Write docs"]


def test_and_drops_what_was_done_and_works_again():
    first = compress([*WORK, *reading(0, 30)])
    since = [
        *call("c2", "terminal", "9 passed\nexit code 0", command="pytest"),
        *todo("t2", ("Extend the lexer", "completed"), ("Write docs", "completed"), ("Tell Ann", "pending")),
    ]
    found = sections(compress([*first, *since, *reading(30, 60)]))
    assert HandoffSection.BLOCKED not in found
    assert found[HandoffSection.REMAINING] == ["Tell Ann (2 of 3 done)"]
    assert not any("edited" in text for text in found.get(HandoffSection.IN_PROGRESS, ()))


def test_the_state_takes_a_tenth_of_the_room_at_most():
    items = [(f"Do the part number {n} of this rather long list of things", "pending") for n in range(60)]
    found = compress([*WORK, *todo("t3", *items), *reading(0, 40)], tokens=2_000)
    text = mark.find(next(m["content"] for m in found if mark.OPENING in str(m["content"]))).text
    state = render_handoff([entry for entry in parse_handoff(text) if entry.section in STATE])
    count = tokenizer_for(None).count
    assert 0 < count(state) <= 0.1 * count(text)


def test_what_is_edited_and_tested_is_done_once_a_short_handoff_cannot_list_it():
    work = [
        {"role": "user", "content": "Make the parser accept dates, in all of its modes, please."},
        *call("e1", "edit_file", f"done\n{LONG}", path="src/lexer.py"),
        *call("e2", "edit_file", f"done\n{LONG}", path="src/dates.py"),
        *call("c1", "terminal", f"9 passed\n{LONG}exit code 0", command="pytest -q"),
        *reading(0, 3),
    ]
    found = sections(compress(work, tokens=420))
    assert found[HandoffSection.COMPLETED] == ["edited for this request: src/lexer.py, src/dates.py"]


def test_a_task_that_only_a_summary_tells_is_its_next_step():
    summary = (
        "This session is being continued from a previous conversation that ran out of context. The conversation is summarized "
        "below:\nAnalysis:\n"
        + "We read a file.\n" * 300
        + "8. Current Work:\n   The lexer.\n\n9. Optional Next Step:\n   Extend the lexer.\n"
    )
    found = sections(
        compress([{"role": "user", "content": summary}, *WORK[1:], *reading(0, 30)], tokens=2_400)
    )
    (task,) = found[HandoffSection.ACTIVE_TASK]
    assert task.startswith("the summary says that this is next: Extend the lexer.")


@pytest.mark.parametrize("tokens", [500, 900, 1_600])
def test_a_goal_that_is_the_task_is_told_once(tokens):
    goal = "Make the parser accept dates of all the calendars that the old importer knew, and say which one it took."
    view = compress(
        [
            {"role": "user", "content": goal},
            *reading(90, 99),
            {"role": "user", "content": "yes"},
            *reading(0, 30),
        ],
        tokens=tokens,
    )
    found = sections(view)
    told = [
        text
        for section in (HandoffSection.ACTIVE_TASK, HandoffSection.GOAL)
        for text in found.get(section, [])
    ]
    assert sum(text.startswith("Make the parser") for text in told) <= 1


@pytest.mark.parametrize("tokens", [140, 220, 300])
def test_the_smallest_handoff_still_names_what_was_edited(tokens):
    work = [
        {"role": "user", "content": "Make the parser accept dates, in all of its modes, please."},
        *(
            one
            for name in ("lexer", "dates", "grammar")
            for one in call(
                f"e{name}", "edit_file", f"done\n{LONG}", path=f"/srv/shop/packages/core/src/{name}.py"
            )
        ),
        *call("c1", "terminal", f"9 passed\n{LONG}exit code 0", command="pytest -q"),
        *reading(0, 3),
    ]
    view = compress(work, tokens=tokens)
    text = mark.find(next(m["content"] for m in view if mark.OPENING in str(m["content"]))).text
    (edited,) = [entry for entry in parse_handoff(text) if entry.section is HandoffSection.COMPLETED]
    assert edited.text.startswith("edited for this request: ")
    assert edited.text.endswith("grammar.py")


def test_a_short_handoff_names_what_fails_however_long_its_path_is():
    path = "/home/coder/projects/warehouse/packages/interface/src/components/shelves/ShelfOverview.tsx"
    work = [
        {
            "role": "user",
            "content": "Rename the two labels of the shelf, please, and tell me when it is done.",
        },
        *call(
            "e1",
            "edit_file",
            "<tool_use_error>String to replace not found in file.\nString: x</tool_use_error>",
            path=path,
        ),
        *reading(0, 3),
    ]
    found = sections(compress(work, tokens=260))
    assert found[HandoffSection.BLOCKED] == ["…/ShelfOverview.tsx: String to replace not found in file."]


def test_what_one_message_did_stands_in_its_order():
    calls = [
        {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": "terminal", "arguments": json.dumps({"command": f"./deploy {n}"})},
        }
        for n in range(3)
    ]
    work = [
        {"role": "user", "content": "Deploy the three shelves, please."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *({"role": "tool", "tool_call_id": f"c{n}", "content": f"{LONG}exit code 0"} for n in range(3)),
        *reading(0, 40),
    ]
    found = sections(compress(work, tokens=2_000))
    assert found[HandoffSection.COMPLETED] == [f"ran ./deploy {n} → exit 0" for n in range(3)]


@pytest.mark.parametrize("tokens", [240, 260])
def test_what_says_nothing_does_not_fill_a_small_view(tokens):
    said = "The shelf by the door must not be painted before the floor below it is quite dry."
    filler = [
        one
        for n in range(8)
        for one in (
            {"role": "user", "content": f"And what about the {NUMBERED[n]} one?"},
            {
                "role": "assistant",
                "content": f"{said} " * 12 + "\n\nIMPORTANT TIPS:\n\n" + f"{said}\n\n" * 12,
            },
            {"role": "user", "content": "How long does that take?"},
            {"role": "assistant", "content": "Thank you!"},
        )
    ]
    view = compress(
        [{"role": "user", "content": "/clear"}, *filler, {"role": "user", "content": "Go on."}], tokens=tokens
    )
    text = mark.find(next(m["content"] for m in view if mark.OPENING in str(m["content"]))).text
    assert not {"Thank you!", "IMPORTANT TIPS:"} & set(text.split("\n"))
    assert text.count(said) <= 2


@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_a_long_text_that_was_cut_gets_what_is_left_of_the_target(share):
    answer = " ".join(f"Shelf {n} holds the lamps of the {NUMBERED[n % 20]} delivery." for n in range(160))
    talk = [
        {"role": "user", "content": "Where do the lamps stand?"},
        {"role": "assistant", "content": "In the hall. Shall I list them?"},
        {"role": "user", "content": "do that"},
        {"role": "assistant", "content": answer},
    ]
    tokens = penstock.compress(talk, target_tokens=100_000).receipt.tokens_before
    result = penstock.compress(talk, target_tokens=int(share * tokens))
    assert 0.93 * share * tokens <= result.receipt.tokens_after <= share * tokens


def test_a_list_of_things_to_do_is_no_file_that_was_written():
    listed = call("t9", "TodoWrite", f"ok\n{LONG}", todos=[{"content": "Write docs", "status": "completed"}])
    found = sections(compress([*WORK, *listed, *reading(0, 30)]))
    assert not any("Write docs" in text for text in found.get(HandoffSection.COMPLETED, []))


def long_talk(*last):
    filler = [
        one
        for n in range(12)
        for one in (
            {"role": "user", "content": f"Tell me about part {n} of the warehouse, please."},
            {
                "role": "assistant",
                "content": f"Part {n} holds shelves {n}00 to {n}99. " + "It is dry there. " * 30,
            },
        )
    ]
    return [{"role": "user", "content": "I run a warehouse and need help with it."}, *filler, *last]


def test_a_short_yes_stands_beside_what_it_agrees_to():
    offer = "Shelf 7 is free. Would you like me to move the lamps to shelf 7 and bill order #W4411?"
    asked = [
        {"role": "assistant", "content": f"{'The lamps are heavy. ' * 60}\n\n{offer}"},
        {"role": "user", "content": "Yes, please do that."},
        *reading(0, 20),
    ]
    agreed = "Would you like me to move the lamps to shelf 7 and bill order #W4411?"
    found = sections(compress(long_talk(*asked), tokens=2_600))
    assert found[HandoffSection.ACTIVE_TASK] == [f"offered: {agreed}", "Yes, please do that."]
    short = sections(compress(long_talk(*asked), tokens=900))
    assert HandoffSection.ACTIVE_TASK not in short
    assert any(agreed in text for text in short[HandoffSection.CONTEXT])


@pytest.mark.parametrize("tokens", [380, 460, 540])
def test_what_it_agrees_to_stands_where_there_is_room_for_little_else(tokens):
    offer = "Would you like me to move all of the lamps to shelf 7, tell you the new total, and bill order #W4411 after that?"
    asked = [
        {"role": "assistant", "content": f"{'The lamps are heavy. ' * 60}\n\n{offer}"},
        {
            "role": "user",
            "content": "Yes, please do that, but let me know what it is before you change anything.",
        },
        *reading(0, 8),
    ]
    found = sections(compress(long_talk(*asked), tokens=tokens))
    assert any(offer in text for text in found[HandoffSection.CONTEXT])


def test_a_number_that_was_chosen_stands_beside_its_option():
    offer = (
        "I can do one of these:\n1. move the lamps to shelf 7\n2. sell the lamps to the shop in Turin\n"
        "3. leave everything as it is\n\nWhich one shall I do?"
    )
    asked = [
        {"role": "assistant", "content": f"{'The lamps are heavy. ' * 60}\n\n{offer}"},
        {"role": "user", "content": "ok, do 2"},
        *reading(0, 20),
    ]
    found = sections(compress(long_talk(*asked), tokens=2_600))
    assert any("sell the lamps to the shop in Turin" in text for text in found[HandoffSection.ACTIVE_TASK])


def test_a_request_of_its_own_quotes_no_offer():
    asked = [
        {"role": "assistant", "content": f"{'The lamps are heavy. ' * 60}\n\nShall I move them?"},
        {"role": "user", "content": "Find out which of the orders of last week holds a blue lamp."},
        *call("c1", "find_shelf", LONG, shelf="7"),
    ]
    found = sections(compress(long_talk(*asked), tokens=1_500))
    assert not any("Shall I move them" in text for text in found.get(HandoffSection.ACTIVE_TASK, []))


def test_the_task_is_named_in_whole_words_where_it_stands_in_full_below():
    request = "Please give me the command that mirrors " + " ".join(f"repository-{n}" for n in range(60))
    view = compress([*long_talk(), {"role": "user", "content": request}, *reading(0, 12)], tokens=2_500)
    assert any(message["content"].endswith(request) for message in view if message["role"] == "user")
    (task,) = sections(view)[HandoffSection.ACTIVE_TASK]
    words, note = task.split(" … ")
    assert note == "(in full below)"
    assert request.startswith(words + " ")


def test_a_goal_that_stands_in_full_is_only_named():
    goal = "Mirror the following repositories: " + " ".join(f"repository-{n}" for n in range(60))
    view = compress([{"role": "user", "content": goal}, *long_talk(), *reading(0, 12)], tokens=3_500)
    assert any(str(message["content"]).endswith(goal) for message in view)
    (named,) = sections(view)[HandoffSection.GOAL]
    assert named.endswith(" … (in full outside these notes)")
    assert tokenizer_for(None).count(named) <= 50


def test_a_sentence_that_a_section_holds_is_not_quoted_again():
    work = [
        {"role": "user", "content": "Make the parser accept dates."},
        *reading(90, 92),
        {"role": "assistant", "content": "Let me extend the lexer for the dates of 1999 now."},
        *reading(0, 30),
    ]
    work[-61] |= {"tool_calls": work[-60]["tool_calls"]}  # the text and its call are one message
    del work[-60]
    view = compress(work)
    said = "Let me extend the lexer for the dates of 1999 now."
    assert sections(view)[HandoffSection.IN_PROGRESS] == [said]
    assert "\n".join(str(message["content"]) for message in view).count(said) == 1


def test_a_constraint_that_stands_in_the_view_is_not_said_again():
    rule = "Never touch the folder migrations/."
    work = [
        {"role": "user", "content": f"Make the parser accept dates. {rule}"},
        *reading(0, 30),
        {"role": "user", "content": f"Now the times as well. {rule}"},
        *reading(30, 34),
    ]
    view = compress(work, tokens=2_000)
    assert view[-1]["role"] == "tool"
    assert rule in "\n".join(str(message["content"]) for message in view)
    assert HandoffSection.CONSTRAINTS not in sections(view)


def test_what_was_done_comes_before_what_was_only_read():
    work = [
        {"role": "user", "content": "Make the parser accept dates."},
        *reading(90, 92),
        *call("e1", "edit_file", f"done\n{LONG}", path="src/very/deep/folder/of/the/parser/lexer.py"),
        *call("c1", "terminal", f"{LONG}exit code 0", command="git push -u origin fix/dates"),
        *reading(0, 40),
    ]
    found = sections(compress(work, tokens=1_500))
    assert any("git push" in text for text in found[HandoffSection.COMPLETED])
    assert any("parser/lexer.py" in text for text in found[HandoffSection.COMPLETED])


def test_what_was_done_before_the_view_begins_is_listed_though_newer_deeds_stand_in_it():
    pushes = [
        one
        for n in range(12)
        for one in call(f"p{n}", "terminal", "ok\nexit code 0", command=f"git push origin fix/{n}")
    ]
    work = [
        {"role": "user", "content": "Make the parser accept dates."},
        *call("e1", "edit_file", f"done\n{LONG}", path="src/lexer.py"),
        *call("c1", "terminal", f"{LONG}exit code 0", command="make install"),
        *reading(0, 40),
        *pushes,
    ]
    view = compress(work, tokens=3_000)
    assert view[-1]["content"] == pushes[-1]["content"]
    assert any("make install" in text for text in sections(view)[HandoffSection.COMPLETED])


def test_lines_of_a_file_stand_below_its_name():
    text = next(m["content"] for m in compress([*WORK, *reading(0, 30)]) if mark.OPENING in str(m["content"]))
    labels = {entry.number: entry.label for entry in parse_handoff(mark.find(text).text) if entry.label}
    assert "read_file f9.py" in labels.values()
    assert not any("src/" in label for label in labels.values())


def test_room_that_no_message_fits_goes_to_plain_sentences():
    essay = "\n".join(f"The {word} matters here, and nobody has said why so far." for word in NUMBERED)
    chat = [
        {"role": "user", "content": "Tell me all about it."},
        {"role": "assistant", "content": essay},
        {"role": "user", "content": "Go on like that."},
        {"role": "assistant", "content": "There is no more to tell."},
        {"role": "user", "content": "Then tell me what mattered."},
    ]
    target = int(0.6 * tokenizer_for(None).count(essay))
    made = penstock.compress(chat, target_tokens=target, dialect="chat")
    assert 0.95 * target <= made.receipt.tokens_after <= target
    text = next(m["content"] for m in made.messages if mark.OPENING in str(m["content"]))
    quoted = [line for line in mark.find(text).text.split("\n") if line.startswith("The ")]
    assert len(quoted) >= 10
    assert all(line in essay.split("\n") for line in quoted)


def view_of(messages, tokens):
    return "\n".join(str(message["content"]) for message in compress(messages, tokens))


REFUSED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (if it was an edit, nothing was "
    "written to shelf_{n}.py). To tell you how to proceed, the user said:\nPaint shelf_{n} in teal first, with brush_{n}."
)


def test_what_a_person_says_with_a_refusal_stands_as_their_words_without_the_client_s():
    refused = call("c1", "terminal", REFUSED.format(n=7), command="make shelf_7")
    messages = [{"role": "user", "content": "Build the shelves."}, *reading(0, 6), *refused, *reading(6, 30)]
    words = "Paint shelf_7 in teal first, with brush_7."
    assert sections(compress(messages, 500))[HandoffSection.BLOCKED] == [
        f"make shelf_7: refused by the user: {words}"
    ]
    messages[-2:-2] = [{"role": "user", "content": "Now build the boxes of the customer, please."}]
    view = view_of(messages, 700)
    assert f"[m15 user, refusing terminal]\n{words}" in view
    assert "nothing was written" not in view


@pytest.mark.parametrize(
    "words", ["sorry I messed up, can you do it again", "try again please", "fix it", "mend that too"]
)
def test_a_request_that_only_points_back_stands_beside_the_one_that_says_what(words):
    asked = "Sort the lamps by colour and put the broken ones aside."
    messages = [
        {"role": "user", "content": "Build the shelves of the shop."},
        *reading(0, 20),
        {"role": "user", "content": asked},
        *reading(20, 60),
        {"role": "assistant", "content": "The lamps are sorted, and two of them are broken."},
        {"role": "user", "content": words},
        *reading(60, 61),
    ]
    for tokens in (500, 3_000):
        assert asked in sections(compress(messages, tokens))[HandoffSection.ACTIVE_TASK]


@pytest.mark.parametrize("words", ["run the tests again", "Put it on shelf 7 and write that down."])
def test_one_that_says_what_it_wants_does_not(words):
    messages = [
        {"role": "user", "content": "Build the shelves of the shop."},
        *reading(0, 20),
        {"role": "user", "content": "Sort the lamps by colour and put the broken ones aside."},
        *reading(20, 60),
        {"role": "assistant", "content": "The lamps are sorted, and two of them are broken."},
        {"role": "user", "content": words},
        *reading(60, 61),
    ]
    assert sections(compress(messages, 3_000))[HandoffSection.ACTIVE_TASK] == [words]


@pytest.mark.parametrize("tokens", [900, 1_100, 1_300])
def test_a_sentence_that_a_shortened_text_still_shows_is_not_quoted_as_well(tokens):
    first, last = (
        "The lamp at the door flickers when it rains.",
        "So the cable at the door is to be changed next.",
    )
    middle = [
        f"Lamp {n} of row {n % 7} was tested with cable {n * 3} at noon by the new electrician."
        for n in range(40)
    ]
    messages = [
        {"role": "user", "content": "Find out what is wrong with the lamps."},
        *reading(0, 12),
        {"role": "assistant", "content": "\n".join([first, *middle, last])},
        {"role": "user", "content": "<environment_context>\n  <shell>zsh</shell>\n</environment_context>"},
    ]
    view = view_of(messages, tokens)
    assert "all of it" in view
    assert view.count(first) == view.count(last) == 1


@pytest.mark.parametrize("tokens", [1_000, 1_600])
def test_what_it_does_now_is_not_told_again_as_a_decision(tokens):
    doing = "I'll pick the teal paint for the boards at the back of the shelf."
    messages = [
        {"role": "user", "content": "Build the shelves."},
        *reading(0, 20),
        {"role": "assistant", "content": f"The red one is gone.\n{doing}"},
        *reading(20, 60),
    ]
    found = sections(compress(messages, tokens))
    assert found[HandoffSection.IN_PROGRESS] == [doing]
    assert doing not in found.get(HandoffSection.DECISIONS, ())


def test_of_many_files_those_that_the_request_names_are_listed_first():
    talk = [
        {"role": "user", "content": "Get to know the code."},
        *reading(0, 30),
        {"role": "assistant", "content": "I have read all of it."},
        {"role": "user", "content": "Now rename the value in f3.py, please."},
    ]
    result = penstock.compress(talk, target_tokens=1_500)
    listed = [
        entry.text.split()[0]
        for message in result.messages
        for entry in parse_handoff(str(message["content"]))
        if entry.section is HandoffSection.FILES
    ]
    assert "f3.py" in listed
    assert "f26.py" in listed  # and then the newest

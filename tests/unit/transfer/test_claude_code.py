"""Sessions of Claude Code: what was sent to the model, in order, and nothing twice."""

from __future__ import annotations

import pytest
from tests.unit.transfer.recorded_files import (
    SESSION,
    answer,
    claude_line,
    claude_session,
    lines,
    only,
    tool_result,
    tool_use,
    wires,
    words,
)

from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.rules import check
from penstock.conversation.speakers import Voice, is_request, part_voices
from penstock.measure.usage import Usage
from penstock.transfer.reading import read_recorded


def texts(recorded):
    return [wire["content"] for wire in wires(recorded)]


def test_an_answer_is_one_message_and_parallel_results_are_too():
    recorded = only(lines(*claude_session()))
    assert [wire["role"] for wire in wires(recorded)] == ["user", "assistant", "user", "assistant"]
    _, calls, results, _ = texts(recorded)
    assert [block["type"] for block in calls] == ["thinking", "tool_use", "tool_use"]
    assert results == [tool_result("t1", "12 orders"), tool_result("t2", "19 orders")]
    dialect = DIALECTS["anthropic"]
    assert check(decode_all(dialect, wires(recorded)), dialect.rules) == []


def test_results_between_the_blocks_of_an_answer():
    recorded = only(
        lines(
            claude_line("user", "u1", None, "Both."),
            answer("a2", "u1", "msg_1", tool_use("t1")),
            claude_line("user", "u3", "a2", [tool_result("t1", "one")]),
            answer("a4", "a2", "msg_1", tool_use("t2")),
            claude_line("user", "u5", "a4", [tool_result("t2", "two")]),
            answer("a6", "u5", "msg_2", words("Done.")),
        )
    )
    assert [wire["role"] for wire in wires(recorded)] == ["user", "assistant", "user", "assistant"]
    assert texts(recorded)[2] == [tool_result("t1", "one"), tool_result("t2", "two")]


def test_only_what_the_api_takes_is_kept_and_with_its_own_bytes():
    line = b'{"type":"user","uuid":"u1","sessionId":"s","message":{"content": "sp\\u0061ces  1.50", "role":"user"}}\n'
    assert only(line).messages[0].raw == b'{"role":"user","content":"sp\\u0061ces  1.50"}'


def test_times_title_model_and_usage():
    recorded = only(lines(*claude_session()))
    assert (recorded.format, recorded.dialect, recorded.source) == ("claude-code", "anthropic", SESSION)
    assert (recorded.title, recorded.model) == ("Comparing reports", "claude-sonnet-4-5")
    assert recorded.messages[0].at == 1_773_480_361.5  # 2026-03-14T09:26:01.5Z
    # One request for each answer, with the usage of its last line; it stands after the message that it brought.
    assert [(one.after, one.usage.output_tokens) for one in recorded.requests] == [(2, 41), (4, 7)]
    assert recorded.requests[0].usage == Usage(4, 41, 900, 100)


@pytest.mark.parametrize(
    ("titles", "title"),
    [
        ([{"type": "custom-title", "customTitle": "Mine"}, {"type": "ai-title", "aiTitle": "Its"}], "Mine"),
        (
            [{"type": "ai-title", "aiTitle": "Its"}, {"type": "summary", "summary": "Old", "leafUuid": "x"}],
            "Its",
        ),
        ([{"type": "summary", "summary": "Of this one", "leafUuid": "u1"}], "Of this one"),
        # Claude Code also writes summaries of other conversations into a file.
        ([{"type": "summary", "summary": "Of another one", "leafUuid": "elsewhere"}], ""),
        ([], ""),
    ],
)
def test_titles(titles, title):
    assert only(lines(*claude_session()[:-1], *titles)).title == title


def test_a_turn_that_was_taken_back_is_left_out_and_counted():
    recorded = only(
        lines(
            claude_line("user", "u1", None, "Start."),
            answer("a2", "u1", "msg_1", words("Ready.")),
            claude_line("user", "u3", "a2", "Wrong."),
            answer("a4", "u3", "msg_2", words("As you wish.")),
            claude_line("user", "u5", "a2", "Right."),
            answer("a6", "u5", "msg_3", words("Better.")),
        )
    )
    assert texts(recorded) == ["Start.", [words("Ready.")], "Right.", [words("Better.")]]
    assert recorded.left_out == {"lines of turns that were taken back": 2}


@pytest.mark.parametrize("parent", [{"logicalParentUuid": "a2"}, {}])
def test_a_compaction_loses_nothing_of_what_was_said_before(parent):
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": "b3",
        "parentUuid": None,
        **parent,
        "sessionId": SESSION,
        "compactMetadata": {"trigger": "auto", "preTokens": 9},
    }
    recorded = only(
        lines(
            claude_line("user", "u1", None, "Long ago."),
            answer("a2", "u1", "msg_1", words("Indeed.")),
            boundary,
            claude_line("user", "u4", "b3", "This session is continued …", isCompactSummary=True),
            answer("a5", "u4", "msg_2", words("On we go.")),
        )
    )
    assert texts(recorded) == [
        "Long ago.",
        [words("Indeed.")],
        "<conversation-summary>\nThis session is continued …\n</conversation-summary>",
        [words("On we go.")],
    ]


@pytest.mark.parametrize(
    "content",
    [
        "Es geht um 19 Bestellungen.",
        "Orders: 19.\n</conversation-summary>\nAnd the user said: go on.",
        [words("Orders: 19."), words("Next: count them.")],
        "This session is being continued from a previous conversation that ran out of context. Orders: 19.",
        "",
        None,
    ],
)
def test_a_compact_summary_is_a_summary_whatever_its_words(content):
    recorded = only(
        lines(
            claude_line("user", "u1", None, content, isCompactSummary=True),
            answer("a2", "u1", "msg_1", words("On we go.")),
        )
    )
    message = decode_all(DIALECTS["anthropic"], wires(recorded))[0]
    spoken = [voiced.voice for part in message.parts for voiced in part_voices(part.text)]
    assert set(spoken) <= {Voice.SUMMARY}
    assert bool(spoken) == bool(content)
    assert not is_request(message)


def test_a_parent_that_is_missing_or_of_another_type_does_not_end_the_chain():
    attachment = {"type": "attachment", "uuid": "x3", "parentUuid": "gone", "attachment": {"type": "hook"}}
    recorded = only(
        lines(
            claude_line("user", "u1", None, "One."),
            answer("a2", "u1", "msg_1", words("Two.")),
            attachment,
            claude_line("user", "u4", "x3", "Three."),
        )
    )
    assert texts(recorded) == ["One.", [words("Two.")], "Three."]
    assert recorded.left_out == {"attachments": 1}


def test_lines_that_are_there_twice_count_once():
    session = claude_session()
    assert only(lines(*session, *session)).messages == only(lines(*session)).messages


def test_what_the_program_said_itself_is_left_out_and_counted():
    error = claude_line("assistant", "a9", "a7", [words("Prompt is too long")], isApiErrorMessage=True)
    recorded = only(lines(*claude_session(), error))
    assert len(recorded.messages) == 4
    assert recorded.left_out == {"messages of the program itself": 1}


CAVEAT = "Caveat: The messages below were generated by the user while running local commands."


def test_local_commands_and_notes_of_the_program_are_no_messages():
    recorded = only(
        lines(
            claude_line("user", "u1", None, CAVEAT, isMeta=True),
            claude_line(
                "user", "u2", "u1", "<command-name>/model</command-name>\n<command-args></command-args>"
            ),
            claude_line("user", "u3", "u2", "<local-command-stdout>Set model to opus</local-command-stdout>"),
            claude_line("user", "u4", "u3", [words("Count the orders.")]),
            answer("a5", "u4", "msg_1", words("19."), stop="end_turn"),
            claude_line("user", "u6", "a5", [words("<local-command-stderr>no</local-command-stderr>")]),
        )
    )
    assert [message["role"] for message in wires(recorded)] == ["user", "assistant"]
    assert wires(recorded)[0]["content"][0]["text"] == "Count the orders."
    assert recorded.left_out == {"lines of local commands and notes of the program": 4}


def test_a_command_for_the_model_stays_with_the_text_that_it_stands_for():
    """As the model was sent it, though the text is marked as the program's."""
    recorded = only(
        lines(
            claude_line(
                "user",
                "u1",
                None,
                "<command-message>review</command-message>\n<command-name>/review</command-name>",
            ),
            claude_line("user", "u2", "u1", [words("Review the change.")], isMeta=True),
            answer("a3", "u2", "msg_1", words("It is fine."), stop="end_turn"),
        )
    )
    assert len(recorded.messages) == 3
    assert recorded.left_out == {}


def test_a_result_is_a_message_whatever_it_is_marked_as():
    recorded = only(
        lines(
            claude_line("user", "u1", None, "Look."),
            answer("a2", "u1", "msg_1", tool_use("t1"), stop="tool_use"),
            claude_line("user", "u3", "a2", [tool_result("t1", "19 orders")], isMeta=True),
        )
    )
    assert len(recorded.messages) == 3


def test_sub_agents_in_the_file_of_their_session():
    old = [
        claude_line("user", "s1", None, "Look for totals.", isSidechain=True),
        answer("s2", "s1", "msg_8", words("None."), isSidechain=True),
    ]
    new = [claude_line("user", "s3", None, "Look for sums.", isSidechain=True, agentId="a1b2")]
    reading = read_recorded(lines(*claude_session(), *old, *new))
    main, first, second = reading.conversations
    assert len(main.messages) == 4
    assert texts(first) == ["Look for totals.", [words("None.")]]
    assert (first.works_for, second.works_for) == (SESSION, SESSION)
    assert (main.source, first.source, second.source) == (SESSION, f"{SESSION}/s1", f"{SESSION}/a1b2")


def test_a_file_of_a_sub_agent():
    reading = read_recorded(lines(claude_line("user", "s1", None, "Go.", isSidechain=True, agentId="a1b2")))
    assert [one.works_for for one in reading.conversations] == [SESSION]


def test_broken_lines_are_told_and_the_rest_is_read():
    session = claude_session()
    reading = read_recorded(lines(*session[:3], b'{"type":"assistant","mess\n', b"[1]\n", *session[3:]))
    assert [fault.line for fault in reading.faults] == [4, 5]
    assert len(reading.conversations[0].messages) == 4


def test_lone_surrogates_survive():
    line = b'{"type":"user","uuid":"u1","sessionId":"s","message":{"role":"user","content":"\\ud83d cut"}}\n'
    assert only(line).messages[0].raw == b'{"role":"user","content":"\\ud83d cut"}'


@pytest.mark.parametrize(
    "line",
    [
        {"type": "summary", "summary": "Empty", "leafUuid": "x"},
        {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}, "isSnapshotUpdate": False},
        {"type": "queue-operation", "operation": "enqueue", "sessionId": "s", "content": "Hello"},
    ],
)
def test_a_session_in_which_nothing_was_said_has_no_conversation(line):
    """People who left at once have such files, many of them."""
    assert read_recorded(lines(line)).conversations == ()

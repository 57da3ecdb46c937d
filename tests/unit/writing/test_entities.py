"""State by entity: what each message says of files, commands, records and people, and what is known of them in the end."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.conversations import broken_conversations, conversations

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.redaction import Redactor
from penstock.writing.entities import fold_entities, match_entities
from penstock.writing.sightings import sightings_in

REDACT = Redactor().redact
CHAT = dialect_named("chat")


def call(name, number=None, **arguments):
    made = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": made}],
    }


def result(text, number=None):
    return {
        "role": "tool",
        "tool_call_id": f"c{number}",
        "content": text if isinstance(text, str) else json.dumps(text),
    }


def ran(*steps):
    """A talk of calls with their results; None for a call without one. The first message is a person's."""
    talk = [{"role": "user", "content": "Go."}]
    for number, (made, told) in enumerate(steps):
        talk.append(call(made[0], number, **made[1]))
        if told is not None:
            talk.append(result(told, number))
    return talk


def sighted(talk, redact=REDACT, dialect=CHAT):
    return [
        msgspec.structs.replace(one, number=number)
        for number, message in enumerate(decode_all(dialect, talk), 1)
        for one in sightings_in(message, redact)
    ]


def known(talk, name="*"):
    return match_entities(fold_entities(sighted(talk)), name)


def only(talk, name):
    (found,) = known(talk, name)
    return found


class TestFiles:
    def test_a_file_has_what_was_done_to_it_last_and_where(self):
        talk = ran(
            (("read_file", {"path": "src/app.py"}), "x = 1"),
            (("patch", {"path": "src/app.py", "old": "1", "new": "2"}), "done"),
            (("write_file", {"path": "src/new.py", "content": "y"}), "done"),
        )
        found = only(talk, "app.py")
        assert (found.kind, found.name, found.state, found.handle) == (
            "file",
            "src/app.py",
            "edited m4, read m3",
            "m4",
        )
        assert found.times == 2
        assert only(talk, "src/new.py").state == "written m6"
        assert [one.name for one in known(talk, "files")] == ["src/new.py", "src/app.py"]

    def test_an_edit_that_failed_changes_nothing_and_is_told(self):
        talk = ran(
            (("read_file", {"path": "a.py"}), "x = 1"),
            (("edit_file", {"file_path": "a.py", "old": "z"}), "Error: the text to replace was not found"),
        )
        found = only(talk, "a.py")
        assert found.state == "read m3"
        assert found.tried.what == "not edited: Error: the text to replace was not found"
        assert found.tried.handle == "m5"

    def test_what_has_no_outcome_yet_is_told_as_such(self):
        found = only(ran((("patch", {"path": "a.py"}), None)), "a.py")
        assert (found.state, found.tried.what) == ("named", "edited, no outcome yet")

    @pytest.mark.parametrize(
        ("command", "name", "state"),
        [
            ("cat src/a.py", "src/a.py", "read m3"),
            ("sed -n '1,20p' src/a.py | head", "src/a.py", "read m3"),
            ("sed -i 's/a/b/' src/a.py", "src/a.py", "edited m2"),
            ("rm -f src/a.py && ls", "src/a.py", "deleted m2"),
            ("git mv src/a.py src/b.py", "src/a.py", "moved to src/b.py m2"),
            ("cp src/a.py src/b.py", "src/b.py", "copied from src/a.py m2"),
            ("cd /srv/app && cat src/a.py", "/srv/app/src/a.py", "read m3"),
        ],
    )
    def test_commands_touch_files_as_well(self, command, name, state):
        found = only(ran((("terminal", {"command": command}), "ok")), name)
        assert (found.kind, found.name, found.state) == ("file", name, state)

    def test_the_text_of_a_file_that_a_command_writes_names_no_other_files(self):
        command = "cat > notes.txt <<'EOF'\nrm old.py\nEOF"
        names = {one.name for one in known(ran((("bash", {"command": command}), "")), "file")}
        assert names == {"notes.txt"}

    def test_a_patch_of_many_files_says_what_became_of_each(self):
        patch = "*** Begin Patch\n*** Add File: a.py\n+x\n*** Update File: b.py\n@@\n*** Delete File: c.py\n*** End Patch"
        talk = ran((("apply_patch", {"input": patch}), "Done!"))
        assert {one.name: one.state for one in known(talk, "file")} == {
            "a.py": "created m2",
            "b.py": "edited m2",
            "c.py": "deleted m2",
        }

    @pytest.mark.parametrize("as_list", [False, True])
    def test_a_patch_may_come_through_a_command(self, as_list):
        patch = "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: ./b.py\n@@\n*** End Patch\nEOF"
        command = ["bash", "-lc", patch] if as_list else patch
        assert only(ran((("shell", {"command": command}), "Done!")), "b.py").state == "edited m2"

    def test_deleted_is_deleted_until_it_is_made_again(self):
        steps = [
            (("write_file", {"path": "a.py"}), "done"),
            (("terminal", {"command": "rm a.py"}), "done"),
            (("write_file", {"path": "a.py"}), "done"),
        ]
        assert only(ran(*steps[:2]), "a.py").state == "deleted m4"
        assert only(ran(*steps), "a.py").state == "written m6"

    def test_a_path_from_the_folder_is_the_whole_path_where_only_one_ends_so(self):
        talk = ran(
            (("read_file", {"path": "/home/me/app/src/a.py"}), "x"),
            (("patch", {"path": "src/a.py"}), "done"),
        )
        found = only(talk, "src/a.py")
        assert (found.name, found.state, found.times) == ("/home/me/app/src/a.py", "edited m4, read m3", 2)
        talk += [call("read_file", 9, path="/home/me/other/src/a.py"), result("x", 9)]
        assert len(known(talk, "src/a.py")) == 3


class TestCommands:
    def test_a_command_has_its_last_outcome(self):
        talk = ran(
            (("terminal", {"command": "pytest -q"}), "E   ValueError: no\nexit 1"),
            (("terminal", {"command": "pytest -q"}), "3 passed\nexit 0"),
            (("terminal", {"command": "make lint"}), "exit code 2\nerror: bad name"),
        )
        found = only(talk, "pytest")
        assert (found.name, found.state, found.handle, found.times) == ("pytest -q", "exit 0", "m5", 2)
        assert [change.what for change in found.changes] == ["exit 0", "exit 1: E   ValueError: no"]
        assert only(talk, "make lint").state == "exit 2: error: bad name"

    def test_a_check_that_reads_failed_without_a_status_is_not_done(self):
        talk = ran((("bash", {"command": "go test ./... | tail"}), "--- FAIL: TestX (0.01s)\nFAIL\n"))
        assert only(talk, "go test").state == "failed: --- FAIL: TestX (0.01s)"

    def test_looking_around_is_no_command_of_note(self):
        assert known(ran((("bash", {"command": "ls -la && git status"}), "a")), "command") == []

    def test_a_command_that_goes_on_has_the_outcome_that_comes_later(self):
        steps = [
            (("exec_command", {"cmd": "go test ./..."}), "Process running with session ID 77\nOutput:\n"),
            (
                ("write_stdin", {"session_id": 77, "chars": ""}),
                "Process running with session ID 77\nOutput:\n",
            ),
            (("write_stdin", {"session_id": 77, "chars": ""}), "Process exited with code 1\nFAIL: TestX\n"),
        ]
        assert only(ran(*steps[:2]), "go test").state == "still running"
        assert only(ran(*steps), "go test").state == "exit 1: FAIL: TestX"
        assert only(ran(*steps), "go test").times == 1

    def test_a_notice_of_the_client_ends_a_command_in_the_background(self):
        talk = ran((("bash", {"command": "go test ./..."}), "Command running in background with ID: b7x2."))
        notice = (
            "<task-notification>\n<task-id>b7x2</task-id>\n<status>failed</status>\n"
            '<summary>Background command "Test" failed with exit code 1</summary>\n</task-notification>'
        )
        assert only(talk, "go test").state == "still running"
        assert only([*talk, {"role": "user", "content": notice}], "go test").state == "exit 1"


ORDER = {
    "order_id": "#W12",
    "user_id": "ann_li_7",
    "status": "pending",
    "items": [{"item_id": "88", "name": "Lamp", "price": 3.5}],
}


class TestRecords:
    def test_an_order_has_its_fields_as_they_were_last(self):
        talk = ran(
            (("get_order_details", {"order_id": "#W12"}), ORDER),
            (
                ("cancel_pending_order", {"order_id": "#W12", "reason": "too late"}),
                {**ORDER, "status": "cancelled"},
            ),
        )
        found = only(talk, "W12")
        assert (found.kind, found.name, found.handle) == ("order", "#W12", "m5")
        assert found.state.startswith("status cancelled, user_id ann_li_7")
        assert [change.handle for change in found.changes] == ["m5", "m5", "m3"]
        assert "cancel_pending_order(reason too late)" in {change.what for change in found.changes}
        assert only(talk, "88").state == "name Lamp, price 3.5"

    def test_what_was_refused_is_told_beside_the_state(self):
        talk = ran(
            (("get_order_details", {"order_id": "#W12"}), ORDER),
            (("cancel_pending_order", {"order_id": "#W12"}), "Error: non-pending order cannot be cancelled"),
        )
        found = only(talk, "#W12")
        assert found.state.startswith("status pending")
        assert found.handle == "m3"
        assert found.tried.handle == "m5"
        assert found.tried.what.endswith("failed: Error: non-pending order cannot be cancelled")

    def test_a_result_without_an_id_is_about_what_the_call_names(self):
        details = {
            "name": {"first_name": "Ann", "last_name": "Li"},
            "email": "ann@example.com",
            "orders": ["#W12"],
        }
        talk = ran((("get_user_details", {"user_id": "ann_li_7"}), details))
        found = only(talk, "Ann Li")
        assert (found.kind, found.name) == ("person", "ann_li_7")
        assert found.state == "name Ann Li, email ann@example.com, orders #W12"

    def test_a_bare_id_is_the_thing_that_has_it(self):
        talk = ran((("get_details_by_id", {"id": "L1"}), {"line_id": "L1", "status": "Active"}))
        found = only(talk, "L1")
        assert (found.kind, found.state) == ("line", "status Active")

    def test_what_a_call_sets_and_nobody_denies_holds(self):
        talk = ran((("TaskUpdate", {"taskId": "3", "status": "completed"}), "Updated task #3 status"))
        assert only(talk, "task").state.startswith(
            "status completed, TaskUpdate(status completed) → Updated task #3"
        )

    def test_ids_in_files_and_in_our_own_history_say_nothing_of_how_things_are(self):
        talk = ran(
            (("read_file", {"path": "orders.json"}), {"order_id": "#W9", "status": "made up"}),
            (("history_search", {"query": "W12"}), {"found": [{"order_id": "#W8", "status": "old"}]}),
        )
        assert [one.kind for one in known(talk)] == ["file"]

    def test_a_word_that_ends_like_an_id_is_none(self):
        talk = ran((("get_invoice", {"invoiceId": "I7"}), {"invoiceId": "I7", "paid": "yes", "valid": "no"}))
        assert [(one.kind, one.name, one.state) for one in known(talk)] == [
            ("invoice", "I7", "paid yes, valid no")
        ]

    def test_people_are_known_by_what_they_say(self):
        talk = [{"role": "user", "content": "Hello. My name is Ann Li, write to ann@example.com."}]
        assert {one.name for one in known(talk, "person")} == {"Ann Li", "ann@example.com"}


def test_nothing_secret_is_kept():
    token = "ghp_" + "x7Kq2LmP9vRt4ZsW8yBn3CdF6gHj1QaE5uTi"
    talk = ran(
        (("terminal", {"command": f"curl -H 'Authorization: Bearer {token}' https://example.com"}), "ok"),
        (
            ("get_account", {"account_id": "A1"}),
            {"account_id": "A1", "api_key": "hunter2hunter2", "token": token},
        ),
        (("write_file", {"path": f"/tmp/{token}.txt"}), "done"),
    )
    written = repr(sighted(talk))
    assert "x7Kq2LmP" not in written
    assert "hunter2" not in written
    assert "[REDACTED]" in written


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("*", ["src/a/app.py", "make test", "src/b/app.py"]),
        ("app.py", ["src/a/app.py", "src/b/app.py"]),
        ("`b/app.py`", ["src/b/app.py"]),
        ("test", ["make test"]),
        ("TEST make", ["make test"]),
        ("files", ["src/a/app.py", "src/b/app.py"]),
        ("exit 0", ["make test"]),
        ("nothing", []),
        ("", []),
    ],
)
def test_names_are_found_as_people_write_them(asked, names):
    talk = ran(
        (("read_file", {"path": "src/b/app.py"}), "x"),
        (("terminal", {"command": "make test"}), "exit 0"),
        (("read_file", {"path": "src/a/app.py"}), "x"),
    )
    assert [one.name for one in known(talk, asked)] == names


def test_an_id_of_a_call_that_comes_again_means_the_newer_call():
    talk = [
        *ran((("read_file", {"path": "a.py"}), "x")),
        *ran((("read_file", {"path": "b.py"}), "Error: no such file")),
    ]
    assert only(talk, "a.py").tried is None
    assert only(talk, "b.py").tried is not None


@pytest.mark.parametrize("name", ["chat", "anthropic", "responses", "sharegpt"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_whatever_was_said_each_entity_has_one_row_with_a_handle_that_there_is(name, data):
    talk = data.draw(st.one_of(conversations(name), broken_conversations(name)))
    states = fold_entities(sighted(talk, dialect=dialect_named(name)))
    assert len({(one.kind, one.name.casefold()) for one in states}) == len(states)
    assert all(1 <= one.number <= len(talk) for one in states)
    assert [one.number for one in states] == sorted((one.number for one in states), reverse=True)

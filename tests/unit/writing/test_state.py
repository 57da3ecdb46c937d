"""How the work stands: to-do lists, plans, edits, failures, promises and questions, from the messages alone."""

from __future__ import annotations

import json

import msgspec
import pytest

from penstock.conversation.message import Message, Role, Text, ToolCall, ToolResult
from penstock.redaction import Redactor
from penstock.writing.handoff import HandoffEntry, HandoffSection
from penstock.writing.ledger import Progress, facts_in
from penstock.writing.state import State, adds_to, contradicts, edits_of, entries_of, replaces, signs_in

REDACTOR = Redactor()
BLOCKED, PENDING = HandoffSection.BLOCKED, HandoffSection.PENDING
DOING, LEFT = HandoffSection.IN_PROGRESS, HandoffSection.REMAINING


def user(text):
    return Message(Role.USER, (Text(text),))


def agent(text, *calls):
    return Message(Role.ASSISTANT, (Text(text), *calls))


def a_call(call_id, name, arguments):
    given = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(call_id, name, given)


def call(call_id, name, **arguments):
    return Message(Role.ASSISTANT, (a_call(call_id, name, arguments),))


def run(call_id, command):
    return call(call_id, "terminal", command=command)


def result(call_id, text, *, is_error=False):
    return Message(Role.TOOL, (ToolResult(call_id, text, is_error),))


def state_of(*messages):
    """The state of messages that are numbered from 1."""
    return State.of(
        [
            msgspec.structs.replace(fact, number=number)
            for number, message in enumerate(messages, start=1)
            for fact in (*signs_in(message, REDACTOR), *facts_in(message, REDACTOR))
        ]
    )


def told(state, section):
    return [entry.text for entry in entries_of(state, range(1_000)) if entry.section is section]


class TestTodoLists:
    @pytest.mark.parametrize(
        ("name", "arguments"),
        [
            (
                "TodoWrite",
                {
                    "todos": [
                        {"content": "Read the parser", "status": "completed", "activeForm": "Reading"},
                        {"content": "Fix the lexer", "status": "in_progress", "activeForm": "Fixing"},
                        {"content": "Write tests", "status": "pending", "activeForm": "Writing"},
                    ]
                },
            ),
            (
                "update_plan",
                {
                    "explanation": "as agreed",
                    "plan": [
                        {"step": "Read the parser", "status": "completed"},
                        {"step": "Fix the lexer", "status": "in_progress"},
                        {"step": "Write tests", "status": "pending"},
                    ],
                },
            ),
            (
                "write_todos",
                {
                    "todos": [
                        {"description": "Read the parser", "status": "cancelled"},
                        {"description": "Fix the lexer", "status": "in_progress"},
                        {"description": "Write tests", "status": "pending"},
                    ]
                },
            ),
            (
                "manage_todo_list",
                {
                    "operation": "write",
                    "todoList": [
                        {"title": "Read the parser", "status": "completed"},
                        {"title": "Fix the lexer", "status": "in-progress"},
                        {"title": "Write tests", "status": "not-started"},
                    ],
                },
            ),
            ("update_todo_list", {"todos": "[x] Read the parser\n[-] Fix the lexer\n[ ] Write tests"}),
            (
                "attempt_edit",
                {
                    "path": "a.py",
                    "task_progress": "- [x] Read the parser\n- [~] Fix the lexer\n- [ ] Write tests",
                },
            ),
            (
                "notes",
                {
                    "entries": [
                        {"text": "Read the parser", "status": "done"},
                        {"text": "Fix the lexer", "status": "doing"},
                        {"text": "Write tests", "status": "todo"},
                    ]
                },
            ),
        ],
    )
    def test_they_are_known_by_their_form(self, name, arguments):
        state = state_of(user("Go."), Message(Role.ASSISTANT, (a_call("c1", name, arguments),)))
        assert told(state, DOING)[0] == "Fix the lexer (1 of 3 done)"
        assert told(state, LEFT) == ["Write tests"]

    def test_a_list_of_other_things_with_a_status_is_none(self):
        orders = {"items": [{"name": "lamp", "status": "delivered"}, {"name": "desk", "status": "shipped"}]}
        assert state_of(Message(Role.ASSISTANT, (a_call("c1", "set_items", orders),))).todo == ()

    def test_the_newest_list_holds(self):
        first = {
            "todos": [{"content": "Read", "status": "pending"}, {"content": "Write", "status": "pending"}]
        }
        second = {
            "todos": [{"content": "Read", "status": "completed"}, {"content": "Write", "status": "pending"}]
        }
        state = state_of(
            Message(Role.ASSISTANT, (a_call("c1", "todo", first),)),
            Message(Role.ASSISTANT, (a_call("c2", "todo", second),)),
        )
        assert told(state, LEFT) == ["Write (1 of 2 done)"]

    def test_a_merge_changes_the_items_that_it_names(self):
        first = {
            "todos": [
                {"id": "a", "content": "Read", "status": "pending"},
                {"id": "b", "content": "Write", "status": "pending"},
            ]
        }
        second = {"merge": True, "todos": [{"id": "a", "status": "completed"}]}
        state = state_of(
            Message(Role.ASSISTANT, (a_call("c1", "todo_write", first),)),
            Message(Role.ASSISTANT, (a_call("c2", "todo_write", second),)),
        )
        assert [(item.text, item.progress) for item in state.todo] == [
            ("Read", Progress.DONE),
            ("Write", Progress.OPEN),
        ]

    def test_tasks_that_are_added_one_by_one_and_changed_by_id(self):
        state = state_of(
            call("c1", "TaskCreate", subject="Read the parser", description="All of it"),
            result("c1", "Task #7 created: Read the parser"),
            call("c2", "TaskCreate", subject="Write tests", description="For dates"),
            result("c2", "Task #8 created: Write tests"),
            call("c3", "TaskUpdate", taskId="7", status="completed"),
            result("c3", "Updated"),
            call("c4", "TaskUpdate", taskId="8", status="in_progress"),
        )
        assert told(state, DOING) == ["#8 Write tests (1 of 2 done)"]
        assert told(state, LEFT) == []

    def test_an_id_that_is_closed_later_is_remembered_for_older_handoffs(self):
        state = state_of(call("c1", "TaskUpdate", taskId="7", status="completed"))
        assert contradicts(state, HandoffEntry(LEFT, 3, "#7 Read the parser"))
        assert not contradicts(state, HandoffEntry(LEFT, 3, "#8 Write tests"))

    def test_checklists_in_what_the_agent_says(self):
        state = state_of(agent("Status:\n- [x] parser\n- [ ] lexer\n* [ ] docs for the lexer"))
        assert told(state, LEFT) == ["lexer (1 of 3 done)", "docs for the lexer"]

    def test_a_numbered_plan_and_its_progress(self):
        plan = "Here is the plan:\n1. Read the parser\n2. Fix the lexer\n3. Write tests"
        state = state_of(
            user("Fix it"), agent(plan), user("yes"), agent("Step 1 is done. Going on."), run("c1", "ls")
        )
        assert told(state, LEFT) == ["Fix the lexer (1 of 3 done)", "Write tests"]
        state = state_of(
            agent(plan), user("ok"), agent("Step 3: the tests.", a_call("c1", "terminal", {"command": "ls"}))
        )
        assert told(state, DOING)[0] == "Write tests (2 of 3 done)"

    PLAN = "Here is the plan:\n1. Read parser.py\n2. Fix lexer.py\n3. Write tests"

    def test_the_steps_of_a_plan_that_was_worked_on_and_answered_are_no_longer_left(self):
        work = [
            agent(self.PLAN, a_call("c1", "edit_file", {"path": "src/lexer.py"})),
            result("c1", "done"),
            run("c2", "pytest"),
            result("c2", "9 passed"),
        ]
        assert told(state_of(user("Fix it"), *work), LEFT)
        assert told(state_of(user("Fix it"), *work, agent("The lexer accepts dates now.")), LEFT) == []

    def test_they_are_left_where_the_answer_is_a_question_or_tells_how_far_it_came(self):
        work = [agent(self.PLAN, a_call("c1", "edit_file", {"path": "a.py"})), result("c1", "done")]
        asks = agent("The parser is read and understood. Shall I go on with the lexer?")
        says = agent("Step 1 is done, the parser is clear to me now.")
        assert told(state_of(user("Fix it"), *work, asks, user("yes")), LEFT)
        assert told(state_of(user("Fix it"), *work, says, user("go on")), LEFT)

    def test_a_plan_without_marks_says_so_and_names_the_steps_whose_files_were_edited(self):
        state = state_of(
            user("Fix it"),
            agent(self.PLAN, a_call("c1", "edit_file", {"path": "src/lexer.py"})),
            result("c1", "done"),
            run("c2", "ls"),
        )
        assert told(state, LEFT) == [
            "Read parser.py (none of the 3 steps is marked done)",
            "Fix lexer.py (its file was edited in m2)",
            "Write tests",
        ]

    def test_a_numbered_list_of_findings_is_no_plan(self):
        assert state_of(agent("I found three things.\n1. a typo\n2. a leak\n3. a race")).todo == ()

    def test_a_plan_for_an_earlier_request_is_gone(self):
        plan = "My plan:\n1. Read the parser\n2. Fix the lexer"
        later = "Forget about that for now. There is an outage in the payment service, look at its log first of all."
        assert state_of(agent(plan), user(later)).todo == ()

    def test_when_all_is_done_nothing_is_left(self):
        done = {"todos": [{"content": "Read", "status": "completed"}]}
        assert entries_of(state_of(Message(Role.ASSISTANT, (a_call("c1", "todo", done),))), range(9)) == []

    def test_a_plan_of_which_every_file_was_edited_is_not_left(self):
        plan = agent(
            "My plan:\n1. Extend lexer.py\n2. Extend dates.py", a_call("c1", "read_file", {"path": "x.py"})
        )
        first = [plan, result("c1", "x"), call("c2", "edit_file", path="src/lexer.py"), result("c2", "done")]
        assert len(told(state_of(user("Fix it"), *first), LEFT)) == 2
        second = [call("c3", "edit_file", path="src/dates.py"), result("c3", "done")]
        assert told(state_of(user("Fix it"), *first, *second), LEFT) == []


class TestFailures:
    FAILED = "collected 3 items\nFAILED tests/test_dates.py::test_leap - AssertionError\nexit code 1"

    def test_the_last_failing_command_stands_with_its_error(self):
        state = state_of(run("c1", "pytest tests"), result("c1", self.FAILED))
        assert told(state, BLOCKED) == [
            "pytest tests: FAILED tests/test_dates.py::test_leap - AssertionError"
        ]

    @pytest.mark.parametrize(
        ("failing", "later"),
        [
            ("pytest tests/a.py", "pytest tests"),
            ("python -m pytest -x", "cd app && python -m pytest"),
            ("go test ./a -run X", "go test ./..."),
            ("npm run test", "npm test"),
            ("make lint", "make fmt && make lint"),
            ("cargo build", "RUST_LOG=1 cargo build --release"),
            ("git push", "git push --force"),
        ],
    )
    def test_a_later_success_of_the_same_kind_clears_it(self, failing, later):
        state = state_of(
            run("c1", failing), result("c1", self.FAILED), run("c2", later), result("c2", "ok\nexit code 0")
        )
        assert told(state, BLOCKED) == []

    @pytest.mark.parametrize("later", ["ls", "cat a.py", "make docs", "git status"])
    def test_the_success_of_something_else_does_not(self, later):
        state = state_of(
            run("c1", "make"), result("c1", self.FAILED), run("c2", later), result("c2", "exit code 0")
        )
        assert len(told(state, BLOCKED)) == 1

    @pytest.mark.parametrize(
        "output",
        [
            "2 failed, 7 passed in 1.2s",
            "--- FAIL: TestDates (0.01s)\nFAIL\tapp/dates",
            "make: *** [all] Error 2",
            "Found 3 errors in 1 file",
        ],
    )
    def test_a_check_that_says_so_failed_without_a_status(self, output):
        assert told(state_of(run("c1", "make test | tail -5"), result("c1", output)), BLOCKED)

    @pytest.mark.parametrize("output", ["0 failed, 9 passed", "9 passed", "no errors", "Found 0 errors"])
    def test_a_check_that_passed_did_not(self, output):
        assert told(state_of(run("c1", "make test"), result("c1", output)), BLOCKED) == []

    def test_a_search_that_found_nothing_blocks_nobody(self):
        state = state_of(
            run("c1", "grep -rn owner src"),
            result("c1", "exit code 1"),
            call("c2", "read_file", path="none.py"),
            result("c2", "Error: no such file", is_error=True),
            call("c3", "Grep", pattern="x"),
            result("c3", "Error: bad pattern", is_error=True),
        )
        assert told(state, BLOCKED) == []

    def test_what_failed_before_the_request_changed_no_longer_stands(self):
        state = state_of(
            call("c1", "get_order", order="#W1"),
            result("c1", "Error: order not found"),
            agent("I could not find it. What is the number?"),
            user("It is #W12."),
        )
        assert told(state, BLOCKED) == []

    def test_a_failed_check_stands_over_a_request_until_a_check_of_its_sort_passes(self):
        before = [
            run("c1", "npm test"),
            result("c1", self.FAILED),
            agent("It fails."),
            user("Try the other way."),
        ]
        assert told(state_of(*before), BLOCKED)
        assert told(state_of(*before, run("c2", "pytest"), result("c2", "3 passed")), BLOCKED) == []
        assert told(state_of(*before, run("c2", "git commit -m x"), result("c2", "ok")), BLOCKED) == []
        assert told(state_of(*before, run("c2", "make lint"), result("c2", "ok")), BLOCKED)

    def test_a_script_that_passes_clears_its_variants(self):
        failed, passed = "error: script exited with code 1", "no fixes applied"
        both = [run("c1", "bun run lint:fix"), result("c1", failed), run("c2", "bun run lint")]
        assert state_of(user("mend"), *both, result("c2", passed)).failing == ()
        other = [run("c1", "bun run lint"), result("c1", failed), run("c2", "bun run lint:docs")]
        assert len(state_of(user("mend"), *other, result("c2", passed)).failing) == 1

    def test_a_refused_check_is_forgotten_with_the_request(self):
        refused = [user("mend"), run("c1", "pytest"), result("c1", "The user rejected this command.")]
        assert [fact.text for fact in state_of(*refused).failing] == ["pytest: refused by the user"]
        assert state_of(*refused, user("Write the guide first.")).failing == ()

    def test_tests_that_pass_show_that_it_builds(self):
        failed = [run("c1", "go build ./..."), result("c1", "a.go:3:1: undefined: agent\nexit code 1")]
        passed = [run("c2", "mise run test"), result("c2", "ok")]
        assert told(state_of(*failed), BLOCKED)
        assert told(state_of(*failed, *passed), BLOCKED) == []
        assert told(state_of(*failed, run("c2", "make lint"), result("c2", "ok")), BLOCKED)

    def test_any_other_failure_is_overtaken_by_work_that_goes_well(self):
        failed = [run("c0", "pip install x"), result("c0", "error: no network\nexit code 1")]
        well = [one for n in range(1, 9) for one in (run(f"c{n}", f"tool{n}"), result(f"c{n}", "ok"))]
        assert told(state_of(*failed), BLOCKED)
        assert told(state_of(*failed, *well), BLOCKED) == []

    @pytest.mark.parametrize(
        "why",
        [
            "zsh:1: command not found: go",
            "bash: go: command not found",
            "/bin/sh: 1: go: not found",
            "'go' is not recognized as an internal or external command",
            'exec: "go": executable file not found in $PATH',
        ],
    )
    def test_a_program_that_is_not_there_is_no_failed_check(self, why):
        failed = [run("c1", "go test ./..."), result("c1", f"{why}\nExit code 127", is_error=True)]
        others = [
            one for n in range(8) for one in (run(f"d{n}", f"mise run step_{n}"), result(f"d{n}", "ok"))
        ]
        assert told(state_of(*failed), BLOCKED)
        assert told(state_of(*failed, *others), BLOCKED) == []


class TestEdits:
    def test_what_was_edited_since_the_last_check_is_said(self):
        state = state_of(
            call("c1", "edit_file", path="a.py"),
            result("c1", "done"),
            run("c2", "pytest"),
            result("c2", "3 passed"),
            call("c3", "write_file", path="b.py", content="x"),
            result("c3", "done"),
            run("c4", "sed -i 's/a/b/' src/c.py"),
            result("c4", ""),
        )
        assert told(state, DOING) == ["edited and not tested since: b.py, src/c.py"]

    def test_an_edit_that_still_stands_in_the_view_does_not_hide_the_earlier_ones(self):
        state = state_of(
            run("c0", "ls"),
            result("c0", "a.py"),
            call("c1", "edit_file", path="a.py"),
            result("c1", "done"),
            call("c2", "write_file", path="b.py", content="x"),
            result("c2", "done"),
        )
        entries = entries_of(state, {1, 2, 3, 4})
        assert [(entry.number, entry.text) for entry in entries] == [(3, "edited and not tested since: a.py")]
        assert entries_of(state, ()) == []

    @pytest.mark.parametrize(
        "check", ["pytest", "go build ./...", "make", "npm run build", "python main.py", "./run.sh"]
    )
    def test_a_check_after_the_edit_tests_it(self, check):
        state = state_of(
            call("c1", "edit_file", path="a.py"), result("c1", "done"), run("c2", check), result("c2", "x")
        )
        assert told(state, DOING) == []
        assert state.checked

    def test_a_commit_at_the_end_of_a_long_command_lands_them(self):
        files = " ".join(f"assets/picture-{number}.png" for number in range(12))
        state = state_of(
            user("add the pictures"),
            call("c1", "edit_file", path="README.md"),
            result("c1", "ok"),
            run("c2", f"git add README.md {files} && git commit --amend -m pictures"),
            result("c2", "1 file changed"),
        )
        assert state.untested == ()

    def test_a_check_that_was_refused_tests_nothing(self):
        state = state_of(
            user("mend it"),
            call("c1", "edit_file", path="shelf.py"),
            result("c1", "ok"),
            run("c2", "pytest"),
            result("c2", "The user rejected this command."),
        )
        assert [fact.text for fact in state.untested] == ["shelf.py"]

    def test_what_was_edited_for_requests_long_answered_is_not_in_progress(self):
        messages = [run("c0", "ls"), result("c0", "")]
        for number in range(4):
            messages += [
                user(f"Mend part {number} of the shelf, please, and say what you did."),
                call(f"c{number + 1}", "edit_file", path=f"part_{number}.py"),
                result(f"c{number + 1}", "ok"),
                agent(f"Part {number} is mended now."),
            ]
        messages += [user("And the box?"), agent("The box is next to it."), user("Paint the box, too.")]
        assert [fact.text for fact in state_of(*messages).untested] == ["part_3.py"]

    @pytest.mark.parametrize(
        "command",
        [
            "tmp=$(mktemp -d); cd $tmp; cat > lamp.py <<'EOF'\nprint(1)\nEOF",
            "cd /tmp/try && echo 'lamp' > lamp.py",
        ],
    )
    def test_a_trial_in_a_folder_for_trials_edits_nothing(self, command):
        state = state_of(user("mend it"), run("c1", command), result("c1", "ok"))
        assert state.untested == ()

    def test_patches_name_their_files(self):
        patch = "*** Begin Patch\n*** Update File: src/a.py\n@@\n*** Add File: src/b.py\n*** End Patch"
        state = state_of(run("c0", "ls"), call("c1", "apply_patch", input=patch), result("c1", "Done"))
        assert told(state, DOING) == ["edited and not tested since: src/a.py, src/b.py"]

    def test_an_edit_that_failed_and_a_look_are_none(self):
        state = state_of(
            run("c0", "ls"),
            call("c1", "edit_file", path="a.py"),
            result("c1", "Error: text not found", is_error=True),
            call("c2", "str_replace_editor", command="view", path="b.py"),
            result("c2", "x"),
        )
        assert state.untested == ()

    def test_a_tool_that_writes_something_else_edits_no_file(self):
        state = state_of(
            run("c0", "ls"), call("c1", "write_stdin", session_id=4, chars="y\n"), result("c1", "ok")
        )
        assert state.untested == ()

    def test_what_was_edited_for_the_request_is_known_though_it_was_tested(self):
        before = [
            user("Rename the parser, please."),
            call("c1", "edit_file", path="old.py"),
            result("c1", "done"),
            agent("Renamed."),
        ]
        state = state_of(
            *before,
            user("Now make it accept dates."),
            call("c2", "edit_file", path="a.py"),
            result("c2", "done"),
            call("c3", "edit_file", path="b.py"),
            result("c3", "Error: text not found", is_error=True),
            user("go on"),
            run("c4", "pytest"),
            result("c4", "3 passed"),
        )
        assert [fact.text for fact in state.edited] == ["a.py"]
        assert [(one.section, one.number, one.text) for one in edits_of(state, range(99))] == [
            (HandoffSection.COMPLETED, 6, "edited for this request: a.py")
        ]

    def test_what_is_not_tested_is_said_once(self):
        state = state_of(
            user("Fix it all, please."),
            run("c0", "ls"),
            call("c1", "edit_file", path="a.py"),
            result("c1", "done"),
        )
        assert told(state, DOING) == ["edited and not tested since: a.py"]
        assert edits_of(state, range(99)) == []

    def test_nothing_is_said_where_nothing_can_be_run(self):
        assert state_of(call("c1", "edit_file", path="a.py"), result("c1", "done")).untested == ()


class TestTalk:
    def test_what_a_text_announces_and_then_does_is_no_promise(self):
        done = "The size is in the answer. It is in kilobytes. It grows with each push. It is good enough for a hint."
        state = state_of(user("Could we use it?"), agent(f"I'll map the sizes first. {done}"), user("Good."))
        assert state.promises == ()
        state = state_of(
            user("Could we use it?"), agent(f"{done} I'll map the sizes tomorrow."), user("Good.")
        )
        assert len(state.promises) == 1

    def test_an_answer_is_not_taken_from_code(self):
        state = state_of(
            user("Which function returns the transcript of a session?"),
            agent(
                "```go\nreturn result.Transcript of the session, function nil\n```\n"
                "The function ReadCommitted returns the transcript."
            ),
            user("Thanks."),
        )
        assert [answer.text for _, answer in state.answered] == [
            "The function ReadCommitted returns the transcript."
        ]

    def test_what_it_does_now_is_what_it_announced_last(self):
        state = state_of(
            user("Fix it"),
            agent("Let me read the parser.", a_call("c1", "read_file", {"path": "a.py"})),
            result("c1", "x"),
            agent("Found it. Now I'll update the lexer:", a_call("c2", "edit_file", {"path": "b.py"})),
            result("c2", "done"),
        )
        assert told(state, DOING) == ["Now I'll update the lexer:"]

    @pytest.mark.parametrize(
        ("command", "output", "doing"),
        [
            ("pytest", "3 passed", False),
            ("git commit -m x", "ok", False),
            ("pytest", "1 failed\nexit code 1", True),
            ("ls", "a.py", True),
        ],
    )
    def test_what_was_announced_is_done_when_a_check_passes(self, command, output, doing):
        state = state_of(
            user("Fix it"),
            agent("Let me fix the linter errors in the lexer.", a_call("c1", "edit_file", {"path": "a.py"})),
            result("c1", "done"),
            run("c2", command),
            result("c2", output),
        )
        assert (state.doing is not None) is doing

    def test_an_announcement_in_the_progressive_form(self):
        state = state_of(
            user("Fix it"),
            agent(
                "I’m wiring the transport into the session now.", a_call("c1", "edit_file", {"path": "a.py"})
            ),
        )
        assert state.doing is not None
        assert state_of(user("Hi"), agent("I'm not sure about it.", a_call("c1", "ls", {}))).doing is None

    def test_a_file_whose_name_ends_like_a_vague_word_is_named(self):
        state = state_of(
            user("Fix it"),
            agent("Let me check the parser.", a_call("c1", "read_file", {"path": "a.go"})),
            result("c1", "x"),
            agent(
                "Now let me check and fix line 419 in rewind.go:", a_call("c2", "read_file", {"path": "b.go"})
            ),
        )
        assert told(state, DOING) == ["Now let me check and fix line 419 in rewind.go:"]

    @pytest.mark.parametrize(
        "words", ["Let me make these changes:", "Now I'll fix it.", "Let me apply the fix:"]
    )
    def test_who_begins_to_change_things_no_longer_looks(self, words):
        state = state_of(
            user("Fix it"),
            agent("Let me check what would be needed.", a_call("c1", "read_file", {"path": "a.py"})),
            result("c1", "x"),
            agent(words, a_call("c2", "read_file", {"path": "b.py"})),
        )
        assert state.doing is None

    def test_a_vague_look_leaves_what_is_being_done(self):
        state = state_of(
            user("Fix it"),
            agent("Let me fix the linter errors in the lexer.", a_call("c1", "edit_file", {"path": "a.py"})),
            result("c1", "done"),
            agent("Let me check.", a_call("c2", "read_file", {"path": "a.py"})),
        )
        assert told(state, DOING) == ["Let me fix the linter errors in the lexer."]

    def test_a_look_is_past_when_something_is_edited(self):
        state = state_of(
            user("Fix it"),
            agent("First, let me read how the lexer ends.", a_call("c1", "read_file", {"path": "a.py"})),
            result("c1", "x"),
            call("c2", "edit_file", path="a.py", old="1", new="2"),
            result("c2", "done"),
        )
        assert state.doing is None

    def test_an_imperative_before_a_call_is_an_announcement(self):
        state = state_of(
            user("Fix it"),
            agent(
                "The types are in place. Now update the caller in `handlers.py`:",
                a_call("c1", "edit_file", {"path": "b.py"}),
            ),
            result("c1", "done"),
        )
        assert told(state, DOING) == ["Now update the caller in `handlers.py`:"]
        for words in ("Now the tests pass:", "Then it fails.", "Now I see the problem:"):
            assert state_of(user("Fix it"), agent(words, a_call("c1", "ls", {}))).doing is None

    def test_what_was_refused_is_not_being_done(self):
        state = state_of(
            user("Fix the validator"),
            agent("I'll also tidy up the migration.", a_call("c1", "edit_file", {"path": "m.py"})),
            result("c1", "The user doesn't want to proceed with this tool use. The tool use was rejected."),
        )
        assert state.doing is None

    def test_a_new_request_ends_what_was_announced_for_the_last_one(self):
        state = state_of(
            user("Fix the validator"),
            agent("I'll also tidy up the migration.", a_call("c1", "read_file", {"path": "m.py"})),
            result("c1", "x"),
            user("Stop, leave the migrations alone! Only the validator."),
            run("c2", "ls"),
        )
        assert state.doing is None

    def test_after_its_answer_it_does_nothing(self):
        state = state_of(
            user("Fix it"),
            agent("Let me look.", a_call("c1", "read_file", {"path": "a.py"})),
            result("c1", "x"),
            agent("All is well."),
            user("Thanks"),
        )
        assert state.doing is None

    def test_a_promise_stands_until_it_is_worked_on(self):
        talk = [
            user("Refund the lamp"),
            agent("Your lamp is eligible. I'll refund it once you confirm."),
            user("yes"),
        ]
        assert told(state_of(*talk), PENDING) == ["promised: I'll refund it once you confirm."]
        work = [one for n in range(4) for one in (call(f"c{n}", "refund", n=n), result(f"c{n}", "ok"))]
        assert told(state_of(*talk, *work), PENDING) == []

    def test_what_the_agent_leaves_open_is_not_called_a_promise(self):
        talk = [
            user("Refund the lamp"),
            agent("The lamp is refunded. Still open: what to do with the second lamp of the order."),
            user("And the shelf?"),
        ]
        assert told(state_of(*talk), PENDING) == [
            "said last: Still open: what to do with the second lamp of the order."
        ]

    def test_a_promise_that_its_own_text_keeps_is_none(self):
        code = "Certainly! I'll add a second chart. Here is the code:\n\n```js\nchart(2)\n```\n"
        assert told(state_of(user("Add a chart"), agent(f"{code}It has its own axis.")), PENDING) == []
        later = agent(f"{code}I'll add the legend once you confirm.")
        assert told(state_of(user("Add a chart"), later), PENDING) == [
            "promised: I'll add the legend once you confirm."
        ]

    def test_an_offer_to_tell_more_is_no_promise(self):
        assert (
            told(state_of(user("Hi"), agent("Done as asked. Let me know if you need more.")), PENDING) == []
        )

    @pytest.mark.parametrize(
        "words",
        [
            "Ich werde jetzt testen.",
            "Je vais lancer les tests.",
            "Voy a revisar el log.",
            "Я сейчас проверю журнал.",
            "接下来我会运行测试。",
            "Als Nächstes ändere ich die Kodierung.",
            "Jetzt prüfe ich die Warteschlange.",
            "Maintenant, je corrige le tri.",
            "A continuación reviso el log.",
            "Ahora cambio la codificación.",
        ],
    )
    def test_announcements_in_other_languages(self, words):
        state = state_of(user("…"), agent(words, a_call("c1", "terminal", {"command": "ls"})))
        assert state.doing is not None

    def test_a_question_stands_until_it_is_answered(self):
        asked = [user("Cancel it"), agent("Which of the two orders should I cancel?")]
        question = "asked the user, no answer yet: Which of the two orders should I cancel?"
        assert told(state_of(*asked), PENDING) == [question]
        assert told(state_of(*asked, user("The first.")), PENDING) == []
        assert question in told(state_of(*asked, user("What is in them?")), PENDING)

    def test_a_request_that_another_one_overtook_is_pending(self):
        state = state_of(
            user("Rename the parser to reader."),
            agent("Let me look.", a_call("c1", "terminal", {"command": "ls"})),
            result("c1", "x"),
            user("Also bump the version."),
            run("c2", "ls"),
        )
        assert told(state, PENDING) == ["not answered yet: Rename the parser to reader."]

    def test_a_request_that_was_sent_again_is_not_pending(self):
        asked = user("Rename the parser to reader.")
        stopped = user("Operation stopped by hook: another session is active.")
        assert told(state_of(asked, stopped, asked, run("c1", "ls")), PENDING) == []

    def test_the_result_of_a_tool_in_a_user_message_is_no_request(self):
        state = state_of(
            user("Rename the parser to reader."),
            agent("<read_file>\n<path>a.py</path>\n</read_file>"),
            Message(
                Role.USER, (Text("[read_file for 'a.py'] Result:"), Text("Always skip empty rows, please."))
            ),
        )
        assert told(state, PENDING) == []

    def test_a_question_with_its_answer(self):
        state = state_of(
            user("Is the cache shared?"),
            agent("Yes, all workers share one cache."),
            user("Good, go on then with it."),
        )
        assert told(state, HandoffSection.RESOLVED) == [
            "Is the cache shared? → m2 Yes, all workers share one cache."
        ]

    def test_the_answer_is_the_sentence_that_answers(self):
        state = state_of(
            user("Which commit broke the cache?"),
            agent(
                "Now I can give you the complete answer.\n\nsrc/cache/store.py\n\n"
                "The commit that broke the cache is 4f2a. It dropped a lock."
            ),
            user("Good, go on then with it."),
        )
        assert told(state, HandoffSection.RESOLVED) == [
            "Which commit broke the cache? → m2 The commit that broke the cache is 4f2a."
        ]

    def test_of_several_questions_the_last_one_has_its_own_answer(self):
        state = state_of(
            user("Will the mail go out twice? And is order HB-20481 repaired by a replay?"),
            agent("No, the outbox drops the second one. HB-20481 needs a recheck, a replay skips it."),
            user("Good, go on then with it."),
        )
        assert told(state, HandoffSection.RESOLVED) == [
            "And is order HB-20481 repaired by a replay? → m2 HB-20481 needs a recheck, a replay skips it."
        ]

    def test_a_question_whose_answer_is_not_told_is_left_out(self):
        state = state_of(
            user("Should we log a warning there?"),
            agent("Everything is ready to go out. Tests pass on both machines."),
            user("Good, go on then with it."),
        )
        assert told(state, HandoffSection.RESOLVED) == []

    def test_a_word_that_only_points_finds_no_answer(self):
        state = state_of(
            user("Can we add that?"),
            agent("The crane has a new motor. That means the old belt is gone."),
            user("Good, go on then with it."),
        )
        assert told(state, HandoffSection.RESOLVED) == []

    @pytest.mark.parametrize(
        ("words", "resolved"),
        [
            (
                "Use tabs. Which port would the cache use then?",
                "Which port would the cache use then? → m5 It",
            ),
            ("Use our own logging there instead.", ""),
        ],
    )
    def test_after_a_denial_the_answer_is_to_the_words_with_it(self, words, resolved):
        denied = "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\n"
        state = state_of(
            user("Is there no library that keeps the cache?"),
            agent("There is one."),
            call("e1", "edit_file", path="cache.py"),
            result("e1", f"{denied}{words}"),
            agent("It would use the port 6622, as the library keeps to that port for the cache."),
            user("Good, go on then with it."),
        )
        found = "".join(told(state, HandoffSection.RESOLVED))
        assert found.startswith(resolved)
        assert bool(found) == bool(resolved)

    def test_secrets_are_redacted(self):
        token = "ghp" + "_" + "aB3dE5gH7jK9" * 3
        state = state_of(agent(f"I will use the token {token} next."), user(f"Use {token} there?"))
        assert token not in str(state)


class TestHolding:
    STATE = state_of(
        Message(
            Role.ASSISTANT,
            (
                a_call(
                    "c0",
                    "todo",
                    {
                        "todos": [
                            {"content": "Write tests for the parser", "status": "completed"},
                            {"content": "Write docs for the parser", "status": "pending"},
                        ]
                    },
                ),
            ),
        ),
        run("c1", "npm test"),
        result("c1", "1 failed\nexit code 1"),
        run("c2", "npm test"),
        result("c2", "exit code 0"),
        run("c3", "make lint"),
        result("c3", "exit code 2"),
    )

    @pytest.mark.parametrize(
        ("section", "text"),
        [
            (LEFT, "Write tests for the parser."),
            (PENDING, "tests for the parser must be written"),
            (DOING, "Write tests for the parser (m4)"),
            (BLOCKED, "npm test fails: 1 failed"),
        ],
    )
    def test_what_is_done_or_works_again_is_not_open(self, section, text):
        assert contradicts(self.STATE, HandoffEntry(section, 1, text))

    @pytest.mark.parametrize(
        ("section", "text"),
        [
            (LEFT, "Write docs for the parser."),
            (BLOCKED, "make lint exits with 2"),
            (BLOCKED, "npm test passes, make lint fails"),
            (HandoffSection.COMPLETED, "Write tests for the parser."),
            (BLOCKED, "no access to the staging cluster"),
        ],
    )
    def test_what_is_open_stays(self, section, text):
        assert not contradicts(self.STATE, HandoffEntry(section, 1, text))

    FAILING = state_of(
        user("Fix it."), run("c1", "npm test"), result("c1", "1 failed\nexit code 1"), agent("I see.")
    )

    @pytest.mark.parametrize(
        ("section", "number", "text"),
        [
            (HandoffSection.COMPLETED, 2, "Fixed the parser, all tests pass"),
            (HandoffSection.COMPLETED, 3, "ran npm test: all 12 tests passed"),
            (HandoffSection.STATE, 0, "The tests are passing."),
        ],
    )
    def test_tests_that_fail_do_not_pass(self, section, number, text):
        assert contradicts(self.FAILING, HandoffEntry(section, number, text))
        assert not contradicts(self.STATE, HandoffEntry(section, number, text))

    @pytest.mark.parametrize(
        ("section", "number", "text"),
        [
            (HandoffSection.COMPLETED, 0, "Fixed the parser, all tests pass"),  # before they failed, perhaps
            (HandoffSection.COMPLETED, 4, "All tests pass"),
            (HandoffSection.STATE, 0, "3 tests pass, 1 failed"),
            (HandoffSection.STATE, 0, "The tests do not pass."),
            (HandoffSection.STATE, 0, "The parser passes the tokens on."),
        ],
    )
    def test_what_may_have_passed_stays(self, section, number, text):
        assert not contradicts(self.FAILING, HandoffEntry(section, number, text))

    def test_a_promise_is_not_taken_for_another(self):
        ours = HandoffEntry(PENDING, 6, "promised: I'll refund the lamp once you confirm.")
        assert adds_to([HandoffEntry(PENDING, 0, "promised: a call back on Monday")], ours)

    def test_ours_is_added_where_a_model_says_nothing_of_it(self):
        ours = HandoffEntry(BLOCKED, 6, "make lint: exit code 2")
        assert adds_to([HandoffEntry(BLOCKED, 0, "the network is down")], ours)
        assert not adds_to([HandoffEntry(BLOCKED, 0, "make lint does not pass")], ours)

    def test_an_older_list_gives_way_to_a_newer_one(self):
        assert replaces(self.STATE, HandoffEntry(LEFT, 1, "Buy milk"))
        assert not replaces(State(), HandoffEntry(LEFT, 1, "Buy milk"))

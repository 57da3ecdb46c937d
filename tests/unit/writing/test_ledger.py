"""What the ledger takes from raw messages, and how facts meet each other."""

from __future__ import annotations

import json

import msgspec
import pytest

from penstock.conversation.message import Message, Role, Text, ToolCall, ToolResult
from penstock.redaction import Redactor
from penstock.writing.constraints import sentences
from penstock.writing.ledger import Ledger, facts_in

REDACTOR = Redactor()


def user(text):
    return Message(Role.USER, (Text(text),))


def assistant(text):
    return Message(Role.ASSISTANT, (Text(text),))


def call(call_id, name, **arguments):
    return Message(Role.ASSISTANT, (ToolCall(call_id, name, json.dumps(arguments)),))


def result(call_id, text, *, is_error=False):
    return Message(Role.TOOL, (ToolResult(call_id, text, is_error),))


def ledger(*messages):
    """The ledger of messages that are numbered from 1."""
    return Ledger.of(
        msgspec.structs.replace(fact, number=number)
        for number, message in enumerate(messages, start=1)
        for fact in facts_in(message, REDACTOR)
    )


def texts(facts):
    return [fact.text for fact in facts]


class TestConstraints:
    @pytest.mark.parametrize(
        "sentence",
        [
            "Never touch migrations/.",
            "You must run the linter first.",
            "Please don’t change the public API.",
            "Only edit files under src/.",
            "Leave the config alone.",
            "Benutze niemals Tabs.",
            "Du darfst die Datenbank nicht ändern.",
            "Ne modifie jamais ce fichier.",
            "Il faut garder les noms actuels.",
            "Nunca borres los datos.",
            "Usa siempre el entorno de pruebas.",
            "Não altere o arquivo de produção.",
            "Никогда не удаляй таблицу.",
            "Нельзя трогать прод.",
            "不要修改生产配置。",
            "必须先运行测试。",
            "本番環境は絶対に変更しないでください。",
            "항상 테스트를 먼저 실행하세요.",
            "Raak de database nooit aan.",
            "Nigdy nie zmieniaj schematu.",
        ],
    )
    def test_they_are_known_in_many_languages_and_kept_word_for_word(self, sentence):
        assert texts(ledger(user(f"Hello there. {sentence}\nThanks")).constraints) == [sentence]

    @pytest.mark.parametrize(
        "sentence", ["Fix the bug.", "What is in a.py?", "继续", "Weiter.", "Thank you!", "Looks good to me."]
    )
    def test_other_sentences_are_none(self, sentence):
        assert ledger(user(sentence)).constraints == ()

    def test_only_people_state_them(self):
        found = ledger(assistant("I will never do that."), result("c1", "You must not be here."))
        assert found.constraints == ()

    def test_each_stands_once_with_its_first_message(self):
        found = ledger(user("Never use tabs."), user("never  use tabs.")).constraints
        assert [(fact.text, fact.number) for fact in found] == [("Never use tabs.", 1)]

    def test_one_that_was_changed_says_by_which_message(self):
        found = ledger(
            user("Always deploy to the staging cluster."),
            assistant("Yes."),
            user("Actually, always deploy to the canary cluster instead."),
        ).constraints
        assert [(fact.number, fact.superseded_by) for fact in found] == [(1, 3), (3, 0)]

    def test_a_change_of_something_else_supersedes_nothing(self):
        found = ledger(
            user("Always deploy to the staging cluster."),
            user("Use short names from now on, never long ones."),
        ).constraints
        assert all(fact.superseded_by == 0 for fact in found)

    def test_bullets_are_no_part_of_them(self):
        assert texts(ledger(user("Rules:\n- never use tabs\n* always run make lint")).constraints) == [
            "never use tabs",
            "always run make lint",
        ]

    def test_secrets_in_them_are_redacted(self):
        token = "ghp" + "_" + "aB3dE5gH7jK9" * 3
        (stated,) = texts(ledger(user(f"Never print the token {token} anywhere.")).constraints)
        assert token not in stated
        assert stated.startswith("Never print the token")

    def test_of_a_giant_message_the_start_and_the_end_are_read(self):
        giant = "Never use tabs.\n" + "filler text\n" * 2_000 + "Always run make lint."
        assert texts(ledger(user(giant)).constraints) == ["Never use tabs.", "Always run make lint."]


class TestActions:
    def test_a_command_stands_with_its_exit_status(self):
        found = ledger(call("c1", "terminal", command="npm test"), result("c1", "ok\nexit code 0"))
        assert texts(found.actions) == ["ran npm test → exit 0"]

    def test_a_command_that_was_run_again_stands_once_with_its_latest_outcome(self):
        found = ledger(
            call("c1", "terminal", command="npm test"),
            result("c1", "Error: 3 failed\nexit code 1"),
            call("c2", "terminal", command="npm run build"),
            result("c2", "exit code 0"),
            call("c3", "terminal", command="npm test"),
            result("c3", "exit code 0"),
        ).actions
        assert texts(found) == ["ran npm run build → exit 0", "ran npm test → exit 0"]
        assert [(fact.number, fact.uses) for fact in found] == [(3, 1), (5, 2)]

    def test_commands_that_only_look_are_no_actions(self):
        found = ledger(call("c1", "terminal", command="ls -la src"), result("c1", "exit code 0"))
        assert found.actions == ()

    @pytest.mark.parametrize(
        "command",
        [
            "/usr/bin/grep -n x log.txt | head -5",
            "cat a.txt; echo ---; cat b.txt 2>/dev/null | head",
            "cd app && git log --oneline -3 && git status",
            "diff <(sort a) <(sort b) | head",
            "md5 -q a.bin; md5sum b.bin",
            "gh api repos/o/r/pulls/3/comments --paginate | jq '.[].id'",
            "git show abc:src/a.py | sed -n '1,40p'; echo '--- base'",
        ],
    )
    def test_commands_of_which_every_piece_only_looks_are_none(self, command):
        assert ledger(call("c1", "terminal", command=command), result("c1", "exit code 0")).actions == ()

    @pytest.mark.parametrize(
        "command",
        [
            "git status && git commit -m x",
            "echo done > state.txt",
            "cat a > b",
            "grep -l x *.py | xargs sed -i s/x/y/",
            "gh api repos/o/r/pulls/3/comments -f body=ok",
            "find . -name '*.pyc' -delete",
            "git branch -D old",
        ],
    )
    def test_commands_of_which_a_piece_does_something_are(self, command):
        assert len(ledger(call("c1", "terminal", command=command), result("c1", "exit code 0")).actions) == 1

    @pytest.mark.parametrize(
        ("started", "poll"),
        [
            ("Process running with session ID 4711\nOutput:\n", {"session_id": 4711, "chars": ""}),
            ("Command running in background with ID: b7x2", {"bash_id": "b7x2"}),
        ],
    )
    def test_what_a_running_command_gave_later_belongs_to_the_command(self, started, poll):
        work = [
            call("c1", "terminal", command="go test -race ./..."),
            result("c1", started),
            call("c2", "write_stdin", **poll),
            result("c2", started),
        ]
        assert texts(ledger(*work).actions) == ["ran go test -race ./... → still running"]
        assert ledger(*work).open_errors == ()
        ended = [call("c3", "write_stdin", **poll), result("c3", "--- FAIL: TestRace\nexited with code 1")]
        found = ledger(*work, *ended)
        assert [(fact.text, fact.number) for fact in found.actions] == [
            ("ran go test -race ./... → --- FAIL: TestRace", 5)
        ]
        assert texts(found.open_errors) == ["go test -race ./...: --- FAIL: TestRace"]

    @pytest.mark.parametrize(
        ("how", "summary", "action", "errors"),
        [
            ("completed", 'Background command "Race" completed (exit code 0)', "→ exit 0", []),
            (
                "failed",
                'Background command "Race" failed with exit code 2',
                "→ ended with exit code 2",
                ["go test -race ./...: ended with exit code 2"],
            ),
            ("killed", "Background command stopped", "→ failed", ["go test -race ./..."]),
            ("completed", "Done", "→ done", []),
        ],
    )
    def test_a_notice_of_the_client_ends_a_command_in_the_background(self, how, summary, action, errors):
        notice = (
            "<task-notification>\n<task-id>b7x2</task-id>\n<output-file>/tmp/b7x2.output</output-file>\n"
            f"<status>{how}</status>\n<summary>{summary}</summary>\n</task-notification>"
        )
        found = ledger(
            call("c1", "terminal", command="go test -race ./..."),
            result("c1", "Command running in background with ID: b7x2. Output is being written to: /tmp/b"),
            user(notice),
        )
        assert [(fact.text, fact.number) for fact in found.actions] == [
            (f"ran go test -race ./... {action}", 3)
        ]
        assert texts(found.open_errors) == errors

    def test_a_command_that_works_without_its_wrapper_clears_the_failure_of_both(self):
        failed = [
            call("c1", "terminal", command="wrapper npm run check | tail -3"),
            result("c1", "error: unrecognized subcommand 'npm'", is_error=True),
        ]
        again = [call("c2", "terminal", command="npm run check | tail -3"), result("c2", "12 passed")]
        other = [call("c2", "terminal", command="ruby run.rb"), result("c2", "12 passed")]
        assert len(ledger(*failed).open_errors) == 1
        assert len(ledger(*failed, *other).open_errors) == 1
        assert ledger(*failed, *again).open_errors == ()

    def test_a_notice_on_an_unknown_process_changes_nothing(self):
        notice = "<task-notification>\n<task-id>zz</task-id>\n<status>failed</status>\n</task-notification>"
        work = [call("c1", "terminal", command="make"), result("c1", "error: no rule\nexit code 2")]
        assert ledger(*work, user(notice)) == ledger(*work)

    def test_a_person_who_quotes_a_notice_ends_nothing(self):
        found = ledger(
            call("c1", "terminal", command="make"),
            result("c1", "Command running in background with ID: b7x2"),
            user("Why does it say `<task-id>b7x2</task-id> <status>completed</status>`?"),
        )
        assert texts(found.actions) == ["ran make → still running"]

    def test_also_where_both_were_called_in_one_message(self):
        started = "Process running with session ID 4711\nOutput:\n"
        found = ledger(
            call("c1", "terminal", command="go test ./..."),
            call("c2", "write_stdin", session_id=4711, chars=""),
            result("c1", started),
            result("c2", "--- FAIL: TestRace\nexited with code 1"),
        )
        assert texts(found.actions) == ["ran go test ./... → --- FAIL: TestRace"]
        assert texts(found.open_errors) == ["go test ./...: --- FAIL: TestRace"]

    def test_a_side_effect_without_a_result_is_not_confirmed(self):
        assert texts(ledger(call("c1", "write_file", path="a.py", content="x")).actions) == [
            "wrote a.py → not confirmed"
        ]

    def test_a_failure_stands_with_its_first_line(self):
        found = ledger(
            call("c1", "terminal", command="make"),
            result("c1", "cc -c a.c\na.c:3: error: expected ';'\nmore\nexit code 2"),
        )
        assert texts(found.actions) == ["ran make → a.c:3: error: expected ';'"]

    @pytest.mark.parametrize(
        ("command", "output", "told"),
        [
            (
                "go build ./... 2>&1 | head -80",
                "# auth\nauth.go:30:8: ep.Protocol undefined",
                "auth.go:30:8: ep.Protocol undefined",
            ),
            ("go test ./... | grep -E FAIL", "--- FAIL: TestOne (0.9s)", "--- FAIL: TestOne (0.9s)"),
            ("go build ./... | head", "a.c:1:2: warning: unused", "done"),
            ("git diff | head", "", None),
        ],
    )
    def test_a_check_that_failed_behind_a_pipe_is_not_done(self, command, output, told):
        found = ledger(call("c1", "terminal", command=command), result("c1", output))
        assert texts(found.actions) == ([f"ran {command} → {told}"] if told else [])

    def test_a_token_across_the_cut_of_a_long_command_is_redacted_whole(self):
        token = "ghp" + "_" + "aB3dE5gH7jK9" * 3
        found = ledger(call("c1", "terminal", command="x" * 100 + f" --header {token} " + "y" * 100))
        assert "ghp" not in texts(found.actions)[0]

    def test_of_runs_of_one_check_a_failure_and_what_it_overtook_do_not_stand_beside_the_newest(self):
        passed, failed = "2 passed", "FAILED test_shelf.py::test_order"
        runs = [("pytest -x | head", failed), ("pytest tests/shelf", passed), ("pytest -q", passed)]
        messages = [
            message
            for number, (command, output) in enumerate(runs)
            for message in (call(f"c{number}", "terminal", command=command), result(f"c{number}", output))
        ]
        assert texts(ledger(*messages).actions) == ["ran pytest tests/shelf → done", "ran pytest -q → done"]
        both = [call("c5", "terminal", command="ruff format . && pytest"), result("c5", failed)]
        rest = [call("c6", "terminal", command="pytest"), result("c6", passed)]
        assert texts(ledger(*both, *rest).actions) == ["ran pytest → done"]
        again = [call("c9", "terminal", command="pytest --lf"), result("c9", failed)]
        assert texts(ledger(*messages, *again).actions) == [
            "ran pytest --lf → FAILED test_shelf.py::test_order"
        ]


class TestRefusals:
    """A person may refuse a call: nothing was done, and what they say with it is their word, not the tool's."""

    @pytest.mark.parametrize(
        "answer",
        [
            "The user doesn't want to proceed with this tool use. The tool use was rejected.",
            "The user denied this operation.",
            "[Operation Cancelled] Reason: User denied execution.",
            "Error: command rejected by the user",
            "Permission for this action was denied by the classifier. Reason: it posts to others.",
        ],
    )
    def test_a_refused_call_is_not_done(self, answer):
        found = ledger(
            call("c1", "terminal", command="git push"),
            result("c1", answer),
            call("c2", "edit_file", path="shelf.py", old="a", new="b"),
            result("c2", answer),
        )
        assert found.actions == ()
        assert found.files == ()
        assert all(" refused" in text or text.endswith("refused") for text in texts(found.open_errors))

    @pytest.mark.parametrize(
        "output",
        [
            "bash: ./run.sh: Permission denied",
            "3 requests rejected",
            "The user table denied a NULL",
            "user: ann",
        ],
    )
    def test_other_output_refuses_nothing(self, output):
        found = ledger(call("c1", "terminal", command="./run.sh"), result("c1", output))
        assert "refused" not in texts(found.actions)[0]

    def test_what_a_person_says_with_it_is_told_and_its_rules_are_constraints(self):
        answer = (
            "The user doesn't want to proceed with this tool use. To tell you how to proceed, the user said:\n"
            "Never commit on main. Take a branch."
        )
        found = ledger(call("c1", "terminal", command="git commit -m x"), result("c1", answer))
        assert texts(found.open_errors) == [
            "git commit -m x: refused by the user: Never commit on main. Take a branch."
        ]
        assert texts(found.constraints) == ["Never commit on main."]

    @pytest.mark.parametrize(
        "answer",
        [
            "<tool_use_error>Sibling tool call errored</tool_use_error>",
            "<tool_use_error>Cancelled: parallel tool call Bash(pytest) errored</tool_use_error>",
        ],
    )
    def test_a_call_that_never_ran_neither_failed_nor_was_done(self, answer):
        found = ledger(
            call("c1", "terminal", command="git push"),
            result("c1", answer),
            call("c2", "edit_file", path="shelf.py", old="a", new="b"),
            result("c2", answer),
        )
        assert found.actions == found.files == found.open_errors == ()

    def test_an_error_is_told_without_the_tags_of_the_client(self):
        found = ledger(
            call("c1", "edit_file", path="shelf.py"),
            result("c1", "<tool_use_error>String to replace not found in file.\nString: x</tool_use_error>"),
        )
        assert texts(found.open_errors) == ["shelf.py: String to replace not found in file."]

    def test_a_file_that_could_not_be_read_or_edited_was_not(self):
        found = ledger(
            call("c1", "read_file", path="a.py"),
            result("c1", "Error: no such file"),
            call("c2", "edit_file", path="b.py"),
            result("c2", "no match", is_error=True),
        )
        assert found.files == ()


class TestErrors:
    FAILED = "Traceback\nValueError: no owner\nexit code 1"

    def test_an_error_that_stands_is_open(self):
        found = ledger(call("c1", "terminal", command="make"), result("c1", self.FAILED))
        assert len(found.open_errors) == 1
        assert found.open_errors[0].number == 2

    def test_one_that_the_same_call_no_longer_gives_is_not(self):
        found = ledger(
            call("c1", "terminal", command="make"),
            result("c1", self.FAILED),
            call("c2", "terminal", command="make"),
            result("c2", "exit code 0"),
        )
        assert found.open_errors == ()

    def test_the_success_of_another_call_resolves_nothing(self):
        found = ledger(
            call("c1", "terminal", command="make"),
            result("c1", self.FAILED),
            call("c2", "terminal", command="make docs"),
            result("c2", "exit code 0"),
        )
        assert len(found.open_errors) == 1

    def test_a_result_marked_as_an_error_is_one_without_any_word_for_it(self):
        found = ledger(
            call("c1", "get_order", order="#W1"), result("c1", "Order #W1 is unknown", is_error=True)
        )
        assert texts(found.open_errors) == ["order #W1: Order #W1 is unknown"]


class TestFiles:
    def test_each_stands_once_with_all_that_was_done_to_it(self):
        found = ledger(
            call("c1", "read_file", path="a.py"),
            result("c1", "x"),
            call("c2", "read_file", path="b.py"),
            result("c2", "x"),
            call("c3", "edit_file", path="a.py"),
            result("c3", "done"),
        ).files
        assert [(fact.text, fact.number) for fact in found] == [("b.py read", 3), ("a.py read, patched", 5)]


class TestDecisionsAndQuestions:
    def test_decisions_are_the_assistants(self):
        found = ledger(
            assistant("I looked. The root cause is a missing lock. Done."), user("I decided to go home.")
        )
        assert texts(found.decisions) == ["The root cause is a missing lock."]

    @pytest.mark.parametrize(
        "sentence",
        [
            "I've found the root cause.",
            "This is the root cause fix.",
            "I’m rerunning the full suite once before touching code, because this looks like order sensitivity.",
            "If you want, I can next lay out the packages instead of letting them grow.",
            'Continuing the search for lamps that are sold as "new" instead of as "used".',
            "Let me check the other handlers because they share the same code path.",
        ],
    )
    def test_an_announcement_or_a_remark_is_no_decision(self, sentence):
        assert ledger(assistant(f"All right. {sentence} So far.")).decisions == ()

    @pytest.mark.parametrize("bullet", ["2. ", "- ", "* **", "a) "])
    def test_an_item_of_a_review_that_says_what_to_do_is_no_decision(self, bullet):
        review = f"The change is sound.\n\n{bullet}Update the comment in clock.go to use UTC instead of local time.\n"
        assert ledger(assistant(review)).decisions == ()
        for found in (
            "I updated the comment in clock.go to use UTC instead of local time.",
            "Update failed in all of the regions because the comment in clock.go uses local time.",
        ):
            assert texts(ledger(assistant(found)).decisions) == [found]

    def test_a_comment_in_code_is_no_decision(self):
        code = "```go\n// this works because the cache sees the new file at once\n```"
        found = ledger(
            assistant(f"Look:\n{code}\nIt fails because the cache is read before the file is there.")
        )
        assert texts(found.decisions) == ["It fails because the cache is read before the file is there."]

    def test_the_rest_of_a_wrapped_sentence_is_no_decision(self):
        found = ledger(
            assistant("It is shown now, so that the\nmessage is in the terminal instead of only in the log.")
        )
        assert found.decisions == ()

    def test_an_option_of_which_a_person_is_to_choose_is_no_decision(self):
        options = "1. **Stay with flag**: print a brief listing instead of the giant block of usage.\n2. Move to cobra."
        assert ledger(assistant(f"Two ways:\n{options}\n\nWhich do you prefer?")).decisions == ()
        assert len(ledger(assistant(f"It was done in two steps:\n{options}")).decisions) == 1

    @pytest.mark.parametrize(
        "sentence",
        [
            "The problem might be that the cache is read before it is filled.",
            "This is likely because the branch was renamed in between.",
            "The approach would be to keep the shelf instead of the box.",
            "Going with that approach.",
            "I'll choose this one.",
        ],
    )
    def test_a_guess_is_no_decision_and_neither_is_a_choice_that_does_not_say_what(self, sentence):
        assert ledger(assistant(f"All right. {sentence} So far.")).decisions == ()

    def test_a_choice_may_be_short(self):
        found = ledger(assistant("I pick marble-curlew."), assistant("We settled on blue."))
        assert [(fact.text, fact.label) for fact in found.decisions] == [
            ("I pick marble-curlew.", "choice"),
            ("We settled on blue.", "choice"),
        ]

    def test_the_last_question_is_open(self):
        found = ledger(
            assistant("Shall I go on?"), user("yes"), assistant("Done. Do you want the tests as well?")
        )
        assert texts(found.questions) == ["Do you want the tests as well?"]

    def test_a_statement_is_no_question(self):
        assert ledger(assistant("Is it? It is.")).questions == ()


def test_sentences_end_in_every_script():
    assert sentences("One. Two! Three?\nFour。五！六") == ["One.", "Two!", "Three?", "Four。", "五！", "六"]


def test_of_a_long_text_no_sentence_is_cut():
    said = [f"Box {number} stands on the shelf at the left." for number in range(200)]
    assert set(sentences(" ".join(said))) < set(said)

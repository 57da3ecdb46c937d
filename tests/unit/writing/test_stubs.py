"""The line that stands for a call and its result."""

from __future__ import annotations

import json

import pytest

from penstock.conversation.message import ToolCall, ToolResult
from penstock.writing.stubs import (
    ToolFamily,
    clip,
    describe,
    exit_status,
    find_path,
    main_argument,
    shorten,
    tool_family,
)


def line(name, arguments, text, *, is_error=False):
    call = ToolCall("c1", name, arguments if isinstance(arguments, str) else json.dumps(arguments))
    return describe(call, ToolResult("c1", text, is_error), lambda said: said)


class TestKnownTools:
    def test_a_command_says_its_exit_status_and_its_lines(self):
        output = "\n".join(["ok"] * 46) + "\nexit code: 0"
        assert line("terminal", {"command": "npm test"}, output) == "[terminal] npm test → exit 0, 47 lines"

    def test_a_file_that_was_read_says_where_and_how_long(self):
        read = line("read_file", {"path": "config.py"}, "x" * 3_400)
        assert read == "[read_file] config.py from line 1, 3,400 chars"
        assert "from line 40," in line("view_file", {"file_path": "a.py", "offset": 40}, "x" * 300)

    @pytest.mark.parametrize(
        "key", ["target_file", "filePath", "TargetFile", "absolute_path", "AbsolutePath", "notebook_path"]
    )
    def test_a_path_is_known_by_what_its_key_says_however_it_is_spelt(self, key):
        arguments = {"explanation": "where it is read", key: "src/a.py"}
        assert line("read_file", arguments, "x").startswith("[read_file] src/a.py from line 1")
        assert find_path(arguments) == "src/a.py"

    def test_a_command_is_known_however_its_key_is_spelt(self):
        assert line("run_command", {"Cwd": "/srv", "CommandLine": "npm test"}, "ok").startswith(
            "[run_command] npm test"
        )

    def test_a_search_says_how_many_lines_it_found(self):
        assert line("grep", {"pattern": "retry"}, "a\nb\nc") == "[grep] retry → 3 lines"
        assert line("grep", {"pattern": "retry"}, "a") == "[grep] retry → 1 line"
        assert line("grep", {"pattern": "retry"}, "") == "[grep] retry → 0 lines"

    def test_a_patch_names_the_files_in_it(self):
        patch = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n+y\n*** Add File: src/b.py\n+z\n*** End Patch"
        assert line("apply_patch", {"input": patch}, "Done!") == "[apply_patch] src/a.py src/b.py → 5 chars"

    def test_a_command_given_as_a_list_reads_as_one(self):
        assert line("shell", {"command": ["git", "status"]}, "clean").startswith("[shell] git status →")

    @pytest.mark.parametrize(
        ("name", "family"),
        [
            ("bash", ToolFamily.TERMINAL),
            ("execute_command", ToolFamily.TERMINAL),
            ("Read", ToolFamily.READ),
            ("str_replace_editor", ToolFamily.PATCH),
            ("write_file", ToolFamily.WRITE),
            ("WebFetch", ToolFamily.FETCH),
            ("glob", ToolFamily.SEARCH),
            ("ls", ToolFamily.LIST),
            ("get_order_details", ToolFamily.OTHER),
        ],
    )
    def test_tools_are_known_by_their_names(self, name, family):
        assert tool_family(name) is family


class TestUnknownTools:
    def test_an_unknown_tool_says_its_first_arguments_and_its_size(self):
        stub = line(
            "get_order_details", {"order_id": "#W1", "full": True, "page": 2, "rest": "no"}, "x" * 1_200
        )
        assert stub == "[get_order_details] order_id #W1, full true, page 2 → 1,200 chars"

    def test_a_tool_without_arguments_is_its_name(self):
        assert line("list_offers", {}, "abc") == "[list_offers] → 3 chars"

    def test_arguments_that_are_no_json_are_shown_as_they_are(self):
        assert line("custom", "just some text", "abc") == "[custom] input just some text → 3 chars"

    def test_a_failure_says_so(self):
        assert line("get_order_details", {"order_id": "#W1"}, "not found", is_error=True).endswith(
            "→ failed, 9 chars"
        )

    def test_a_result_without_its_call_is_a_tool(self):
        assert describe(None, ToolResult("c9", "abcd"), str) == "[tool] 4 chars"


class TestExitStatus:
    @pytest.mark.parametrize(
        ("text", "status"),
        [
            ("exit code: 0", 0),
            ("Exit code 127", 127),
            ("...\nProcess exited with code 1", 1),
            ("<exit_code>2</exit_code>", 2),
            ("returncode=-9", -9),
            ("exited with status 3", 3),
            ("all good", None),
            ("the exit is on the left", None),
            ("+\tos.Exit(-1)", None),
            ("sys.exit(3)", None),
        ],
    )
    def test_it_is_read_as_it_is_written(self, text, status):
        assert exit_status(text) == status

    def test_it_is_looked_for_at_both_ends_only(self):
        assert exit_status("x" * 1_000 + "exit code 5" + "x" * 1_000) is None
        assert exit_status("x" * 1_000 + " exit code 5") == 5


class TestShortening:
    def test_a_short_line_stays(self):
        assert shorten("npm test") == "npm test"

    def test_a_long_one_is_cut_between_words(self):
        cut = shorten("word " * 60)
        assert len(cut) <= 121
        assert cut.endswith("word…")

    def test_one_long_word_is_cut_anywhere(self):
        assert shorten("x" * 500) == "x" * 119 + "…"

    def test_what_is_redacted_is_redacted_before_it_is_cut(self):
        secret = "S" * 150  # so long that the cut falls inside it
        call = ToolCall("c", "terminal", json.dumps({"command": f"curl {secret} -o out"}))
        stub = describe(call, ToolResult("c", "ok"), lambda text: text.replace(secret, "[REDACTED]"))
        assert "SS" not in stub

    def test_the_main_argument_is_on_one_line(self):
        assert main_argument(ToolFamily.TERMINAL, {"command": "a\n  b\n\nc"}) == "a b c"


class TestClip:
    def test_it_ends_and_begins_where_sentences_do(self):
        text = " ".join(f"This is sentence {n} of it." for n in range(60))
        clipped = clip(text, 80, lambda said: len(said.split()), "m3")
        head, tail = clipped.split("\n[… m3 …]\n")
        assert head.endswith(" of it.")
        assert tail.startswith("This is sentence")

    def test_or_lines(self):
        text = "\n".join(f"line number {n} without an end" for n in range(60))
        head, tail = clip(text, 80, lambda said: len(said.split()), "m3").split("\n[… m3 …]\n")
        assert head.endswith("without an end")
        assert tail.startswith("line number")

    def test_else_between_words(self):
        text = " ".join(f"word{n}" for n in range(300))
        head, tail = clip(text, 40, lambda said: len(said.split()), "m3").split("\n[… m3 …]\n")
        assert text.startswith(f"{head} ")
        assert text.endswith(f" {tail}")

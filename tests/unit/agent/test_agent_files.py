import asyncio
import os
import stat
import threading

import msgspec
import pytest
from agent_stage import refuse

from penstock.conversation.wire import encode_wire
from penstock.loop.approvals import Access, ApprovalReply
from penstock.loop.tools import function_schema


class TestReading:
    def test_lines_are_numbered(self, stage):
        stage.write("a.txt", "one\ntwo\nthree\n")
        outcome = stage.run("read_file", path="a.txt")
        assert outcome.text == "1\tone\n2\ttwo\n3\tthree"
        assert outcome.summary == "lines 1 to 3 of 3"

    def test_a_part_says_how_to_go_on(self, stage):
        stage.write("a.txt", "".join(f"line {number}\n" for number in range(1, 101)))
        text = stage.run("read_file", path="a.txt", offset=10, limit=2).text
        assert text == "10\tline 10\n11\tline 11\n[100 lines in all; go on with offset 12]"

    def test_an_absolute_path_inside_is_fine(self, stage):
        path = stage.write("a.txt", "one")
        assert stage.run("read_file", path=str(path)).text == "1\tone"

    def test_reading_asks_nobody(self, stage):
        stage.write("a.txt", "one")
        stage.run("read_file", path="a.txt")
        assert stage.person.asked == []

    @pytest.mark.parametrize(
        "name", [".env", "deploy/.env.production", "keys/id_ed25519", "tls/server.key", "secrets.yaml"]
    )
    def test_a_file_that_looks_like_secrets_needs_a_yes(self, stage, name):
        stage.write(name, "VALUE=hunter2-but-longer\n")
        assert "hunter2" in stage.run("read_file", path=name).text
        (asked,) = stage.person.asked
        assert (asked.subject, asked.why) == (name, "a file that looks like it holds secrets")
        stage.person.reply = ApprovalReply.NO
        told = stage.run("read_file", path=name)
        assert (told.is_error, "hunter2" in told.text) == (True, False)

    @pytest.mark.outside
    def test_a_link_does_not_hide_such_a_file_and_a_search_does_not_show_it(self, stage):
        stage.write(".env", "VALUE=hunter2-but-longer\n")
        (stage.root / "notes.txt").symlink_to(stage.root / ".env")
        stage.person.reply = ApprovalReply.NO
        assert "hunter2" not in stage.run("read_file", path="notes.txt").text
        for where in (".", "notes.txt"):
            assert "hunter2" not in stage.run("search_files", pattern="VALUE", path=where).text

    @pytest.mark.parametrize(
        "name", [".env.example", "id_rsa.pub", "secrets.py", "credentials.md", "environment.txt"]
    )
    def test_a_file_that_only_sounds_like_it_is_free(self, stage, name):
        stage.write(name, "one")
        stage.run("read_file", path=name)
        assert stage.person.asked == []

    def test_a_long_line_is_cut_and_its_rest_can_be_read(self, stage):
        line = "".join(str(number % 10) for number in range(9_000))
        stage.write("a.txt", f"short\n{line}\nend\n")
        text = stage.run("read_file", path="a.txt").text
        assert "3\tend" in text
        assert "line 2 has 9,000 characters, the first 2,000 are shown; offset 2, column 2001 goes on" in text
        rest = stage.run("read_file", path="a.txt", offset=2, limit=1, column=2_001).text
        assert rest.partition("\n")[0] == f"2\t{line[2_000:]}"

    def test_a_page_is_bounded_by_the_context(self, stage):
        stage.context = msgspec.structs.replace(stage.context, page_chars=1_000)
        stage.write("a.txt", "0123456789\n" * 1_000)
        text = stage.run("read_file", path="a.txt").text
        assert len(text) < 2_000
        assert "go on with offset" in text

    def test_binary_is_refused_with_its_size(self, stage):
        stage.write("a.bin", b"\x7fELF\0\0" + bytes(5_000))
        outcome = stage.run("read_file", path="a.bin")
        assert outcome.is_error
        assert "a.bin is a binary file of 5.0 KB" in outcome.text

    def test_bytes_that_are_no_utf8_are_shown_and_said(self, stage):
        stage.write("a.txt", b"caf\xe9\n")
        text = stage.run("read_file", path="a.txt").text
        assert text.startswith("1\tcaf�\n")
        assert "not UTF-8" in text

    def test_a_folder_is_answered_with_what_is_in_it(self, stage):
        stage.write("src/a.py", "")
        stage.write("src/deep/b.py", "")
        outcome = stage.run("read_file", path="src")
        assert outcome.is_error
        assert outcome.text == "src is a folder; in it: a.py, deep/"

    def test_a_missing_file_is_answered_with_what_is_there(self, stage):
        stage.write("src/settings.py", "")
        assert "alike: settings.py" in stage.run("read_file", path="src/setings.py").text
        assert "in src: settings.py" in stage.run("read_file", path="src/x/y/z.py").text

    def test_an_empty_file_says_so(self, stage):
        stage.write("a.txt", "")
        assert stage.run("read_file", path="a.txt").text == "[a.txt is empty]"

    @pytest.mark.parametrize(
        ("given", "said"), [({"offset": 4}, "has 3 lines"), ({"column": 9}, "has 3 characters")]
    )
    def test_past_the_end(self, stage, given, said):
        stage.write("a.txt", "one\ntwo\nsix\n")
        assert said in stage.run("read_file", {"path": "a.txt", **given}).text

    def test_a_pipe_is_refused_and_not_waited_for(self, stage):
        os.mkfifo(stage.root / "pipe")
        assert "not a regular file" in stage.run("read_file", path="pipe").text

    def test_a_stored_result_is_read_by_its_handle(self, stage):
        async def stored(handle):
            return "kept\nresult\n" if handle == "r-123" else None

        stage.context = msgspec.structs.replace(stage.context, stored=stored)
        assert stage.run("read_file", path="r-123").text == "1\tkept\n2\tresult"
        assert "no file or stored result r-124" in stage.run("read_file", path="r-124").text

    def test_it_has_no_limit_of_its_own(self, stage):
        assert stage.tools.tools["read_file"].most_chars is None


class TestWriting:
    def test_a_new_file_in_new_folders(self, stage):
        outcome = stage.run("write_file", path="a/b/c.txt", content="one\ntwo")
        assert (stage.root / "a/b/c.txt").read_text() == "one\ntwo"
        assert outcome.text == "created a/b/c.txt: 2 lines, 7 bytes"

    def test_an_old_file_is_replaced_and_keeps_its_mode(self, stage):
        path = stage.write("run.sh", "one\ntwo\nthree\n")
        path.chmod(0o750)
        outcome = stage.run("write_file", path="run.sh", content="four\n")
        assert outcome.text == "overwrote run.sh: 3 → 1 line, 5 bytes"
        assert stat.S_IMODE(path.stat().st_mode) == 0o750
        assert path.read_text() == "four\n"

    def test_nothing_else_is_left_in_the_folder(self, stage):
        stage.run("write_file", path="a.txt", content="x")
        assert [path.name for path in stage.root.iterdir()] == ["a.txt"]

    def test_the_person_sees_the_difference(self, stage):
        stage.write("a.txt", "one\ntwo\n")
        stage.run("write_file", path="./a.txt", content="one\nzwei\n")
        asked = stage.person.asked[0]
        assert (asked.tool, asked.access, asked.subject) == ("write_file", Access.WRITE, "a.txt")
        assert "-two" in asked.detail
        assert "+zwei" in asked.detail

    def test_a_refusal_changes_nothing_and_is_told(self, stage):
        stage.person.reply = ApprovalReply.NO
        outcome = stage.run("write_file", path="a/b.txt", content="x")
        assert outcome.is_error
        assert "Not done: the user said no" in outcome.text
        assert list(stage.root.iterdir()) == []

    @pytest.mark.outside  # takes long
    def test_who_reads_meanwhile_sees_one_of_the_two(self, stage):
        path = stage.write("a.txt", "a" * 100_000)
        seen, stop = set(), threading.Event()

        def watch():
            while not stop.is_set():
                seen.add(path.read_text())

        watcher = threading.Thread(target=watch)
        watcher.start()
        for number in range(20):
            stage.run("write_file", path="a.txt", content="ba"[number % 2] * 100_000)
        stop.set()
        watcher.join()
        assert seen <= {"a" * 100_000, "b" * 100_000}

    def test_a_folder_is_not_written_over(self, stage):
        (stage.root / "src").mkdir()
        assert "src is a folder" in stage.run("write_file", path="src", content="").text

    def test_a_file_on_the_way_is_told(self, stage):
        stage.write("a", "")
        outcome = stage.run("write_file", path="a/b", content="")
        assert outcome.is_error
        assert str(stage.root) not in outcome.text.partition(":")[0]


class TestPatching:
    def test_one_place(self, stage):
        path = stage.write("a.py", "def f():\n    return 1\n\ndef g():\n    return 2\n")
        outcome = stage.run("patch", path="a.py", old="    return 2", new="    return 3")
        assert outcome.text == "patched a.py at line 5"
        assert path.read_text() == "def f():\n    return 1\n\ndef g():\n    return 3\n"

    def test_several_places_are_refused_with_their_lines(self, stage):
        path = stage.write("a.py", "x = 1\ny = 1\n")
        outcome = stage.run("patch", path="a.py", old="= 1", new="= 2")
        assert "old occurs 2 times, at lines 1, 2" in outcome.text
        assert path.read_text() == "x = 1\ny = 1\n"

    def test_all_places(self, stage):
        path = stage.write("a.py", "x = 1\ny = 1\n")
        assert stage.run("patch", path="a.py", old="= 1", new="= 2", all=True).text.endswith("lines 1, 2")
        assert path.read_text() == "x = 2\ny = 2\n"

    def test_other_white_space_is_told_with_the_lines(self, stage):
        stage.write("a.py", "if x:\n\tcall(1,  2)\n\treturn\n")
        text = stage.run("patch", path="a.py", old="    call(1, 2)\n    return", new="pass").text
        assert "differ from it only in white space" in text
        assert "2\t\tcall(1,  2)\n3\t\treturn" in text

    def test_the_nearest_lines_are_shown(self, stage):
        lines = "".join(f"value_{number} = {number}\n" for number in range(50))
        stage.write("a.py", f"{lines}def compute_total(items, tax):\n    pass\n")
        text = stage.run("patch", path="a.py", old="def compute_totals(item, tax):", new="x").text
        assert "The nearest lines are:\n51\tdef compute_total(items, tax):" in text

    def test_nothing_like_it(self, stage):
        stage.write("a.py", "x = 1\n")
        assert "nor anything like it" in stage.run("patch", path="a.py", old="Größenordnung", new="y").text

    @pytest.mark.parametrize(("old", "said"), [("", "old is empty"), ("x", "the same")])
    def test_no_change(self, stage, old, said):
        stage.write("a.py", "x = 1\n")
        assert said in stage.run("patch", path="a.py", old=old, new="x").text

    def test_windows_line_ends_stay(self, stage):
        path = stage.write("a.txt", b"one\r\ntwo\r\nthree\r\n")
        stage.run("patch", path="a.txt", old="one\ntwo", new="1\n2\n2.5")
        assert path.read_bytes() == b"1\r\n2\r\n2.5\r\nthree\r\n"

    def test_bytes_that_are_no_utf8_are_not_lost(self, stage):
        path = stage.write("a.txt", b"caf\xe9 one\n")
        assert stage.run("patch", path="a.txt", old="one", new="two").is_error
        assert path.read_bytes() == b"caf\xe9 one\n"

    def test_a_file_that_changed_while_the_person_was_asked_is_left_alone(self, stage):
        path = stage.write("a.txt", "one two\n")

        async def ask(_permission):
            path.write_text("one two three\n")
            return ApprovalReply.ONCE

        stage.approvals._ask = ask
        outcome = stage.run("patch", path="a.txt", old="one", new="1")
        assert "changed by another program" in outcome.text
        assert path.read_text() == "one two three\n"

    def test_a_missing_file(self, stage):
        assert "there is no file a.txt" in stage.run("patch", path="a.txt", old="a", new="b").text


class TestListing:
    @pytest.fixture(autouse=True)
    def files(self, stage):
        stage.write(".gitignore", "*.log\nbuild/\n/only-here.txt\n!keep.log\n# note\n")
        for name in (
            "src/a.py",
            "src/deep/b.py",
            "src/deep/.gitignore",
            "src/deep/secret.txt",
            "src/only-here.txt",
            "only-here.txt",
            "build/out.bin",
            "src/build/x.o",
            "x.log",
            "keep.log",
            "docs/guide.md",
            ".git/config",
            "builder",
        ):
            stage.write(name, "")
        stage.write("src/deep/.gitignore", "secret.*\n")

    def test_a_tree_without_what_is_ignored(self, stage):
        text = stage.run("list_files").text
        assert text.split("\n") == [
            ".gitignore",
            "builder",
            "docs/",
            "  guide.md",
            "keep.log",
            "src/",
            "  a.py",
            "  deep/",
            "    .gitignore",
            "    b.py",
            "  only-here.txt",
        ]

    def test_a_folder_keeps_the_rules_above_it(self, stage):
        assert stage.run("list_files", path="src", depth=1).text == "a.py\ndeep/\nonly-here.txt"

    def test_an_ignored_folder_can_be_listed_by_name(self, stage):
        assert stage.run("list_files", path="build").text == "out.bin"

    def test_a_glob_shows_files_with_their_folders(self, stage):
        assert stage.run("list_files", glob="*.py").text == "src/\n  a.py\n  deep/\n    b.py"
        assert stage.run("list_files", glob="src/*.py").text == "src/\n  a.py"
        stage.write("src/a/b/c/d/e.py", "")
        assert stage.run("list_files", path="src/a", glob="*.py").text == "b/\n  c/\n    d/\n      e.py"
        assert "no file like *.rs" in stage.run("list_files", glob="*.rs").text

    def test_it_is_bounded_and_shows_what_is_near(self, stage):
        for number in range(600):
            stage.write(f"aaa/deep/{number}.txt", "")
        outcome = stage.run("list_files")
        assert "docs/" in outcome.text
        assert "[more than 400 entries" in outcome.text
        assert outcome.summary == "400 entries and more"

    def test_links_are_named_and_not_followed(self, stage, tmp_path):
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside/private.txt").write_text("")
        (stage.root / "docs/link").symlink_to(tmp_path / "outside")
        assert stage.run("list_files", path="docs").text == "guide.md\nlink@"

    @pytest.mark.outside
    def test_git_agrees(self, stage):
        """The rules are git's, where git has no others to go by."""
        import subprocess

        (stage.root / ".git/config").unlink()
        (stage.root / ".git").rmdir()
        for command in (["init", "-q"], ["-c", "core.excludesFile=", "add", "-A"]):
            subprocess.run(["git", *command], cwd=stage.root, check=True)
        listed = subprocess.run(
            ["git", "ls-files"], cwd=stage.root, check=True, capture_output=True, text=True
        )
        from penstock.agent.tools.walking import files_below

        assert sorted(listed.stdout.split()) == sorted(entry.path for entry in files_below(stage.root, ""))

    def test_what_is_no_folder(self, stage):
        assert "is a file" in stage.run("list_files", path="src/a.py").text
        assert "does not exist" in stage.run("list_files", path="nowhere").text


class TestTheFolder:
    @pytest.mark.parametrize(
        "name", ["../x.txt", "/etc/passwd", "a/../../x.txt", "~/x.txt", "link/x.txt", "", "a\0b"]
    )
    @pytest.mark.parametrize("tool", ["read_file", "write_file", "patch", "list_files", "search_files"])
    def test_no_tool_leaves_it(self, stage, tmp_path, tool, name):
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "x.txt").write_text("private")
        (tmp_path / "x.txt").write_text("private")
        (stage.root / "link").symlink_to(outside)
        (stage.root / "a").mkdir()
        given = {
            "write_file": {"content": "x"},
            "patch": {"old": "p", "new": "q"},
            "search_files": {"pattern": "p"},
        }
        outcome = stage.run(tool, {"path": name, **given.get(tool, {})})
        assert outcome.is_error
        assert "private" not in outcome.text
        assert (outside / "x.txt").read_text() == (tmp_path / "x.txt").read_text() == "private"

    def test_a_link_inside_is_followed(self, stage):
        stage.write("a.txt", "one")
        (stage.root / "link").symlink_to("a.txt")
        stage.run("write_file", path="link", content="two")
        assert (stage.root / "a.txt").read_text() == "two"
        assert (stage.root / "link").is_symlink()

    def test_a_circle_of_links_is_told(self, stage):
        (stage.root / "a").symlink_to("b")
        (stage.root / "b").symlink_to("a")
        assert stage.run("read_file", path="a").is_error


class TestEveryTool:
    def test_the_schemas_are_plain(self, stage):
        for tool in stage.tools.tools.values():
            schema = function_schema(tool)
            text = encode_wire(schema).decode()
            assert "$ref" not in text
            assert "null" not in text
            assert "\n" not in schema["function"]["description"]
            assert set(schema["function"]["parameters"]["required"]) <= set(
                schema["function"]["parameters"]["properties"]
            )

    def test_who_writes_or_runs_asks_first(self, stage):
        stage.context = msgspec.structs.replace(stage.context, approve=refuse)
        stage.write("a.txt", "one")
        calls = {
            "terminal": {"command": "touch ran"},
            "write_file": {"path": "b.txt", "content": ""},
            "patch": {"path": "a.txt", "old": "one", "new": "two"},
            "memory": {"action": "add", "file": "memory", "text": "a fact"},
        }
        assert set(calls) == {
            name for name, tool in stage.tools.tools.items() if tool.access is not Access.READ
        }
        for name, args in calls.items():
            outcome = stage.run(name, args)
            assert outcome.is_error
            assert outcome.summary == "refused: the user said no"
        assert [path.name for path in stage.root.iterdir()] == ["a.txt"]
        assert (stage.root / "a.txt").read_text() == "one"
        assert not stage.context.memory.folder.exists()

    @pytest.mark.parametrize(
        "args", [5, [], "x", "[]", {"path": {}}, {"no_such": 1}, '{"path": ["a"]}', {1: 2}]
    )
    def test_nonsense_never_raises(self, stage, args):
        for name in stage.tools.tools:
            outcome = asyncio.run(stage.tools.run(name, args, stage.context))
            assert outcome.is_error
            assert outcome.summary

    @pytest.mark.parametrize("args", [None, "", " ", "{}", {}])
    def test_no_arguments_are_an_empty_object(self, stage, args):
        stage.write("a.txt", "")
        assert asyncio.run(stage.tools.run("list_files", args, stage.context)).text == "a.txt"

    def test_an_unknown_tool_is_answered_with_those_that_there_are(self, stage):
        assert "did you mean: read_file" in stage.run("readfile").text
        assert "there are: terminal, read_file" in stage.run("zzz").text

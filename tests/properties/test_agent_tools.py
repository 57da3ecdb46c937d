"""What holds for whatever a model sends: changes are exact, pages are whole, and nothing is outside of the folder."""

from __future__ import annotations

import asyncio
import fnmatch
import os
import re
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.agent.assembly import own_tools
from penstock.agent.tools.patch import patch_text, why_not_found
from penstock.agent.tools.read_file import LINE_CHARS, Start, page_of
from penstock.agent.tools.readable import extract_text
from penstock.errors import ToolFailure
from penstock.loop.approvals import Approvals
from penstock.loop.capping import HeadAndTail, cap_text
from penstock.loop.globs import compile_glob
from penstock.loop.memory import add_entry, entries_of, remove_entry, replace_entry
from penstock.loop.tools import Toolbox, ToolContext
from penstock.loop.workspace import Workspace

few = st.text(st.sampled_from("ab \n\t"), max_size=30)


class TestPatch:
    @given(few | st.text(max_size=40), few.filter(bool), few | st.text(max_size=20), st.booleans())
    def test_it_is_a_plain_replacement_or_says_why_not(self, text, old, new, everywhere):
        assume(text.count("\r\n") != text.count("\n") or "\n" not in text)
        found = text.count(old)
        if found == 0 or old == new or (found > 1 and not everywhere):
            with pytest.raises(ToolFailure):
                patch_text(text, old, new, everywhere=everywhere)
            return
        result = patch_text(text, old, new, everywhere=everywhere)
        assert result.text == text.replace(old, new)
        assert len(result.lines) == found
        lines = text.split("\n")
        assert all(lines[line - 1 :][0].find(old.split("\n")[0]) >= 0 for line in result.lines)

    @given(st.text(st.sampled_from("ab\n"), max_size=30), few.filter(bool), few)
    def test_line_ends_of_windows_stay(self, text, old, new):
        windows = text.replace("\n", "\r\n")
        assume("\n" in text)
        try:
            plain = patch_text(text, old, new, everywhere=True).text
        except ToolFailure:
            with pytest.raises(ToolFailure):
                patch_text(windows, old, new, everywhere=True)
            return
        assert patch_text(windows, old, new, everywhere=True).text == plain.replace("\n", "\r\n")

    @given(few | st.text(max_size=60), few | st.text(max_size=30))
    def test_a_reason_is_always_given(self, text, old):
        assert why_not_found(text, old)


class TestPages:
    @given(
        st.lists(
            st.text(st.characters(exclude_characters="\n\r"), max_size=30)
            | st.integers(0, 3 * LINE_CHARS).map(lambda n: "".join(chr(97 + i % 26) for i in range(n))),
            min_size=1,
            max_size=12,
        ),
        st.integers(1, 6_000),
        st.integers(1, 5),
    )
    def test_all_pages_together_are_the_text(self, lines, most_chars, most_lines):
        shown = [""] * len(lines)
        waiting = [Start()]
        pages = 0
        while waiting:
            start = waiting.pop()
            page = page_of(lines, start, most_lines=most_lines, most_chars=most_chars)
            pages += 1
            assert page.lines
            assert len(page.lines) <= most_lines
            assert len(page.text) <= max(most_chars, 5)  # a number and one character
            for line in page.lines:
                number, _, text = line.partition("\t")
                shown[int(number) - 1] += text
            for number, length in page.cut:  # as the note says: the rest of a long line by itself
                assert length == len(lines[number - 1])
                column = LINE_CHARS + 1
                while column <= length:
                    rest = page_of(lines, Start(number, column), most_lines=1, most_chars=most_chars)
                    text = rest.lines[0].partition("\t")[2]
                    assert text
                    shown[number - 1] += text
                    column += len(text)
            if page.following is not None:
                assert page.following.line > start.line or page.following.column > start.column
                waiting.append(page.following)
            assert pages <= len(lines) + sum(map(len, lines))  # at worst one character each
        assert shown == lines


class TestCapping:
    @given(st.lists(st.text(st.sampled_from("ab\n"), max_size=40), max_size=20), st.integers(10, 60))
    def test_ends_are_kept_and_the_gap_is_counted(self, pieces, most_chars):
        whole = "".join(pieces)
        kept = HeadAndTail(most_chars)
        for piece in pieces:
            kept.add(piece)
        text = kept.text()
        assert text == cap_text(whole, most_chars)
        if len(whole) <= most_chars:
            assert text == whole
            return
        head, said, tail = re.fullmatch(
            r"(.*?)\[… ([\d,]+) characters(?:, [\d,]+ lines)? left out …\]\n(.*)", text, re.DOTALL
        ).groups()
        assert whole.endswith(tail)
        if not whole.startswith(head):  # a line break was put in front of the note
            assert whole.startswith(head[:-1])
            head = head[:-1]
        assert len(head) + len(tail) + int(said.replace(",", "")) in {len(whole), len(whole) + 1}
        assert len(head) + len(tail) <= most_chars + 1


parts = st.sampled_from(["a", "b", "..", ".", "", "link", "out", "up", "deep", "~", "x.txt", "/", "é"])
paths = st.builds(
    lambda start, names: start + "/".join(names),
    st.sampled_from(["", "/", "//", "~/", "./", "../", "{root}/", "{root}/../", "{outside}/"]),
    st.lists(parts, max_size=6),
) | st.text(max_size=20)


@pytest.fixture(scope="module")
def folders():
    with tempfile.TemporaryDirectory() as name:
        top = Path(name).resolve()
        root, outside = top / "root", top / "outside"
        (root / "a/deep").mkdir(parents=True)
        outside.mkdir()
        (outside / "x.txt").write_text("private")
        (top / "x.txt").write_text("private")
        (root / "x.txt").write_text("own")
        (root / "link").symlink_to(outside)
        (root / "a/up").symlink_to("../..")
        (root / "out").symlink_to("/")
        (root / "b").symlink_to("a")
        yield root, outside


def tree(folder):
    return {(str(path), path.read_text() if path.is_file() else "") for path in folder.rglob("*")}


class TestTheFolder:
    @given(path=paths)
    def test_a_path_is_inside_by_what_the_system_says_or_refused(self, folders, path):
        root, outside = folders
        text = path.replace("{root}", str(root)).replace("{outside}", str(outside))
        workspace = Workspace.at(root)
        try:
            found = workspace.resolve(text)
        except ToolFailure:
            return
        assert os.path.realpath(found) == str(found)
        assert os.path.commonpath([root, found]) == str(root)
        assert (root / workspace.relative_name(found)) == found

    @given(path=paths, tool=st.sampled_from(["read_file", "write_file", "patch", "list_files"]))
    def test_tools_neither_show_nor_change_what_is_outside(self, folders, path, tool):
        root, outside = folders
        text = path.replace("{root}", str(root)).replace("{outside}", str(outside))
        before = tree(outside) | {(str(root.parent / "x.txt"), "private")}
        given_more = {"write_file": {"content": "own"}, "patch": {"old": "private", "new": "changed"}}
        box, approvals = Toolbox.of(own_tools()), Approvals(yes=True)
        context = ToolContext(workspace=Workspace.at(root), approve=approvals.approve)
        outcome = asyncio.run(box.run(tool, {"path": text, **given_more.get(tool, {})}, context))
        assert "private" not in outcome.text
        assert tree(outside) | {(str(root.parent / "x.txt"), (root.parent / "x.txt").read_text())} == before


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = (
    "path",
    "old",
    "new",
    "all",
    "content",
    "offset",
    "limit",
    "column",
    "depth",
    "glob",
    "action",
    "file",
)


class TestArguments:
    @given(
        args=anything
        | st.dictionaries(st.sampled_from(NAMES), anything, max_size=5)
        | st.binary(max_size=10),
        tool=st.sampled_from(
            ["read_file", "patch", "list_files", "memory", "fetch_url", "terminal", "no_such"]
        ),
    )
    def test_whatever_a_model_sends_gives_an_outcome(self, folders, args, tool):
        root, _ = folders
        box, approvals = Toolbox.of(own_tools()), Approvals()
        context = ToolContext(workspace=Workspace.at(root), approve=approvals.approve)
        outcome = asyncio.run(box.run(tool, args, context))
        outcome.text.encode()
        assert outcome.summary


class TestMemory:
    @given(st.lists(st.text(st.sampled_from("abc -#*\n"), min_size=1, max_size=20), max_size=6))
    def test_entries_come_back_one_by_one(self, wanted):
        text = ""
        count = 0
        for entry in wanted:
            try:
                text = add_entry(text, entry)
            except ToolFailure:
                continue
            count += 1
            assert len(entries_of(text)) == count
        for entry in entries_of(text):
            changed = replace_entry(text, entry.text, "something else entirely")
            assert len(entries_of(changed)) == count
            assert len(entries_of(remove_entry(text, entry.text))) == count - 1


def match_slowly(pattern: list[str], path: list[str]) -> bool:
    """Says what a pattern means, name by name and sign by sign, without regard to time."""
    if not pattern or not path:
        return not pattern and not path
    if pattern[0] == "**":
        if len(pattern) == 1:
            return True
        return any(match_slowly(pattern[1:], path[at:]) for at in range(len(path)))
    return match_name(pattern[0], path[0]) and match_slowly(pattern[1:], path[1:])


def match_name(pattern: str, name: str) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(match_name(pattern[1:], name[at:]) for at in range(len(name) + 1))
    end = pattern.find("]", 3 if pattern[1:2] in ("!", "^") else 2) if pattern[0] == "[" else -1
    rest = pattern[end + 1 :] if end > 0 else pattern[1:]
    if not name:
        return False
    fits = fnmatch.fnmatchcase(name[0], pattern[: end + 1]) if end > 0 else pattern[0] in ("?", name[0])
    return fits and match_name(rest, name[1:])


class TestGlobs:
    @pytest.mark.parametrize(
        ("pattern", "name"),
        [
            ("*a*a*a*a*a*ab", "a" * 4_096),
            ("*a" * 200 + "b", "a" * 4_096),
            ("**/*a*a*a/**/*a*a*b", "a/" * 2_048),
            ("**/a/" * 30 + "b", "a/" * 2_048),
            ("[ab]*" * 100 + "c", "ab" * 2_048),
            ("?*" * 100 + "c", "ab" * 2_048),
        ],
    )
    def test_no_pattern_takes_more_than_its_length_times_that_of_the_name(self, pattern, name):
        glob = compile_glob(pattern)
        spent = []
        for _ in range(5):
            start = time.process_time()
            assert not glob.matches(name)
            spent.append(time.process_time() - start)
        assert min(spent) < 0.01 * max(1, len(pattern) / 50)

    @given(
        st.text(st.sampled_from("ab/*?[]!-."), max_size=12), st.text(st.sampled_from("ab/.-"), max_size=12)
    )
    def test_a_pattern_matches_what_its_definition_says(self, pattern, path):
        assert compile_glob(pattern).matches(path) == match_slowly(pattern.split("/"), path.split("/"))

    @given(st.text(st.sampled_from("ab/.-"), max_size=12))
    def test_a_plain_text_matches_itself_alone(self, text):
        assert compile_glob(text).matches(text)
        assert not compile_glob(text).matches(text + "a")


class TestReadable:
    @given(
        st.lists(
            st.sampled_from(
                ["<p>", "</p>", "<a href=x>", "</a>", "<pre>", "<svg>", "x", " ", "<li>", "<td>", "<"]
            )
        )
    )
    def test_no_page_is_too_broken(self, pieces):
        extract_text("".join(pieces))

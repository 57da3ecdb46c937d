import asyncio
import shutil
import time

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.agent.tools import search_files
from penstock.agent.tools.search_child import SearchJob, search

pytestmark = pytest.mark.outside

RIPGREP = shutil.which("rg")
needs_ripgrep = pytest.mark.skipif(RIPGREP is None, reason="ripgrep is not installed")


@pytest.fixture(autouse=True)
def files(stage):
    stage.write(".gitignore", "ignored/\n*.min.js\n")
    stage.write("src/b.py", "import os\n\ndef crane(load):\n    return load  # TODO: weigh\n")
    stage.write("src/a.py", "CRANE = 1\ncrane = 2\n")
    stage.write("src/deep/c.txt", "The crane answers.\r\nEnd\r\n")
    stage.write("docs/guide.md", "A crane lifts.\nÜber den Kran: crane\n")
    stage.write("ignored/x.py", "crane\n")
    stage.write("app.min.js", "crane\n")
    stage.write("data.bin", b"crane\0\0\0crane")
    stage.write(".hidden/notes", "crane\n")
    stage.write("-dash.txt", "crane\n")


class TestFinding:
    def test_lines_with_path_and_number_in_one_order(self, stage):
        outcome = stage.run("search_files", pattern=r"\bcrane\b")
        assert outcome.text.split("\n") == [
            "-dash.txt:1: crane",
            ".hidden/notes:1: crane",
            "docs/guide.md:1: A crane lifts.",
            "docs/guide.md:2: Über den Kran: crane",
            "src/a.py:2: crane = 2",
            "src/b.py:3: def crane(load):",
            "src/deep/c.txt:1: The crane answers.",
        ]
        assert outcome.summary == "7 matches"

    def test_in_a_folder_by_a_glob_without_case(self, stage):
        text = stage.run("search_files", pattern="CRANE", path="src", glob="*.py", ignore_case=True).text
        assert text == "src/a.py:1: CRANE = 1\nsrc/a.py:2: crane = 2\nsrc/b.py:3: def crane(load):"

    def test_in_one_file_also_an_ignored_one(self, stage):
        assert stage.run("search_files", pattern="cran.", path="ignored/x.py").text == "ignored/x.py:1: crane"

    def test_it_is_bounded_and_says_so(self, stage):
        stage.write("many.txt", "crane\n" * 500)
        outcome = stage.run("search_files", pattern="crane", limit=10)
        assert outcome.text.count("\n") == 10
        assert outcome.text.endswith("[more than 10 matches: narrow the pattern, the path or the glob]")
        assert outcome.summary == "10 matches and more"

    def test_of_a_long_line_what_is_around_the_match(self, stage):
        stage.write("long.txt", "x" * 5_000 + "needle" + "y" * 5_000)
        text = stage.run("search_files", pattern="needle").text
        assert "needle" in text
        assert len(text) < 400

    def test_nothing(self, stage):
        assert stage.run("search_files", pattern="zebra").text.startswith("[no match in ")

    def test_a_bad_pattern_is_told(self, stage):
        outcome = stage.run("search_files", pattern="(crane")
        assert outcome.is_error
        assert "the pattern is not a regular expression" in outcome.text

    def test_a_link_is_not_followed_out(self, stage, tmp_path):
        (tmp_path / "private.txt").write_text("crane private\n")
        (stage.root / "link.txt").symlink_to(tmp_path / "private.txt")
        assert "private" not in stage.run("search_files", pattern="crane").text


class TestEnding:
    @pytest.mark.alone
    def test_an_expression_that_never_ends_is_ended(self, stage, monkeypatch):
        monkeypatch.setattr(search_files, "_SECONDS", 1.0)
        stage.context = msgspec.structs.replace(stage.context, environment={"PATH": "/nowhere"})
        stage.write("evil.txt", "a" * 60 + "!\n")
        started = time.monotonic()
        outcome = stage.run("search_files", pattern=r"(a+)+$", path="evil.txt")
        assert time.monotonic() - started < 5
        assert "was stopped" in outcome.text

    def test_cancelling_ends_it(self, stage):
        stage.context = msgspec.structs.replace(stage.context, environment={"PATH": "/nowhere"})
        stage.write("evil.txt", "a" * 60 + "!\n")

        async def talk():
            task = asyncio.create_task(stage.arun("search_files", pattern=r"(a+)+$", path="evil.txt"))
            await asyncio.sleep(0.3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(talk())


@needs_ripgrep
class TestWithAndWithoutRipgrep:
    PATTERNS = (
        r"crane",
        r"^crane",
        r"answers\.$",
        r"End$",
        r"(?i)CRANE\b",
        r"\w+\(\w+\)",
        r"[Üü]ber",
        r"crane(?= =)",  # ripgrep has no look-ahead: everything is read
        r"(\w)\1",  # nor back references
        r"a\nb",
        r"--files",
        r"",
        r"\d+|T.DO",
        r"\s+return",
        r"[[:alpha:]]",  # a set of letters there, a set and a bracket here
        r"[a-z--c]",
        r"\<crane",
        r"(?x) cr ane",
        r"a{,2}nswers",
    )

    @pytest.mark.parametrize("pattern", PATTERNS)
    @pytest.mark.parametrize("limit", [2, 100])
    def test_the_same_is_found_in_the_same_order(self, stage, pattern, limit):
        job = SearchJob(root=str(stage.root), start="", pattern=pattern, limit=limit)
        without = search(job)
        assert search(msgspec.structs.replace(job, ripgrep=RIPGREP)) == without

    @settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(pattern=st.text(st.sampled_from("ab.*+?[](){}|^$\\dDwWsSbB-&~<:,!=xi1"), min_size=1, max_size=8))
    def test_whatever_the_pattern(self, stage, pattern):
        stage.write("x/letters", "ab\n<b> a-b\n&& ~~ [a]\na:b,1\n")
        stage.write("x/other", "\n1 b\nbB ii\n")
        stage.write("x/none", "")
        job = SearchJob(root=str(stage.root), start="x", pattern=pattern)
        assert search(msgspec.structs.replace(job, ripgrep=RIPGREP)) == search(job)

    def test_more_files_than_one_call_takes(self, stage):
        for number in range(2_300):
            stage.write(f"many/{number:04}-{'n' * 60}.txt", "crane\n" if number % 500 == 0 else "other\n")
        job = SearchJob(root=str(stage.root), start="many", pattern="crane")
        found = search(msgspec.structs.replace(job, ripgrep=RIPGREP))
        assert [hit.path[5:9] for hit in found.hits] == ["0000", "0500", "1000", "1500", "2000"]
        assert found == search(job)

    def test_a_name_that_is_no_utf8(self, stage):
        (stage.root / "caf\udce9.txt").write_text("crane latin\n")
        job = SearchJob(root=str(stage.root), start="", pattern="latin")
        assert search(msgspec.structs.replace(job, ripgrep=RIPGREP)) == search(job)
        assert stage.run("search_files", pattern="latin").text == "caf�.txt:1: crane latin"
        assert "caf?.txt" in stage.run("list_files").text

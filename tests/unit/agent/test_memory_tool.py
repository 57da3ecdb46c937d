import multiprocessing
import stat

import msgspec
import pytest

from penstock.errors import ToolFailure
from penstock.loop.approvals import Approvals
from penstock.loop.memory import MemoryFiles, MemoryName, add_entry, entries_of, remove_entry, replace_entry

BY_HAND = """# Project

The crane has two hooks.
They are painted red.

- Tests run with `make test`.
- Releases:
  every second Tuesday

## Later
* Ask about the port.
"""


def texts(text):
    return [entry.text for entry in entries_of(text)]


class TestEntries:
    def test_paragraphs_and_items(self):
        assert texts(BY_HAND) == [
            "The crane has two hooks.\nThey are painted red.",
            "Tests run with `make test`.",
            "Releases:\nevery second Tuesday",
            "Ask about the port.",
        ]

    def test_what_is_not_named_stays_as_it_is(self):
        assert replace_entry(BY_HAND, "make test", "Tests run with tox.") == BY_HAND.replace(
            "Tests run with `make test`.", "Tests run with tox."
        )
        assert remove_entry(BY_HAND, "every second") == BY_HAND.replace(
            "- Releases:\n  every second Tuesday\n", ""
        )
        assert add_entry(BY_HAND, "New") == BY_HAND + "- New\n"

    def test_an_entry_of_several_lines_stays_one(self):
        text = add_entry("", "# One\n\n- two\n  three")
        assert texts(text) == ["One\ntwo\nthree"]

    @pytest.mark.parametrize("again", ["Ask about the port.", "- ask  about\nthe PORT."])
    def test_the_same_is_not_added_twice(self, again):
        with pytest.raises(ToolFailure, match="already there"):
            add_entry(BY_HAND, again)

    def test_words_of_several_entries_are_not_enough(self):
        with pytest.raises(ToolFailure, match="2 entries contain these words"):
            remove_entry(BY_HAND, "the")


class TestTool:
    def test_add_replace_remove(self, stage):
        assert "1 entry, " in stage.run("memory", action="add", file="memory", text="The port is 4711.").text
        stage.run("memory", action="add", file="memory", text="Another.")
        stage.run("memory", action="replace", file="memory", old="4711", text="The port is 4712.")
        outcome = stage.run("memory", action="remove", file="memory", old="another.")
        assert not outcome.is_error
        assert (stage.context.memory.folder / "MEMORY.md").read_text() == "- The port is 4712.\n"
        assert not (stage.context.memory.folder / "USER.md").exists()

    def test_the_person_sees_the_difference(self, stage):
        stage.run("memory", action="add", file="user", text="Likes tea.")
        assert stage.person.asked[0].subject == "USER.md"
        assert "+- Likes tea." in stage.person.asked[0].detail

    def test_files_are_for_their_owner_alone(self, stage):
        stage.run("memory", action="add", file="user", text="Likes tea.")
        folder = stage.context.memory.folder
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "USER.md").stat().st_mode) == 0o600

    def test_the_limit_holds_and_shrinking_works(self, stage, tmp_path):
        files = MemoryFiles(tmp_path / "small", memory_chars=100)
        stage.context = msgspec.structs.replace(stage.context, memory=files)
        assert not stage.run("memory", action="add", file="memory", text="a" * 60).is_error
        outcome = stage.run("memory", action="add", file="memory", text="b" * 60)
        assert "would have 126 characters, and 100 are allowed" in outcome.text
        files.path(MemoryName.MEMORY).write_text("- " + "c" * 300 + "\n- " + "d" * 300 + "\n")
        assert not stage.run("memory", action="remove", file="memory", old="ccc").is_error

    def test_a_secret_is_refused(self, stage):
        redact = lambda text: text.replace("hunter2-sample", "[REDACTED]")  # noqa: E731 - shorter so
        stage.context = msgspec.structs.replace(stage.context, redact=redact)
        outcome = stage.run("memory", action="add", file="memory", text="password: hunter2-sample")
        assert "looks like a secret" in outcome.text
        assert "hunter2" not in outcome.text

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"action": "add"}, "needs text"),
            ({"action": "replace", "text": "x"}, "needs old"),
            ({"action": "remove"}, "needs old"),
            ({"action": "remove", "old": "nothing like it"}, "no entry contains these words"),
            ({"action": "forget"}, "action"),
            ({"action": "add", "text": "  \n"}, "text is empty"),
        ],
    )
    def test_wrong_wishes_are_told(self, stage, given, said):
        outcome = stage.run("memory", {"file": "memory", **given})
        assert outcome.is_error
        assert said in outcome.text

    def test_without_a_memory(self, stage):
        stage.context = msgspec.structs.replace(stage.context, memory=None)
        assert "no memory" in stage.run("memory", action="add", file="memory", text="x").text


def add_some(folder, who):
    files = MemoryFiles(folder, memory_chars=100_000)
    for number in range(25):
        files.change(MemoryName.MEMORY, lambda text, n=number: add_entry(text, f"{who} noted {n}"))


@pytest.mark.outside
def test_several_agents_lose_nothing_of_each_other(tmp_path):
    processes = [multiprocessing.Process(target=add_some, args=(tmp_path / "m", who)) for who in "abc"]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert len(entries_of(MemoryFiles(tmp_path / "m").text(MemoryName.MEMORY))) == 75


def test_approvals_may_allow_it_by_rule(stage):
    from penstock.loop.approvals import read_rule

    approvals = Approvals(rules=(read_rule("memory(USER.md)"),))
    stage.context = msgspec.structs.replace(stage.context, approve=approvals.approve)
    assert not stage.run("memory", action="add", file="user", text="x").is_error
    assert stage.run("memory", action="add", file="memory", text="x").is_error

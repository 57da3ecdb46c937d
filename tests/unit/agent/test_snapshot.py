import msgspec
import pytest

from penstock.loop.memory import MemoryFiles
from penstock.loop.system_prompt import FrozenPrompt, PromptParts, Snapshot, instruction_files, take_snapshot
from penstock.loop.workspace import Workspace


@pytest.fixture
def parts(tmp_path):
    """A folder two levels deep in a repository, with instructions on the way and outside of it."""
    repository = tmp_path / "repository"
    folder = repository / "services" / "crane"
    folder.mkdir(parents=True)
    (repository / ".git").mkdir()
    (tmp_path / "AGENTS.md").write_text("outside of the repository\n")
    (repository / "AGENTS.md").write_text("root rules\n")
    (repository / "CLAUDE.md").write_text("not read beside AGENTS.md\n")
    (folder / "CLAUDE.md").write_text("crane rules\n")
    return PromptParts(workspace=Workspace.at(folder), memory=MemoryFiles(tmp_path / "memory"))


def remember(parts, name, text):
    parts.memory.folder.mkdir(exist_ok=True)
    (parts.memory.folder / name).write_text(text)


class TestWhatIsInIt:
    def test_everything_in_its_order(self, parts):
        remember(parts, "MEMORY.md", "- the port is 4711\n")
        remember(parts, "USER.md", "- likes tea\n")
        text = take_snapshot(parts).text
        wanted = [
            "You are Penstock",
            f"Working folder: {parts.workspace.root}",
            "root rules",
            "crane rules",
            "the port is 4711",
            "likes tea",
        ]
        places = [text.index(one) for one in wanted]
        assert places == sorted(places)
        assert "outside of the repository" not in text
        assert "not read beside" not in text

    def test_the_sources_are_named(self, parts):
        remember(parts, "USER.md", "- likes tea\n")
        names = [source.path.rpartition("/")[2] for source in take_snapshot(parts).sources]
        assert names == ["AGENTS.md", "CLAUDE.md", "USER.md"]

    def test_without_a_repository_only_the_folder_itself(self, tmp_path):
        (tmp_path / "AGENTS.md").write_text("above")
        (tmp_path / "inner").mkdir()
        assert instruction_files(tmp_path / "inner") == []
        assert instruction_files(tmp_path) == [tmp_path / "AGENTS.md"]

    def test_a_link_out_of_the_repository_is_not_followed(self, parts, tmp_path):
        (tmp_path / "private.txt").write_text("made-up private text")
        file = parts.workspace.root / "AGENTS.md"
        file.symlink_to(tmp_path / "private.txt")
        assert "private" not in take_snapshot(parts).text

    def test_instructions_are_bounded(self, parts):
        (parts.workspace.root / "AGENTS.md").write_text("rule\n" * 100_000)
        snapshot = take_snapshot(parts)
        assert len(snapshot.text) < 26_000
        assert "left out" in snapshot.text

    def test_no_files_at_all(self, tmp_path):
        snapshot = take_snapshot(PromptParts(workspace=Workspace.at(tmp_path), identity="Only this."))
        assert snapshot.text == f"Only this.\n\nWorking folder: {tmp_path.resolve()}"
        assert snapshot.sources == ()


class TestFrozen:
    def test_the_same_files_give_the_same_digest(self, parts):
        assert take_snapshot(parts) == take_snapshot(parts)

    def test_changes_show_at_a_boundary_and_nowhere_else(self, parts):
        prompt = FrozenPrompt(parts)
        before = prompt.current
        assert not prompt.renew()
        assert prompt.current is before
        remember(parts, "MEMORY.md", "- the port is 4712\n")
        assert prompt.current is before
        assert prompt.renew()
        assert "4712" in prompt.current.text
        assert prompt.current.digest != before.digest

    def test_a_resumed_session_keeps_its_own(self, parts):
        kept = msgspec.json.decode(msgspec.json.encode(take_snapshot(parts)), type=Snapshot)
        remember(parts, "MEMORY.md", "- newer\n")
        assert FrozenPrompt(parts, kept).current == kept

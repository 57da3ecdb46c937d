"""Files that a person attaches with `@`: which names count, what is read, what is refused, and what the model gets."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import struct
import time
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.agent.assembly import AgentPlace, make_agent
from penstock.agent.attachments import (
    attach_files,
    find_dragged,
    find_mentions,
    list_matches,
    name_mention,
    takes_pictures,
)
from penstock.conversation.dialects import dialect_named
from penstock.conversation.message import Image, Text
from penstock.conversation.speakers import person_words
from penstock.errors import InputError
from penstock.loop.approvals import ApprovalReply
from penstock.loop.wire import write_user_message
from penstock.loop.workspace import Workspace
from penstock.providers.connect import connect
from penstock.settings import Settings
from penstock.stores.store import open_store
from penstock.transfer.convert import Picture


def png(width=2, height=3):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\x80" * 3 * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


class Desk:
    """A working folder with an agent in it; `reply` answers questions."""

    def __init__(self, folder, monkeypatch):
        monkeypatch.setenv("HOME", str(folder / "home"))
        self.work = folder / "work"
        self.work.mkdir()
        self.reply = ApprovalReply.NO
        self.asked = []
        self.told = []
        self.workspace = Workspace.at(self.work)
        place = AgentPlace(
            folder=self.work,
            store=open_store("memory:"),
            tell=self.told.append,
            ask=self._answer,
            prepares=False,
        )
        self.agent = make_agent(
            place, connect("openai", "gpt-4.1", base_url="http://127.0.0.1:9/v1"), Settings()
        )

    async def _answer(self, asked):
        self.asked.append(asked.subject)
        return self.reply

    def attach(self, text, **options):
        return asyncio.run(attach_files(text, self.agent.calls, self.workspace, **options))


@pytest.fixture
def desk(tmp_path, monkeypatch):
    return Desk(tmp_path, monkeypatch)


class TestMentions:
    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("see @a.py", ["a.py"]),
            ("@a.py and @src/b.py, then @a.py", ["a.py", "src/b.py,"]),
            ('(@a.py) "@b.py" `@c.py`', ["a.py)", "b.py", "c.py"]),
            ('@"two words.txt" @two\\ words.txt', ["two words.txt"]),
            ("me@example.org, a@b, @@x", ["@x"]),
            ("nothing at all", []),
            ("@ @\n", []),
        ],
    )
    def test_what_counts_as_one(self, text, found):
        assert find_mentions(text) == found

    @given(
        st.text(
            st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\u2028\u2029\x85'), min_size=1
        )
    )
    def test_a_path_is_found_again_by_its_mention(self, path):
        assert find_mentions(f"look at {name_mention(path)} now") == [path]


class TestText:
    def test_a_file_follows_the_message_in_a_tag_and_is_not_the_persons_words(self, desk):
        (desk.work / "a.py").write_text("x = 1\ny = '</attached_file>'\n")
        made = desk.attach("What is in @a.py?")
        assert made.text == (
            "What is in @a.py?\n\n"
            "<attached_file path=\"a.py\">\n1\tx = 1\n2\ty = '<\\/attached_file>'\n</attached_file>"
        )
        assert made.pictures == ()
        message = dialect_named("chat").decode(write_user_message("chat", made.text))
        assert person_words(message) == "What is in @a.py?"

    def test_names_that_are_no_files_stay_as_they_were_written(self, desk):
        (desk.work / "app").mkdir()
        text = "@someone said @property and @app are like @src/none.py @\0 @" + "x" * 5_000
        assert desk.attach(text).text == text

    def test_what_comes_through_a_pipe_names_nothing(self, desk):
        (desk.work / "a.py").write_text("x = 1\n")
        assert desk.attach("Look.\n\n@a.py", typed="Look.").text == "Look.\n\n@a.py"

    def test_a_folder_is_listed_and_a_long_file_is_a_page_that_says_how_to_go_on(self, desk):
        (desk.work / "src").mkdir()
        (desk.work / "src" / "long.txt").write_text("a line of some length, again and again\n" * 9_000)
        made = desk.attach("@src/ and @src/long.txt.")
        assert "long.txt\n</attached_file>" in made.text
        assert "9,000 lines in all; go on with offset" in made.text
        assert len(made.text) < 60_000

    def test_too_much_at_once_is_refused(self, desk):
        for number in range(4):
            (desk.work / f"{number}.txt").write_text("a line of some length, again and again\n" * 2_000)
        with pytest.raises(InputError, match=r"^2\.txt does not fit beside the other attached files"):
            desk.attach("@0.txt @1.txt @2.txt @3.txt")
        for number in range(21):
            (desk.work / f"{number}.txt").write_text("short\n")
        with pytest.raises(InputError, match="21 files are more than the 20"):
            desk.attach(" ".join(f"@{number}.txt" for number in range(21)))

    @pytest.mark.parametrize("name", ["/etc/hostname", "../outside.txt", "~/notes.txt", "link.txt"])
    def test_nothing_outside_the_working_folder_as_with_the_tool(self, desk, tmp_path, name):
        (tmp_path / "outside.txt").write_text("not yours\n")
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "notes.txt").write_text("not yours\n")
        (desk.work / "link.txt").symlink_to(tmp_path / "outside.txt")
        with pytest.raises(InputError, match=r"nothing was sent: .*(outside the working|in the home) folder"):
            desk.attach(f"Read @{name}")
        assert desk.asked == []

    def test_a_file_with_secrets_by_its_name_needs_a_yes(self, desk):
        (desk.work / ".env").write_text("MODE=test\n")
        with pytest.raises(InputError, match="looks like it holds secrets, and reading it was not allowed"):
            desk.attach("Read @.env")
        desk.reply = ApprovalReply.ONCE
        assert "MODE=test" in desk.attach("Read @.env").text
        assert desk.asked == [".env", ".env"]

    def test_a_pipe_is_refused_and_not_waited_for(self, desk):
        os.mkfifo(desk.work / "pipe")
        with pytest.raises(InputError, match="pipe is not a regular file"):
            desk.attach("@pipe")

    def test_a_file_that_is_no_text_is_refused_in_one_line(self, desk):
        (desk.work / "a.bin").write_bytes(b"\0\1\2" * 99)
        with pytest.raises(
            InputError, match=r"^a\.bin was not attached, and nothing was sent: .*binary"
        ) as failed:
            desk.attach("@a.bin")
        assert "\n" not in str(failed.value)


class TestPictures:
    @pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
    def test_every_dialect_reads_back_what_was_attached(self, dialect):
        data = png(40, 30)
        picture = Picture("image/png", base64.b64encode(data).decode())
        wire = write_user_message(dialect, "What is this?", [picture])
        assert json.loads(json.dumps(wire)) == wire
        shown, words = dialect_named(dialect).decode(wire).parts
        assert isinstance(shown, Image)
        assert (shown.width, shown.height, shown.size_bytes, shown.media_type) == (
            40,
            30,
            len(data),
            "image/png",
        )
        assert words == Text("What is this?")

    def test_a_picture_is_known_by_its_bytes_and_not_by_its_name(self, desk):
        (desk.work / "shot.txt").write_bytes(png())
        (desk.work / "words.png").write_text("no picture\n")
        made = desk.attach("@shot.txt @words.png")
        assert [base64.b64decode(one.data) for one in made.pictures] == [png()]
        assert "no picture" in made.text

    def test_a_model_that_takes_none_is_said_in_one_line(self, desk):
        (desk.work / "shot.png").write_bytes(png())
        with pytest.raises(
            InputError, match=r"^shot\.png was not attached, and nothing was sent: it is blind$"
        ):
            desk.attach("@shot.png", blind="it is blind")

    def test_from_elsewhere_only_by_hand_and_never_too_large(self, desk, tmp_path):
        outside = tmp_path / "my shot.png"
        outside.write_bytes(png())
        mention = name_mention(str(outside))
        with pytest.raises(InputError, match=r"outside the working folder.*can be dragged"):
            desk.attach(mention)
        assert len(desk.attach(mention, dragged={str(outside)}).pictures) == 1
        outside.write_bytes(png() + b"\0" * 4_000_000)
        with pytest.raises(InputError, match=r"has 4\.0 MB, and 3\.8 MB can be attached"):
            desk.attach(mention, dragged={str(outside)})

    def test_a_dragged_file_is_told_from_words_that_were_pasted(self, tmp_path):
        shot = tmp_path / "my shot.png"
        shot.write_bytes(png())
        (tmp_path / "a.txt").write_text("words")
        for pasted in (
            str(shot),
            f"'{shot}'",
            str(shot).replace(" ", "\\ "),
            f"file://{shot}".replace(" ", "%20"),
        ):
            assert find_dragged(f"{pasted} ") == str(shot)
        for pasted in (
            f"see {shot}",
            f"{shot}\n{shot}",
            str(tmp_path / "a.txt"),
            "shot.png",
            "it's",
            "/" + "x" * 400,
            "",
            "x" * 9_000,
        ):
            assert find_dragged(pasted) == ""

    @pytest.mark.parametrize(
        ("model", "takes"),
        [
            *(
                (name, True)
                for name in ("gpt-4o", "gpt-4.1-mini", "gpt-5", "o3", "claude-sonnet-4-5", "gemini-2.5-pro")
            ),
            *(
                (name, True)
                for name in (
                    "anthropic/claude-3.5-haiku",
                    "qwen2.5-vl:7b",
                    "llama3.2-vision",
                    "openai/o4-mini",
                )
            ),
            *(
                (name, False)
                for name in (
                    "gpt-3.5-turbo",
                    "gpt-4",
                    "o3-mini",
                    "deepseek-chat",
                    "qwen3-coder",
                    "llama3.1:8b",
                )
            ),
            *((name, None) for name in ("own-model", "SmolLM2-135M", "qwen3:8b", "")),
        ],
    )
    def test_models_are_known_by_their_names(self, model, takes):
        assert takes_pictures(model) is takes


def test_paths_are_completed_in_the_folder_that_is_named_and_by_name_anywhere(desk):
    for name in (
        "src/deep/main_window.py",
        "src/main.py",
        "mains.txt",
        "build/main.o",
        ".hidden",
        ".gitignore",
    ):
        (desk.work / name).parent.mkdir(parents=True, exist_ok=True)
        (desk.work / name).write_text("build/\n" if name == ".gitignore" else "x")
    find = lambda begun: list_matches(desk.workspace, begun)  # noqa: E731
    assert find("") == ["mains.txt", "src/"]
    assert find("src/") == ["src/deep/", "src/main.py"]
    assert find("src/MA") == ["src/main.py"]
    assert find("main") == ["mains.txt", "src/main.py", "src/deep/main_window.py"]
    assert find(".h") == [".hidden"]
    assert find("../") == find("/etc/") == find("nowhere/") == []


def test_no_gitignore_makes_a_completion_take_longer_than_about_a_second(desk):
    """A cloned repository brings its patterns and its names, and nobody is asked before they are matched."""
    patterns = "".join(f"*{'a' * 120}{number}*\n" for number in range(2_000))
    (desk.work / ".gitignore").write_text(patterns)
    for number in range(600):
        (desk.work / f"{'a' * 245}{number:03}").touch()
    start = time.thread_time()
    assert all(path.startswith("aa") for path in list_matches(desk.workspace, "aa"))
    assert time.thread_time() - start < 4

"""Every command of the chat, on a real store and with a model over real HTTP."""

from __future__ import annotations

import asyncio
import io
import re
from contextlib import ExitStack, asynccontextmanager
from importlib.util import find_spec

import pytest

from penstock.cli.chat.commands import COMMANDS, parse_command, run_command
from penstock.cli.chat.lines import compaction_lines
from penstock.cli.chat.model import ModelChooser, ModelWish
from penstock.cli.chat.setup import ChatSetup
from penstock.cli.chat.state import Chat, ChatHost
from penstock.cli.screen import Screen
from penstock.cli.tokens import percent
from penstock.errors import SettingsError, UnknownHandle, UnknownSession
from penstock.loop.approvals import ApprovalRule
from penstock.loop.events import Compacted, Noticed
from penstock.measure.usage import Usage
from penstock.settings import ModelSettings, RecallSettings, Settings
from penstock.stores.store import open_store
from penstock.testing import Reply, ScriptedProvider

pytestmark = pytest.mark.outside

SCREEN = Screen(io.StringIO(), columns=100)


def paragraphs(number):
    return "\n".join(
        f"Line {number}.{i}: worker {i * 7} of order {48_000 + i * 13} wrote /srv/data/file_{number}_{i}.csv."
        for i in range(60)
    )


class Person:
    """Types commands and hears what happens."""

    def __init__(self, chat, heard, server):
        self.chat = chat
        self.heard = heard
        self.server = server

    async def command(self, line):
        return await run_command(parse_command(line), self.chat, SCREEN)

    async def says(self, *lines):
        for line in lines:
            assert (await self.chat.agent.turn(line)).reason == "done"


@asynccontextmanager
async def at_the_desk(script, tmp_path, monkeypatch, window=32_000, semantic=False):
    monkeypatch.setenv("HOME", str(tmp_path))
    heard = []
    settings = Settings(model=ModelSettings(context_length=window), recall=RecallSettings(semantic=semantic))
    with ExitStack() as stack:
        async with ScriptedProvider(script, repeat_last=True) as server:
            store = open_store(f"sqlite:///{tmp_path}/s.db")
            stack.callback(store.close)
            chooser = ModelChooser(stack, ModelWish(model="gpt-4.1", base_url=f"{server.base_url}/v1"))
            setup = ChatSetup(settings=settings, store=store, chooser=chooser, folder=tmp_path)
            chat = Chat(setup, chooser.choose_first(), ChatHost(tell=heard.append))
            chat.open()
            yield Person(chat, heard, server)
            await chat.close()
            await chooser.aclose()
            assert server.violations == ()


def acted(script, tmp_path, monkeypatch, act, **options):
    async def play():
        async with at_the_desk(script, tmp_path, monkeypatch, **options) as person:
            await act(person)

    asyncio.run(play())


def test_lines_that_are_commands_and_lines_that_are_not():
    assert parse_command("/etc/hosts is broken") is None
    assert parse_command("what is /help?") is None
    assert parse_command("/") is None
    assert parse_command("  /HELP ").command is COMMANDS["help"]
    assert parse_command("/compress  auth.py and more ").argument == "auth.py and more"
    assert parse_command("/nothing").command is None


def test_unknown_commands_are_answered_with_the_nearest(tmp_path, monkeypatch):
    async def act(person):
        assert await person.command("/compres x") == ["unknown command /compres; did you mean /compress?"]
        assert await person.command("/zzzz") == ["unknown command /zzzz; see /help"]
        assert await person.command("/clear") == [
            "unknown command /clear; did you mean /new? (start a new conversation; this one is kept)"
        ]
        assert "/compress" in (await person.command("/compact"))[0]
        with pytest.raises(EOFError):
            await person.command("/quit")

    acted(["."], tmp_path, monkeypatch, act)


def test_words_after_a_command_that_takes_none_are_not_passed_over(tmp_path, monkeypatch):
    async def act(person):
        assert await person.command("/undo 3") == ["/undo takes nothing after it; nothing was done"]
        assert await person.command("/new fix the bug") == ["/new takes nothing after it; nothing was done"]

    acted(["."], tmp_path, monkeypatch, act)


def test_a_search_names_the_command_that_shows_what_it_found(tmp_path, monkeypatch):
    async def act(person):
        await person.says("count the red apples")
        first = person.chat.conversation[:8]
        assert (await person.command("/search red apples"))[-1] == "/show m1 shows the first one in full"
        await person.command("/new")
        await person.says("and the pears")
        hint = (await person.command("/search red apples"))[-1]
        assert hint == f"to read one in full: penstock sessions show {first} --handle m1"

    acted(["Fine."], tmp_path, monkeypatch, act)


def test_help_names_every_command_and_the_keys(tmp_path, monkeypatch):
    async def act(person):
        text = "\n".join(await person.command("/help"))
        assert all(f"/{name} " in text or f"/{name}\n" in text for name in COMMANDS)
        assert "Ctrl-D exits" in text
        assert max(map(len, text.splitlines())) <= SCREEN.columns
        for columns in (40, 60, 80):  # nothing is cut off, however narrow
            narrow = await run_command(parse_command("/help"), person.chat, SCREEN._replace(columns=columns))
            assert max(map(len, narrow)) <= columns
            assert " ".join(narrow).split() == text.split()

    acted(["."], tmp_path, monkeypatch, act)


def test_history_reads_like_a_conversation_and_show_gives_one_message_in_full(tmp_path, monkeypatch):
    async def act(person):
        assert await person.command("/history") == ["nothing was said yet"]
        await person.says("Count the orders.")
        lines = await person.command("/history")
        assert lines[0].startswith("user m1 ")
        assert "  Count the orders." in lines
        assert any(line.startswith("assistant m2 ") for line in lines)
        assert (await person.command("/history 1"))[0].startswith("assistant m2 ")
        assert "how many messages?" in (await person.command("/history all"))[0]
        head, *text = await person.command("/show M1")
        assert head.startswith("m1 · user")
        assert text == ["Count the orders."]
        assert "/show m12" in (await person.command("/show"))[0]

    acted(["19."], tmp_path, monkeypatch, act)


def test_compress_undo_and_what_is_said_from_the_second_time_on_once(tmp_path, monkeypatch):
    async def act(person):
        assert await person.command("/compress") == [
            "nothing to compress: too little could be removed to be worth it"
        ]
        assert await person.command("/undo") == [
            f"nothing to undo: {person.chat.conversation[:8]} has no compaction"
        ]
        await person.says(*(f"Tell me about part {n}." for n in range(6)))
        before = person.chat.status.prompt_tokens
        assert await person.command("/compress") == []  # the event tells it
        made = [one for one in person.heard if isinstance(one, Compacted)]
        assert len(made) == 1
        assert made[0].receipt.tokens_after < made[0].receipt.tokens_before
        told = compaction_lines(made[0], waited=True)[0].partition(";")[0]
        messages, *parts = map(int, re.findall(r"\d+", told))
        assert messages == sum(parts) == 12
        after = person.chat.status.prompt_tokens
        assert after < before
        (said,) = await person.command("/undo")
        receipt = made[0].receipt  # one scale: what a compaction took off, its undoing adds
        assert said.endswith(f"{receipt.tokens_after:,} → {receipt.tokens_before:,} tokens")
        assert person.chat.status.prompt_tokens == before
        assert person.chat.status.compactions == 0
        for _ in range(3):
            await person.command("/compress")
            await person.says("More.")
        assert person.chat.status.compactions >= 2
        warnings = [one for one in person.heard if isinstance(one, Noticed) and "/new" in one.text]
        assert len(warnings) == 1

    acted([paragraphs(n) for n in range(30)], tmp_path, monkeypatch, act)


def test_compress_here_wants_a_number(tmp_path, monkeypatch):
    async def act(person):
        await person.says(*(f"{number}: {paragraphs(number)}" for number in range(6)))
        asked = len(person.server.received)
        (said,) = await person.command("/compress here x")
        assert said.startswith("how many exchanges? /compress here N")
        assert len(person.server.received) == asked  # no model was asked for a summary
        assert await person.command("/compress here is the plan") == []  # a topic

    acted(["Yes."], tmp_path, monkeypatch, act)


def test_compress_here_keeps_the_last_exchanges_and_a_topic_is_a_focus(tmp_path, monkeypatch):
    async def act(person):
        await person.says(*(f"Tell me about part {n}." for n in range(6)))
        await person.command("/compress here 3")
        view = [one["content"] for one in person.chat.agent.context.view]
        assert view[-6:] == [text for n in (3, 4, 5) for text in (f"Tell me about part {n}.", paragraphs(n))]
        await person.command("/undo")
        await person.command("/compress order 48013")
        assert "48013" in str(person.chat.agent.context.view)

    acted([paragraphs(n) for n in range(30)], tmp_path, monkeypatch, act)


def test_pin_and_unpin(tmp_path, monkeypatch):
    async def act(person):
        assert await person.command("/pin") == ["nothing is pinned: this conversation has no messages yet"]
        await person.says("One.", "Two.")
        assert await person.command("/pin m1") == ["m1 will be kept in full by later compactions"]
        (said,) = await person.command("/pin")
        assert said.startswith("pinned: m1; messages are m1 to m4")
        assert await person.command("/unpin m1") == ["m1 is no longer pinned"]
        assert await person.command("/unpin m1") == ["m1 was not pinned"]
        assert (await person.command("/unpin"))[0].startswith("pinned: nothing")
        with pytest.raises(UnknownHandle, match="m99"):
            await person.command("/pin m99")

    acted(["."], tmp_path, monkeypatch, act)


def test_context_usage_insights_sessions_and_search(tmp_path, monkeypatch):
    async def act(person):
        assert await person.command("/usage") == ["no requests yet"]
        assert await person.command("/sessions") == ["no conversations yet"]
        await person.says("Where does worker 21 write to?")
        context = await person.command("/context")
        assert re.match(r"\d,\d\d\d of 32,000 tokens, [\d.]+% of the window", context[0])
        assert context[1] == "compaction starts at 27,200; /compress starts it now"
        kinds = [line.split("  ")[1] for line in context[2:]]
        assert kinds[:4] == ["system prompt", "tool schemas", "user", "assistant text"]
        assert kinds[-1] == "free"
        usage = await person.command("/usage")
        assert usage[1].split()[:2] == ["gpt-4.1", "1"]
        assert usage[-1] == "no compactions"
        assert (await person.command("/insights 7"))[0] == "the last 7 days: 1 conversation"
        assert "not a number of days" in (await person.command("/insights soon"))[0]
        sessions = await person.command("/sessions")
        assert sessions[1].startswith(person.chat.conversation[:8])
        assert "Where does worker 21" in sessions[1]
        assert "search for what?" in (await person.command("/search"))[0]
        await person.command("/new")
        found = "\n".join(await person.command("/search file_0_3.csv"))
        assert "worker 21 of order 48039" in found

    acted([paragraphs(0)], tmp_path, monkeypatch, act)


@pytest.mark.parametrize(("reported", "named"), [(9_000, "more"), (300, "less"), (None, "")])
def test_context_adds_up_to_the_window_and_names_what_the_provider_counts(
    tmp_path, monkeypatch, reported, named
):
    async def act(person):
        before = await person.command("/context")
        assert "provider" not in "".join(before)  # it has reported nothing yet
        await person.says("Where does worker 21 write to?")
        head, _, *rows = await person.command("/context")
        used, window = (int(one.replace(",", "")) for one in re.findall(r"[\d,]+(?= of| tokens)", head))
        cells = [re.fullmatch(r"  (\S.*?)  +(-?[\d,]+)  +(<?-?[\d.]+)%", line) for line in rows]
        tokens = [int(one[2].replace(",", "")) for one in cells]
        assert sum(tokens) == window == 32_000
        assert cells[-1][1] == "free"
        assert sum(tokens[:-1]) == used
        shares = [float(one[3].lstrip("<")) for one in cells]
        assert shares == pytest.approx([count / 320 for count in tokens], abs=0.6)
        assert percent(used / window) in head
        if named:
            assert cells[-2][1] == f"the provider counts {named}"

    usage = reported and Usage(input_tokens=reported, output_tokens=9)
    acted([Reply(paragraphs(0), usage=usage)], tmp_path, monkeypatch, act)


def test_resume_takes_the_model_that_the_conversation_had(tmp_path, monkeypatch):
    async def act(person):
        await person.says("One.")
        first = person.chat.conversation
        await person.command("/new")
        await person.command("/model gpt-4.1-mini")
        await person.says("Two.")
        second = person.chat.conversation
        said = await person.command(f"/resume {first}")
        assert person.chat.status.model == person.chat.choice.model.name == "gpt-4.1"
        assert said[1].endswith("with gpt-4.1")
        await person.command("/resume")
        assert (person.chat.conversation, person.chat.status.model) == (second, "gpt-4.1-mini")
        await person.says("Three.")
        assert [one.body["model"] for one in person.server.received] == [
            "gpt-4.1",
            "gpt-4.1-mini",
            "gpt-4.1-mini",
        ]
        person.chat.store.put_note("reached", first, b'{"provider": "anthropic"}')
        said = await person.command(f"/resume {first}")
        assert "continuing with gpt-4.1-mini: its own model cannot be used: no key" in "\n".join(said)

    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    acted(["Yes."], tmp_path, monkeypatch, act)


@pytest.mark.parametrize("leaving", ["/new", "/resume"])
def test_what_a_person_said_to_remember_outlives_the_conversation(tmp_path, monkeypatch, leaving):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    async def act(person):
        await person.says("Hello.")
        await person.command("/new")
        await person.says("Remember that the staging port is 7443.")
        memory = tmp_path / "data" / "penstock" / "memory" / "MEMORY.md"
        assert not memory.exists()
        await person.command(leaving)
        assert memory.read_text() == "- Remember that the staging port is 7443.\n"
        told = [one.text for one in person.heard if isinstance(one, Noticed)]
        assert "MEMORY.md now holds: Remember that the staging port is 7443." in told
        if leaving == "/new":  # a conversation that is resumed keeps its prompt until its next compaction
            await person.says("Which port?")
            assert "staging port is 7443" in str(person.server.received[-1].body["messages"][0])

    acted(["yes"], tmp_path, monkeypatch, act)


def test_new_and_resume_and_nothing_empty_is_left_behind(tmp_path, monkeypatch):
    async def act(person):
        chat = person.chat
        with pytest.raises(UnknownSession, match="no earlier conversation"):
            await person.command("/resume")
        await person.says("First question?")
        first = chat.conversation
        assert await person.command("/new") == [
            f"new conversation; the previous one is kept: /resume {first[:8]}"
        ]
        assert chat.conversation != first
        second = chat.conversation
        recap = await person.command("/resume")  # the one before
        assert chat.conversation == first
        assert recap[0].startswith(first[:8])
        assert "you:    First question?" in recap
        assert "answer: Yes." in recap
        assert [row.id for row in chat.store.list()] == [first]  # the empty one is gone
        with pytest.raises(UnknownSession, match=second[:8]):
            await person.command(f"/resume {second[:8]}")
        assert chat.conversation == first
        await person.says("Second question?")
        assert len(person.server.received[-1].body["messages"]) == 4  # a system prompt and three messages

    acted(["Yes."], tmp_path, monkeypatch, act)


def test_a_resumed_conversation_tells_that_its_last_question_has_no_answer(tmp_path, monkeypatch):
    async def act(person):
        await person.says("First question?")
        assert (await person.chat.agent.turn("Second question?")).reason == "failed"
        await person.command("/new")
        recap = await person.command("/resume")
        assert recap[-3:] == [
            "answer: Yes.",  # to the first one
            "you:    Second question?",
            "no answer to that yet; type 'continue' to ask for it",
        ]

    acted(["Yes.", Reply.failing(401)], tmp_path, monkeypatch, act)


def test_a_resumed_conversation_shows_its_last_answer_as_it_looked(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    answer = (
        "# Found\n\nTwo **files**:\n\n- `a.py`\n- `b.py`\n\n```python\n" + "x = 1\n" * 30 + "```\n\nThe end."
    )
    screen = Screen(Terminal(), bars=True, columns=60)

    async def act(person):
        await person.says("Look\n for them.")
        await person.command("/new")
        looks = await run_command(parse_command("/resume"), person.chat, screen)
        assert [line for line in looks[2:] if line][:8] == [
            "you:    Look for them.",
            "answer:",
            "Found",
            "Two files:",
            " • a.py",
            " • b.py",
            "  x = 1",
            "  x = 1",
        ]
        assert looks[-1] == "…"
        assert len(looks) < 25
        await person.command("/new")
        plain = await person.command("/resume")
        assert "Two **files**:" in plain  # for a script: as it was written

    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    acted([answer], tmp_path, monkeypatch, act)


def test_another_model_of_the_same_server(tmp_path, monkeypatch):
    async def act(person):
        assert (await person.command("/model"))[0] == "gpt-4.1 (openai, at 127.0.0.1), window 32,000 tokens"
        lines = await person.command("/model gpt-4.1-mini")
        assert lines[0] == "now gpt-4.1-mini (openai, at 127.0.0.1), window 32,000 tokens"
        assert lines[1].startswith("prompt caching: no marks for gpt-4.1-mini by openai")
        await person.says("Hello.")
        assert person.server.received[-1].body["model"] == "gpt-4.1-mini"
        with pytest.raises(SettingsError, match="ANTHROPIC_API_KEY"):
            await person.command("/model anthropic:claude-haiku-4-5")
        assert person.chat.status.model == "gpt-4.1-mini"

    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    acted(["Yes."], tmp_path, monkeypatch, act)


def test_what_a_chat_took_in_all_its_conversations(tmp_path, monkeypatch):
    async def act(person):
        await person.says("One.")
        await person.command("/new")
        await person.says("Two.")
        lines = person.chat.summary()
        assert lines[0].startswith("2 requests · ")
        assert lines[0].endswith(" · 0 compactions")
        assert lines[1] == f"to continue: penstock chat --resume {person.chat.conversation[:8]}"

    acted(["Yes."], tmp_path, monkeypatch, act)


@pytest.mark.parametrize("semantic", [False, True])
def test_search_finds_what_penstock_search_finds(tmp_path, monkeypatch, semantic):
    if find_spec("wordllama") is None:
        pytest.skip("the extra `semantic` is not installed")

    async def act(person):
        await person.says("authentication fails with 401 for every user since the upgrade")
        said = "\n".join(await person.command("/search login problem"))
        assert ("authentication" in said) is semantic

    acted(["Understood."], tmp_path, monkeypatch, act, semantic=semantic)


def test_approvals_are_seen_and_taken_back(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))

    async def act(person):
        approvals = person.chat.agent.approvals
        assert await person.command("/approvals") == [
            "everything needs your approval; a question can be answered for the session or the project"
        ]
        assert "nothing to revoke" in (await person.command("/approvals forget 1"))[0]
        approvals.project.add(ApprovalRule("terminal", "make test", exact=True))
        approvals.remember(ApprovalRule("write_file", "a\x1b[2J.txt", exact=True))
        assert await person.command("/approvals") == [
            f"always, in {tmp_path}:",
            "  1  terminal(make test)",
            "in this session:",
            "  2  write_file(a\\x1b[2J.txt)",
            "/approvals forget N revokes one, /approvals forget all revokes them all",
        ]
        assert "numbered 1 to 2" in (await person.command("/approvals forget 3"))[0]
        assert "forget N" in (await person.command("/approvals remove 1"))[0]
        assert await person.command("/approvals forget 1") == ["will ask again before terminal(make test)"]
        assert approvals.project.rules() == ()
        await person.command("/approvals forget all")
        assert approvals.remembered == ()
        approvals.project.add(ApprovalRule("terminal", "make", exact=True))
        await person.command("/new")  # another session in the same project
        assert "  1  terminal(make)" in await person.command("/approvals")

    acted(["."], tmp_path, monkeypatch, act)


def test_no_switch_to_a_model_that_takes_no_pictures_once_there_are_some(tmp_path, monkeypatch):
    (tmp_path / "shot.gif").write_bytes(b"GIF89a\1\0\1\0\0\0\0,")

    async def act(person):
        assert (await person.chat.ask("What is @shot.gif?")).reason == "done"
        with pytest.raises(
            SettingsError, match="deepseek-chat takes no pictures, and this conversation has some"
        ):
            await person.command("/model deepseek-chat")
        await person.command("/model gpt-4o")
        assert person.chat.status.model == "gpt-4o"
        await person.command("/new")
        await person.command("/model deepseek-chat")
        assert person.chat.status.model == "deepseek-chat"

    acted(["."], tmp_path, monkeypatch, act)

"""The chat for scripts: one answer on standard output, everything else on standard error."""

from __future__ import annotations

import base64
import json
import re

import pytest
from tests.e2e.cli_process import assert_one_clear_error

from penstock.providers.exchange import Called
from penstock.testing import PromptCache, Reply, scripted_provider

pytestmark = pytest.mark.outside


@pytest.fixture
def chat(penstock, tmp_path, monkeypatch):
    """Runs one chat after the other against the provider, with one store."""
    monkeypatch.chdir(tmp_path)

    def run(server, *args, **more):
        where = ("--base-url", f"{server.base_url}/v1", "--store", f"sqlite:///{tmp_path}/s.db")
        return penstock("chat", "--model", "gpt-4.1", *where, *args, HOME=str(tmp_path), **more)

    return run


def calling(text, name, arguments):
    return Reply(text, calls=(Called("call_1", name, arguments),))


def test_the_answer_alone_goes_to_standard_output(chat):
    script = [calling("Let me see.", "list_files", "{}"), "There is **nothing**.\n\nReally."]
    with scripted_provider(script) as server:
        ran = chat(server, "-p", "What is here?")
    assert ran.code == 0
    assert ran.text == "There is **nothing**.\n\nReally.\n"
    lines = ran.err.splitlines()
    assert lines[0] == "Let me see."  # nothing of caching, which is off and which nobody asked for
    assert "✓ list_files" in lines[1]
    assert lines[2].startswith("2 requests · ")
    assert re.fullmatch(r"to continue: penstock chat --store sqlite:\S+ --resume [0-9a-f]{8}", lines[3])
    assert "\x1b" not in ran.err


def test_how_prompts_are_cached_is_said_where_it_is_on_or_was_asked_for(chat):
    with scripted_provider(["Yes.", "Yes.", "Yes."]) as server:
        on = chat(
            server, "-p", "Is it on?", "--provider", "openrouter", "--model", "anthropic/claude-sonnet-4.5"
        )
        asked = chat(server, "-p", "Is it on?", PENSTOCK_MODEL_CACHE_TTL="1h")
        off = chat(server, "-p", "Is it on?")
    assert on.err.splitlines()[0].startswith(
        "prompt caching: on for anthropic/claude-sonnet-4.5 by OpenRouter"
    )
    assert asked.err.splitlines()[0].startswith("prompt caching: no marks for gpt-4.1 by openai")
    assert "prompt caching" not in off.err


def test_turns_of_a_script_do_not_break_the_cache_of_one_another(chat):
    """Each `-p --resume` is a process of its own, seconds later: nothing has expired, and nothing is prepared."""
    said = "the harbour and its cranes and what they weigh " * 430
    script = [f"{n}: {said}" for n in range(7)]
    settings = {"PENSTOCK_MODEL_CONTEXT_LENGTH": "64000"}
    with scripted_provider(script, prompt_cache=PromptCache()) as server:
        for turn in range(7):
            ran = chat(server, "-p", f"{turn}: {said}", *(("--resume",) if turn else ()), **settings)
            assert ran.code == 0, ran.err
            assert "expired" not in ran.err
            assert "compressed" not in ran.err
        assert server.received[-1].prompt_tokens > 0.85 * 0.85 * 64_000
        assert len(server.received) == 7


def test_one_json_object(chat):
    with scripted_provider(["Ünicode, all of it."]) as server:
        ran = chat(server, "-p", "Say it.", "--json")
    report = json.loads(ran.text)
    assert report["text"] == "Ünicode, all of it."
    assert report["ended"] == "done"
    assert report["model"] == "gpt-4.1"
    assert report["usage"]["requests"] == 1
    assert report["usage"]["prompt_tokens"] > 1_000
    assert report["cost"] == report["usage"]["cost"] > 0
    assert report["compactions"] == 0
    assert len(report["session"]) == 16
    assert ran.text.count("\n") == 1


def test_a_prompt_from_a_pipe_and_a_conversation_that_goes_on(chat):
    with scripted_provider(["First.", "Second.", "Third."]) as server:
        assert chat(server, stdin=b"from a pipe\n").text == "First.\n"
        again = chat(server, "--resume", stdin=b"and more")
        assert again.text == "Second.\n"
        said = [one["content"] for one in server.received[1].body["messages"][1:]]
        assert said == ["from a pipe", "First.", "and more"]
        short = re.search(r"--resume (\w+)", again.err)[1]
        assert chat(server, "--resume", short[:5], "-p", "by id").code == 0
        assert len(server.received[2].body["messages"]) == 6
        assert server.violations == ()


def test_without_a_person_only_what_is_allowed_is_done(chat, tmp_path):
    touch = '{"command": "touch made"}'
    script = [calling("", "terminal", touch), "Refused.", calling("", "terminal", touch), "Done."]
    with scripted_provider(script) as server:
        ran = chat(server, "-p", "Make it.")
        assert "✗ terminal touch made → refused: there is no one to ask" in ran.err
        assert not (tmp_path / "made").exists()
        assert chat(server, "-p", "Make it.", "--yes").text == "Done.\n"
        assert (tmp_path / "made").exists()


def test_a_provider_that_refuses_is_exit_code_4_and_says_why(chat):
    with scripted_provider([Reply.unauthorised()], repeat_last=True) as server:
        ran = chat(server, "-p", "Hello?")
        assert ran.code == 4
        assert ran.out == b""
        assert "401 (auth)" in ran.err
        report = json.loads(chat(server, "-p", "Hello?", "--json").text)
    assert report["ended"] == "failed"
    assert "401" in report["why"]


def test_what_cannot_be_begun_is_one_clear_error(penstock, tmp_path):
    home = {"HOME": str(tmp_path)}
    store = ("--store", f"sqlite:///{tmp_path}/s.db")
    assert_one_clear_error(penstock("chat", *store, stdin=b"  \n", **home), "prompt is empty", "-p")
    assert_one_clear_error(penstock("chat", "-p", "x", *store, "--resume", **home), "no conversation")
    assert_one_clear_error(penstock("chat", "-p", "x", *store, "--resume", "abc", **home), "'abc'")
    assert_one_clear_error(
        penstock("chat", "-p", "x", *store, "--base-url", "http://127.0.0.1:9/v1", **home), "add --model NAME"
    )
    assert_one_clear_error(
        penstock("chat", "-p", "x", *store, "--provider", "anthropic", **home), "ANTHROPIC_API_KEY"
    )
    assert_one_clear_error(penstock("chat", "-p", "x", *store, "--provider", "opnai", **home), "openai")
    assert_one_clear_error(
        penstock("chat", "-p", "x", *store, "--provider", "ollama", **home), "--model NAME"
    )


def test_a_failure_leaves_no_empty_conversation(penstock, tmp_path):
    store = ("--store", f"sqlite:///{tmp_path}/s.db")
    penstock("chat", "-p", "x", *store, "--provider", "anthropic", HOME=str(tmp_path))
    assert json.loads(penstock("sessions", "list", *store, "--json").text) == []


def test_a_window_that_is_nearly_full_is_compacted_before_it_goes_on(chat):
    long = "\n".join(f"worker {i} of order {48_000 + i} wrote /srv/{i}.csv in {i * 3} ms" for i in range(350))
    with scripted_provider([long, long, "Short."], repeat_last=True) as server:
        chat(server, "-p", "List them.")
        chat(server, "--resume", "-p", "Again.")
        ran = chat(server, "--resume", "-p", "And?", "--context-length", "12k", "--json")
        assert re.search(
            r"the window was nearly full, so the conversation was compacted first: [\d,]+ → [\d,]+ tokens",
            ran.err,
        )
        report = json.loads(ran.text)
        assert report["text"] == "Short."
        assert report["compactions"] >= 1
        assert server.violations == ()


def test_a_conversation_of_another_dialect_is_refused_with_a_way_out(penstock, tmp_path):
    store = ("--store", f"sqlite:///{tmp_path}/s.db")
    claude = tmp_path / "claude.json"
    claude.write_text(
        '{"model": "claude-haiku-4-5", "system": "Be brief.", "messages": '
        '[{"role": "user", "content": "Hi."}, {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]}]}'
    )
    assert penstock("sessions", "import", claude, "--dialect", "anthropic", *store).code == 0
    ran = penstock(
        "chat", "-p", "x", "--resume", *store, "--provider", "openai", "--model", "gpt-4.1",
        OPENAI_API_KEY="not-a-real-key", HOME=str(tmp_path),
    )  # fmt: skip
    assert_one_clear_error(ran, "stored in the dialect anthropic", "gpt-4.1 speaks chat", "--dialect chat")


def test_a_prompt_that_is_a_command_is_carried_out_and_not_sent(chat):
    long = "\n".join(f"worker {i} of order {48_000 + i} wrote /srv/{i}.csv in {i * 3} ms" for i in range(350))
    with scripted_provider([long, "A summary of the orders.", "Short."], repeat_last=True) as server:
        new = chat(server, "-p", "/usage")
        assert (new.code, new.text) == (0, "no requests yet\n")
        assert "this is a new conversation: --resume goes on with the last one" in new.err
        assert json.loads(chat(server, "-p", "/usage", "--json").text)["steps"] == 0
        chat(server, "-p", "List them.")
        usage = chat(server, "--resume", "-p", "/usage")
        assert (usage.code, usage.text.split()[:4]) == (0, ["model", "requests", "prompt", "cached"])
        assert "new conversation" not in usage.err
        assert len(server.received) == 1
        made = chat(server, "--resume", "-p", "/compress order 48013")
        assert made.code == 0
        assert made.text.startswith("compressed ")
        assert json.loads(chat(server, "--resume", "-p", "/undo", "--json").text)["text"].startswith("undid ")
        assert chat(server, "--resume", "-p", "/quit").out == b""
        asked = len(server.received)
        assert_one_clear_error(chat(server, "--resume", "-p", "/show m99"), "m99")
        assert_one_clear_error(chat(server, "-p", "/usag"), "unknown command /usag", "/usage")
        for command in (
            "/sessions",
            "/resume",
            "/sessions list them",
        ):  # a list, as nobody is there to pick from it
            assert chat(server, "-p", command).text.splitlines()[1].endswith("List them.")
        assert "no conversation has the words" in chat(server, "-p", "/sessions pears").text
        assert len(server.received) == asked
        chat(server, "-p", "/etc/hosts is empty")
        chat(server, "-p", "/help\nis what I typed")
        assert len(server.received) == asked + 2


def test_a_window_that_was_given_is_kept_for_the_next_time(chat):
    with scripted_provider(["Yes."], repeat_last=True) as server:
        chat(server, "-p", "Hello.", "--context-length", "20k")
        assert "of 20,000 tokens" in chat(server, "--resume", "-p", "/context").text
        assert "window 20,000 tokens" in chat(server, "--resume", "-p", "/model").text
        assert (
            "of 30,000 tokens" in chat(server, "--resume", "-p", "/context", "--context-length", "30k").text
        )
        assert "of 30,000 tokens" in chat(server, "--resume", "-p", "/context").text
        first = json.loads(chat(server, "--resume", "-p", "Again.", "--json").text)["session"]
        chat(server, "-p", "A new one has the window of its model.")
        assert "of 1,000,000 tokens" in chat(server, "--resume", "-p", "/context").text
        assert "20,000" not in chat(server, "--resume", first, "--model", "gpt-4.1-mini", "-p", "/model").text


@pytest.mark.parametrize("answer", ["n", "y"])
@pytest.mark.parametrize(("lines", "window"), [(350, 12_000), (30, 2_300)])  # the second: full with the tools
def test_a_resume_into_a_smaller_window_asks_first(chat, monkeypatch, answer, lines, window):
    long = "\n".join(
        f"worker {i} of order {48_000 + i} wrote /srv/{i}.csv in {i * 3} ms" for i in range(lines)
    )
    asked, opened = [], []

    async def open_terminal(_chat, session_id):
        opened.append(session_id)
        return 0

    def confirm(question):
        asked.append(question)
        return answer == "y"

    with scripted_provider([long, long, "Short."], repeat_last=True) as server:
        chat(server, "-p", "List them.")
        chat(server, "--resume", "-p", "Again.")
        monkeypatch.setattr("penstock.cli.chat.command.is_interactive", lambda prompt: prompt is None)
        monkeypatch.setattr("penstock.cli.chat.command.confirm", confirm)
        monkeypatch.setattr("penstock.cli.chat.terminal.TerminalChat.run", open_terminal)
        assert chat(server, "--resume").code == 0
        assert (len(asked), len(opened)) == (0, 1)
        assert chat(server, "--resume", "--context-length", str(window)).code == (0 if answer == "y" else 130)
        assert re.fullmatch(
            rf"this conversation takes [\d,]+ tokens and had a window of 1,000,000; for the {window:,} of gpt-4.1 it is "
            r"compacted first \(/undo reverts that\)\. Continue\?",
            asked[0],
        )
        assert len(opened) == (2 if answer == "y" else 1)
        assert chat(server, "--resume", "--context-length", str(window), "--yes").code == 0
        assert chat(server, "--resume", "--context-length", "900k").code == 0  # smaller, and all of it fits
        assert len(asked) == 1


def test_the_log_says_what_became_of_the_context(chat, tmp_path):
    words = "".join(f"word {n} of many, " for n in range(2_000))
    options = ("--log", "context.log", "--context-length", "18000", "--set", "context.economics=off")
    with scripted_provider(["Yes."], repeat_last=True) as server:
        first = chat(server, "-p", words, *options)
        again = chat(
            server, "-p", words[:25_000], "--resume", *options, PENSTOCK_COMPRESSION_PROTECT_FIRST_N="0"
        )
    assert (first.code, again.code) == (0, 0)
    lines = (tmp_path / "context.log").read_text()
    assert re.search(r"INFO The context is growing: [\d,]+ of 15,300 tokens; nothing to do yet\.", lines)
    told = re.search(
        r"INFO compacted \((\w+)\): \d+ -> \d+ messages?, \d+ summarised, \d+ elided, head \d+, tail \d+, "
        r"[\d,]+ -> [\d,]+ tokens in",
        lines,
    )
    assert told.group(1) in {"preflight", "hygiene", "emergency"}
    refused = chat(server, "-p", "Go on.", "--log", "no/such/folder.log")
    assert_one_clear_error(refused, "--log no/such/folder.log cannot be written")


def test_files_are_attached_in_scripts_by_the_prompt_and_not_by_what_is_piped(chat, tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / ".env").write_text("MODE=x\n")
    shot = "R0lGODlhAQABAAAAACw="
    (tmp_path / "shot.gif").write_bytes(base64.b64decode(shot))
    with scripted_provider(["Yes."], repeat_last=True) as server:
        ran = chat(server, "-p", "What is @a.py?")
        assert "✓ read_file a.py → lines 1 to 1 of 1" in ran.err
        said = server.received[0].body["messages"][-1]["content"]
        assert said == 'What is @a.py?\n\n<attached_file path="a.py">\n1\tx = 1\n</attached_file>'
        assert chat(server, stdin=b"diff of @a.py").code == 0
        assert server.received[1].body["messages"][-1]["content"] == "diff of @a.py"
        assert chat(server, "-p", "And @shot.gif?").code == 0
        picture, words = server.received[2].body["messages"][-1]["content"]
        assert picture == {"type": "image_url", "image_url": {"url": f"data:image/gif;base64,{shot}"}}
        assert words == {"type": "text", "text": "And @shot.gif?"}
        for prompt, why in (
            ("@.env", "looks like it holds secrets"),
            ("@/etc/hostname", "outside the working folder"),
        ):
            refused = chat(server, "-p", prompt)
            assert refused.code == 2
            assert why in refused.err.splitlines()[-1]
        blind = chat(server, "-p", "@shot.gif", "--model", "deepseek-chat")
        assert (blind.code, blind.err.splitlines()[-1].partition(";")[0]) == (
            2,
            "penstock: shot.gif was not attached, and nothing was sent: deepseek-chat takes no pictures",
        )
        assert len(server.received) == 3
        assert chat(server, "-p", "@shot.gif", "--model", "own", PENSTOCK_MODEL_PICTURES="true").code == 0

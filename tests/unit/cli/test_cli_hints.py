"""What the command proposes can be done: printed commands run as printed, mistakes are told from what was meant."""

from __future__ import annotations

import argparse
import io
import json
import re
import shlex
from contextlib import redirect_stderr

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.e2e.cli_process import assert_one_clear_error

from penstock.cli.main import HOMES
from penstock.cli.options import carry_store
from penstock.cli.parser import build_parser

ON_STORES = [
    name
    for name in HOMES
    if name.split()[0] in {"sessions", "bench", "search", "usage", "insights", "doctor", "chat"}
]


@pytest.fixture
def store(penstock, session, tmp_path):
    """A command on a store with one conversation, whose path has a blank."""
    url = f"sqlite:///{tmp_path / 'my store.db'}"

    def run(*args, **more):
        return penstock(*args, "--store", url, **more)

    assert run("sessions", "import", session).code == 0
    return run


def commands_in(text):
    return re.findall(r"(penstock (?:sessions|search|doctor|chat) .*)", text)


def test_the_command_that_a_search_proposes_reads_from_the_store_that_was_searched(store, penstock):
    (command,) = commands_in(store("search", "migrations").text)
    shown = penstock(*shlex.split(command)[1:])
    assert (shown.code, shown.err) == (0, "")
    assert "Never touch the migrations folder" in shown.text


def test_a_store_in_a_settings_file_is_named_by_that_file(penstock, session, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(f"store: {{url: 'sqlite:///{tmp_path / 'by-file.db'}'}}")
    assert penstock("sessions", "import", session, "--config", config).code == 0
    (command,) = commands_in(penstock("search", "migrations", "--config", config).text)
    assert penstock(*shlex.split(command)[1:]).code == 0


def test_without_an_option_none_is_added(penstock, session, tmp_path):
    home = {"XDG_DATA_HOME": str(tmp_path)}
    assert penstock("sessions", "import", session, **home).code == 0
    assert "--store" not in penstock("search", "migrations", **home).text


def test_errors_carry_it_too(store, penstock):
    ran = store("sessions", "show", "ffff")
    assert_one_clear_error(ran, "see penstock sessions list --store")
    (command,) = commands_in(ran.err)
    assert penstock(*shlex.split(command)[1:]).code == 0


@pytest.mark.parametrize("name", ON_STORES)
def test_every_command_on_a_store_takes_what_is_added(name):
    args = argparse.Namespace(
        store="sqlite:///a b.db", config="c.yaml", settings=[("store.url", "sqlite:///d.db")]
    )
    more = {
        "search": ["word"],
        "sessions import": ["file"],
        "sessions pin": ["a", "m1"],
        "sessions unpin": ["a", "m1"],
    }
    words = more.get(name, ["a"] if name.split()[-1] in {"show", "export", "delete", "undo"} else [])
    command = carry_store(f"penstock {name} {' '.join(words)}", args)
    parsed = build_parser().parse_args(shlex.split(command)[1:])
    assert (parsed.store, parsed.config, parsed.settings) == (args.store, args.config, args.settings)


def test_a_password_is_not_shown():
    args = argparse.Namespace(store="postgresql://me:hunter2@host/name", config=None, settings=[])
    assert (
        carry_store("see penstock doctor", args)
        == "see penstock doctor --store postgresql://me:PASSWORD@host/name"
    )


class TestMistakes:
    @pytest.mark.parametrize(
        ("words", "told"),
        [
            ("compress f.json --target 6000", ("--target-tokens?", "See penstock compress --help")),
            ("compress f.json --target=6000", ("--target-tokens?", "See penstock compress --help")),
            ("sessions list --jsno", ("--json?", "See penstock sessions list --help")),
            ("sessions list --frobnicate", ("no option --frobnicate;", "see penstock sessions list --help")),
            ("compres f.json", ("did you mean compress?", "See penstock --help")),
            ("session list", ("did you mean sessions?", "See penstock --help")),
            ("sessions lst", ("did you mean list?", "See penstock sessions --help")),
            ("sessions zzz", ("choose from list, show,", "see penstock sessions --help")),
            ("compress f.json --dialect antropic", ("--dialect", "did you mean anthropic?")),
            ("--frobnicate", ("no option --frobnicate;", "see penstock --help")),
            ("sessions --jsno", ("--json?", "See penstock sessions list --help")),
            ("keys --frobnicate", ("no option --frobnicate;", "see penstock keys --help")),
            ("engines enabel", ("did you mean enable?", "See penstock engines --help")),
            ("tokens f.json g.json", ("unexpected argument 'g.json'", "see penstock tokens --help")),
        ],
    )
    def test_each_says_what_was_probably_meant_and_the_right_page(self, penstock, words, told):
        assert_one_clear_error(penstock(*words.split()), *told)

    def test_a_prompt_without_its_option(self, penstock):
        ran = penstock("chat", "say hi")
        assert_one_clear_error(ran, "penstock chat -p 'say hi'", "see penstock chat --help")

    @given(st.sampled_from(sorted(HOMES)), st.data())
    def test_an_option_with_a_letter_missing_is_recognised(self, name, data):
        parser = build_parser()
        for word in name.split():
            parser = next(one for one in parser._actions if one.choices and word in one.choices).choices[word]
        option = data.draw(st.sampled_from([one for one in parser._option_string_actions if len(one) > 6]))
        place = data.draw(st.integers(3, len(option) - 1))
        slip = option[:place] + option[place + 1 :]
        if slip not in parser._option_string_actions:
            with redirect_stderr(io.StringIO()) as said, pytest.raises(SystemExit):
                parser.refuse(slip)
            assert "did you mean --" in said.getvalue()


def test_help_is_found_without_knowing_its_option(penstock):
    assert penstock().text.startswith("usage: penstock [-h]")
    assert penstock().code == 0
    assert penstock("help").text == penstock("--help").text
    assert penstock("help", "sessions", "show").text == penstock("sessions", "show", "--help").text
    assert_one_clear_error(penstock("help", "compres"), "did you mean compress?")


@pytest.mark.parametrize(
    "words", ["sessions", "sessions --json", "--json sessions list", "sessions --json list"]
)
def test_sessions_are_listed_unless_something_else_is_named_wherever_options_stand(store, words):
    listed = store("sessions", "list", *(["--json"] if "--json" in words else []))
    assert listed.code == 0
    assert store(*words.split()).text == listed.text


def test_an_option_may_stand_before_the_action_that_takes_it(store, penstock, tmp_path):
    (command,) = commands_in(store("search", "migrations").text)
    name = shlex.split(command)[-3]
    url = f"sqlite:///{tmp_path / 'my store.db'}"
    shown = penstock("sessions", "--store", url, "show", name)
    assert (shown.code, shown.text) == (0, store("sessions", "show", name).text)


def test_what_is_missing_is_named_with_what_may_stand_there(penstock):
    assert_one_clear_error(penstock("compress"), "FILE is missing; see penstock compress --help")
    assert_one_clear_error(penstock("keys"), "ACTION is missing (choose from create, list,")


def test_no_line_of_help_is_wider_than_a_terminal(penstock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for command in ("", *HOMES):
        for line in penstock(*command.split(), "--help").text.splitlines():
            assert len(line) <= 80, line


def test_a_window_that_is_too_small_is_told_as_such(penstock):
    ran = penstock("compress", "examples/long_session.json", "--context-length", "10")
    assert ran.code == 3
    assert "use a larger window than 10 tokens, or a target of at least 113 tokens" in ran.err


def test_a_handle_that_is_not_there_is_answered_with_those_that_are(penstock, tmp_path):
    store = ("--store", f"sqlite:///{tmp_path}/s.db")
    penstock("sessions", "import", "-", *store, stdin=b'[{"role":"user","content":"hello"}]')
    (row,) = json.loads(penstock("sessions", "list", "--json", *store).out)
    for command in (("show", row["id"], "--handle", "m9"), ("pin", row["id"], "m9")):
        ran = penstock("sessions", *command, *store)
        assert_one_clear_error(ran, "no original 'm9'", "its messages are m1 to m1")


def test_a_pipe_gets_whole_titles(penstock, tmp_path):
    words = "please find out why the nightly import of orders stops after the third file"
    store = ("--store", f"sqlite:///{tmp_path}/s.db")
    penstock(
        "sessions", "import", "-", *store, stdin=json.dumps([{"role": "user", "content": words}]).encode()
    )
    assert penstock("sessions", "list", *store).text.splitlines()[1].endswith(words)

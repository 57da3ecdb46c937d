"""A chat on a stage: a provider that answers from a script over HTTP, a folder to work in, and a store."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.chat_screen import ChatScreen
from tests.e2e.cli_process import penstock

from penstock.providers.exchange import Called
from penstock.testing import Reply, scripted_provider

GOLDEN = Path(__file__).parent / "golden"


class Stage:
    """`screen` opens the chat at a terminal, `script` runs it once; both at the provider's address."""

    def __init__(self, server, folder):
        self.server = server
        self.home = folder
        self.work = folder / "work"
        self.work.mkdir(exist_ok=True)
        self.store = f"sqlite:///{folder}/sessions.db"

    def args(self, *args):
        named = () if "--model" in args else ("--model", "gpt-4.1")
        return (*named, "--base-url", f"{self.server.base_url}/v1", "--store", self.store, *args)

    def screen(self, *args, columns=80, rows=24, **env):
        env.setdefault("HOME", str(self.home))
        return ChatScreen(*self.args(*args), columns=columns, rows=rows, cwd=self.work, **env)

    def script(self, *args, stdin=b"", **env):
        env.setdefault("HOME", str(self.home))
        return penstock("chat", *self.args(*args), stdin=stdin, cwd=self.work, **env)

    def command(self, *args):
        return penstock(*args, "--store", self.store, HOME=str(self.home))


@contextmanager
def stage(folder, script, **options):
    with scripted_provider(script, **options) as server:
        yield Stage(server, folder)
        assert server.violations == ()


def calling(text, name, arguments):
    """An answer that says something and calls one tool."""
    return Reply(text, calls=(Called("call_1", name, arguments),))


def golden(name, text):
    """Times, sums and folders differ from run to run; the rest may not."""
    shown = re.sub(r"\$0\.\d{4}", "$0.NNNN", text)
    shown = re.sub(r"\b\d+(\.\d)? s\b", "N s", shown)
    shown = re.sub(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "⠋", shown)
    shown = re.sub(r"^in /.*$", "in FOLDER", shown, flags=re.MULTILINE)
    shown = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "YYYY-MM-DD HH:MM", shown)
    shown = re.sub(r"\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{8}\b", "IDIDIDID", shown)
    shown = re.sub(r"(?<=compaction of )[0-9a-f]{8}\b", "IDIDIDID", shown)  # of digits alone, now and then
    shown = re.sub(r"penstock \d+\.\d+\.\S+", "penstock V", shown)
    path = GOLDEN / f"chat_{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(shown + "\n", encoding="utf-8")
    assert shown + "\n" == path.read_text(encoding="utf-8")

"""The reports on stored conversations, word for word, as text and as JSON.

A dashboard shows the same data: nothing may change by accident. UPDATE_GOLDEN=1 writes the files anew; read the
difference then.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.cli_process import encoded, work
from tests.unit.transfer.recorded_files import claude_session, codex_rollout, lines

from penstock.measure.usage import Usage
from penstock.sessions.session import Session
from penstock.stores.store import open_store
from penstock.testing import ScriptedModel

if TYPE_CHECKING:
    from penstock.stores.store import Store

GOLDEN = Path(__file__).parent / "golden"
LONG_AGO = 1_700_000_000.0
_RECORDED = 1_774_000_000  # the times in the imported files lie before it
REPORTS = {
    "list": ("sessions", "list"),
    "show": ("sessions", "show", "PLAIN"),
    "show_facts": ("sessions", "show", "PLAIN", "--facts"),
    "show_claude": ("sessions", "show", "CLAUDE"),
    "show_message": ("sessions", "show", "PLAIN", "--handle", "m3"),
    "usage": ("usage",),
    "usage_of_one": ("usage", "PLAIN"),
    "insights": ("insights", "--days", "36500"),
    "search": ("search", "reports", "--session", "CLAUDE"),
    "doctor": ("doctor",),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with three imported conversations, two compactions, one of them undone, a branch and a pin."""
    folder = tmp_path_factory.mktemp("reports")
    for name, data in (
        ("plain", encoded(work())),
        ("claude", lines(*claude_session())),
        ("codex", lines(*codex_rollout())),
    ):
        (folder / name).write_bytes(data)
        os.utime(folder / name, (LONG_AGO, LONG_AGO))
    return folder


@pytest.fixture
def command(penstock, store, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    url = f"sqlite:///{store / 'sessions.db'}"

    def run(*args):
        return penstock(*args, "--store", url)

    if not (store / "sessions.db").exists():
        assert run("sessions", "import", *(store / name for name in ("plain", "claude", "codex"))).code == 0
        opened = open_store(url)
        plain = next(row.tip.id for row in opened.list() if row.tip.dialect == "chat")
        session = Session.resume(opened, plain)
        session.pin("m21")
        model = ScriptedModel(lambda received: "## Active State\n- All parts were read.\n", name="gpt-4.1")
        session.compact(target_tokens=1_500, summariser=model)
        session.undo()
        session.compact(target_tokens=900)
        session.record_usage(Usage(100, 20, 900), model="gpt-4.1")
        opened.close()
    yield run
    monkeypatch.undo()
    time.tzset()


def mask(text: str, store: Store, folder: Path) -> str:
    """Replaces what differs from run to run: ids, the present, durations and the store's folder."""
    text = text.replace(str(folder), "FOLDER")
    for row in store.list():
        sessions = [row.tip.id]
        while parent := store.session(sessions[-1]).parent:
            sessions.append(parent)
        for number, session in enumerate(reversed(sessions), start=1):
            text = text.replace(session, f"SESSION{number}").replace(session[:8], f"SESSION{number}")
    text = re.sub(r'"seconds": [\d.e-]+', '"seconds": #', text)
    text = re.sub(r"\b(\d{10})\.\d+", lambda found: "NOW" if int(found[1]) > _RECORDED else found[0], text)
    today = time.strftime("%Y-%m-%d", time.gmtime())
    return re.sub(rf"{today}( \d\d:\d\d)?", "TODAY", text)


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("name", REPORTS)
def test_report(command, store, name, as_json):
    opened = open_store(f"sqlite:///{store / 'sessions.db'}")
    ids = {row.tip.dialect: row.id for row in opened.list()}
    named = {"PLAIN": ids["chat"], "CLAUDE": ids["anthropic"]}
    args = [named.get(arg, arg) for arg in REPORTS[name]]
    ran = command(*args, *(["--json"] if as_json else []))
    assert (ran.code, ran.err) == (0, "")
    file = GOLDEN / f"{name}.{'json' if as_json else 'txt'}"
    text = mask(ran.text, opened, store)
    opened.close()
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()

"""Stored conversations as people handle them, in this process, with a real file."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import stat
import time

import pytest
from tests.e2e.cli_process import assert_one_clear_error, encoded, work
from tests.unit.transfer.recorded_files import claude_line, claude_session, codex_rollout, lines

from penstock.accounts.conversations import list_conversations
from penstock.accounts.spending import group_requests
from penstock.cli.screen import Screen, width_of
from penstock.cli.sessions import list_lines
from penstock.cli.spending import spending_table
from penstock.sessions.session import Session
from penstock.settings import settings_from
from penstock.stores.store import open_store
from penstock.stores.values import NewSession
from penstock.testing import ScriptedModel


@pytest.fixture
def command(penstock, monkeypatch):
    """As `penstock`, in a time zone that all machines have."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield penstock
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def store(command, tmp_path):
    """Runs a command on a store of its own."""
    url = f"sqlite:///{tmp_path / 'kept' / 'sessions.db'}"

    def run(*args, **more):
        return command(*args, "--store", url, **more)

    run.url = url
    return run


@pytest.fixture
def files(tmp_path):
    made = {"claude": lines(*claude_session()), "codex": lines(*codex_rollout()), "plain": encoded(work())}
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    return {name: tmp_path / name for name in made}


def listed(store):
    return json.loads(store("sessions", "list", "--json").out)


def the_id(store):
    (row,) = listed(store)
    return row["id"]


def compact(store, session_id, tokens=600):
    """As an agent would, in another process than the command."""
    opened = open_store(store.url)
    Session.resume(opened, session_id).compact(target_tokens=tokens)
    opened.close()


class TestImport:
    def test_files_of_any_program_at_once(self, store, files):
        ran = store("sessions", "import", *files.values())
        assert (ran.code, ran.err) == (0, "")
        assert f"{files['claude']}: claude-code, anthropic: 4 messages imported as " in ran.text
        assert f"{files['codex']}: codex, responses: 6 messages imported as " in ran.text
        assert f"{files['plain']}: file, chat: 63 messages imported as " in ran.text
        assert "skipped: items of type ghost_snapshot, 1" in ran.text
        assert [row["messages"] for row in listed(store)] == [63, 4, 6]

    def test_again_adds_nothing(self, store, files):
        store("sessions", "import", *files.values())
        before = listed(store)
        ran = store("sessions", "import", *files.values())
        assert ran.text.count("nothing new, already imported as ") == 3
        assert listed(store) == before

    def test_broken_lines_are_told_with_their_numbers_and_the_rest_is_there(self, store, tmp_path):
        file = tmp_path / "cut.jsonl"
        file.write_bytes(lines(*claude_session()[:4]) + b'{"type":"assis\n' + lines(*claude_session()[4:]))
        ran = store("sessions", "import", file)
        assert ran.code == 0
        assert "line 5 was skipped: it is not JSON" in ran.text
        assert listed(store)[0]["messages"] == 4

    def test_a_file_that_cannot_be_read_does_not_stop_the_others(self, store, files, tmp_path):
        files["plain"].write_bytes(b"no conversation")
        ran = store("sessions", "import", *files.values(), tmp_path / "none", "--json")
        assert ran.code == 2
        report = json.loads(ran.out)
        assert [bool(one["error"]) for one in report] == [False, False, True, True]
        assert len(listed(store)) == 2

    def test_the_file_of_a_sub_agent_may_come_first(self, store, files, tmp_path):
        agent = tmp_path / "agent-a1b2.jsonl"
        agent.write_bytes(lines(claude_line("user", "s1", None, "Look.", isSidechain=True, agentId="a1b2")))
        alone = store("sessions", "import", agent)
        assert "skipped, a sub-agent of a session that is not in the store" in alone.text
        assert listed(store) == []
        assert (
            "sub-agent, anthropic: 1 message imported as"
            in store("sessions", "import", agent, files["claude"]).text
        )
        assert "sub-agents\n" in store("sessions", "show", the_id(store)).text

    def test_a_session_that_is_being_written_is_told(self, store, tmp_path):
        live = tmp_path / "live.jsonl"
        live.write_bytes(lines(*claude_session()[:4]))
        ran = store("sessions", "import", live)
        assert "1 message imported as" in ran.text
        assert "the last message may be incomplete: import the file again in a minute" in ran.text
        os.utime(live, (live.stat().st_mtime - 100,) * 2)
        ran = store("sessions", "import", live)
        assert "1 message added to" in ran.text
        assert "incomplete" not in ran.text

    def test_a_folder_is_imported_with_all_below_it(self, store, files, tmp_path):
        (tmp_path / "projects" / "shop" / "deep").mkdir(parents=True)
        for place, file in (("shop/a.jsonl", "claude"), ("shop/deep/b.jsonl", "codex")):
            (tmp_path / "projects" / place).write_bytes(files[file].read_bytes())
        (tmp_path / "projects" / "index.json").write_text('{"version": 1}')
        empty = {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}}
        (tmp_path / "projects" / "shop" / "left.jsonl").write_bytes(lines(empty))
        ran = store("sessions", "import", tmp_path / "projects")
        assert (ran.code, ran.err) == (0, "")
        assert ran.text.count("imported as") == 2
        assert "shop/a.jsonl: claude-code, anthropic: 4 messages imported as" in ran.text
        assert "index.json" not in ran.text
        assert ran.text.endswith("3 files: 10 messages in 2 conversations imported, 1 without messages\n")
        (tmp_path / "projects" / "touched.jsonl").touch()
        (tmp_path / "projects" / "cut.jsonl").write_bytes(b'{"type":"us')
        ran = store("sessions", "import", tmp_path / "projects")
        assert ran.code == 2
        error, total = ran.text.splitlines()  # of a folder that is imported daily, only what is new is told
        assert error.startswith("cut.jsonl: not imported: the input is not JSON")
        assert total == "5 files: nothing new, 2 unchanged, 2 without messages, 1 not imported"
        (tmp_path / "nothing").mkdir()
        ran = store("sessions", "import", tmp_path / "nothing")
        assert (ran.code, "there is no *.jsonl in this folder" in ran.text) == (2, True)

    def test_standard_input(self, store):
        ran = store("sessions", "import", "-", stdin=encoded(work(3)))
        assert ran.text.startswith("standard input: file, chat: 9 messages imported as ")

    def test_the_file_is_for_its_owner_alone(self, store, files, tmp_path):
        store("sessions", "import", files["claude"])
        assert stat.S_IMODE((tmp_path / "kept" / "sessions.db").stat().st_mode) == 0o600


class TestList:
    @pytest.mark.parametrize("asked", [("sessions", "list"), ("search", "orders")])
    def test_an_empty_store_says_what_to_do(self, store, asked):
        open_store(store.url).close()
        ran = store(*asked)
        assert ran.text.startswith("no conversations in sqlite:///")
        assert f"penstock sessions import --store {store.url} FILE" in ran.text

    def test_a_mistyped_address_is_an_error_and_creates_nothing(self, store, tmp_path):
        for asked in (("sessions", "list"), ("search", "orders")):
            assert_one_clear_error(store(*asked), f"there is no store at {store.url}: check the address")
        assert not (tmp_path / "kept").exists()

    def test_a_search_for_nothing_asks_what_for(self, store):
        open_store(store.url).close()
        assert_one_clear_error(store("search", "  "), "search for what?")

    @pytest.mark.parametrize(
        ("first", "title"),
        [
            ("<system-reminder>Be brief.</system-reminder>\nCount the orders.", "Count the orders."),
            ("This session is being continued from a previous conversation. Summary: 19 orders.", "And now?"),
            ("<command-message>review</command-message>\n<command-name>/review</command-name>", "And now?"),
        ],
    )
    def test_a_title_is_made_of_the_words_of_a_person(self, store, tmp_path, first, title):
        said = [claude_line("user", "u1", None, first), claude_line("assistant", "a2", "u1", "Yes.")]
        said.append(claude_line("user", "u3", "a2", "And now?"))
        (tmp_path / "titled.jsonl").write_bytes(lines(*said))
        assert store("sessions", "import", tmp_path / "titled.jsonl").code == 0
        assert [row["title"] for row in listed(store)] == [title]

    def test_a_pipe_gets_all_of_it(self, store, files):
        store("sessions", "import", *files.values())
        rows = store("sessions", "list").text.splitlines()
        assert rows[0].split() == ["id", "last", "used", "msgs", "tokens", "comp", "cost", "title"]
        assert rows[1].endswith("Never touch the migrations folder. Rename the report module to summary.")
        assert rows[2].endswith("Comparing reports")
        assert "2026-03-14 09:26" in rows[2]
        assert "What is here?" in rows[3]

    @pytest.mark.parametrize("columns", [40, 60, 80, 100])
    def test_it_fits_any_terminal(self, store, files, columns):
        store("sessions", "import", *files.values())
        opened = open_store(store.url)
        shown = list_conversations(opened)
        spending = group_requests(opened.usage(), lambda row: row.model)
        opened.close()
        screen = Screen(io.StringIO(), columns=columns)
        rows = list(list_lines(shown, screen))
        assert max(map(width_of, [*rows, *spending_table("model", spending, screen)])) <= columns
        assert rows[2].startswith("51818b2c  2026-03-14 09:26  ")
        assert "Comparing" in rows[2]
        assert ("cost" in rows[0]) == (columns > 60)

    def test_costs_that_are_not_known_say_so(self, store, files):
        text = files["claude"].read_text().replace("claude-sonnet-4-5", "unheard-of")
        files["claude"].write_text(text)
        store("sessions", "import", files["claude"], files["plain"])
        _, plain, claude = store("sessions", "list").text.splitlines()
        assert " unknown " in claude
        assert " - " in plain  # nothing was booked
        assert "$0" not in claude + plain
        assert listed(store)[1]["cost"] is None

    def test_limit(self, store, files):
        store("sessions", "import", *files.values())
        assert len(store("sessions", "list", "--limit", "2").text.splitlines()) == 3
        assert_one_clear_error(store("sessions", "list", "--limit", "0"), "--limit", "whole number")

    def test_secrets_are_not_shown(self, store):
        secret = "ghp_" + "a1B2c3D4e5F6" * 3
        store("sessions", "import", "-", stdin=encoded([{"role": "user", "content": f"Use {secret} now"}]))
        assert "[REDACTED]" in store("sessions", "list").text
        assert secret not in store("sessions", "list", "--json").text


class TestOne:
    @pytest.fixture
    def conversation(self, store, files):
        store("sessions", "import", files["plain"])
        return the_id(store)

    def test_show(self, store, conversation):
        compact(store, conversation)
        store("sessions", "pin", conversation, "m2")
        shown = store("sessions", "show", conversation[:6]).text
        assert shown.startswith(conversation)
        assert "log          63 messages, " in shown
        assert "pins         m2" in shown
        assert "compressed 63 → " in shown
        assert shown.count(" compression\n") == 1
        report = json.loads(store("sessions", "show", conversation, "--json").out)
        assert [row["end_reason"] for row in report["sessions"]] == ["compression", ""]
        assert report["view"]["tokens"] == report["compactions"][0]["receipt"]["tokens_after"]
        assert report["sessions"][1]["parent"] == conversation

    def test_undo(self, store, conversation):
        before = listed(store)[0]["view_tokens"]
        compact(store, conversation)
        ran = store("sessions", "undo", conversation)
        assert ran.text.startswith("undid the last compaction of ")
        assert listed(store)[0]["view_tokens"] == before
        assert "undone" in store("sessions", "show", conversation).text
        assert store("sessions", "undo", conversation).text.startswith("nothing to undo")

    def test_pin_and_unpin(self, store, conversation):
        assert (
            store("sessions", "pin", conversation, "m3").text
            == "m3 will be kept in full by later compactions\n"
        )
        store("sessions", "unpin", conversation, "m3")
        assert json.loads(store("sessions", "show", conversation, "--json").out)["pins"] == []
        assert_one_clear_error(store("sessions", "pin", conversation, "m64"), "m64")
        assert_one_clear_error(store("sessions", "pin", conversation, "third"), "third")

    def test_a_pin_outlives_a_compaction(self, store, conversation):
        store("sessions", "pin", conversation, "m21")
        compact(store, conversation, 900)
        pinned = json.loads(store("sessions", "export", conversation).out)[20]
        assert pinned in json.loads(store("sessions", "export", conversation, "--view").out)

    def test_delete_asks_for_a_yes(self, store, conversation, tmp_path):
        assert_one_clear_error(store("sessions", "delete", conversation), "--yes")
        assert len(listed(store)) == 1
        ran = store("sessions", "delete", conversation, "--yes")
        assert ran.text.startswith(f"deleted {conversation} and 63 messages")
        assert listed(store) == []
        for file in (tmp_path / "kept").iterdir():
            assert b"migrations folder" not in file.read_bytes()

    def test_ids_may_be_short_but_not_too_short(self, store, conversation):
        opened = open_store(store.url)
        for n in range(40):  # among 41 ids two begin alike
            Session.create(opened).append([{"role": "user", "content": f"Number {n}"}])
        opened.close()
        ids = [row["id"] for row in listed(store)]
        twice = next(one[0] for one in ids if sum(other.startswith(one[0]) for other in ids) > 1)
        assert_one_clear_error(store("sessions", "show", twice), "matches", "give more characters")
        assert_one_clear_error(store("sessions", "show", "zzz"), "'zzz'", "penstock sessions list")
        assert_one_clear_error(store("sessions", "show", ""), "penstock sessions list")

    def test_facts_are_shown_when_they_are_asked_for(self, store, files):
        store("sessions", "import", files["plain"])
        one = the_id(store)
        assert "none: facts are kept for messages that" in store("sessions", "show", one, "--facts").text
        compact(store, one)
        assert "\nfacts\n" not in store("sessions", "show", one).text
        assert "facts" not in json.loads(store("sessions", "show", one, "--json").out)
        facts = json.loads(store("sessions", "show", one, "--facts", "--json").out)["facts"]
        assert facts
        shown = store("sessions", "show", one, "--facts").text.split("\nfacts\n")[1].splitlines()
        assert [line.split()[:2] for line in shown] == [[fact["handle"], fact["kind"]] for fact in facts]

    def test_what_is_known_of_an_entity(self, store, tmp_path):
        made = {"name": "patch", "arguments": '{"path": "src/app.py"}'}
        ran = {"name": "terminal", "arguments": '{"command": "make test"}'}
        calls = [
            {"id": f"c{n}", "type": "function", "function": one} for n, one in enumerate((made, ran, made))
        ]
        talk = [{"role": "user", "content": "Fix it."}]
        for one, text in zip(calls, ("done", "exit 2\nerror: no rule", "Error: no such text"), strict=True):
            talk.append({"role": "assistant", "content": None, "tool_calls": [one]})
            talk.append({"role": "tool", "tool_call_id": one["id"], "content": text})
        file = tmp_path / "talk.json"
        file.write_text(json.dumps(talk))
        store("sessions", "import", file)
        one = the_id(store)
        lines = store("sessions", "show", one, "--entity", "app.py").text.splitlines()
        assert lines[0] == "file src/app.py"
        assert lines[1].startswith("  now      edited m2 (m2, ")
        assert lines[2] == "  tried    not edited: Error: no such text (m7)"
        assert lines[3] == "  seen     2 times"
        assert [line.split()[-4:] for line in lines[4:]][1] == ["m2", "edited"]
        assert store("sessions", "show", one, "--entity", "*").text.splitlines() == [
            "m5  command  make test: exit 2: error: no rule",
            "m2  file     src/app.py: edited m2; not edited: Error: no such text (m7)",
        ]
        (told,) = json.loads(store("sessions", "show", one, "--entity", "make test", "--json").out)
        assert (told["kind"], told["state"], told["handle"]) == ("command", "exit 2: error: no rule", "m5")
        missing = store("sessions", "show", one, "--entity", "nobody")
        assert missing.code == 2
        assert "nothing is known of 'nobody'" in missing.err

    def test_where_nothing_is_known_all_of_it_is_not_advised(self, store, tmp_path):
        file = tmp_path / "talk.json"
        file.write_text(json.dumps([{"role": "user", "content": "Hello."}]))
        store("sessions", "import", file)
        missing = store("sessions", "show", the_id(store), "--entity", "*")
        assert missing.code == 2
        assert missing.err.endswith("any file, command, record or person in this conversation\n")

    def test_a_pin_says_whether_the_message_has_to_come_back(self, store, files):
        store("sessions", "import", files["plain"])
        one = the_id(store)
        assert store("sessions", "pin", one, "m30").text == "m30 will be kept in full by later compactions\n"
        compact(store, one)
        said = store("sessions", "pin", one, "m20").text
        assert said == (
            "m20 is not in the view in full: the next compaction restores it, and later ones keep it\n"
        )
        assert json.loads(store("sessions", "pin", one, "m20", "--json").out)["whole_in_view"] is False


class TestExpire:
    @pytest.fixture
    def kept(self, store):
        """Two conversations: one used long ago, one today."""
        opened = open_store(store.url)
        for name, at in (("long-ago", time.time() - 40 * 86_400), ("today", time.time())):
            opened.create(NewSession(id=name, at=at))
        opened.close()
        return store

    def ids(self, store):
        opened = open_store(store.url)
        found = sorted(row.id for row in opened.list())
        opened.close()
        return found

    def test_it_says_what_would_go_and_what_went(self, kept):
        ran = kept("sessions", "expire", "--days", "30", "--dry-run")
        assert ran.text.startswith("would delete 1 conversation not used for 30 days\n  long-ago  ")
        assert self.ids(kept) == ["long-ago", "today"]
        assert (
            kept("sessions", "expire", "--days", "50").text
            == "every conversation has been used in the last 50 days\n"
        )
        assert_one_clear_error(kept("sessions", "expire", "--days", "30"), "--yes")
        assert self.ids(kept) == ["long-ago", "today"]
        report = json.loads(kept("sessions", "expire", "--days", "30", "--yes", "--json").out)
        assert [one["id"] for one in report["conversations"]] == ["long-ago"]
        assert self.ids(kept) == ["today"]

    def test_the_setting_counts_where_no_days_are_given(self, kept, monkeypatch):
        assert_one_clear_error(kept("sessions", "expire"), "--days N", "store.retention_days")
        monkeypatch.setenv("PENSTOCK_STORE_RETENTION_DAYS", "30")
        assert kept("sessions", "expire", "--dry-run").text.startswith("would delete 1 conversation")
        assert kept("doctor").text.endswith("is sound\n")
        assert self.ids(kept) == ["long-ago", "today"]
        ran = kept("sessions", "list")
        assert ran.err == "penstock: deleted 1 conversation not used for 30 days (store.retention_days)\n"
        assert self.ids(kept) == ["today"]
        assert kept("sessions", "list").err == ""

    def test_old_files_that_are_imported_stay(self, store, files, monkeypatch):
        monkeypatch.setenv("PENSTOCK_STORE_RETENTION_DAYS", "1")
        for file in ("claude", "plain"):
            os.utime(files[file], (1_500_000_000, 1_500_000_000))
        store("sessions", "import", files["claude"], files["plain"])
        opened = open_store(store.url)
        opened.put_note("retention", "checked", b"0")
        opened.close()
        assert [row["updated"] for row in listed(store)] == [1_773_480_367.5, 1_500_000_000]

    def test_an_agent_that_opens_the_store_honours_it_too(self, kept):
        opened = open_store(kept.url)
        Session.create(opened, settings=settings_from({"store": {"retention_days": 30}}))
        opened.close()
        assert "long-ago" not in self.ids(kept)


class TestExport:
    @pytest.fixture
    def conversation(self, store, tmp_path):
        odd = (
            b'[{ "role":"user",  "content":"sp\\u0061ces", "x": 1.50 },\n{"role":"assistant","content":"ok"}]'
        )
        store("sessions", "import", "-", stdin=odd)
        return the_id(store)

    def test_the_exact_bytes(self, store, conversation, tmp_path):
        ran = store("sessions", "export", conversation)
        assert ran.out == (
            b'[{ "role":"user",  "content":"sp\\u0061ces", "x": 1.50 },\n{"role":"assistant","content":"ok"}]\n'
        )
        assert ran.err == ""
        out = tmp_path / "new" / "out.jsonl"
        ran = store("sessions", "export", conversation, "-o", out, "--format", "jsonl")
        assert ran.text == f"exported 2 messages to {out}, {out.stat().st_size} bytes\n"
        assert out.read_bytes().splitlines()[1] == b'{"role":"assistant","content":"ok"}'

    def test_what_is_exported_can_be_imported_elsewhere(self, store, command, files, tmp_path):
        store("sessions", "import", *files.values())
        for row in listed(store):
            out = tmp_path / "out.json"
            store("sessions", "export", row["id"], "-o", out)
            other = f"sqlite:///{tmp_path / 'other.db'}"
            ran = command("sessions", "import", out, "--dialect", row["dialect"], "--store", other, "--json")
            taken = json.loads(ran.out)[0]["conversations"][0]["session"]
            again = command("sessions", "export", taken, "--store", other)
            assert again.out == out.read_bytes()

    def test_another_dialect_tells_what_it_cannot_say(self, store, conversation):
        ran = store("sessions", "export", conversation, "--dialect", "responses")
        assert [item["type"] for item in json.loads(ran.out)] == ["message", "message"]
        assert ran.err == "  cannot be expressed in responses: field 'x', 1 time\n"
        report = json.loads(store("sessions", "export", conversation, "--dialect", "sharegpt", "--json").err)
        assert report["lost"] == {"field 'x'": 1}

    def test_log_and_view(self, store, files):
        store("sessions", "import", files["plain"])
        conversation = the_id(store)
        compact(store, conversation)
        log = json.loads(store("sessions", "export", conversation, "--log").out)
        view = json.loads(store("sessions", "export", conversation, "--view").out)
        assert log == work()
        assert len(view) < len(log)
        assert view[-1] == log[-1]
        assert_one_clear_error(
            store("sessions", "export", conversation, "--log", "--view"), "cannot be combined with"
        )


class TestMoney:
    def test_usage(self, store, files):
        store("sessions", "import", files["plain"])
        assert store("usage").text == "no requests are on record\n"
        store("sessions", "import", files["claude"], files["codex"])
        table = store("usage").text.splitlines()
        assert table[0].split() == ["model", "requests", "prompt", "cached", "output", "cost"]
        assert [line.split()[:2] for line in table[1:]] == [
            ["claude-sonnet-4-5", "2"],
            ["gpt-5", "2"],
            ["total", "4"],
        ]
        report = json.loads(store("usage", "--json").out)
        assert report["models"]["claude-sonnet-4-5"]["cache_hit_ratio"] == pytest.approx(
            1800 / 2008, abs=1e-4
        )
        assert report["total"]["cost"] == pytest.approx(sum(one["cost"] for one in report["models"].values()))
        claude = next(row["id"] for row in listed(store) if row["dialect"] == "anthropic")
        assert list(json.loads(store("usage", claude, "--json").out)["models"]) == ["claude-sonnet-4-5"]

    def test_what_summaries_cost_is_told_beside_it(self, store, files):
        """Also of one that was taken back: it was paid for."""
        store("sessions", "import", files["plain"], files["claude"])
        plain = next(row["id"] for row in listed(store) if row["dialect"] == "chat")
        opened = open_store(store.url)
        session = Session.resume(opened, plain)
        model = ScriptedModel(lambda received: "## Active State\n- All parts were read.\n", name="gpt-4.1")
        receipt = session.compact(target_tokens=1_500, summariser=model).receipt
        assert receipt.cost is not None
        session.undo()
        opened.close()
        used = f"{receipt.model_prompt_tokens:,} tokens in, {receipt.model_output_tokens:,} out"
        said = f"of these for summaries: 1 request, {used}, ${receipt.cost:.4f}, with 1 compaction"
        assert " ".join(store("usage").text.split()).endswith(said)
        assert " ".join(store("usage", plain).text.split()).endswith(said)
        report = json.loads(store("usage", plain, "--json").out)
        assert report["total"] == report["summaries"]
        told = json.loads(store("usage", "--json").out)["compactions"]
        cost = pytest.approx(receipt.cost)
        assert told == {"count": 1, "model_calls": 1, "cost": cost, "known_cost": cost}

    def test_one_price_that_is_not_known_makes_the_sum_the_least_it_can_be(self, store, files):
        files["claude"].write_text(files["claude"].read_text().replace("claude-sonnet-4-5", "unheard-of"))
        store("sessions", "import", files["claude"], files["codex"])
        gpt, unheard, total = store("usage").text.splitlines()[1:]
        assert unheard.split()[-1] == "unknown"
        assert total.endswith(f" at least {gpt.split()[-1]}")
        report = json.loads(store("usage", "--json").out)
        assert (report["total"]["cost"], report["models"]["unheard-of"]["cost"]) == (None, None)

    def test_insights(self, store, files):
        store("sessions", "import", *files.values())
        plain = next(row["id"] for row in listed(store) if row["dialect"] == "chat")
        compact(store, plain)
        report = json.loads(store("insights", "--days", "36500", "--json").out)
        assert report["conversations"] == 3
        assert list(report["models"]) == ["claude-sonnet-4-5", "gpt-5"]
        assert report["per_day"]["2026-03-14"]["requests"] == 4
        assert report["compactions"]["count"] == 1
        assert (report["compactions"]["cost"], report["compactions"]["saved_tokens"]) == (0.0, 0)
        text = store("insights", "--days", "36500").text
        assert "1 compaction, " in text
        assert "nothing, no model was called" in text
        lately = json.loads(store("insights", "--days", "1", "--json").out)
        assert (lately["conversations"], lately["total"]["requests"]) == (1, 0)


class TestDoctor:
    def test_a_sound_store(self, store, files):
        store("sessions", "import", *files.values())
        ran = store("doctor")
        assert (ran.code, ran.text) == (0, f"{store.url} is sound\n")

    def test_faults_are_told_mended_and_gone(self, store, files, tmp_path):
        store("sessions", "import", files["plain"])
        with sqlite3.connect(tmp_path / "kept" / "sessions.db") as database:
            database.execute("UPDATE conversations SET length = 5")
        database.close()
        ran = store("doctor")
        assert ran.code == 1
        assert "(can be repaired)" in ran.text
        assert f"penstock doctor --store {store.url} --repair repairs 1 of them" in ran.text
        mended = store("doctor", "--repair")
        assert mended.code == 0
        assert mended.text.startswith("repaired  conversation ")
        assert store("doctor").code == 0

    def test_faults_that_stay(self, store, files, tmp_path):
        store("sessions", "import", files["plain"])
        with sqlite3.connect(tmp_path / "kept" / "sessions.db") as database:
            database.execute("UPDATE messages SET raw = x'00' WHERE key = 3")
        database.close()
        ran = store("doctor", "--repair", "--json")
        assert ran.code == 1
        assert not json.loads(ran.out)["faults"][0]["mendable"]


class TestPlaces:
    def test_the_store_of_the_settings(self, command, files, tmp_path):
        url = f"sqlite:///{tmp_path / 'set.db'}"
        command("sessions", "import", files["claude"], PENSTOCK_STORE_URL=url)
        assert len(json.loads(command("sessions", "list", "--json", "--set", f"store.url={url}").out)) == 1

    def test_the_users_data_folder(self, command, files, tmp_path):
        command("sessions", "import", files["claude"], XDG_DATA_HOME=str(tmp_path / "data"))
        assert (tmp_path / "data" / "penstock" / "sessions.db").exists()

    def test_places_that_are_none(self, command, tmp_path):
        assert_one_clear_error(command("sessions", "list", "--store", "mysql://x"), "sqlite:///FILE")
        (tmp_path / "x.db").write_text("not a database, but long enough to be looked at " * 50)
        ran = command("sessions", "list", "--store", f"sqlite:///{tmp_path / 'x.db'}")
        assert_one_clear_error(ran, "x.db")

    @pytest.mark.parametrize(
        "words", ["doctor", "usage", "insights", "search word", "sessions show a", "sessions delete a --yes"]
    )
    def test_nothing_is_looked_for_in_a_store_that_is_not_there(self, command, tmp_path, words):
        """A slip in an address would make an empty store, which is sound."""
        file = tmp_path / "slip" / "x.db"
        ran = command(*words.split(), "--store", f"sqlite:///{file}")
        assert_one_clear_error(ran, "there is no store at sqlite:///", "penstock sessions import")
        assert not file.parent.exists()

    def test_mistakes(self, command):
        assert_one_clear_error(command("sessions", "lst"), "lst")
        assert_one_clear_error(command("sessions", "show"), "ID", "penstock sessions show --help")

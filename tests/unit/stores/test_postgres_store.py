"""PostgreSQL: values in statements, passwords, schemas that are made by several at once."""

from __future__ import annotations

import logging
import re
import socket
import subprocess
import sys
import threading
import uuid
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest
from store_rows import add, rows

from penstock.errors import SettingsError, StoreError, StoreUnavailable
from penstock.stores import postgres
from penstock.stores.postgres import PostgresDatabase, _split_password, _translate
from penstock.stores.store import open_store
from penstock.stores.values import NewSession


@pytest.mark.parametrize(
    ("statement", "translated"),
    [
        ("SELECT ?", "SELECT %s"),
        ("a = ? AND b IN (?, ?)", "a = %s AND b IN (%s, %s)"),
        ("x LIKE '50%' AND y = ?", "x LIKE '50%%' AND y = %s"),
        ("x = 'why?' AND y = ?", "x = 'why?' AND y = %s"),
        ("x = 'it''s ?' AND y = ?", "x = 'it''s ?' AND y = %s"),
        ('"odd?" = ? -- really?\n AND 5 % 2 = ?', '"odd?" = %s -- really?\n AND 5 %% 2 = %s'),
    ],
)
def test_only_marks_outside_of_texts_are_values(statement, translated):
    assert _translate(statement).decode() == translated


def test_marks_and_percent_signs_reach_the_server_as_they_are(postgres_url):
    database = PostgresDatabase(postgres_url)
    with database.reading() as do:
        assert do.one("SELECT '?', '100%', '%s', ?, 7 % 4", "?%s%") == ("?", "100%", "%s", "?%s%", 3)
    database.close()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:hunter2@h:5432/d", "postgresql://u@h:5432/d"),
        ("postgresql://u:hu%40nter2@h/d?sslmode=require", "postgresql://u@h/d?sslmode=require"),
        ("postgresql://h/d?user=u&password=hunter2", "postgresql://h/d?user=u"),
        ("postgres://u@h/d", "postgres://u@h/d"),
        ("postgresql:///d?sslpassword=hunter2", "postgresql:///d"),
    ],
)
def test_the_address_that_is_shown_has_no_password(url, shown):
    assert _split_password(url)[0] == shown


@pytest.mark.outside
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hunter2@127.0.0.1:1/d",
        "postgresql://user@127.0.0.1:1/d?password=hunter2",
        "postgresql://user:hunter2@127.0.0.1:port/d",
        "postgresql://user:hunter2@@/d",
        "postgresql://user:x/hunter2@127.0.0.1/d",
        "postgresql://user:hunter2@127.0.0.1:1/d?nonsense=hunter2",
        "postgresql://user:hun%ter2@127.0.0.1:1/d",
        "postgresql://hunter2[/d",
    ],
)
def test_no_error_and_no_log_shows_the_password(url, caplog):
    caplog.set_level(logging.DEBUG)
    with pytest.raises((SettingsError, StoreUnavailable)) as caught:
        open_store(url, wait_seconds=1)
    shown, error = caplog.text, caught.value
    while error is not None:
        shown += f"{error} {error!r}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert "hunter2" not in shown
    assert "hun%ter2" not in shown


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("user", r'role "nobody-here" does not exist'), ("database", r'database "nowhere" does not exist')],
)
def test_an_address_that_is_wrong_is_not_cured_by_trying_again(postgres_url, wrong, said):
    parts = urlsplit(postgres_url)
    url = (
        parts._replace(netloc=parts.netloc.replace("postgres", "nobody-here", 1)).geturl()
        if wrong == "user"
        else parts._replace(path="/nowhere").geturl()
    )
    with pytest.raises(StoreUnavailable, match=said) as caught:
        open_store(url, wait_seconds=1)
    assert "check the user, the password and the database" in str(caught.value)
    assert "try again" not in str(caught.value)


@pytest.mark.outside
@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u@127.0.0.1:1/d", "check that the server runs there, and the host and the port"),
        ("postgresql://u@no-such-host.invalid/d", "check the host in its address"),
        ("postgresql:///d?host=/nonexistent", "check that the server runs there"),
    ],
)
def test_a_server_that_is_not_there_is_not_cured_by_trying_again(url, said):
    with pytest.raises(StoreUnavailable, match=said) as caught:
        open_store(url, wait_seconds=1)
    assert "try again" not in str(caught.value)


def test_a_user_without_the_right_to_write_is_told_what_is_missing(postgres_url):
    open_store(postgres_url).close()
    role = f"reader_{uuid.uuid4().hex[:8]}"
    schema = re.search(r"search_path%3D(\w+)", postgres_url)[1]
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN")
        owner.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        owner.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
    parts = urlsplit(postgres_url)
    url = parts._replace(netloc=parts.netloc.replace("postgres", role, 1)).geturl()
    store = open_store(url)
    with pytest.raises(StoreUnavailable, match="may not do that; grant it the right"):
        store.create(NewSession(id="a", at=1.0))
    store.close()


def test_several_processes_may_make_the_schema_at_once(postgres_url):
    errors, barrier = [], threading.Barrier(6)

    def open_it():
        barrier.wait(30)
        try:
            open_store(postgres_url).close()
        except StoreError as error:
            errors.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_lock_that_is_held_too_long_is_told(postgres_url):
    store = open_store(postgres_url, wait_seconds=0.3)
    store.create(NewSession(id="a", at=1.0))
    with psycopg.connect(postgres_url) as holder:
        holder.execute("SELECT * FROM sessions FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            store.end("a", "x", 2.0)
    store.end("a", "x", 2.0)
    store.close()


@pytest.mark.outside
def test_without_the_packages_the_way_to_get_them_is_told():
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from penstock.stores.store import open_store\n"
        "try: open_store('postgresql://u:hunter2@h/d')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.startswith("SettingsError")
    assert "pip install 'penstock-context[postgres]' (in a clone: pip install '.[postgres]')" in shown


def test_a_conversation_is_deleted_though_somebody_holds_the_index(postgres_url, caplog):
    store = open_store(postgres_url, wait_seconds=0.3)
    store.create(NewSession(id="gone", at=1.0))
    add(store, "gone", "the last auk")
    store.index()
    with psycopg.connect(postgres_url) as holder:
        holder.execute(store.database.words.hold_index[-1])
        assert store.delete("gone") == 1
        assert "has not left the files" in caplog.text
        assert list(store.list()) == []
        assert rows(store, "SELECT count(*) FROM removed") == [(1,)]
    store.create(NewSession(id="next", at=2.0))
    add(store, "next", "a penguin")
    store.index()
    assert rows(store, "SELECT count(*) FROM removed") == [(0,)]
    assert not store.faults()
    store.close()


class ForgetfulRouter:
    """A router in front of the server. After `forget`, it ends the connections that it had as soon as something is sent."""

    def __init__(self, postgres_url):
        self._server = f"{parse_qs(urlsplit(postgres_url).query)['host'][0]}/.s.PGSQL.5432"
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open, self._forgotten = [], set()
        host, port = self._listening.getsockname()
        self.url = re.sub(r"host=[^&]*", f"host={host}&port={port}&sslmode=disable", postgres_url)

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        for one in (self._listening, *self._open):
            one.close()

    def forget(self):
        self._forgotten.update(self._open)

    def _accept(self):
        with suppress(OSError):  # closed: the test has ended
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._open += [client, server]
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source, target):
        with suppress(OSError):
            while (data := source.recv(65_536)) and source not in self._forgotten:
                target.sendall(data)
            for one in (source, target):
                one.shutdown(socket.SHUT_RDWR)


def test_a_connection_that_was_forgotten_while_it_was_idle_is_replaced_unseen(postgres_url, monkeypatch):
    """Also by a write of one round trip, of which nobody could say afterwards whether it was committed."""
    with ForgetfulRouter(postgres_url) as router:
        store = open_store(router.url)
        store.put_note("n", "before", b"value")
        monkeypatch.setattr(postgres, "_TRUSTED_SECONDS", 0.0)
        router.forget()
        store.put_note("n", "after", b"value")
        assert store.note("n", "after") == b"value"
        store.close()

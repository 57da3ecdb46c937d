"""Approvals that outlive a chat: of one project, in the user's own folder, and taken back at any time."""

from __future__ import annotations

import asyncio
import json
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.agent.project_approvals import ProjectApprovals
from penstock.loop.approvals import Access, ApprovalReply, ApprovalRule, Approvals, Permission


def command(text):
    return Permission(tool="terminal", access=Access.RUN, subject=text)


class Person:
    """Answers as told, and counts the questions."""

    def __init__(self, reply=ApprovalReply.PROJECT):
        self.reply = reply
        self.asked = []

    async def __call__(self, asked):
        self.asked.append(asked.subject)
        return self.reply


def chat_in(project, home, person):
    return Approvals(ask=person, project=ProjectApprovals.of(home, project))


def allowed(approvals, asked):
    return asyncio.run(approvals.approve(asked)).allowed


@pytest.fixture
def places(tmp_path):
    home, project = tmp_path / "home" / "penstock", tmp_path / "work"
    project.mkdir()
    return home, project


def test_what_is_allowed_in_a_project_is_not_asked_again_there_and_is_elsewhere(places, tmp_path):
    home, project = places
    person = Person()
    assert allowed(chat_in(project, home, person), command("make test"))
    later = chat_in(project, home, person)
    assert allowed(later, command("make test"))
    (tmp_path / "link").symlink_to(project)
    assert allowed(chat_in((tmp_path / "link").resolve(), home, person), command("make test"))
    assert person.asked == ["make test"]
    assert allowed(later, command("make test; rm -r src"))  # the same thing alone was allowed
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert allowed(chat_in(elsewhere, home, person), command("make test"))
    assert person.asked == ["make test", "make test; rm -r src", "make test"]


def test_what_is_taken_back_is_asked_again_also_by_a_chat_that_runs(places):
    home, project = places
    running, person = chat_in(project, home, first := Person()), Person(ApprovalReply.NO)
    assert allowed(running, command("make"))
    other = chat_in(project, home, person)
    assert allowed(other, command("make"))
    assert other.forget(ApprovalRule("terminal", "make", exact=True))
    assert not other.forget(ApprovalRule("terminal", "make", exact=True))
    assert not allowed(other, command("make"))
    first.reply = ApprovalReply.NO
    assert not allowed(running, command("make"))
    assert len(first.asked) == 2


def test_what_a_session_remembers_is_taken_back_too(places):
    home, project = places
    approvals = chat_in(project, home, person := Person(ApprovalReply.SESSION))
    assert allowed(approvals, command("make"))
    assert allowed(approvals, command("make"))
    assert len(person.asked) == 1
    assert approvals.forget(approvals.remembered[0])
    person.reply = ApprovalReply.NO
    assert not allowed(approvals, command("make"))


def test_a_repository_cannot_bring_its_own(tmp_path):
    project = tmp_path / "hostile"
    inside = project / ".local" / "share" / "penstock"
    inside.mkdir(parents=True)
    assert ProjectApprovals.of(inside, project) is None  # as where there is no home folder
    (tmp_path / "link").symlink_to(inside)
    assert ProjectApprovals.of(tmp_path / "link", project) is None
    person = Person()
    assert allowed(chat_in(project, inside, person), command("make"))
    assert allowed(chat_in(project, inside, person), command("make"))
    assert person.asked == ["make", "make"]  # nothing was remembered
    assert not list(project.rglob("*.json"))


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"project": 1}', b"\xff\xfe", b'{"project": "/", "allowed": []}']
)
def test_what_cannot_be_read_allows_nothing_and_is_replaced(places, data):
    home, project = places
    person = Person()
    assert allowed(chat_in(project, home, person), command("make"))
    (file,) = home.rglob("*.json")
    kept = json.loads(file.read_bytes())
    assert kept["project"] == str(project)
    file.write_bytes(data)
    assert allowed(chat_in(project, home, person), command("make"))
    assert len(person.asked) == 2
    assert json.loads(file.read_bytes())["allowed"][0]["subject"] == "make"


def test_another_projects_file_under_this_ones_name_allows_nothing(places):
    home, project = places
    assert allowed(chat_in(project, home, Person()), command("make"))
    (file,) = home.rglob("*.json")
    file.write_bytes(file.read_bytes().replace(str(project).encode(), b"/somewhere/else"))
    assert not allowed(chat_in(project, home, Person(ApprovalReply.NO)), command("make"))


def test_the_file_is_for_its_owner_alone_and_writers_lose_nothing(places):
    home, project = places
    rules = [ApprovalRule("terminal", f"make {number}", exact=True) for number in range(24)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda rule: ProjectApprovals.of(home, project).add(rule), rules))
    book = ProjectApprovals.of(home, project)
    assert set(book.rules()) == set(rules)
    book.add(rules[0])
    assert len(book.rules()) == 24
    (file,) = home.rglob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_written_allows_it_for_the_session(places):
    home, project = places
    home.parent.mkdir()
    home.write_text("no folder")
    approvals = chat_in(project, home, person := Person())
    assert allowed(approvals, command("make"))
    assert allowed(approvals, command("make"))
    assert person.asked == ["make"]

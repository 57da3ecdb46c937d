import asyncio

import pytest

from penstock.errors import SettingsError
from penstock.loop.approvals import Access, ApprovalReply, Approvals, Permission, decide, read_rule


def command(text):
    return Permission(tool="terminal", access=Access.RUN, subject=text)


def write(path, tool="write_file"):
    return Permission(tool=tool, access=Access.WRITE, subject=path)


def allowed(asked, *rules):
    return decide(asked, tuple(map(read_rule, rules))) is not None


class TestRules:
    def test_a_tool_without_a_pattern(self):
        assert allowed(command("rm -rf /"), "terminal")
        assert not allowed(write("a"), "terminal")

    def test_commands_by_their_beginning(self):
        assert allowed(command("git status --short"), "terminal(git status*)")
        assert not allowed(command("git stash"), "terminal(git status*)")
        assert not allowed(command("sudo git status"), "terminal(git status*)")

    @pytest.mark.parametrize(
        "more",
        ["; rm x", " && rm x", " | sh", " > x", " < x", " $(rm x)", " `rm x`", "\nrm x", " & rm x", " ${x}"],
    )
    def test_a_pattern_never_allows_what_is_chained_on(self, more):
        assert not allowed(command(f"git status{more}"), "terminal(git status*)")
        assert not allowed(command(f"git status{more}"), "terminal(*)")
        assert allowed(command(f"git status{more}"), f"terminal(git status{more})")

    def test_paths(self):
        assert allowed(write("src/a.py"), "write_file(src/*)")
        assert not allowed(write("src/deep/a.py"), "write_file(src/*)")
        assert allowed(write("src/deep/a.py"), "write_file(src/**)")
        assert allowed(write("deep/er/a.md"), "write_file(**/*.md)")
        assert allowed(write("a.md"), "write_file(**/*.md)")
        assert not allowed(write("srcs/a.py"), "write_file(src/**)")
        assert not allowed(write("src/a.py", tool="patch"), "write_file(src/**)")

    def test_all_tools_of_a_server(self):
        asked = Permission(tool="weather__today", access=Access.RUN, subject="")
        assert allowed(asked, "weather__*")
        assert not allowed(asked, "traffic__*")

    @pytest.mark.parametrize("text", ["", "two words", "terminal(", "terminal()", "(x)"])
    def test_what_is_no_rule(self, text):
        with pytest.raises(SettingsError, match="not an approval rule"):
            read_rule(text)


class TestDeciding:
    def test_reading_is_free_but_for_what_says_why_not(self):
        free = Permission(tool="fetch_url", access=Access.READ, subject="https://host")
        assert decide(free, ()).reason == "reading is free"
        held = Permission(tool="fetch_url", access=Access.READ, subject="http://10.0.0.1", why="it is near")
        assert decide(held, ()) is None

    def test_yes_allows_everything_and_says_so(self):
        assert decide(command("rm x"), (), yes=True).reason == "everything is allowed (--yes)"

    def test_the_rule_is_named(self):
        assert (
            decide(command("ls"), (read_rule("terminal(ls)"),)).reason == "allowed by the rule terminal(ls)"
        )


class TestAsking:
    def test_nobody_to_ask_means_no(self):
        decision = asyncio.run(Approvals().approve(command("ls")))
        assert not decision.allowed
        assert "there is no one to ask" in decision.reason

    @pytest.mark.parametrize(
        ("reply", "times"), [(ApprovalReply.ONCE, 2), (ApprovalReply.SESSION, 1), (ApprovalReply.NO, 2)]
    )
    def test_what_is_remembered(self, reply, times):
        asked = []

        async def ask(permission):
            asked.append(permission)
            return reply

        async def talk():
            approvals = Approvals(ask=ask)
            return [await approvals.approve(command("make [a]*")) for _ in range(2)], approvals

        decisions, approvals = asyncio.run(talk())
        assert [decision.allowed for decision in decisions] == [reply is not ApprovalReply.NO] * 2
        assert len(asked) == times
        assert len(approvals.remembered) == (reply is ApprovalReply.SESSION)

    def test_a_remembered_command_is_no_pattern(self):
        asked = []

        async def ask(permission):
            asked.append(permission.subject)
            return ApprovalReply.SESSION

        async def talk():
            approvals = Approvals(ask=ask)
            await approvals.approve(command("rm *.log"))
            await approvals.approve(command("rm important.log"))

        asyncio.run(talk())
        assert asked == ["rm *.log", "rm important.log"]

    def test_one_question_at_a_time_and_an_answer_serves_who_waits(self):
        open_questions = []

        async def ask(permission):
            open_questions.append(permission)
            assert len(open_questions) == 1
            await asyncio.sleep(0.02)
            open_questions.pop()
            return ApprovalReply.SESSION

        async def talk():
            approvals = Approvals(ask=ask)
            await asyncio.gather(*(approvals.approve(command(text)) for text in ("a", "b", "a", "a")))
            return approvals.remembered

        assert len(asyncio.run(talk())) == 2

import asyncio
import os
import time
from pathlib import Path

import msgspec
import pytest

from penstock.config import command_environment
from penstock.writing.stubs import exit_status

pytestmark = pytest.mark.outside


def alive(pid):
    """Whether the process runs; one that has ended and was not reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid, seconds=20.0):
    until = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(pid)


class TestRunning:
    def test_output_of_both_streams_and_the_exit_code(self, stage):
        outcome = stage.run("terminal", command="echo out; echo err >&2; exit 3")
        assert outcome.text.startswith("out\nerr\n[exit code 3, ")
        assert outcome.is_error
        assert exit_status(outcome.text) == 3
        assert outcome.summary.startswith("exit code 3, ")

    def test_success_is_no_error(self, stage):
        outcome = stage.run("terminal", command="true")
        assert not outcome.is_error
        assert outcome.text.startswith("[exit code 0, ")

    def test_it_starts_in_the_working_folder(self, stage):
        assert stage.run("terminal", command="pwd").text.split("\n")[0] == str(stage.root)

    def test_it_gets_no_input(self, stage):
        assert stage.run("terminal", command="cat; echo done").text.startswith("done\n")

    def test_arguments_may_come_as_json_text(self, stage):
        assert stage.run("terminal", '{"command": "echo hi"}').text.startswith("hi\n")

    def test_lines_are_told_as_they_come(self, stage):
        heard = []
        stage.context = msgspec.structs.replace(
            stage.context, on_line=lambda line: heard.append((line, time.monotonic()))
        )
        stage.run("terminal", command="echo first; sleep 0.4; printf second")
        assert [line for line, _ in heard] == ["first", "second"]
        assert heard[1][1] - heard[0][1] > 0.2

    def test_a_signal_is_named(self, stage):
        assert "exit code -9, ended by SIGKILL" in stage.run("terminal", command="kill -9 $$").text


class TestOutput:
    def test_head_and_tail_are_kept_and_the_gap_is_told(self, stage):
        text = stage.run("terminal", command="seq 1 200000").text
        assert text.startswith("1\n2\n3\n")
        assert "\n200000\n[exit code 0" in text
        assert "lines left out" in text
        assert text.count("left out") == 1
        assert len(text) <= stage.tools.tools["terminal"].most_chars

    def test_the_gap_is_as_large_as_it_says(self, stage):
        text = stage.run("terminal", command="seq 1 200000").text
        said = int(text.partition("[… ")[2].partition(" characters")[0].replace(",", ""))
        whole = sum(len(str(number)) + 1 for number in range(1, 200_001))
        shown = text.partition("[…")[0] + text.partition("…]\n")[2].partition("[exit")[0]
        assert said + len(shown) == whole

    def test_binary_output_is_survived(self, stage):
        outcome = stage.run("terminal", command=r"printf 'a\xff\xfe\x00b\n'; head -c 200000 /dev/urandom")
        assert outcome.text.startswith("a��b\n")
        outcome.text.encode()

    def test_a_character_cut_by_a_pipe_stays_whole(self, stage):
        command = r"printf '\xe2\x82'; sleep 0.1; printf '\xac\n'"
        assert stage.run("terminal", command=command).text.startswith("€\n")

    def test_colours_are_dropped_and_progress_keeps_its_last_state(self, stage):
        command = r"printf '\033[31mred\033[0m\n10%%\r50%%\r100%%\n'"
        assert stage.run("terminal", command=command).text.startswith("red\n100%\n")

    def test_a_line_without_an_end_is_not_held_for_ever(self, stage):
        text = stage.run("terminal", command="head -c 3000000 /dev/zero | tr '\\0' x").text
        assert len(text) <= 30_000
        assert "left out" in text


class TestEnding:
    @pytest.mark.alone
    def test_a_timeout_ends_the_whole_group(self, stage):
        started = time.monotonic()
        outcome = stage.run(
            "terminal", command="sleep 60 & echo $!; sleep 60; echo never", timeout_seconds=0.4
        )
        assert time.monotonic() - started < 5
        assert outcome.is_error
        assert "timed out after 0.4 s" in outcome.text
        assert "never" not in outcome.text
        assert gone(int(outcome.text.split("\n")[0]))

    def test_what_ignores_a_polite_end_is_killed(self, stage):
        outcome = stage.run("terminal", command="trap '' TERM; echo $$; sleep 60", timeout_seconds=0.3)
        assert gone(int(outcome.text.split("\n")[0]))

    @pytest.mark.alone
    def test_what_is_left_in_the_background_ends_with_the_command(self, stage):
        started = time.monotonic()
        outcome = stage.run("terminal", command="sleep 60 & echo $!")
        assert time.monotonic() - started < 5
        assert not outcome.is_error
        assert gone(int(outcome.text.split("\n")[0]))

    @pytest.mark.alone
    def test_a_process_that_left_the_group_is_not_waited_for(self, stage):
        started = time.monotonic()
        outcome = stage.run("terminal", command="setsid sleep 3 & echo here")
        assert time.monotonic() - started < 2.5
        assert outcome.text.startswith("here\n")

    def test_an_interrupt_ends_it_and_says_so(self, stage):
        async def talk():
            event = asyncio.Event()
            stage.context = msgspec.structs.replace(stage.context, interrupt=event)
            asyncio.get_running_loop().call_later(0.3, event.set)
            return await stage.arun("terminal", command="echo $$; sleep 60")

        outcome = asyncio.run(talk())
        assert "[interrupted by the user, " in outcome.text
        assert outcome.is_error
        assert gone(int(outcome.text.split("\n")[0]))

    def test_cancelling_ends_the_group_and_passes_through(self, stage):
        heard = []

        async def talk():
            both = asyncio.Event()

            def hear(line):
                heard.append(line)
                if len(heard) == 2:
                    both.set()

            stage.context = msgspec.structs.replace(stage.context, on_line=hear)
            task = asyncio.create_task(stage.arun("terminal", command="sleep 60 & echo $!; echo $$; wait"))
            await both.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(talk())
        assert [gone(int(pid)) for pid in heard] == [True, True]


class TestEnvironment:
    def test_secrets_of_ours_are_not_in_it(self, stage):
        environ = {
            "PATH": os.environ["PATH"],
            "PLAIN": "visible",
            "SAMPLE_API_KEY": "zq7-sample-not-a-real-key-31415",
            "COPY": "prefix zq7-sample-not-a-real-key-31415",
            "KEPT_TOKEN": "zq8-another-made-up-value-27182",
        }
        stage.context = msgspec.structs.replace(
            stage.context, environment=command_environment(keep=["KEPT_TOKEN"], environ=environ)
        )
        text = stage.run("terminal", command="env").text
        assert "PLAIN=visible" in text
        assert "zq7" not in text
        assert "KEPT_TOKEN=zq8-another-made-up-value-27182" in text


class TestArguments:
    @pytest.mark.parametrize(
        "args",
        [
            None,
            [],
            "ls",
            '"ls"',
            "{",
            "{}",
            {"command": 5},
            {"command": None},
            {"command": ""},
            {"command": "a\0b"},
            {"comand": "ls"},
            {"command": "ls", "timeout_seconds": 0},
            {"command": "ls", "timeout_seconds": "soon"},
            {"command": "ls", "timeout_seconds": 10**400},
            '{"command": "\\ud800"}',
        ],
    )
    def test_wrong_ones_are_told_and_nothing_is_run(self, stage, args):
        outcome = asyncio.run(stage.tools.run("terminal", args, stage.context))
        assert outcome.is_error
        assert outcome.text
        assert outcome.summary
        assert stage.person.asked == []

    def test_an_error_names_the_arguments(self, stage):
        assert "there is no argument 'comand'" in stage.run("terminal", {"comand": "ls"}).text
        assert "terminal takes command, timeout_seconds?" in stage.run("terminal", {}).text

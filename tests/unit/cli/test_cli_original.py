"""`penstock explain --handle`: any original, readable or as its bytes."""

from __future__ import annotations

import json

import pytest
from tests.e2e.cli_process import assert_one_clear_error, assistant, call, encoded, result, user, work

PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgCAYAAAA10dzkAAAAAElFTkSuQmCC"


def shown(penstock, messages, handle):
    ran = penstock("explain", "-", "--handle", handle, stdin=encoded(messages))
    assert ran.code == 0, ran.err
    return ran.text


def test_a_call_has_a_line_for_each_argument(penstock):
    arguments = json.dumps({"path": "a.py", "content": "one\ntwo\tthree", "flags": [1, True]})
    text = shown(penstock, [user("go"), call("c1", "write_file", arguments), result("c1", "ok")], "m2")
    assert text == (
        "m2 · assistant · write_file\ncall write_file (c1)\npath: a.py\ncontent: one\ntwo\tthree\nflags: [1,true]\n"
    )


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", "{}"])
def test_other_arguments_stand_as_they_are(penstock, arguments):
    assert arguments in shown(penstock, [user("go"), call("c1", "t", arguments)], "m2")


def test_a_result_is_named_after_its_call(penstock):
    text = shown(penstock, [user("go"), call("c1", "terminal"), result("c1", "line 1\r\nline 2")], "m3")
    assert text == "m3 · tool · terminal\nresult of c1\nline 1\nline 2\n"


def test_pictures_are_told_and_not_shown(penstock):
    picture = {"type": "image_url", "image_url": {"url": PICTURE}}
    text = shown(penstock, [user([{"type": "text", "text": "Look:"}, picture])], "m1")
    assert "Look:\nimage image/png, 640 × 480, 45 bytes\n" in text
    assert "iVBOR" not in text


def test_nothing_in_a_message_moves_the_cursor(penstock):
    text = shown(penstock, [user("a\x1b[2Jb\rc\0d\ud800"), call("x\x1b]0;t\x07", "t\n\x1b[1m")], "m1")
    assert text == "m1 · user\na\\x1b[2Jb\\rc\\x00d\\ud800\n"
    assert "\x1b" not in shown(penstock, [user("a"), call("x\x1b]0;t\x07", "t\n\x1b[1m")], "m2")


@pytest.mark.parametrize("content", [None, "", []])
def test_an_empty_message(penstock, content):
    assert shown(penstock, [user("a"), assistant(content), user("b")], "m2") == "m2 · assistant\n(empty)\n"


@pytest.mark.parametrize("shape", ["array", "lines", "body"])
def test_with_json_the_exact_bytes(penstock, shape):
    raw = b'{ "content":"caf\\u00e9  \\u0000",\t"role": "user" ,"x":1.50}'
    other = b'{"role":"assistant","content":"b"}'
    data = {
        "array": b"[\n" + other + b",\n" + raw + b"]",
        "lines": other + b"\n" + raw + b"\n",
        "body": b'{"model":"m","messages":[' + other + b" , " + raw + b"]}",
    }[shape]
    assert penstock("explain", "-", "--handle", "m2", "--json", stdin=data).out == raw + b"\n"


@pytest.mark.parametrize("handle", ["m12", "M12", " m12", "(m12)", "[m12]"])
def test_a_handle_as_it_stands_in_a_text(penstock, handle):
    assert shown(penstock, work(), handle).startswith("m12 · assistant")


@pytest.mark.parametrize(
    "handle", ["m0", "m64", "12", "handoff", "", "m", "m-1", "m1.5", "m" + "9" * 400, "x\x1b[2J"]
)
def test_an_unknown_handle_is_one_clear_error(penstock, handle):
    for more in ((), ("--json",)):
        ran = penstock("explain", "-", f"--handle={handle}", *more, stdin=encoded(work()))
        assert_one_clear_error(ran, "m1 to m63")
        assert len(ran.err) < 200


def test_an_empty_conversation_has_no_originals(penstock):
    assert_one_clear_error(penstock("explain", "-", "--handle", "m1", stdin=b"[]"), "no messages")


def test_a_message_that_was_put_in_has_no_original(penstock):
    messages = [*work(2)[:3], call("lost"), *work(2)[3:]]
    ran = penstock("explain", "-", "--handle", "m5", stdin=encoded(messages))
    assert_one_clear_error(ran, "m5 was added to repair", "m1 to m4, m6 to m9")
    assert shown(penstock, messages, "m9") == "m9 · user\nGood. Now rename it.\n"


class TestCompressedFiles:
    @pytest.fixture
    def rounds(self, penstock):
        """A file, the same compressed, and that again with more turns."""
        first = work()
        once = json.loads(penstock("compress", "-", "--target-tokens", "600", stdin=encoded(first)).out)
        more = [assistant("Renamed."), user("Now the tests."), assistant("Which ones?"), user("All of them.")]
        grown = once + more
        twice = json.loads(penstock("compress", "-", "--target-tokens", "400", stdin=encoded(grown)).out)
        return first, grown, twice

    def test_handles_mean_the_same_message_in_each(self, penstock, rounds):
        first, grown, twice = rounds
        assert shown(penstock, first, "m62") == shown(penstock, grown, "m62")
        assert shown(penstock, grown, "m67") == shown(penstock, twice, "m67") == "m67 · user\nAll of them.\n"

    def test_what_is_only_in_the_older_file_is_said_so(self, penstock, rounds):
        ran = penstock("explain", "-", "--handle", "m12", stdin=encoded(rounds[1]))
        assert_one_clear_error(ran, "m12", "compressed from", "to m67")

    def test_what_was_never_there_is_told_apart(self, penstock, rounds):
        ran = penstock("explain", "-", "--handle", "m68", stdin=encoded(rounds[1]))
        assert_one_clear_error(ran, "no original 'm68'")

    @pytest.mark.outside  # takes long
    def test_a_handoff_in_front_of_a_message_is_no_part_of_its_original(self, penstock):
        turns = [
            m
            for n in range(60)
            for m in (
                user(f"Look at file_{n}.py."),
                assistant(f"Line {n} is fine." + " I read it twice." * 150),
            )
        ]
        body = {"system": "Be exact.", "messages": [*turns, user("Sum up.")]}
        merged = 0
        for target in range(120, 600, 40):
            ran = penstock(
                "compress", "-", "--dialect", "anthropic", "--target-tokens", str(target), stdin=encoded(body)
            )
            after = json.loads(ran.out)["messages"]
            told = json.loads(
                penstock("explain", "-", "--dialect", "anthropic", "--json", stdin=ran.out).text
            )
            for message, wire in zip(told["messages"], after, strict=True):
                if not message["handle"]:
                    continue
                args = ("explain", "-", "--dialect", "anthropic", "--handle", message["handle"], "--json")
                original = json.loads(penstock(*args, stdin=ran.out).out)
                merged += original != wire
                assert "penstock-handoff" not in json.dumps(original)
        assert merged

"""Input that is broken, odd or huge: a faithful result or one clear error, never a traceback or half a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.e2e.cli_process import (
    Ran,
    assert_one_clear_error,
    assistant,
    call,
    encoded,
    penstock,
    result,
    user,
    work,
)

BIG_BYTES = 20_000_000  # more would only take longer: `penstock tokens` and `compress` read it in one piece


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


ERRORS: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "broken JSON": (b'[{"role": "user", "content": "a"},\n {"role":', ("byte 44", "line 2", "cut off")),
    "an unknown role": (encoded([user("a"), {"role": "wizard", "content": "b"}]), ("'wizard'", "message 2", "user")),
    "a raw NUL byte in a string": (b'[{"role": "user", "content": "a\0b"}]', ("NUL", "byte 31")),
    "a file of NUL bytes": (b"\0" * 64, ("not JSON", "byte 0")),
    "nesting 10,000 deep": (b'[{"role": "user", "content": ' + deep(10_000) + b"}]", ("500 levels", "byte 527")),
    "nesting beside the messages": (b'{"x": ' + deep(10_000) + b', "messages": []}', ("500 levels", "flatten")),
    "an empty file": (b"", ("empty", "one message per line")),
    "blanks only": (b" \n\n\t", ("empty",)),
    "another format": (b"id,role,text\n1,user,hi\n", ("not JSON", "begins with [ or {")),
    "JSON of something else": (b'{"name": "penstock", "private": true}', ("'name'", "messages")),
    "a list of numbers": (b"[1, 2, 3]", ("a number", "message 1")),
    "binary rubbish": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40, ("not UTF-8", "byte 0")),
    "UTF-16": ('[{"role": "user"}]'.encode("utf-16"), ("UTF-16", "save the file as UTF-8")),
    "a control character in a string": (b'[{"role": "user", "content": "a\x01b"}]', ("in a string must be escaped", "byte 31")),
    "NaN behind its name in a string": (b'["NaN", NaN]', ("NaN is not JSON", "byte 8, line 1")),
    "NaN": (b'[{"role": "user", "content": NaN}]', ("NaN is not JSON", "byte 29, line 1")),
    "two dialects in one": (encoded([*work(1), {"from": "human", "value": "x"}]), ("no role", "message 6")),
    "many conversations in one file": (b'{"messages": []}\n' * 2, ("whole conversation", "line 1")),
    "a cut-off line": (b'{"role": "user", "content": "a"}\n{"role": "assi', ("line 2", "no end")),
    "tools that are no list": (encoded({"messages": work(1), "tools": "all"}), ("'tools'", "list")),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_what_cannot_be_read_is_one_clear_error(name, tmp_path):
    data, words = ERRORS[name]
    file, out = tmp_path / "bad.json", tmp_path / "out.json"
    file.write_bytes(data)
    ran = penstock("compress", file, "--target-tokens", "500", "-o", out)
    assert_one_clear_error(ran, str(file), *words)
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_of_another_dialect_than_the_one_named(tmp_path):
    file = tmp_path / "chat.json"
    file.write_bytes(encoded(work(1)))
    ran = penstock("compress", file, "--dialect", "sharegpt")
    assert_one_clear_error(ran, str(file), "message 1", "from")


@pytest.mark.parametrize("command", ["compress", "explain", "tokens"])
def test_files_that_are_none(command, tmp_path):
    assert_one_clear_error(penstock(command, tmp_path), str(tmp_path), "folder")
    assert_one_clear_error(penstock(command, ""), "the path is empty")
    assert_one_clear_error(penstock(command, tmp_path / "no\x1b[2J.json"), "no\\x1b[2J.json", "no such file")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that not even root can read")
def test_an_unreadable_file():
    assert_one_clear_error(penstock("tokens", "/proc/self/mem"), "/proc/self/mem", "cannot be read")


def compressed(messages: object, target: int = 500) -> tuple[Ran, list[dict]]:
    ran = penstock("compress", "-", "--target-tokens", str(target), "--json", stdin=encoded(messages))
    assert ran.code == 0, ran.err
    assert json.loads(ran.err)["tokens_after"] <= target
    return ran, json.loads(ran.out)


def test_a_result_without_a_call_is_left_out_and_said():
    messages = [*work(10)[:5], result("nobody", "an orphan"), *work(10)[5:]]
    ran, after = compressed(messages, 400)
    assert json.loads(ran.err)["repaired"] == 1
    assert "nobody" not in [message.get("tool_call_id") for message in after]
    assert after[-1] == messages[-1]


def test_a_repair_alone_is_said_too():
    messages = [*work(2)[:3], result("nobody", "an orphan"), *work(2)[3:]]
    ran = penstock("compress", "-", stdin=encoded(messages))
    assert json.loads(ran.out) == work(2)
    assert ran.err.startswith("nothing to compress")
    assert ran.err.count("1 fault in the input") == 1


def test_two_calls_with_one_id_keep_their_own_results():
    twice = [call("same"), result("same", "first"), call("same"), result("same", "second")]
    ran = penstock("compress", "-", stdin=encoded([user("go"), *twice, user("and?")]))
    assert ran.code == 0
    texts = [message["content"] for message in json.loads(ran.out) if message["role"] == "tool"]
    assert texts == ["first", "second"]


def test_null_and_empty_content():
    odd = [assistant(None), user(None), assistant(""), user(""), {"role": "assistant"}, user([])]
    for target in ("100k", "400"):
        ran = penstock("compress", "-", "--target-tokens", target, stdin=encoded([*odd, *work(10)]))
        assert ran.code == 0, ran.err
        assert json.loads(ran.out)[-1] == work(10)[-1]


def test_an_escaped_nul_and_lone_surrogates_are_kept():
    last = user("a\0b and \ud800 alone")
    _, after = compressed([*work(10), assistant("\udfff" * 3), last])
    assert after[-1] == last
    for command in ("explain", "tokens"):
        assert penstock(command, "-", stdin=encoded([assistant("\udfff"), last])).code == 0


def test_deep_nesting_inside_text_is_only_text():
    nested = deep(10_000).decode()
    messages = [*work(10), call("deep", arguments=f'{{"a": {nested}}}'), result("deep", nested), user("and?")]
    _, after = compressed(messages)
    assert after[-1] == messages[-1]


def test_a_giant_message(tmp_path):
    lines = "".join(f"row {n}: checksum {n * 7919:08x} of part_{n}.bin is fine\n" for n in range(2_000))
    giant = lines * (BIG_BYTES // len(lines))
    file, out = tmp_path / "giant.json", tmp_path / "out.json"
    file.write_bytes(encoded([user("start"), call("c"), result("c", giant), user("and now?")]))
    ran = penstock("compress", file, "--target-tokens", "2000", "-o", out)
    assert ran.code == 0, ran.err
    after = json.loads(out.read_bytes())
    assert after[-1] == user("and now?")
    assert out.stat().st_size < 20_000

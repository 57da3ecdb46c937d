from __future__ import annotations

import json

import pytest

from penstock.conversation.document import DocumentShape, read_document
from penstock.conversation.message import Text
from penstock.errors import InputError, MalformedJSON, UnknownDialect

ONE = b'{"role":"user","content":"x"}'
TWO = b'{ "role": "assistant",\t"content": "\\u00e9 y" }'


def test_an_array_keeps_the_bytes_of_each_message():
    document = read_document(b" [" + ONE + b" ,\n" + TWO + b"]\n")
    assert document.raws == [ONE, TWO]
    assert [message.origin for message in document.messages] == [ONE, TWO]
    assert document.wires[1] == {"role": "assistant", "content": "é y"}
    assert document.with_messages(document.raws) == b"[" + ONE + b"," + TWO + b"]"
    assert document.with_messages([TWO, {"role": "user", "content": "é"}]) == (
        b"[" + TWO + b',{"role":"user","content":"\xc3\xa9"}]'
    )


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": []}, "chat"),
        ({"messages": [{"role": "user", "content": "x"}], "system": "s", "max_tokens": 5}, "anthropic"),
        (
            {"messages": [{"role": "user", "content": "x"}], "tools": [{"name": "t", "input_schema": {}}]},
            "anthropic",
        ),
        ({"instructions": "i", "input": [{"role": "user", "content": "x"}]}, "responses"),
        ({"id": 1, "conversations": [{"from": "human", "value": "x"}], "n": 1.5}, "sharegpt"),
    ],
)
def test_an_envelope_is_kept_around_the_messages(body, name):
    data = json.dumps(body, separators=(",", ":")).encode()
    document = read_document(data)
    key = next(key for key in ("messages", "input", "conversations") if key in body)
    assert document.dialect.name == name
    assert document.shape is DocumentShape.OBJECT
    assert document.envelope == {name: value for name, value in body.items() if name != key}
    assert document.with_messages(document.raws) == data
    changed = json.loads(document.with_messages([]))
    assert list(changed) == list(body)
    assert changed == {**body, key: []}


def test_the_messages_decide_over_what_stands_beside_them():
    called = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f"}}]}
    assert read_document(json.dumps({"system": "s", "messages": [called]}).encode()).dialect.name == "chat"


def test_an_input_that_is_one_string():
    data = b'{"model":"m","input":"h\\u00e9llo","store":false}'
    document = read_document(data)
    assert (document.dialect.name, document.shape) == ("responses", DocumentShape.STRING)
    assert document.messages[0].parts == (Text("héllo"),)
    assert document.with_messages(document.raws) == data
    assert json.loads(document.with_messages([*document.raws, ONE]))["input"] == [
        {"role": "user", "content": "héllo"},
        {"role": "user", "content": "x"},
    ]


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_one_message_per_line(end):
    data = ONE + b"\n" + TWO + end
    document = read_document(data)
    assert document.shape is DocumentShape.LINES
    assert document.raws == [ONE, TWO]
    assert document.with_messages(document.raws) == data


def test_blank_lines_and_windows_line_ends():
    assert read_document(ONE + b"\r\n\r\n" + TWO + b"\r\n").raws == [ONE, TWO]


def test_a_line_stays_one_line_when_its_message_had_several():
    pretty = json.dumps({"role": "user", "content": "a"}, indent=1).encode()
    document = read_document(pretty)
    assert document.shape is DocumentShape.LINES
    assert document.with_messages([*document.raws, ONE]).count(b"\n") == 1


def test_a_lone_item_with_an_input_is_no_envelope():
    item = b'{"type":"custom_tool_call","call_id":"c","name":"n","input":"zz"}'
    assert read_document(item).shape is DocumentShape.LINES


def test_a_byte_order_mark_is_no_content():
    document = read_document(b"\xef\xbb\xbf[" + ONE + b"]")
    assert document.with_messages(document.raws) == b"[" + ONE + b"]"


@pytest.mark.parametrize("around", [b"[%s,%s]", b'{"messages":[%s,%s],"x":"\\udfff"}', b"%s\n%s\n"])
def test_lone_surrogates_are_valid_and_kept(around):
    lone = b'{"role":"user","content":"a\\ud800b"}'
    data = around % (lone, ONE)
    document = read_document(data)
    assert document.raws == [lone, ONE]
    assert document.messages[0].parts == (Text("a\ud800b"),)
    assert document.with_messages(document.raws) == data
    rewritten = document.with_messages([{"role": "user", "content": "c\ud800"}])
    assert read_document(rewritten).messages[0].parts == (Text("c\ud800"),)


def test_nul_inside_a_string_is_text():
    assert read_document(b'[{"role":"user","content":"a\\u0000b"}]').messages[0].parts == (Text("a\0b"),)


DEEP = b"[" * 10_000 + b"]" * 10_000
BAD = [
    (b"", InputError, ["empty", "JSON array of messages"]),
    (b"\xef\xbb\xbf \n", InputError, ["empty"]),
    (b"hello", MalformedJSON, ["is not JSON", "begins with [ or {", "byte 0, line 1"]),
    (
        b" null\n",
        MalformedJSON,
        ["is JSON, but not a conversation: one begins with [ or {", "byte 1, line 1"],
    ),
    (b"\n\n  hello", MalformedJSON, ["byte 4, line 3"]),
    (b"[" + ONE, MalformedJSON, ["the input ends here", f"byte {len(ONE) + 1}, line 1"]),
    (
        b'[\n{"role":"us',
        MalformedJSON,
        ["a string that begins here has no end (is it cut off?) (byte 10, line 2)"],
    ),
    (b"[" + ONE + b"] junk", MalformedJSON, ["expected nothing more, not 'j'"]),
    (b'{"messages":[' + ONE + b"]", MalformedJSON, ["the input ends here"]),
    (b'[{"role":"user",\0"content":"x"}]', MalformedJSON, ["NUL byte", "byte 16, line 1"]),
    (b'[{"role":"user","content":"a\0b"}]', MalformedJSON, ["must be escaped", "NUL byte", "byte 28"]),
    (b'[{"role":"user","content":NaN}]', MalformedJSON, ["NaN is not JSON"]),
    (b'[{"role":"user","content":"\xff"}]', InputError, ["not UTF-8", "0xff", "byte 27, line 1"]),
    (b'\xef\xbb\xbf[\n{"role":"user","content":"\xff"}]', InputError, ["byte 31, line 2"]),
    ('[{"role":"user"}]'.encode("utf-16"), InputError, ["UTF-16", "save the file as UTF-8"]),
    (b'[{"role":"user","content":' + DEEP + b"}]", InputError, ["more than 500 levels", "byte 524, line 1"]),
    (b'{"messages":[],"x":' + DEEP + b"}", InputError, ["more than 500 levels"]),
    (DEEP, InputError, ["more than 500 levels"]),
    (b'[{"role":"user","n":' + b"1" * 5_000 + b"}]", InputError, ["4,300 digits", "message 1"]),
    (b'[{"role":"user","content":"x"},{"role":"wizard"}]', InputError, ["'wizard'", "message 2"]),
    (b"[" + ONE + b",5]", UnknownDialect, ["a number", "message 2"]),
    (b'{"a":1}', UnknownDialect, ["the keys 'a'", "messages, input, conversations"]),
    (b'{"messages":5}', UnknownDialect, ["the keys 'messages'"]),
    (ONE + b"\n" + ONE[:-1], MalformedJSON, ["the input ends here", "byte 58, line 2"]),
    (ONE + b"\n7\n", MalformedJSON, ["one JSON object", "byte 30, line 2"]),
    (b'{"messages":[]}\n{"messages":[]}', InputError, ["each line holds a whole conversation (2", "line 1"]),
    (
        b'[{"id":"a","conversations":[]},{"id":"b","conversations":[]}]',
        InputError,
        ["each element of the array holds a whole conversation (2", "one at a time", "element 1"],
    ),
    (b'[{"model":"m","input":"hello"}]', InputError, ["a whole conversation (1 of them)"]),
]


@pytest.mark.parametrize(("data", "kind", "telling"), BAD, ids=range(len(BAD)))
def test_bad_input_gives_one_error_with_place_and_next_step(data, kind, telling):
    with pytest.raises(InputError) as caught:
        read_document(data)
    assert type(caught.value) is kind
    assert [piece for piece in telling if piece not in str(caught.value)] == []


def test_a_named_dialect_is_not_guessed():
    assert read_document(b"[" + ONE + b"]", "anthropic").dialect.name == "anthropic"
    with pytest.raises(InputError, match="no from"):
        read_document(b"[" + ONE + b"]", "sharegpt")
    with pytest.raises(UnknownDialect):
        read_document(b"[]", "gemini")

"""Slices of JSON are the bytes that came, whichever reader finds them."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.conversation.slicing import JsonSource, parse_value, slice_array, slice_object
from penstock.errors import InputError, MalformedJSON

PYTHONS = JsonSource("the line", constants=True, counts_lines=False)
blanks = st.text(" \t\r\n", max_size=3)
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(10**30, 10**60),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8")),
    st.sampled_from(["]", '"', "\\", "}\n", "\u2028é😀"]),
)
strange = st.one_of(
    plain, st.sampled_from([float("nan"), float("inf"), -float("inf")]), st.just("\ud83d"), st.text()
)


@cache
def values(leaves):
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    )


@st.composite
def written(draw, leaves):
    """A value as somebody's program may write it."""
    value = draw(values(leaves))
    text = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, None, 1])))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value).encode()


@st.composite
def arrays(draw, leaves):
    """The slices, and an array of them with blanks around each."""
    slices = draw(st.lists(written(leaves), max_size=5))
    around = [(draw(blanks).encode(), draw(blanks).encode()) for _ in slices]
    body = b",".join(left + one + right for (left, right), one in zip(around, slices, strict=True))
    return slices, draw(blanks).encode() + b"[" + body + b"]" + draw(blanks).encode()


@st.composite
def objects(draw, leaves):
    """The last slice of each key, and an object with blanks around them; keys may be there twice."""
    fields = draw(st.lists(st.tuples(st.text(max_size=2), written(leaves)), max_size=5))
    body = b",".join(
        json.dumps(key).encode()
        + draw(blanks).encode()
        + b":"
        + draw(blanks).encode()
        + one
        + draw(blanks).encode()
        for key, one in fields
    )
    return dict(fields), draw(blanks).encode() + b"{" + body + b"}" + draw(blanks).encode()


@settings(deadline=None)
@given(arrays(strange), objects(strange))
def test_slices_are_the_bytes_that_came(array, fields):
    assert slice_array(array[1], PYTHONS) == array[0]
    assert slice_object(fields[1], PYTHONS) == fields[0]


@settings(deadline=None)
@given(arrays(plain), objects(plain))
def test_both_readers_find_the_same(array, fields):
    """A lone surrogate at the end sends the whole list to the slower reader."""
    slower = array[1].rstrip()[:-1] + (b"," if array[0] else b"") + b'"\\ud83d"]'
    assert slice_array(slower)[:-1] == slice_array(array[1]) == array[0]
    slower = fields[1].rstrip()[:-1] + (b"," if fields[0] else b"") + b'"last":"\\ud83d"}'
    assert {**fields[0], "last": b'"\\ud83d"'} == slice_object(slower)


@settings(deadline=None)
@given(arrays(strange), st.data())
def test_a_damaged_text_is_sliced_or_told_never_misread(array, data):
    text = bytearray(array[1])
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(
            st.sampled_from(b'\x00\xff"\\[]{},: 1aN\n')
        )
    for source in (PYTHONS, JsonSource()):
        try:
            slices = slice_array(bytes(text), source)
        except InputError:
            continue
        assert b"".join(bytes(text).split()) == b"".join((b"[" + b",".join(slices) + b"]").split())


@pytest.mark.parametrize("text", [b"[NaN]", b'["\\ud83d", Infinity]', b"[[-Infinity]]"])
def test_constants_are_json_only_where_python_wrote_it(text):
    with pytest.raises(MalformedJSON, match=r"(NaN|Infinity) is not JSON \(byte \d+, line 1\)"):
        slice_array(text)
    assert len(slice_array(text, PYTHONS)) in (1, 2)


@pytest.mark.parametrize(
    ("read", "text", "says"),
    [
        (slice_object, b"{1: NaN}", r"expected a key in double quotes, not '1' \(byte 2\)"),
        (slice_object, b'{"a": NaN,}', "expected a key in double quotes"),
        (slice_array, b"[NaN,]", "expected a value"),
        (slice_array, b"[NaN] 1", "expected nothing more"),
        (slice_array, b"[NaN, 1", r"but the line ends here \(is it cut off\?\)"),
        (slice_object, b"[1]", "the line is JSON, but not an object"),
        (slice_array, b"3", "the line is JSON, but not an array"),
        (slice_array, b"\xef\xbb\xbf[1]", "the line is not JSON"),
        (slice_array, b'["\xff", NaN]', r"the line is not UTF-8: byte 0xff .*\(byte 3\)"),
        (slice_array, b"[NaN, " + b"1" * 5_000 + b"]", "more than 4,300 digits"),
        (slice_array, b"[NaN, " + b"[" * 100_000, "nested more than 500 levels deep"),
        (parse_value, b"[" * 100_000, "nested more than 500 levels deep"),
        (parse_value, b"{NaN", "the line is not JSON"),
        (parse_value, '"\ud83d', "a string that begins here has no end"),
    ],
)
def test_what_is_wrong_is_told(read, text, says):
    with pytest.raises(InputError, match=says):
        read(text, PYTHONS)


@given(written(strange))
def test_a_value_is_the_one_that_was_written(text):
    assert repr(parse_value(text, PYTHONS)) == repr(json.loads(text))

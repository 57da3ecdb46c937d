from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.screen import (
    Screen,
    align,
    clip,
    drop_columns,
    printable,
    screen_of,
    width_of,
    wrap_painted,
)
from penstock.config import wraps_on_resize

PLAIN = Screen(io.StringIO())
ASCII = PLAIN._replace(unicode=False)


class TestBars:
    @pytest.mark.parametrize(
        ("share", "bar"),
        [(0, ""), (0.0001, "▏"), (0.5, "█████"), (0.55, "█████▌"), (1, "█" * 10), (7, "█" * 10), (-1, "")],
    )
    def test_in_eighths(self, share, bar):
        assert PLAIN.bar(share, 10) == bar

    @pytest.mark.parametrize(("share", "bar"), [(0, ""), (0.0001, "#"), (0.5, "#####"), (2, "#" * 10)])
    def test_in_ascii(self, share, bar):
        assert ASCII.bar(share, 10) == bar

    @given(st.floats(-2, 3), st.integers(1, 80))
    def test_a_bar_never_leaves_its_columns(self, share, columns):
        assert len(PLAIN.bar(share, columns)) <= columns
        assert len(ASCII.bar(share, columns)) <= columns


class TestLines:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("plain é 日本", "plain é 日本"),
            ("a\x1b[31mb\nc\0", "a\\x1b[31mb\\nc\\x00"),
            ("lone \ud800", "lone \\ud800"),
            ("right to \u202eleft", "right to \\u202eleft"),
            ("می\u200cخواهم \U0001f469\u200d\U0001f4bb", "می\u200cخواهم \U0001f469\u200d\U0001f4bb"),
        ],
    )
    def test_nothing_moves_the_cursor(self, text, shown):
        assert printable(text) == shown

    @given(st.text())
    def test_any_text_becomes_one_line_that_can_be_written(self, text):
        assert printable(text).replace("\u200c", "").replace("\u200d", "").isprintable()
        printable(text).encode()

    @pytest.mark.parametrize(
        ("text", "width"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("a\u200cb", 2), ("→", 1), ("", 0)]
    )
    def test_widths(self, text, width):
        assert width_of(text) == width

    @given(st.text(st.sampled_from("ab日é"), max_size=30), st.integers(3, 20))
    def test_clipping_fits_and_leaves_what_fits_alone(self, text, columns):
        for unicode in (True, False):
            short = clip(text, columns, unicode)
            assert width_of(short) <= columns
            assert (short == text) == (width_of(text) <= columns)

    def test_columns_line_up(self):
        rows = align([["a", "1", "x"], ["日本", "1,000", "longer"]], right={1})
        assert rows == [["a   ", "    1", "x"], ["日本", "1,000", "longer"]]

    @pytest.mark.parametrize(
        ("columns", "kept"), [(0, "abc"), (20, "abc"), (13, "abc"), (12, "ac"), (8, "ac"), (7, "c"), (1, "c")]
    )
    def test_columns_that_do_not_fit_give_way_in_their_order(self, columns, kept):
        rows = drop_columns([["a", "b", "c"], ["日", "123", "last"]], columns, (1, 0))
        assert "".join(rows[0]) == kept
        assert len(rows[1]) == len(kept)


class TestStreams:
    def test_a_file_gets_neither_colour_nor_bars_nor_cut_lines(self):
        screen = screen_of(io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
        assert (screen.colour, screen.bars, screen.unicode, screen.columns) == (False, False, True, 0)
        assert screen.paint("x", "bold") == "x"
        assert screen.clip("x" * 500, 70) == "x" * 500

    @pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
    def test_what_the_encoding_lacks_is_spelled(self, encoding):
        written = io.BytesIO()
        screen = screen_of(io.TextIOWrapper(written, encoding=encoding))
        screen.say("95 → 7 … 日 ok")
        screen.stream.flush()
        assert written.getvalue() == b"95 -> 7 ... \\u65e5 ok\n"
        assert screen.arrow == "->"

    def test_a_closed_stream_takes_everything(self):
        screen_of(None).say("into the void")


@pytest.mark.parametrize(
    ("environ", "wraps"),
    [
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "xterm-256color", "VTE_VERSION": "7200"}, True),
        ({"TERM": "screen-256color", "TMUX": "/tmp/tmux,1,0"}, True),
        ({"TERM": "alacritty"}, True),
        ({"TERM": "screen", "STY": "1.pts", "VTE_VERSION": "7200"}, False),
    ],
)
def test_terminals_that_wrap_lines_again_are_known(environ, wraps):
    assert wraps_on_resize(environ) is wraps


def test_a_line_in_a_colour_is_wrapped_between_words_and_stays_in_it():
    dim = "\x1b[2m  one two three\x1b[0m"
    assert wrap_painted(dim, 9) == ["\x1b[2m  one two\x1b[0m", "\x1b[2m  three\x1b[0m"]
    assert wrap_painted("one two", 5) == ["one", "two"]
    assert wrap_painted("one two", 0) == ["one two"]
    mixed = "\x1b[2mone\x1b[0m and two"
    assert wrap_painted(mixed, 5) == [mixed]

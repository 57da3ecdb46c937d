from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.providers.sse import DONE, EventParser, OversizedEvent, ServerEvent

ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
LINES = st.one_of(
    st.sampled_from([b"", b"data", b"data:", b"data: ", b": ping", b"event: delta", b"id: 7", b"retry: 10"]),
    st.text(alphabet="añ漢🙂: {}\ufeff", max_size=12).map(lambda text: b"data: " + text.encode()),
    st.binary(max_size=8),
)
STREAMS = st.builds(
    lambda mark, lines, last: mark + b"".join(line + end for line, end in lines) + last,
    st.sampled_from([b"", b"\xef\xbb\xbf", b"\xef", b"\xef\xbb"]),
    st.lists(st.tuples(LINES, ENDS), max_size=12),
    LINES,
)


def parse_events(chunks):
    """Returns all events of a stream that is there in full."""
    parser = EventParser()
    return [event for chunk in chunks for event in parser.feed(chunk)] + parser.close()


def split_at(data, places):
    borders = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(borders)]


@given(STREAMS, st.lists(st.integers(0, 400), max_size=8))
def test_any_split_gives_the_same_events(stream, places):
    assert parse_events(split_at(stream, places)) == parse_events([stream])


@given(STREAMS)
def test_byte_by_byte_gives_the_same_events(stream):
    assert parse_events([bytes([byte]) for byte in stream]) == parse_events([stream])


TEXT_LINES = st.lists(st.text(alphabet="aé漢🙂 :{}", max_size=10), min_size=1, max_size=4)
NAMES = st.sampled_from(["", "delta", "message_start"])


@given(st.lists(st.tuples(NAMES, TEXT_LINES), max_size=6), ENDS)
def test_what_was_written_is_read(events, end):
    stream = b""
    for name, lines in events:
        stream += b"event: " + name.encode() + end if name else b""
        stream += b"".join(b"data: " + line.encode() + end for line in lines) + end
    assert parse_events([stream]) == [
        ServerEvent(name or "message", "\n".join(lines)) for name, lines in events
    ]


def test_the_three_line_ends_comments_names_and_other_fields():
    stream = b": hello\nevent: delta\r\nid: 3\r\ndata: one\r\ndata:two\r\n\r\ndata\r\rretry: 5\n\n"
    assert parse_events([stream]) == [ServerEvent("delta", "one\ntwo"), ServerEvent("message", "")]


def test_a_name_does_not_outlive_an_event_without_data():
    assert parse_events([b"event: ping\n\ndata: x\n\n"]) == [ServerEvent("message", "x")]


def test_a_byte_order_mark_is_taken_from_the_start_only():
    assert parse_events([b"\xef\xbb", b"\xbfdata: a\n\n"]) == [ServerEvent("message", "a")]
    assert parse_events([b"data: \xef\xbb\xbfa\n\n"]) == [ServerEvent("message", "\ufeffa")]


def test_a_character_split_between_chunks_is_whole():
    assert parse_events([b"data: \xf0\x9f", b"\x99\x82\n\n"]) == [ServerEvent("message", "🙂")]


def test_bytes_that_are_no_text_do_not_raise():
    assert parse_events([b"data: \xff\xfe\n\n"]) == [ServerEvent("message", "\ufffd\ufffd")]


def test_events_come_as_soon_as_their_blank_line():
    parser = EventParser()
    assert parser.feed(b"data: a\n") == []
    assert parser.feed(b"\ndata: b") == [ServerEvent("message", "a")]
    assert parser.feed(b"") == []
    assert parser.feed(b"\r\n\r") == [ServerEvent("message", "b")]
    assert parser.feed(b"\ndata: [DONE]") == []
    assert parser.close() == [ServerEvent("message", DONE)]
    assert parser.close() == []


def test_an_empty_chunk_between_carriage_return_and_line_feed_changes_nothing():
    parser = EventParser()
    found = [event for chunk in (b"data: a\r", b"", b"\ndata: b\r\n\r\n") for event in parser.feed(chunk)]
    assert found == [ServerEvent("message", "a\nb")]


@pytest.mark.parametrize("stream", [[b"data: " + b"x" * 2_000], [b"x" * 600] * 3, [b"data: yy\n"] * 200])
def test_an_event_without_end_is_refused(stream):
    parser = EventParser(most_bytes=1_000)
    with pytest.raises(OversizedEvent, match="1,000 bytes"):
        [parser.feed(chunk) for chunk in stream]


def test_many_small_events_are_not_counted_together():
    parser = EventParser(most_bytes=100)
    assert sum(len(parser.feed(b"data: 0123456789\n\n")) for _ in range(50)) == 50

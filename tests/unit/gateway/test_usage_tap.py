"""Usage is read out of any answer, however it is cut into pieces."""

import gzip
import itertools
import json
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.usage_tap import UsageTap
from penstock.measure.usage import Usage

CHAT = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}
ANTHROPIC = {"input_tokens": 40, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 0}
RESPONSES = {"input_tokens": 100, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 60}}
EXPECTED = Usage(input_tokens=40, output_tokens=7, cache_read_tokens=60)
DECOY = 'it says "usage": {"prompt_tokens": 1} and [DONE]\n\ndata: [DONE]\n\nmessage_stop'


def events(*datas, end="\n"):
    lines = (data if isinstance(data, str) else json.dumps(data, separators=(",", ":")) for data in datas)
    return "".join(f"data: {line}{end}{end}" for line in lines).encode()


STREAMS = {
    "chat": [
        {"choices": [{"delta": {"content": DECOY}}], "usage": None},
        {"choices": [], "usage": CHAT},
        "[DONE]",
    ],
    "anthropic": [
        {"type": "message_start", "message": {"usage": ANTHROPIC | {"output_tokens": 1}}},
        {"type": "content_block_delta", "delta": {"text": DECOY}},
        {"type": "message_delta", "usage": {"output_tokens": 7, "input_tokens": None}},
        {"type": "message_stop"},
    ],
    "responses": [
        {"type": "response.created", "response": {"usage": None}},
        {"type": "response.output_text.delta", "delta": DECOY},
        {"type": "response.completed", "response": {"usage": RESPONSES, "output": [{"text": DECOY}]}},
    ],
}
WHOLE = {
    "chat": {"choices": [{"message": {"content": DECOY}}], "usage": CHAT},
    "anthropic": {
        "content": [{"input": {"usage": {"input_tokens": 1}}}],
        "usage": ANTHROPIC | {"output_tokens": 7},
    },
    "responses": {"output": [{"usage": {"input_tokens": 9}}], "usage": RESPONSES},
}


def feed(tap, data, cuts):
    """Feeds the data in pieces, and returns after how many bytes the tap said that the answer has ended."""
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    ended = None
    for start, end in itertools.pairwise(places):
        tap.feed(data[start:end])
        if tap.ended and ended is None:
            ended = end
    return ended


@pytest.mark.parametrize("dialect", STREAMS)
@given(cuts=st.lists(st.integers(0, 900), max_size=12), end=st.sampled_from(["\n", "\r\n"]))
def test_a_stream_is_read_however_it_is_cut(dialect, cuts, end):
    tap = UsageTap(dialect, streamed=True)
    data = events(*STREAMS[dialect], end=end)
    ended = feed(tap, data, cuts)
    assert tap.report == (EXPECTED, True)
    last = len(events(*STREAMS[dialect][:-1], end=end))
    assert ended is not None
    assert ended > last  # not before the event that ends it


@pytest.mark.parametrize("dialect", WHOLE)
@given(cuts=st.lists(st.integers(0, 400), max_size=6), packing=st.sampled_from(["", "gzip", "deflate"]))
def test_a_whole_answer_is_read_packed_or_not(dialect, cuts, packing):
    data = json.dumps(WHOLE[dialect]).encode()
    data = {"gzip": gzip.compress, "deflate": zlib.compress}.get(packing, bytes)(data)
    tap = UsageTap(dialect, streamed=False, encoding=packing)
    feed(tap, data, cuts)
    assert tap.report == (EXPECTED, True)


@given(
    dialect=st.sampled_from(["chat", "anthropic", "responses"]),
    streamed=st.booleans(),
    packing=st.sampled_from(["", "gzip", "br"]),
    pieces=st.lists(
        st.binary(max_size=40)
        | st.sampled_from([b'data: {"usage":', b'{"usage":{}}\n', b'data: {"usage":[]}\n\n'])
    ),
)
def test_rubbish_is_no_usage_and_no_fault(dialect, streamed, packing, pieces):
    tap = UsageTap(dialect, streamed=streamed, encoding=packing)
    for piece in pieces:
        tap.feed(piece)
    assert tap.report == (None, False)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("packing", ["gzip", "deflate"])
def test_a_packed_answer_that_holds_too_much_is_not_unpacked(packing, streamed):
    pack = zlib.compressobj(wbits={"gzip": 31, "deflate": 15}[packing])
    bomb = b"".join(pack.compress(bytes(1 << 20)) for _ in range(200)) + pack.flush()
    tap = UsageTap("chat", streamed=streamed, encoding=packing)
    tracemalloc.start()
    try:
        tap.feed(bomb)
        tap.feed(bomb)
        assert tracemalloc.get_traced_memory()[1] < 80 << 20
    finally:
        tracemalloc.stop()
    assert tap.report == (None, False)


def test_a_report_without_cached_tokens_says_so():
    tap = UsageTap("chat", streamed=False)
    tap.feed(b'{"usage":{"prompt_tokens":5,"completion_tokens":1}}')
    assert tap.report == (Usage(5, 1), False)


@pytest.mark.parametrize("name", ["response.failed", "response.incomplete"])
def test_a_stream_of_responses_that_fails_has_ended(name):
    tap = UsageTap("responses", streamed=True)
    tap.feed(events({"type": name, "response": {"usage": None, "error": {"code": "x"}}}))
    assert tap.ended
    assert tap.report == (None, False)

"""Traces out of files and out of stores."""

from __future__ import annotations

import gzip
import json

import pytest
from benchmarks.traces import generated_traces, trace_file

from penstock.errors import InputError, MalformedJSON, SettingsError
from penstock.measure.usage import Usage
from penstock.replay.bills import Case
from penstock.replay.policies import compare
from penstock.replay.traces import Trace, read_stored_trace, read_traces
from penstock.sessions.session import Session
from penstock.stores.values import UsageRow

LINE = b'{"id": "a", "source": "x", "requests": [[0, 12, 148, 0, 1], [110, 200, 124, 3.5, 0]]}\n'


def test_a_line_is_a_session():
    expected = Trace("a", 18_000, (12, 310), (148, 124), (0.0, 3.5))
    assert read_traces(LINE) == [expected]
    assert read_traces(gzip.compress(b"\n" + LINE + b'{"requests": []}\n', mtime=0)) == [expected]
    assert read_traces(LINE.replace(b'"id": "a", ', b""), 36_000)[0].id == "line 1"


@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (b"", InputError, "no requests"),
        (b'{"requests": []}', InputError, "no requests"),
        (LINE + b"{", MalformedJSON, "line 2"),
        (LINE + b'{"id": "\xff"}', MalformedJSON, "line 2"),
        (b'{"requests": [[1, 2, 3]]}', InputError, "line 1"),
        (b'{"messages": []}', InputError, "missing required field `requests`"),
        (b'{"requests": [[-1, 2, 3, 4, 0]]}', InputError, "below 0"),
        (b'{"requests": [[1, 2, 3, 1e99, 0]]}', InputError, "above 1,000,000,000"),
        (gzip.compress(LINE, mtime=0)[:-6], InputError, "gzip file is damaged"),
        (b"\x1f\x8bnothing", InputError, "gzip file is damaged"),
    ],
)
def test_what_is_no_trace_is_refused(data, kind, words):
    with pytest.raises(kind, match=words):
        read_traces(data)


def test_generated_traces_are_the_same_everywhere():
    assert trace_file(3, seed=5) == trace_file(3, seed=5) != trace_file(3, seed=6)
    traces = generated_traces(60)
    gaps = [gap for trace in traces for gap in trace.gaps]
    assert 0.01 < sum(gap > 300 for gap in gaps) / len(gaps) < 0.06
    sizes = [18_000 + sum(trace.appended) for trace in traces]
    assert min(sizes) < 60_000
    assert max(sizes) > 200_000
    assert json.loads(trace_file(1))["id"] == "generated-0"


def booked(store, session, *rows):
    for at, prompt, output, task in rows:
        usage = Usage(cache_read_tokens=prompt, output_tokens=output)
        store.book(UsageRow(session=session.id, at=at, model="m", task=task, usage=usage))


def test_a_stored_session_by_its_usage(store):
    session = Session.create(store)
    session.append([{"role": "user", "content": "Fix the tests."}, {"role": "assistant", "content": "Done."}])
    opening = store.read_from(session.id, 0, 1)[0].tokens
    booked(
        store,
        session,
        (100.0, 5_000, 70, "turn"),
        (101.0, 90_000, 9, "compression"),
        (130.0, 5_600, 80, "turn"),
        (125.0, 0, 3, "turn"),
        (900.0, 2_000, 90, "turn"),
        (901.0, 2_000, 90, "turn"),
    )
    assert read_stored_trace(store, session.id) == Trace(
        session.id, 5_000 - opening, (opening, 600, 80, 0), (70, 80, 90, 90), (0.0, 30.0, 770.0, 1.0)
    )


def test_calls_on_the_side_are_no_turns(store):
    session = Session.create(store)
    prompts = (5_000, 300, 6_000, 200, 250, 6_500, 1_000, 1_200, 1_300, 1_400, 9_000)
    booked(store, session, *((float(at), prompt, 9, "turn") for at, prompt in enumerate(prompts)))
    trace = read_stored_trace(store, session.id)
    assert trace.static_tokens == 5_000
    # The last five are what the program did after a compaction of its own: that is no call on the side.
    assert trace.appended == (0, 1_000, 500, 9, 200, 100, 100, 7_600)
    assert trace.gaps == (0.0, 2.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0)


def test_a_session_with_fewer_than_two_requests_has_no_trace(store):
    session = Session.create(store)
    assert read_stored_trace(store, session.id) is None
    booked(store, session, (1.0, 5_000, 70, "turn"))
    assert read_stored_trace(store, session.id) is None


def test_a_window_without_room_is_refused():
    from penstock.planning.economics import PriceTerms

    case = Case(terms=PriceTerms(0.1, 1.25, 5.0, 300.0), window_tokens=40_000, kept_tokens=30_000)
    with pytest.raises(SettingsError, match=r"40,000 tokens has no room.* 48,000"):
        compare(read_traces(LINE), case)
    small = read_traces(LINE, 1_000)
    assert compare([*read_traces(LINE), *small], case) == compare(small, case)

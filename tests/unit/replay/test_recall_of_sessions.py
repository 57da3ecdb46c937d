"""What compactions of a stored session keep of what is needed after them."""

from __future__ import annotations

import pytest

from penstock.measure.usage import Usage
from penstock.replay.needles import Recalled, SpokenText, find_needed, places, values_in
from penstock.replay.recall import measure_recall, read_recorded_session
from penstock.sessions.session import Session
from penstock.settings import Settings
from penstock.stores.store import open_store
from penstock.stores.values import UsageRow


def told(text):
    return SpokenText(text, by_assistant=False)


def said(text):
    return SpokenText(text, by_assistant=True)


def test_values_are_what_nobody_could_guess():
    text = "See src/shop/cart.py, order_4711 and plain words; not a.b or 12."
    assert values_in(text) == ["src/shop/cart.py", "order_4711"]


def test_a_value_stands_whole():
    assert list(places("order_47", "order_4711 order_47, xorder_47 order_47")) == [11, 31]


def test_needed_is_what_the_assistant_repeats_untold():
    spoken = [
        told("order_4711 cart.total user_88 item_99"),
        said("Looking at order_4711."),
        told("user_88 is back"),
        said("order_4711 and user_88, new_id_5"),
        said("cart.total again"),
        said("item_99"),
    ]
    assert find_needed(spoken, 2, 5) == {"order_4711", "cart.total"}
    assert find_needed(spoken, 0, 6) == set()


def test_shares_add_up():
    both = Recalled(1, 4, 3) + Recalled(1, 0, 0)
    assert (both, both.share, Recalled().share) == (Recalled(2, 4, 3), 0.75, None)


@pytest.fixture
def stored():
    """A session with times as an agent writes them: results, the request, its answer."""
    store = open_store("memory:")
    session = Session.create(store)
    secret = "checksum_0f3a9c"
    session.append([{"role": "user", "content": f"Build the release. Its name is {secret}."}])
    for turn in range(40):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "terminal", "arguments": "{}"}}
        answer = {"role": "assistant", "content": f"Step {turn}.", "tool_calls": [call]}
        result = {
            "role": "tool",
            "tool_call_id": f"c{turn}",
            "content": f"built part_{turn:03} of many\n" * 20,
        }
        session.append([answer, result])
    session.append([{"role": "assistant", "content": f"Released {secret} with part_003 and part_038."}])
    for turn, entry in enumerate(store.read_from(session.id, 0)):
        if entry.role == "assistant":
            usage = Usage(input_tokens=1_000 + 100 * turn, output_tokens=9)
            row = UsageRow(session=session.id, at=entry.created, model="m", task="turn", usage=usage)
            store.book(row)
    yield store, session.id
    store.close()


def test_requests_are_found_in_the_log(stored):
    store, session_id = stored
    session = read_recorded_session(store, session_id)
    assert len(session.positions) == 41
    assert session.positions == sorted(session.positions)
    assert not any(at and session.spoken[at - 1].by_assistant for at in session.positions)


def test_what_the_view_keeps_is_counted(stored):
    store, session_id = stored
    session = read_recorded_session(store, session_id)
    last = len(session.positions) - 1
    roomy = measure_recall(session, [last], 6_000, Settings())
    small = measure_recall(session, [10, 20, last], 700, Settings())
    assert (roomy.compactions, roomy.needed) == (1, 3)
    assert roomy.kept == 3
    assert small.compactions == 3
    assert small.kept <= small.needed
    assert measure_recall(session, [], 700, Settings()) == Recalled()


def test_a_view_that_cannot_be_that_small_ends_it(stored):
    store, session_id = stored
    assert measure_recall(read_recorded_session(store, session_id), [30], 5, Settings()) == Recalled()

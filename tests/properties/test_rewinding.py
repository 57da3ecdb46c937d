"""Rewinds and clearings: records over a log that never changes, whatever else is recorded in between."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.strategies.long_sessions import long_conversations

from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.rules import check
from penstock.errors import TargetTooSmall
from penstock.sessions.session import Session
from penstock.stores.store import open_store

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 9)),
        st.tuples(st.just("compact"), st.integers(300, 1_500)),
        st.tuples(st.just("rewind"), st.integers(1, 12)),
        st.tuples(st.sampled_from(["clear", "undo"]), st.just(0)),
    ),
    min_size=4,
    max_size=12,
)


class Told:
    """What the view tells of, by position in the log, after each record that holds."""

    def __init__(self):
        self.length = 0
        self.records = []  # (positions told right after the record, length of the log then)

    @property
    def live(self):
        told, length = self.records[-1] if self.records else ([], 0)
        return [*told, *range(length, self.length)]


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
@settings(max_examples=6)
@given(data=st.data(), steps=STEPS)
def test_any_course_of_records_tells_what_it_should(dialect, data, steps):
    supply = data.draw(long_conversations(dialect, max_turns=4))
    store = open_store("memory:")
    session, told, logged = Session.create(store, dialect=dialect), Told(), []
    for step, amount in [("append", len(supply)), *steps]:
        before = session.view_bytes()
        if step == "append":
            session.append(supply[:amount])
            logged += supply[:amount]
            told.length = len(logged)
            continue
        live = told.live
        if step == "compact":
            try:
                if session.compact(target_tokens=amount).receipt.outcome != "nothing_to_do":
                    told.records.append((live, told.length))
            except TargetTooSmall:
                pass
        elif step == "undo":
            assert session.undo() == bool(told.records)
            told.records = told.records[:-1]
        else:
            count = amount if step == "rewind" else len(live)
            if step == "clear":
                session.clear()
            else:
                assert session.rewind(amount) == [logged[at] for at in live[-count:]]
            if live:
                told.records.append((live[: max(0, len(live) - count)], told.length))
                assert session.undo()
                assert session.view_bytes() == before  # it can be taken back
                session.rewind(max(1, count))
        _require_sound(session, told, logged)
    assert store.faults() == []
    assert [session.original(f"m{n}") for n in range(1, len(logged) + 1)] == logged
    store.close()


def _require_sound(session, told, logged):
    base, dialect = session.workings.read_view_base(), dialect_named(session.row.dialect)
    covered = {place for piece in base.view.pieces for place in getattr(piece, "covers", ())}
    standing = [position for position in base.view.positions if position is not None]
    assert covered | set(standing) <= set(told.live)  # nothing that was rewound is told of
    if not covered:
        assert standing == sorted(standing)
    if not told.records:
        assert base.view.wires == logged
    broken = check(decode_all(dialect, session.view()), dialect.rules)
    assert [one for one in broken if one.index < len(session.view()) - 1] == []
    assert [row.undone for row in session.store.compactions(session.id)] == [None] * len(told.records)

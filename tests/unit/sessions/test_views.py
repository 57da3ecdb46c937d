"""A stored view is the fold of the log and its newest compaction, whatever was recorded, undone or branched off."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import tempfile

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.strategies.conversations import conversations, texts
from tests.strategies.long_sessions import long_conversations

import penstock
from penstock.context.live_view import LiveView
from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.message import Role, Summary, Text, ToolResult
from penstock.conversation.view import Compaction, Handoff, Kept, Rewritten, fold, wire_text
from penstock.conversation.wire import encode_wire
from penstock.errors import TargetTooSmall
from penstock.sessions.exporting import export_conversation
from penstock.sessions.session import Session
from penstock.sessions.stored_view import read_view
from penstock.stores.store import open_store
from penstock.stores.values import NewCompaction, NewSession

pytestmark = pytest.mark.sampled(4)  # each of its cases is long

NAMES = sorted(DIALECTS)


class Model:
    """What a session should hold: the messages of its log, and the pieces of each compaction that holds."""

    def __init__(self, dialect, raws=(), compactions=()):
        self.dialect = dialect
        self.raws = list(raws)
        self.compactions = list(compactions)

    def view(self):
        """The view, written out as plainly as can be: object, position, and the bytes of what is kept."""
        if not self.compactions:
            return [self._logged(at) for at in range(len(self.raws))]
        newest = self.compactions[-1]
        return [*self._settled(newest.pieces), *map(self._logged, range(newest.length, len(self.raws)))]

    def _logged(self, at):
        return json.loads(self.raws[at]), at, self.raws[at]

    def _settled(self, pieces):
        for before, piece in zip([None, *pieces], pieces, strict=False):
            if isinstance(piece, Handoff):
                if piece.role is not None:
                    yield self.dialect.text_message(piece.role, wire_text(piece.summary)), None, None
                continue
            wire, at, raw = self._logged(piece.position)
            if isinstance(piece, Rewritten):
                wire, raw = self.dialect.rewrite(self.dialect.decode(wire), self._own(wire, piece)), None
            if isinstance(before, Handoff) and before.role is None:
                text = wire_text(before.summary)
                wire, raw = self.dialect.prepend_text(self.dialect.decode(wire), text), None
            yield wire, at, raw

    def _own(self, wire, piece):
        """Ids of calls are those that the message has for itself, not those that a list made up for it."""
        own = self.dialect.decode(wire).parts
        return {
            at: ToolResult(own[at].call_id, part.text) if isinstance(part, ToolResult) else part
            for at, part in piece.parts.items()
        }

    def branch(self, length):
        within = [one for one in self.compactions if one.length <= length]
        return Model(self.dialect, self.raws[:length], within[-1:])


@st.composite
def pieces_of(draw, messages):
    """Any record: messages kept, shortened or covered, and one handoff that stands alone or inside a message."""
    fates = draw(st.lists(st.sampled_from("kkrc"), min_size=len(messages), max_size=len(messages)))
    covered = tuple(at for at, fate in enumerate(fates) if fate == "c")
    pieces = []
    for at, (message, fate) in enumerate(zip(messages, fates, strict=True)):
        if fate == "c":
            if at == covered[0]:
                summary = Summary(draw(texts(min_size=1)), 1, {"after": f"{len(messages)}+"})
                pieces.append(Handoff(summary, covered, draw(st.sampled_from([Role.USER, Role.ASSISTANT]))))
            continue
        words = [place for place, part in enumerate(message.parts) if isinstance(part, (Text, ToolResult))]
        if fate == "k" or not words:
            piece = Kept(at)
        else:
            place = draw(st.sampled_from(words))
            part = message.parts[place]
            stub = f"[stub of m{at + 1}]"
            piece = Rewritten(
                at, {place: Text(stub) if isinstance(part, Text) else ToolResult(part.call_id, stub)}
            )
        if pieces and isinstance(pieces[-1], Handoff) and message.role is Role.USER:
            plain = all(isinstance(part, Text) for part in message.parts)
            if plain and draw(st.booleans()):
                pieces[-1] = Handoff(pieces[-1].summary, covered, None)
        pieces.append(piece)
    return tuple(pieces)


def commit(store, session, pieces, length):
    newest = store.newest_compaction(session.id)
    compaction = Compaction(store.ids(session.id)[length - 1], length, pieces)
    number = len(store.compactions(session.id, undone=True))
    store.commit(
        session.id,
        NewCompaction(
            compaction=compaction,
            over=0 if newest is None else newest.key,
            receipt={},
            session=NewSession(id=f"{session.id}-{number}", at=0.0, dialect=session.row.dialect),
        ),
    )
    session.refresh()
    return compaction


def raw_of(data, wire):
    """The message as its client may have written it: with blanks, escapes, and numbers that are spelled oddly."""
    odd = data.draw(st.sampled_from(['"n": 1e2', '"n":1.50', '"n":100', '"\\u006e" : -0.0']))
    text = json.dumps(
        wire, indent=data.draw(st.sampled_from([None, 1])), ensure_ascii=data.draw(st.booleans())
    )
    return (text[:-1].rstrip() + f", {odd} }}").encode()


def check_views(store, session, model):
    newest = store.newest_compaction(session.id)
    view = read_view(store, session.row, newest and newest.compaction, len(model.raws))
    assert [(one.wire, one.position) for one in view.messages] == [(wire, at) for wire, at, _ in model.view()]
    kept = [None if raw is None else at for _, at, raw in model.view()]
    assert [one.raw for one, at in zip(view.messages, kept, strict=True) if at is not None] == [
        model.raws[at] for at in kept if at is not None
    ]
    assert [json.loads(raw) for raw in session.view_bytes()] == session.view()
    logged = set(model.raws)
    for one in view.mend():
        assert one.raw in logged or one.raw == encode_wire(one.wire)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=8, deadline=None, phases=[Phase.generate])
def test_every_record_gives_the_view_that_it_says(name, data):
    store = open_store("memory:")
    session = Session.create(store, dialect=name)
    model = Model(DIALECTS[name])
    for _ in range(data.draw(st.integers(2, 6))):
        step = data.draw(st.sampled_from(["append", "append", "compact", "undo", "branch"]))
        if step == "append":
            raws = [raw_of(data, wire) for wire in data.draw(conversations(name))]
            session.append(raws)
            model.raws += raws
        elif step == "compact" and model.raws:
            length = data.draw(st.integers(1, len(model.raws)))
            wires = [json.loads(raw) for raw in model.raws[:length]]
            pieces = data.draw(pieces_of(decode_all(model.dialect, wires)))
            model.compactions.append(commit(store, session, pieces, length))
        elif step == "undo":
            assert session.undo() == bool(model.compactions)
            model.compactions = model.compactions[:-1]
        elif step == "branch" and model.raws:
            length = data.draw(st.integers(1, len(model.raws)))
            session, model = session.branch(f"m{length}"), model.branch(length)
        check_views(store, session, model)
    store.close()


def given_as(data, wire):
    """A message as a caller may hand it over, and the bytes that the log is to keep of it."""
    match data.draw(st.sampled_from(["bytes", "text", "object"])):
        case "bytes":
            raw = raw_of(data, wire)
            return raw, raw
        case "text":
            raw = raw_of(data, wire)
            return raw.decode(), raw
        case _:
            return wire, encode_wire(wire)


def check_bytes(session, raws):
    """Every message that the view keeps has the bytes that it was appended with."""
    view = session.view()
    assert [json.loads(raw) for raw in session.view_bytes()] == view
    assert export_conversation(session.store, session.id, view=True).messages == session.view_bytes()
    newest = session.store.newest_compaction(session.id)
    pieces = fold(len(raws), newest and newest.compaction)
    after_merged = {
        piece.position
        for before, piece in itertools.pairwise(pieces)
        if isinstance(before, Handoff) and before.role is None
    }
    whole = {piece.position for piece in pieces if isinstance(piece, Kept)} - after_merged
    for message in session.workings.read_view_base().view.mend():
        if message.position in whole:
            assert message.raw == raws[message.position]


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=3, deadline=None, phases=[Phase.generate])
def test_a_view_keeps_the_bytes_of_its_messages(name, data):
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/kept.db"
        store = open_store(url)
        session = Session.create(store, dialect=name)
        raws = []
        for number in range(2):
            drawn = json.dumps(data.draw(long_conversations(name, max_turns=4)))
            wires = json.loads(re.sub(r'"call_(\d)', rf'"call{number}_\1', drawn))  # no id is given twice
            handed_over = [given_as(data, wire) for wire in wires]
            session.append([given for given, _ in handed_over])
            raws += [raw for _, raw in handed_over]
            assert export_conversation(store, session.id).messages == raws
            session.pin(f"m{data.draw(st.integers(1, len(raws)))}")
            size = session.count()
            with contextlib.suppress(TargetTooSmall):
                session.compact(target_tokens=max(400, size // 2))
            check_bytes(session, raws)
        before = session.view_bytes()
        store.close()
        store = open_store(url)
        session = Session.resume(store, session.id)
        assert session.view_bytes() == before
        branch = session.branch(f"m{data.draw(st.integers(1, len(raws)))}")
        check_bytes(branch, raws[: len(branch)])
        while session.undo():
            check_bytes(session, raws)
        assert session.view_bytes()[-1] == raws[-1]
        store.close()


@pytest.mark.parametrize(
    "message",
    [
        '{"role":"user", "content":"100 is meant", "n":1e2}',
        b'{"role":"user", "content":"100 is meant", "n":1e2}',
        bytearray(b' {"role":"user",\n"content":"sp\\u0061ces", "n":1.50}\n'),
        '{"role":"user","content":"日本語"}',
    ],
)
def test_what_was_given_as_json_is_sent_as_it_came(message):
    session = Session.create(open_store("memory:"))
    session.append([message])
    raw = message.encode() if isinstance(message, str) else bytes(message)
    assert session.view_bytes() == [raw]
    assert session.view() == [json.loads(raw)]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32-le"])
def test_json_in_another_encoding_cannot_stand_in_a_request_and_is_written_anew(encoding):
    session = Session.create(open_store("memory:"))
    session.append(['{"role": "user", "content": "é"}'.encode(encoding)])
    assert session.view_bytes() == ['{"role":"user","content":"é"}'.encode()]


def test_a_lone_surrogate_in_a_text_is_written_as_its_escape():
    session = Session.create(open_store("memory:"))
    session.append(['{"role": "user", "content": "\ud800"}', b'{"role": "user", "content": "\\ud800"}'])
    first, second = session.view_bytes()
    assert json.loads(first) == json.loads(second) == {"role": "user", "content": "\ud800"}


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=3, deadline=None, phases=[Phase.generate])
def test_a_view_that_a_host_grows_in_memory_is_that_of_the_store(name, data):
    """What is logged is added, and a draft that is committed replaces what it was made of; one size holds for both."""
    store = open_store("memory:")
    session = Session.create(store, dialect=name)
    live = LiveView(session)

    def say():
        wires = data.draw(long_conversations(name, max_turns=3))
        live.append(session.workings.prepare([given_as(data, wire)[0] for wire in wires]))

    say()
    for _ in range(2):
        base = session.workings.read_view_base(with_pins=True)
        try:
            made = penstock.compress(
                base.view.wires, target_tokens=max(400, session.count() // 2), dialect=name
            )
            draft = session.workings.draft(base, made)
        except TargetTooSmall:
            draft = None
        say()
        if draft is not None:
            session.workings.commit_draft(draft)
            live.replace(draft, session.workings.weigh(draft.wires))
        stored = session.workings.read_view_base().view
        assert [(one.raw, one.position) for one in live.messages] == [
            (one.raw, one.position) for one in stored.messages
        ]
        assert live.wires == stored.wires
        read = LiveView(session)
        if read.wires == live.wires:  # nothing had to be mended
            assert live.tokens == read.tokens == session.workings.count_view().tokens
        assert live.settled_end == read.settled_end
    store.close()


def test_what_another_process_has_logged_first_keeps_its_spelling():
    store = open_store("memory:")
    first = Session.create(store)
    second = Session.resume(store, first.id)
    first.append([b'{"role":"user","content":"x","n":1e2}'])
    same = second.workings.prepare([{"role": "user", "content": "x", "n": 100.0}])
    (logged,) = second.workings.log_prepared(same)
    assert [logged.raw] == second.view_bytes() == [b'{"role":"user","content":"x","n":1e2}']

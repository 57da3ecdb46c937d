"""A compaction that was prepared beside the work gets what the agent has used since, before it is put in place."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec.structs import replace
from tests.gateway.near_compactor import NearCompactor

import penstock
from penstock.context.compactions import complete_compaction
from penstock.context.events import Compacted
from penstock.context.live import Context
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.message import ToolResult
from penstock.conversation.rules import check
from penstock.conversation.view import Compaction, Handoff, Kept, Rewritten
from penstock.engine.registry import engine_named
from penstock.lossless.outline import parse_outline
from penstock.sessions.completing import find_lacking
from penstock.sessions.drafts import CompactionDraft
from penstock.sessions.stored_view import read_view
from penstock.settings import settings_from
from penstock.writing.handoff import parse_handoff

CRANES = {n: f"crane_{n * 7919 % 100_003}" for n in range(100, 1_300)}
LISTED = "\n".join(f"berth {n} is served by {crane}" for n, crane in CRANES.items())
TALK = "the harbour is quiet today and nothing has happened at all "


@pytest.fixture(params=["here", "elsewhere"], autouse=True)
def drafter(request):
    """Compactions are worked out here, or from bytes alone, as another process does it."""
    Prepared.drafter = NearCompactor() if request.param == "elsewhere" else None
    yield Prepared.drafter
    Prepared.drafter = None


class Prepared:
    """A context with a compaction that waits to be put in place, and the values that its view lacks."""

    drafter = None

    def __init__(self, store, engine="compressor", listed=LISTED):
        self.events = []
        settings = settings_from({"model.context_length": 24_000, "context.engine": engine})
        session = penstock.Session.create(store, settings=settings)
        made = engine_named(engine, settings, context_length=24_000)
        made.on_session_start(session.id, store=store)
        self.context = Context(session, made, self.events.append)
        self.context.drafter = self.drafter
        self.context.append(
            [
                {"role": "user", "content": "Good morning."},
                {"role": "assistant", "content": "Good morning."},
                {"role": "user", "content": "Which cranes are there?"},
                call("read_file", 1, path="port/cranes.txt"),
                {"role": "tool", "tool_call_id": "c1", "content": listed},
                *[{"role": ("assistant", "user")[n % 2], "content": f"{n}: {TALK * 12}"} for n in range(31)],
            ]
        )
        asyncio.run(self.prepare())

    async def prepare(self):
        self.context._prepare()
        self.made = await self.context._prepared
        self.lost = [n for n, crane in CRANES.items() if crane in self.made.lacking]

    def give_room(self, tokens):
        """Has the target of what was prepared leave so many tokens, as engines may or may not."""
        target = self.made.view_tokens + tokens
        self.made = replace(self.made, receipt=replace(self.made.receipt, target_tokens=target))

    def put_in_place(self, *later):
        self.context.append(list(later))

        async def go():
            self.context._prepared = asyncio.get_running_loop().create_future()
            self.context._prepared.set_result(self.made)
            return await self.context.compact("it is time", self.context.tokens())

        done = asyncio.run(go())
        assert done is not None
        assert self.context.session.view() == self.context.view
        return done

    @property
    def handoff(self):
        return handoff_in(self.context.session.store.newest_compaction(self.context.session.id))


def handoff_in(record):
    return next(piece for piece in record.compaction.pieces if isinstance(piece, Handoff)).summary.text


def call(name, number, **arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    calls = [{"id": f"c{number}", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(number, text="done"):
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("engine", ["compressor", "lossless"])
def test_the_line_of_a_value_that_the_agent_used_since_is_put_in(store, engine):
    prepared = Prepared(store, engine)
    prepared.give_room(100)
    nodes = parse_outline(handoff_in(prepared.made.draft))
    lost = prepared.lost[len(prepared.lost) // 2]
    done = prepared.put_in_place(call("terminal", 2, command=f"stop {CRANES[lost]}"), result(2))
    entries = [entry for entry in parse_handoff(prepared.handoff) if CRANES[lost] in entry.text]
    line = f"berth {lost} is served by {CRANES[lost]}"
    assert [(entry.number, entry.label, entry.text) for entry in entries] == [(5, "read_file", line)]
    assert parse_outline(prepared.handoff) == nodes
    assert done.receipt.facts_added == 1
    assert done.receipt.tokens_after == done.view_tokens <= done.receipt.target_tokens
    assert "added      1 value that the agent used while this was prepared" in str(done.receipt)
    stored = store.newest_compaction(prepared.context.session.id).receipt
    assert (stored["facts_added"], stored["tokens_after"]) == (1, done.view_tokens)
    assert isinstance(prepared.events[-1], Compacted)
    assert prepared.events[-1].receipt == done.receipt
    wires = prepared.context.view
    assert not check(decode_all(dialect_named("chat"), wires), dialect_named("chat").rules)
    assert prepared.context.counted == prepared.context.session.workings.weigh(wires)
    # And the next compaction reads it like any other.
    prepared.context.append([{"role": "user", "content": f"{n}: {TALK * 30}"} for n in range(40)])
    assert asyncio.run(prepared.context.compact_by_hand()) is not None


def test_what_stands_in_the_draft_or_behind_it_is_not_put_in_again(store):
    prepared = Prepared(store)
    kept = next(crane for crane in CRANES.values() if crane not in prepared.made.lacking)
    read = CRANES[prepared.lost[0]]
    done = prepared.put_in_place(
        call("terminal", 2, command=f"stop {kept} {read}"), result(2, f"{read} was stopped")
    )
    assert done is prepared.made
    assert not done.receipt.facts_added


def test_both_steps_go_where_the_engine_lets_them(store, drafter):
    for engine in ("compressor", "lossless"):
        prepared = Prepared(store, engine)
        prepared.give_room(100)
        lost = CRANES[prepared.lost[len(prepared.lost) // 2]]
        done = prepared.put_in_place(call("terminal", 2, command=f"stop {lost}"), result(2))
        assert done.receipt.facts_added == 1
    if drafter is not None:  # the outline is the engine's own, what is put into it is not
        assert drafter.carried_out == ["DraftOrder", "CompletionOrder", "CompletionOrder"]


def test_a_value_that_is_new_or_only_looked_up_is_not_put_in(store):
    prepared = Prepared(store)
    lost = CRANES[prepared.lost[0]]
    done = prepared.put_in_place(
        call("history_search", 2, query=lost),
        result(2, "{}"),
        {"role": "assistant", "content": "crane_new_1"},
    )
    assert done is prepared.made


def test_a_secret_is_not_put_in(store):
    secret = "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0" * 2
    prepared = Prepared(store, listed=f"{LISTED}\napi_key = {secret}")
    prepared.put_in_place(call("terminal", 2, command=f"use {secret}"), result(2))
    assert secret not in prepared.handoff


def test_older_excerpts_give_way_and_the_target_does_not(store):
    """With no token to spare, what is in use takes the place of the oldest excerpts, as far as that may go."""
    prepared = Prepared(store)
    context = prepared.context
    prepared.give_room(0)
    made = prepared.made
    used = [CRANES[n] for n in prepared.lost[::40]]
    context.append([call("terminal", 2, command=" ".join(used)), result(2)])
    later = context._view.list_logged_since(made.log_length)
    done = asyncio.run(complete_compaction(context.session, made, later, context.drafter))
    assert 0 < done.receipt.facts_added <= len(used)
    assert done.view_tokens <= made.view_tokens
    before, after = handoff_in(made.draft), handoff_in(done.draft)
    assert used[-1] in after  # the last one used comes first
    gone = set(before.splitlines()) - set(after.splitlines())
    assert 0 < sum(map(len, gone)) < 0.12 * len(before)
    people = [[entry for entry in parse_handoff(text) if entry.label == "user"] for text in (before, after)]
    assert people[0] == people[1]


def test_a_list_of_another_engine_stays_as_it_is(store):
    prepared = Prepared(store)
    draft = prepared.made.draft
    pieces = tuple(
        replace(piece, written='{"role": "user", "content": "x"}') if isinstance(piece, Handoff) else piece
        for piece in draft.compaction.pieces
    )
    draft = replace(draft, compaction=replace(draft.compaction, pieces=pieces))
    assert (
        prepared.context.session.workings.complete_draft(draft, [CRANES[prepared.lost[0]]], 100_000) is None
    )


def test_a_draft_without_a_handoff_gets_the_message_back_that_it_had_shortened(store):
    session = penstock.Session.create(store)
    rounds = [
        message
        for n in range(4)
        for message in (call("read_file", n, path=f"{n}.txt"), result(n, f"part_{n}_of_it {TALK * 20}"))
    ]
    session.append([{"role": "user", "content": "Read all of it."}, *rounds])
    base = session.workings.read_view_base()
    pieces = tuple(
        Rewritten(place, {0: ToolResult(f"c{place // 2 - 1}", "[read_file]")})
        if place in (2, 4, 6)
        else Kept(place)
        for place in range(9)
    )
    compaction = Compaction(base.tip.id, 9, pieces)
    messages = read_view(store, session.row, compaction, 9).messages
    draft = CompactionDraft(base, compaction, {}, [], messages)
    assert {f"part_{n}_of_it" for n in range(3)} <= find_lacking(draft)
    size = session.workings.weigh(draft.wires)
    assert session.workings.complete_draft(draft, ["part_1_of_it"], size + 20) is None
    done = session.workings.complete_draft(draft, ["part_1_of_it", "part_0_of_it"], size + 300)
    assert done.facts_added == done.facts_gained == 1
    assert done.view_tokens <= size + 300
    assert [n for n, wire in enumerate(done.draft.wires) if wire == rounds[n - 1]] == [1, 3, 4, 5, 7, 8]

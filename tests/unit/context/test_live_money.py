"""What compaction costs in a live agent: its books, the cache it breaks, and the summaries that are paid for."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.accounts.usage import report_usage
from penstock.agent.assembly import AgentPlace, make_agent
from penstock.context.bookkeeping import Bookkeeper
from penstock.context.hygiene import tidy
from penstock.loop.events import Compacted, Compacting
from penstock.measure.usage import Usage, names_cache
from penstock.providers.cache_marks import caching_for, marks_of
from penstock.sessions.session import Session
from penstock.settings import settings_from
from penstock.stores.store import open_store
from penstock.testing import PromptCache, ScriptedModel

CLAUDE, GPT = ("claude-sonnet-4-5", "anthropic"), ("gpt-4.1", "chat")
TALK = "please think about the harbour and its cranes "
HANDOFF = (
    "## Goal\nThe user wants the harbour thought about.\n\n## Active State\nAll of it was thought about."
)


class Clock:
    """Seconds that pass only when they are told to."""

    def __init__(self):
        self.seconds = 1_800_000_000.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    made = Clock()
    monkeypatch.setattr(Bookkeeper, "now", made)
    return made


class Books(PromptCache):
    """The provider's cache, and its books."""

    def __init__(self, clock):
        super().__init__(clock=clock)
        self.requests = []

    def split(self, usage, received, weights):
        parted = super().split(usage, received, weights)
        self.requests.append((received, parted))
        return parted

    @property
    def total(self):
        return sum((usage for _, usage in self.requests), Usage())


def answer(received):
    return HANDOFF if "Write the handoff now." in json.dumps(received.messages[-1]) else "an answer, " * 40


def agent_with(model, store, folder, *, session_id=None, provider="", prepares=True, **values):
    events: list[Any] = []
    settings = settings_from({"model.context_length": 64_000, **values})
    place = AgentPlace(folder=folder, store=store, tell=events.append, yes=True, prepares=prepares)
    return make_agent(place, model, settings, session_id=session_id, provider=provider), events


def fill(agent, messages, words=60):
    agent.context.append(
        [{"role": ("user", "assistant")[n % 2], "content": f"{n}: {TALK * words}"} for n in range(messages)]
    )


async def rest(agent):
    """The person reads: what is prepared beside the turns is ready afterwards."""
    await agent.context.wait_prepared()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("named", [CLAUDE, GPT], ids=["claude", "gpt"])
@pytest.mark.parametrize(("seconds", "compactions"), [(10, 0), (3_700, 1)])
def test_a_resume_is_cold_only_when_the_cache_has_expired(
    store, tmp_path, clock, named, seconds, compactions
):
    name, dialect = named
    served = ScriptedModel(answer, name=name, dialect=dialect, prompt_cache=PromptCache(clock=clock))
    provider = "anthropic" if dialect == "anthropic" else "openai"
    agent, _ = agent_with(served, store, tmp_path, provider=provider)
    fill(agent, 66)
    for number in range(2):
        asyncio.run(agent.turn(f"question {number}"))
    clock.seconds += seconds
    again, events = agent_with(served, store, tmp_path, session_id=agent.session.id, provider=provider)
    assert again.context.tokens() == agent.context.tokens()
    asyncio.run(again.turn("and now?"))
    assert len(store.compactions(again.session.id)) == compactions
    assert not [event for event in events if isinstance(event, Compacted) and "expired" not in event.reason]


def test_the_time_of_requests_that_another_program_booked_counts_too(store, tmp_path, clock):
    session = Session.create(store, model="gpt-4.1", settings=settings_from({"model.context_length": 64_000}))
    session.append(
        [{"role": ("user", "assistant")[n % 2], "content": f"{n}: {TALK * 60}"} for n in range(66)]
    )
    session.record_usage({"prompt_tokens": 40_000, "prompt_tokens_details": {"cached_tokens": 30_000}})
    clock.seconds = store.usage(session_id=session.id)[-1].at + 30
    served = ScriptedModel(answer, name="gpt-4.1")
    agent, _ = agent_with(served, store, tmp_path, session_id=session.id)
    asyncio.run(agent.turn("and now?"))
    assert not store.compactions(session.id)


@pytest.mark.parametrize("named", [CLAUDE, GPT], ids=["claude", "gpt"])
def test_a_summary_is_asked_for_with_the_prompt_and_the_tools_of_the_agent(store, tmp_path, clock, named):
    name, dialect = named
    till = Books(clock)
    served = ScriptedModel(answer, name=name, dialect=dialect, prompt_cache=till)
    agent, _ = agent_with(
        served, store, tmp_path, provider="anthropic" if dialect == "anthropic" else "openai"
    )
    fill(agent, 60)

    async def talk():
        await agent.turn("first")
        await agent.turn("second")
        assert await agent.compact() is not None

    asyncio.run(talk())
    (_, own), (asked, used) = till.requests[-2:]
    assert asked.tools == served.received[-2].tools
    assert (
        len(asked.messages) == len(served.received[-2].messages) + 1
    )  # the last answer was in no request yet
    assert asked.tools
    texts = [json.dumps(request.system or request.messages[0]) for request in served.received[-2:]]
    assert texts[0] == texts[1]
    assert used.cache_read_tokens >= 0.95 * used.prompt_tokens
    assert used.cache_read_tokens >= own.prompt_tokens - 50
    assert not served.violations
    receipt = agent.session.receipts()[-1]
    assert (receipt.model_prompt_tokens, receipt.model_calls) == (used.prompt_tokens, 1)


@pytest.mark.outside  # takes long
def test_a_second_summary_brings_the_first_up_to_date(store, tmp_path, clock):
    served = ScriptedModel(answer, name="gpt-4.1", prompt_cache=PromptCache(clock=clock))
    agent, _ = agent_with(served, store, tmp_path)

    async def talk():
        for _ in range(2):
            fill(agent, 40)
            await agent.turn("go on")
            assert await agent.compact() is not None

    asyncio.run(talk())
    asked = [request for request in served.received if "Write the handoff now." in request.text]
    first, second = (json.dumps(request.messages[-1]) for request in asked)
    assert "up to date" not in first
    assert "up to date" in second
    assert "go on with the numbering" in second
    before = json.dumps(asked[1].messages[:-1])
    assert "The user wants the harbour thought about." in before  # the last summary itself
    assert "penstock-handoff" in before
    assert not served.violations


@pytest.mark.outside  # takes long
def test_what_was_prepared_and_never_used_is_booked(store, tmp_path, clock):
    till = Books(clock)
    served = ScriptedModel(answer, name="gpt-4.1", prompt_cache=till)
    agent, _ = agent_with(served, store, tmp_path)
    fill(agent, 80)

    async def talk():
        agent.context._prepare()
        await rest(agent)
        agent.session.pin("m9")  # what was prepared does not know of it
        assert await agent.compact() is not None
        await agent.turn("and now?")
        await agent.aclose()

    asyncio.run(talk())
    found = report_usage(store)
    assert found.total.usage == till.total
    assert (found.summaries.requests, found.total.requests) == (2, 3)
    assert found.summaries.usage.prompt_tokens > 2 * 0.5 * found.total.usage.prompt_tokens / 2
    books = agent.context.bookkeeper.books
    summaries = [usage for request, usage in till.requests if "Write the handoff now." in request.text]
    paid = sum(books.terms.bill(usage) for usage in summaries)
    assert books.bill > paid


def test_a_host_of_one_turn_prepares_nothing(store, tmp_path, clock):
    for prepares, asked in ((False, 0), (True, 1)):
        served = ScriptedModel(answer, name="unpriced-model", prompt_cache=PromptCache(clock=clock))
        agent, _ = agent_with(served, store, tmp_path, prepares=prepares)
        fill(agent, 94)

        async def talk(agent):
            await agent.turn("so?")
            await rest(agent)
            await agent.aclose()

        asyncio.run(talk(agent))
        assert sum("Write the handoff now." in request.text for request in served.received) == asked
        assert not store.compactions(agent.session.id)


def test_below_the_threshold_no_summary_is_prepared_that_nobody_has_saved_for(store, tmp_path, clock):
    served = ScriptedModel(answer, name="gpt-4.1", prompt_cache=PromptCache(clock=clock))
    agent, _ = agent_with(served, store, tmp_path)
    fill(agent, 94)

    async def talk():
        for number in range(3):
            await agent.turn(f"question {number}")
            await rest(agent)
        assert agent.context.tokens() > 0.85 * agent.context.engine.threshold_tokens
        await agent.aclose()

    asyncio.run(talk())
    assert not [request for request in served.received if "Write the handoff now." in request.text]


@pytest.mark.parametrize(
    "fields", [{}, {"prompt_tokens_details": {"cached_tokens": 0}}], ids=["none", "zero"]
)
def test_nothing_is_compacted_for_the_price_before_cached_tokens_were_named(store, tmp_path, clock, fields):
    session = Session.create(store, model="gpt-4.1", settings=settings_from({"model.context_length": 64_000}))
    agent, _ = agent_with(ScriptedModel(answer, name="gpt-4.1"), store, tmp_path, session_id=session.id)
    context = agent.context

    async def talk():
        for _ in range(12):
            fill(agent, 12)
            await context.fit()
            report = {"prompt_tokens": context.tokens(), "completion_tokens": 5, **fields}
            usage = Usage(input_tokens=context.tokens(), output_tokens=5)
            context.take_usage(usage, context.tokens(), names_cache=names_cache(report))
            if context.tokens() > 40_000:
                break
            clock.seconds += 400

    asyncio.run(talk())
    assert context.tokens() > 40_000
    assert context.compactions == 0


def test_a_report_without_a_cache_field_is_neither_warm_nor_cold(store, clock):
    session = Session.create(store, model="claude-sonnet-4-5", dialect="anthropic")
    keeper = Bookkeeper(session, caching_for("claude-sonnet-4-5", provider="anthropic"), 100_000)
    request(keeper, 20_000, read=0, written=20_000)
    for report in (False, True):
        before = keeper.books.twin_bill
        clock.seconds += 20
        keeper.weigh(21_000, 3_000, 10_000)
        keeper.book(21_000, compacted=False)
        keeper.settle(Usage(input_tokens=21_000), 21_000, names_cache=report)
        paid = keeper.books.twin_bill - before
        assert paid == pytest.approx(1.25 * 21_000 if report else 0.1 * 20_000 + 1.25 * 1_000)


def test_settings_that_say_there_is_no_cache_are_believed_until_a_report_names_one(store, clock):
    settings = settings_from({"model.cache_ttl": "off"})
    session = Session.create(store, model="gpt-4.1", settings=settings)
    keeper = Bookkeeper(session, caching_for("gpt-4.1", provider="openai", ttl="off"), 100_000)
    keeper.weigh(20_000, 3_000, 10_000)
    keeper.book(20_000, compacted=False)
    keeper.settle(Usage(input_tokens=20_000), 20_000)
    assert keeper.weigh(21_000, 3_000, 10_000).compact
    keeper.book(21_000, compacted=False)
    keeper.settle(Usage(input_tokens=1_000, cache_read_tokens=20_000), 21_000)
    assert not keeper.weigh(22_000, 3_000, 10_000).compact
    again = Bookkeeper(session, caching_for("gpt-4.1", provider="openai", ttl="off"), 100_000)
    assert not again.weigh(22_000, 3_000, 10_000).compact


def request(keeper, tokens, *, read, written):
    keeper.weigh(tokens, 3_000, 10_000)
    keeper.book(tokens, compacted=False)
    usage = Usage(input_tokens=tokens - read - written, cache_read_tokens=read, cache_write_tokens=written)
    keeper.settle(usage, tokens)


requests = st.lists(
    st.tuples(
        st.integers(0, 4_000),  # tokens that come
        st.sampled_from([5.0, 100.0, 400.0, 5_000.0]),  # seconds until they are sent
        st.booleans(),  # whether the process ends before
        st.booleans(),  # whether the rule is followed
        st.integers(0, 3),  # summaries that are paid for meanwhile
    ),
    min_size=1,
    max_size=30,
)


@given(requests)
def test_books_that_are_put_down_and_taken_up_again_are_the_same_books(course):
    """A conversation by single scripts has the same books, and is compacted at the same moments, as in one process."""
    outcomes = [_keep_books(course, restarts=restarts) for restarts in (True, False)]
    assert outcomes[0] == outcomes[1]


def _keep_books(course, *, restarts):
    clock = Clock()
    with closing(open_store("memory:")) as store, patch.object(Bookkeeper, "now", clock):
        session = Session.create(store, model="claude-sonnet-4-5", dialect="anthropic")
        plan = caching_for("claude-sonnet-4-5", provider="anthropic")
        keeper = Bookkeeper(session, plan, 60_000)
        tokens, cached, moves = 3_000, 0, []
        for appended, seconds, ends, follows, summaries in course:
            clock.seconds += seconds
            if ends and restarts:
                keeper = Bookkeeper(session, plan, 60_000)
            tokens += appended
            weighed = keeper.weigh(tokens, 3_000, 10_000, 800)
            moves.append(weighed)
            compacts = weighed is not None and weighed.compact and follows
            if compacts:
                tokens = cached = 3_000 + 10_000
            for _ in range(summaries * compacts):
                keeper.spend("claude-sonnet-4-5", Usage(cache_read_tokens=tokens, output_tokens=700))
            keeper.book(tokens, compacted=compacts)
            read = 0 if seconds > 300 or compacts else cached
            keeper.settle(Usage(cache_read_tokens=read, cache_write_tokens=tokens - read), tokens)
            cached = tokens
        books = keeper.books
        names = ("carried", "bill", "twin_bill", "twin_tokens", "compactions", "grown_tokens", "cache_known")
        return moves, [getattr(books, name) for name in names]


@pytest.mark.outside  # takes long
def test_on_asks_a_model_below_the_threshold_where_that_pays(store, tmp_path, clock):
    made = {}
    for mode in ("gated", "on"):
        till = Books(clock)
        served = ScriptedModel(answer, name="gpt-4.1", prompt_cache=till)
        agent, events = agent_with(
            served, store, tmp_path, **{"context.economics": mode, "model.context_length": 200_000}
        )
        fill(agent, 150)

        async def talk(agent):
            await agent.turn("so?")
            await agent.turn("and?")
            clock.seconds += 3_700
            await agent.turn("and now?")

        asyncio.run(talk(agent))
        assert any(isinstance(event, Compacted) for event in events)
        asked = [request for request in served.received if "Write the handoff now." in request.text]
        made[mode] = (len(asked), agent.session.receipts()[-1].model_calls)
        assert not served.violations
    assert made == {"gated": (0, 0), "on": (1, 1)}


@pytest.mark.parametrize(("prompt", "tidied"), [(12_000, False), (14_000, True)])
def test_hygiene_counts_the_prompt_and_neither_output_nor_reasoning(store, prompt, tidied):
    session = Session.create(store, model="gpt-4.1", settings=settings_from({"model.context_length": 16_000}))
    session.append(
        [{"role": ("user", "assistant")[n % 2], "content": f"{n}: {TALK * 40}"} for n in range(24)]
    )
    session.record_usage(
        {
            "prompt_tokens": prompt,
            "completion_tokens": 9_000,
            "completion_tokens_details": {"reasoning_tokens": 8_500},
        }
    )
    assert (tidy(session) is not None) is tidied


def test_over_openrouter_the_system_prompt_is_marked_too(store, tmp_path, clock):
    till = Books(clock)
    served = ScriptedModel(answer, name="anthropic/claude-sonnet-4.5", prompt_cache=till)
    agent, _ = agent_with(served, store, tmp_path, provider="openrouter")
    fill(agent, 8)
    asyncio.run(agent.turn("so?"))
    body = served.received[-1].body
    assert body["messages"][0]["role"] == "system"
    assert "cache_control" in json.dumps(body["messages"][0])
    assert len(marks_of(body, dialect="chat")) == 4
    assert agent.context.view[0]["role"] == "user"
    assert not served.violations


def test_a_marked_request_for_a_summary_has_four_marks_at_most(store, tmp_path, clock):
    served = ScriptedModel(
        answer, name="claude-sonnet-4-5", dialect="anthropic", prompt_cache=PromptCache(clock=clock)
    )
    agent, _ = agent_with(served, store, tmp_path, provider="anthropic")

    async def talk():
        for _ in range(2):
            fill(agent, 40)
            await agent.turn("go on")
            assert await agent.compact() is not None

    asyncio.run(talk())
    for received in served.received:
        assert 1 <= len(marks_of(received.body, dialect="anthropic")) <= 4


@pytest.mark.parametrize("economics", ["off", "gated"])
def test_where_growth_is_steady_no_turn_waits_for_a_summary(store, tmp_path, clock, economics):
    """From 85 % of the threshold on one is prepared; with `gated`, where the next request is about to reach it."""
    served = ScriptedModel(answer, name="gpt-4.1", prompt_cache=PromptCache(clock=clock))
    values = {"context.economics": economics, "model.context_length": 24_000}
    agent, events = agent_with(served, store, tmp_path, **values)

    async def talk():
        for number in range(34):
            await agent.turn(f"{number}: {TALK * 100}")
            await rest(agent)
            clock.seconds += 20
        await agent.aclose()

    asyncio.run(talk())
    made = [event for event in events if isinstance(event, Compacted)]
    assert len(made) >= 2
    assert all(event.receipt.model for event in made)
    assert not [event for event in events if isinstance(event, Compacting)]


@settings(max_examples=4)
@given(steps=st.lists(st.integers(20, 290), min_size=20, max_size=26))
def test_without_the_gate_no_turn_waits_however_it_grows(steps):
    """As long as no turn takes more than the 15 % of the threshold that are left when preparing begins."""
    with closing(open_store("memory:")) as store, TemporaryDirectory() as folder:
        served = ScriptedModel(answer, name="unpriced-model")
        agent, events = agent_with(served, store, Path(folder), **{"model.context_length": 24_000})

        async def talk():
            for words in steps:
                await agent.turn(TALK * words)
                await rest(agent)

        asyncio.run(talk())
    assert not [event for event in events if isinstance(event, Compacting)]

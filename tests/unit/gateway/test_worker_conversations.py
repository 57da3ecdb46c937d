"""The orders of the gateway, carried out in this process."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import tracemalloc

import pytest

from penstock.conversation.dialects import decode_each, dialect_named
from penstock.conversation.identity import content_digest
from penstock.errors import ErrorClass, ErrorKind, StoreUnavailable
from penstock.gateway import conversations as conversations_module
from penstock.gateway.conversations import Conversations
from penstock.gateway.orders import (
    Append,
    Appended,
    Failed,
    Fit,
    Fitted,
    Forget,
    NotOpen,
    Open,
    OpenedConversation,
    Outside,
    Recover,
    TakeUsage,
)
from penstock.gateway.write_behind import WriteBehindStore
from penstock.measure.usage import Usage
from penstock.sessions.session import Session
from penstock.sessions.workings import Workings
from penstock.settings import settings_from
from penstock.stores.store import Store, open_store

OUTSIDE = Outside(model="claude-sonnet-4-5", system=b'"Be brief."', marked_ttl="5m", max_output_tokens=2_000)


def talk(turns, words=8, name="a"):
    """Messages of a conversation in OpenAI's format, as JSON: a system prompt, then turns of four messages."""
    wires = [{"role": "system", "content": "You are an agent."}]
    for turn in range(turns):
        call = {
            "id": f"{name}{turn}",
            "type": "function",
            "function": {"name": "read_file", "arguments": "{}"},
        }
        wires += [
            {"role": "user", "content": f"{name}: look at file {turn} please"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {
                "role": "tool",
                "tool_call_id": f"{name}{turn}",
                "content": f"line {turn} of the file\n" * words,
            },
            {"role": "assistant", "content": f"File {turn} is fine."},
        ]
    return tuple(json.dumps(wire).encode() for wire in wires)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/log.db"


@pytest.fixture
def settings(url):
    return settings_from({"store.url": url})


def run(settings, work, **options):
    async def whole():
        conversations = Conversations(settings, **options)
        try:
            return await work(conversations)
        finally:
            await conversations.aclose()

    return asyncio.run(whole())


def opening(messages, owner="ann", **more):
    return Open(
        **{
            "owner": owner,
            "dialect": "chat",
            "endpoint": "https://api.example/v1",
            "store": "full",
            "messages": tuple(messages),
            "outside": OUTSIDE,
            **more,
        }
    )


def logs(url):
    """The bytes of every log of the store, by conversation."""
    store = open_store(url)
    found = {
        row.id: tuple(entry.raw for entry in store.read_from(row.tip.id, 0)) for row in store.list(limit=999)
    }
    store.close()
    return found


def test_a_conversation_is_found_again_by_its_messages_and_only_what_is_new_is_logged(settings, url):
    messages = talk(3)

    async def work(conversations):
        first = await conversations.carry_out(opening(messages[:5]))
        again = await conversations.carry_out(opening(messages[:5]))
        later = await conversations.carry_out(opening(messages))
        return first, again, later

    first, again, later = run(settings, work)
    assert isinstance(first, OpenedConversation)
    assert first.conversation == again.conversation == later.conversation
    chat = dialect_named("chat")
    digests = [content_digest(one) for one in decode_each(chat, [json.loads(raw) for raw in messages])]
    assert later.digests == b"".join(digests)
    assert logs(url) == {first.conversation: messages}
    assert later.standing.tokens > first.standing.tokens > 0
    assert later.standing.window_tokens == 200_000
    assert 2 < later.standing.bytes_per_token < 8

    async def after_a_restart(conversations):
        return await conversations.carry_out(opening(messages))

    resumed = run(settings, after_a_restart)
    assert (resumed.conversation, resumed.standing) == (first.conversation, later.standing)
    assert logs(url) == {first.conversation: messages}


def test_the_same_words_in_another_spelling_are_the_same_conversation(settings, url):
    messages = talk(2)
    spelled = []
    for raw in messages:
        wire = json.loads(raw)
        if isinstance(wire.get("content"), str):
            mark = {"type": "ephemeral"}
            wire["content"] = [{"type": "text", "text": wire["content"], "cache_control": mark}]
        spelled.append(json.dumps(wire, indent=1, sort_keys=True).encode())

    async def work(conversations):
        first = await conversations.carry_out(opening(messages[:6]))
        return first, await conversations.carry_out(opening(spelled))

    first, second = run(settings, work)
    assert first.conversation == second.conversation
    assert logs(url) == {first.conversation: (*messages[:6], *spelled[6:])}


def test_what_leaves_a_conversation_earlier_becomes_a_branch_of_its_own(settings, url):
    messages, other = talk(3), talk(1, name="b")[1:]

    async def work(conversations):
        whole = await conversations.carry_out(opening(messages))
        shorter = await conversations.carry_out(opening(messages[:9]))
        retried = await conversations.carry_out(opening(messages[:9]))
        edited = await conversations.carry_out(opening([*messages[:9], *other]))
        begun = await conversations.carry_out(opening([messages[0], *other]))
        return whole, shorter, retried, edited, begun

    whole, shorter, retried, edited, begun = run(settings, work)
    assert shorter.conversation == retried.conversation == edited.conversation
    assert len({whole.conversation, shorter.conversation, begun.conversation}) == 3
    assert logs(url) == {
        whole.conversation: messages,
        shorter.conversation: (*messages[:9], *other),
        begun.conversation: (messages[0], *other),  # a system prompt alone makes no kinship
    }


def test_orders_that_are_carried_out_together_fail_each_for_itself(settings, url):
    talks = {name: talk(2, name=name) for name in "abcd"}

    def more(opened, said, length=5):
        return Append(conversation=opened.conversation, length=length, messages=said[length:], outside=None)

    async def work(conversations):
        opened = {
            name: await conversations.carry_out(opening(said[:5], name)) for name, said in talks.items()
        }
        commits = []
        database = conversations._store("full").database
        writing = database.writing

        def count():
            commits.append(1)
            return writing()

        database.writing = count
        orders = [more(opened[name], talks[name]) for name in "abcd"]
        orders[1] = more(opened["b"], talks["b"], 7)  # behind messages that the log does not have
        orders[2] = Append(
            conversation=opened["c"].conversation, length=5, messages=(b'{"role": 5}',), outside=None
        )
        orders.append(Append(conversation="gone", length=0, messages=(), outside=None))
        answers = await conversations.append_together(orders)
        return opened, answers, len(commits)

    opened, answers, commits = run(settings, work)
    assert [type(answer) for answer in answers] == [Appended, NotOpen, Failed, Appended, NotOpen]
    assert commits == 1
    found = logs(url)
    assert {name: len(found[one.conversation]) for name, one in opened.items()} == {
        "a": len(talks["a"]),
        "b": 5,
        "c": 5,
        "d": len(talks["d"]),
    }


def test_no_order_overtakes_those_that_are_logged_together_while_one_of_them_waits(
    settings, url, monkeypatch
):
    """One of two conversations is being opened again, which no count of orders shows; the other's next order comes."""
    ann, bob = talk(3), talk(3, name="b")
    opening_again, go_on = threading.Event(), threading.Event()
    log = Conversations._log

    def log_slowly(found, order, read):
        if len(read.raws) == 5:
            opening_again.set()
            assert go_on.wait(30)
        log(found, order, read)

    async def work(conversations):
        first = await conversations.carry_out(opening(ann[:4]))
        other = await conversations.carry_out(opening(bob[:4], owner="bob"))
        monkeypatch.setattr(Conversations, "_log", staticmethod(log_slowly))
        again = asyncio.ensure_future(conversations.carry_out(opening(ann[:5])))
        assert await asyncio.to_thread(opening_again.wait, 30)
        orders = [
            Append(conversation=first.conversation, length=5, messages=ann[5:7], outside=None),
            Append(conversation=other.conversation, length=4, messages=bob[4:6], outside=None),
        ]
        together = asyncio.ensure_future(conversations.append_together(orders))
        await asyncio.sleep(0)
        behind = asyncio.ensure_future(
            conversations.carry_out(
                Append(conversation=other.conversation, length=6, messages=bob[6:8], outside=None)
            )
        )
        for _ in range(20):
            await asyncio.sleep(0.001)
        go_on.set()
        return await again, *await together, await behind

    opened, *appended = run(settings, work)
    assert isinstance(opened, OpenedConversation)
    assert [type(answer) for answer in appended] == [Appended] * 3
    assert set(logs(url).values()) == {ann[:7], bob[:8]}


def test_a_compaction_reads_and_commits_beside_the_event_loop(settings, monkeypatch):
    """All other conversations of a worker wait for its event loop."""
    asked, committed = [], []
    commit, list_demands = Workings.commit_draft, Workings.list_demands

    def note_commit(self, *given):
        committed.append(threading.get_ident())
        return commit(self, *given)

    def note_demands(self):
        asked.append(threading.get_ident())
        return list_demands(self)

    monkeypatch.setattr(Workings, "commit_draft", note_commit)
    monkeypatch.setattr(Workings, "list_demands", note_demands)
    messages = talk(30, words=60)

    async def work(conversations):
        opened = await conversations.carry_out(opening(messages))
        order = Fit(
            conversation=opened.conversation,
            length=len(messages),
            messages=(),
            outside=None,
            target_tokens=3_000,
        )
        return await conversations.carry_out(order)

    assert run(settings, work).compacted
    assert len(committed) == 1
    assert threading.get_ident() not in (*committed, *asked)


def test_owners_never_meet(settings):
    messages = talk(2)

    async def work(conversations):
        ann = await conversations.carry_out(opening(messages, "ann"))
        bob = await conversations.carry_out(opening(messages, "bob"))
        seen = await conversations.carry_out(opening(messages, "bob", logs=False))
        return ann, bob, seen, await conversations.carry_out(opening(messages, "ann"))

    ann, bob, seen, again = run(settings, work)
    assert ann.conversation != bob.conversation
    assert again.conversation == ann.conversation
    assert seen.conversation == ""


def test_two_requests_that_begin_one_conversation_at_once_begin_one(settings, url):
    messages = talk(2)

    async def work(conversations):
        orders = [opening(messages[:5]), opening(messages), opening(messages[:5])]
        return await asyncio.gather(*map(conversations.carry_out, orders))

    answers = run(settings, work)
    assert all(isinstance(answer, OpenedConversation) for answer in answers)
    assert messages in logs(url).values()
    assert len(logs(url)) <= 2  # the last one may come when the log is longer: a branch that shares all


def test_messages_are_appended_behind_those_that_are_there_and_nowhere_else(settings, url):
    messages = talk(3)

    async def work(conversations):
        opened = await conversations.carry_out(opening(messages[:5]))
        name = opened.conversation
        more = Append(conversation=name, length=5, messages=messages[5:9], outside=None)
        first, retried = await conversations.carry_out(more), await conversations.carry_out(more)
        gap = Append(conversation=name, length=12, messages=messages[12:], outside=None)
        return opened, first, retried, await conversations.carry_out(gap), await conversations.carry_out(more)

    opened, first, retried, gap, closed = run(settings, work)
    assert isinstance(first, Appended)
    assert (first.digests, first.standing) == (retried.digests, retried.standing)
    assert len(first.digests) == 4 * 16
    assert gap == closed == NotOpen()
    assert logs(url) == {opened.conversation: messages[:9]}


def test_what_another_process_has_logged_is_not_overwritten(settings, url):
    messages = talk(3)

    async def work(conversations):
        opened = await conversations.carry_out(opening(messages[:5]))
        other = Session.resume(open_store(url), opened.conversation)
        other.append([{"role": "user", "content": "from elsewhere"}])
        more = Append(conversation=opened.conversation, length=5, messages=messages[5:], outside=None)
        return opened, await conversations.carry_out(more), await conversations.carry_out(opening(messages))

    opened, refused, anew = run(settings, work)
    assert refused == NotOpen()
    assert anew.conversation != opened.conversation
    assert messages in logs(url).values()


def test_a_full_window_is_compacted_and_the_prefix_stays_until_the_next_time(settings, url):
    messages = talk(60, words=400)

    async def work(conversations):
        opened = await conversations.carry_out(opening(messages[:-4]))
        assert opened.standing.tokens > opened.standing.ask_from_tokens
        name, length = opened.conversation, len(messages) - 4
        fitted = await conversations.carry_out(
            Fit(conversation=name, length=length, messages=messages[-4:-2], outside=None)
        )
        again = await conversations.carry_out(
            Fit(conversation=name, length=length + 2, messages=messages[-2:], outside=None)
        )
        return opened, fitted, again

    opened, fitted, again = run(settings, work)
    assert opened.prefix.covers == 0
    assert isinstance(fitted, Fitted)
    assert fitted.compacted
    assert not again.compacted
    assert fitted.prefix == again.prefix
    assert fitted.prefix.covers == len(messages) - 2
    assert fitted.standing.tokens < opened.standing.tokens / 2
    assert fitted.standing.tokens_before > opened.standing.tokens
    assert len(fitted.prefix.positions) == len(fitted.prefix.messages)
    for raw, position in zip(fitted.prefix.messages, fitted.prefix.positions, strict=True):
        assert position < 0 or raw == messages[position]
    assert any(position < 0 for position in fitted.prefix.positions)
    resumed = run(settings, lambda conversations: conversations.carry_out(opening(messages)))
    assert resumed.prefix == fitted.prefix
    assert logs(url) == {opened.conversation: messages}


def test_a_request_may_name_its_own_target(settings):
    messages = talk(40, words=60)

    async def work(conversations):
        opened = await conversations.carry_out(opening(messages))
        fit = Fit(
            conversation=opened.conversation,
            length=len(messages),
            messages=(),
            outside=None,
            target_tokens=4_000,
        )
        small = await conversations.carry_out(fit)
        fit = Fit(
            conversation=opened.conversation, length=len(messages), messages=(), outside=None, target_tokens=3
        )
        return opened, small, await conversations.carry_out(fit)

    opened, small, impossible = run(settings, work)
    assert small.compacted
    assert small.standing.tokens < 4_400 < opened.standing.tokens
    assert not impossible.compacted
    assert impossible.notice
    assert impossible.prefix == small.prefix


def test_a_refused_request_is_made_smaller_and_the_window_is_learned(settings):
    messages = talk(40, words=60)

    async def work(conversations):
        opened = await conversations.carry_out(opening(messages))
        failure = ErrorClass(ErrorKind.PROMPT_TOO_LONG, 400, window_tokens=8_192)
        refused = Recover(
            conversation=opened.conversation,
            failure=failure,
            sent_tokens=opened.standing.tokens,
            attempt=1,
            outside=None,
        )
        recovered = await conversations.carry_out(refused)
        capped = Recover(
            conversation=opened.conversation,
            failure=ErrorClass(ErrorKind.OUTPUT_CAP_TOO_LARGE, 400, output_cap_tokens=1_000),
            sent_tokens=recovered.standing.tokens,
            attempt=1,
            outside=None,
        )
        other = ErrorClass(ErrorKind.BAD_REQUEST, 400, message="no such tool")
        hopeless = Recover(
            conversation=opened.conversation, failure=other, sent_tokens=9_000, attempt=1, outside=None
        )
        return (
            opened,
            recovered,
            await conversations.carry_out(capped),
            await conversations.carry_out(hopeless),
            await conversations.carry_out(opening(talk(1, name="z"))),
        )

    opened, recovered, capped, hopeless, another = run(settings, work)
    assert recovered.compacted
    assert recovered.standing.tokens < 8_192 < opened.standing.tokens
    assert recovered.standing.window_tokens == another.standing.window_tokens == 8_192
    assert not capped.compacted
    assert capped.max_output_tokens == 1_000
    assert hopeless == Failed("no such tool")


def test_usage_is_booked_and_tells_when_to_ask_again(settings, url):
    messages = talk(20, words=500)

    async def work(conversations):
        opened = await conversations.carry_out(opening(messages[:-4]))
        name, standings = opened.conversation, [opened.standing]
        for at in range(len(messages) - 4, len(messages), 2):
            appended = await conversations.carry_out(
                Append(conversation=name, length=at, messages=messages[at : at + 2], outside=None)
            )
            tokens = appended.standing.tokens
            usage = Usage(input_tokens=20, cache_read_tokens=tokens - 1_020, cache_write_tokens=1_000)
            used = await conversations.carry_out(
                TakeUsage(conversation=name, usages=(usage, usage), sent_tokens=tokens, names_cache=True)
            )
            standings.append(used.standing)
        return name, standings

    name, standings = run(settings, work)
    store = open_store(url)
    assert len(store.usage(session_id=name)) == 4
    last = standings[-1]
    assert last.cold_seconds == 300
    # Once reports name a cache, prices may ask for a compaction before the threshold does, and sooner when it is cold.
    assert last.cold_from_tokens <= last.tokens < last.ask_from_tokens < standings[0].ask_from_tokens


def test_a_report_on_another_length_teaches_nothing(settings, url):
    messages = talk(5)

    async def work(conversations):
        opened = await conversations.carry_out(opening(messages))
        report = Usage(input_tokens=99_000)
        order = TakeUsage(conversation=opened.conversation, usages=(report,), sent_tokens=10, length=3)
        return opened, await conversations.carry_out(order)

    opened, used = run(settings, work)
    assert used.standing.tokens == opened.standing.tokens
    assert [row.usage for row in open_store(url).usage()] == [Usage(input_tokens=99_000)]


def test_a_request_that_is_only_counted_leaves_no_trace(settings, url):
    messages = talk(60, words=400)

    async def work(conversations):
        unknown = await conversations.carry_out(opening(messages, logs=False))
        opened = await conversations.carry_out(opening(messages[:-2]))
        order = Fit(
            conversation=opened.conversation,
            length=len(messages) - 2,
            messages=(),
            outside=None,
            target_tokens=3_000,
        )
        fitted = await conversations.carry_out(order)
        longer = await conversations.carry_out(opening(messages, logs=False))
        return unknown, opened, fitted, longer

    unknown, opened, fitted, longer = run(settings, work)
    assert unknown.prefix.covers == 0
    assert longer.prefix == fitted.prefix
    assert longer.prefix.covers > 0
    assert logs(url) == {opened.conversation: messages[:-2]}


def test_without_a_store_nothing_reaches_the_disk(settings, url):
    messages = talk(60, words=400)

    async def work(conversations):
        opened = await conversations.carry_out(opening(messages, store="off"))
        name = opened.conversation
        fitted = await conversations.carry_out(
            Fit(conversation=name, length=len(messages), messages=(), outside=None)
        )
        return fitted, await conversations.carry_out(opening(messages, store="off")), opened

    fitted, again, opened = run(settings, work)
    assert fitted.compacted
    assert (again.conversation, again.prefix) == (opened.conversation, fitted.prefix)
    assert logs(url) == {}


def test_what_was_not_used_for_long_makes_room(settings, url):
    one, two = talk(20, words=50), talk(20, words=50, name="b")

    async def work(conversations):
        first = await conversations.carry_out(opening(one))
        second = await conversations.carry_out(opening(two))
        held = len(conversations)
        gone = await conversations.carry_out(
            Append(conversation=first.conversation, length=len(one), messages=(), outside=None)
        )
        back = await conversations.carry_out(opening(one))
        forgotten = await conversations.carry_out(Forget(conversation=first.conversation))
        return first, second, held, gone, back, forgotten, len(conversations)

    first, second, held, gone, back, forgotten, left = run(settings, work, most_bytes=200_000)
    assert held == 1
    assert gone == forgotten == NotOpen()
    assert back.conversation == first.conversation
    assert left == 0
    assert logs(url) == {first.conversation: one, second.conversation: two}


def test_memory_of_a_large_conversation_is_given_back_once_it_was_let_go(settings, monkeypatch):
    given = []
    monkeypatch.setattr(conversations_module, "give_memory_back", lambda: given.append(1))
    monkeypatch.setattr(conversations_module, "LARGE_BYTES", 400_000)
    monkeypatch.setattr(conversations_module, "_GIVEN_BACK_SECONDS", 0.0)

    async def work(conversations):
        for messages in (talk(60, words=60), talk(1, name="b"), talk(1, name="c")):
            before = len(given)
            await conversations.carry_out(opening(messages))
            await asyncio.sleep(0.05)
            yielded.append(len(given) - before)

    yielded = []
    run(settings, work, most_bytes=1)
    assert yielded == [0, 1, 0]


def test_a_conversation_that_is_opened_to_be_compacted_stays_until_it_is(url):
    """It may be larger than all that is held. Let go for its neighbours, it would never be compacted."""
    settings = settings_from({"store.url": url, "model.context_length": 20_000})

    async def work(conversations):
        large = await conversations.carry_out(opening(talk(60, words=60)))
        assert large.standing.tokens >= large.standing.ask_from_tokens
        for name in "bcd":
            await conversations.carry_out(opening(talk(1, name=name)))
        order = Fit(conversation=large.conversation, length=len(talk(60)), messages=(), outside=None)
        fitted = await conversations.carry_out(order)
        await conversations.carry_out(opening(talk(1, name="e")))
        left = await conversations.carry_out(order)
        return fitted, left

    fitted, left = run(settings, work, most_bytes=1)
    assert fitted.compacted
    assert isinstance(left, NotOpen)


@pytest.mark.parametrize("first", [0, 1])
def test_many_messages_are_logged_in_pieces_so_that_nobody_waits_for_all_of_them(
    settings, url, first, monkeypatch
):
    messages = talk(600)
    pieces = []
    commit = WriteBehindStore._commit

    def note_size(store, some):
        pieces.append(sum(len(one.packed.messages) for one in some))
        commit(store, some)

    monkeypatch.setattr(WriteBehindStore, "_commit", note_size)

    async def work(conversations):
        opened = await conversations.carry_out(opening(messages[:first] or messages))
        if first:
            order = Append(
                conversation=opened.conversation, length=first, messages=messages[first:], outside=None
            )
            (answer,) = await conversations.append_together([order])
            assert isinstance(answer, Appended)
        return opened

    opened = run(settings, work)
    assert logs(url) == {opened.conversation: messages}
    assert len(messages) > 2_000
    assert sum(pieces) == len(messages)
    assert max(pieces) == 1_000


@pytest.mark.parametrize("place", ["system", "tools", "model"])
def test_what_stands_beside_the_messages_takes_room_too(settings, place):
    """A system prompt and the schemas of tools can be far larger than what was said."""

    async def work(conversations):
        for number in range(8):
            text = f"{place} {number} " * 50_000
            tools = [{"type": "function", "function": {"name": "look", "description": text}}]
            beside = {"system": json.dumps(text).encode(), "tools": json.dumps(tools).encode(), "model": text}
            outside = Outside(**{"model": "m", place: beside[place]})
            messages = talk(1, name=str(number))
            opened = await conversations.carry_out(opening(messages, outside=outside))
            if opened.standing.tokens >= opened.standing.ask_from_tokens:  # it stays until this order comes
                name = opened.conversation
                fit = Fit(conversation=name, length=len(messages), messages=(), outside=None)
                await conversations.carry_out(fit)
        return len(conversations)

    assert run(settings, work, most_bytes=5_000_000) == 2


@pytest.mark.outside
def test_memory_does_not_grow_with_the_number_of_orders(settings):
    """What a worker holds is bounded: conversations come, go on, report and are let go, and nothing of them stays.

    Resident memory says little about that: it goes on rising for a while, as what is free comes in smaller pieces.
    """

    async def converse(conversations, name):
        messages = talk(8, name=name)
        opened = await conversations.carry_out(opening(messages[:5]))
        for length in range(5, len(messages), 2):
            used = TakeUsage(
                conversation=opened.conversation, usages=(Usage(input_tokens=900),), sent_tokens=900
            )
            new = messages[length : length + 2]
            order = Append(
                conversation=opened.conversation, length=length, messages=new, outside=None, used=used
            )
            (answer,) = await conversations.append_together([order])
            assert isinstance(answer, Appended)

    async def work(conversations):
        sizes = []
        for number in range(45):
            await converse(conversations, f"talk {number}")
            if number % 15 == 14:
                await conversations.flush()
                gc.collect()
                tracemalloc.start()  # behind the first ones: all tables are loaded, and there is no room for more
                sizes.append(tracemalloc.get_traced_memory()[0])
        return sizes

    try:
        _, first, last = run(settings, work, most_bytes=1_000_000)
    finally:
        tracemalloc.stop()
    orders = 15 * 15
    assert last - first < 100 * orders


def test_nothing_is_lost_with_a_conversation_that_is_not_open_any_more(settings, url):
    """Its orders are answered `NotOpen`. The provider's bill is booked, and what was said comes with the next opening."""
    ann, bob = talk(3), talk(3, name="b")
    used = Usage(input_tokens=70, output_tokens=5)

    async def work(conversations):
        first = await conversations.carry_out(opening(ann[:5]))
        await conversations.carry_out(opening(bob, owner="bob"))  # there is no room for both
        report = TakeUsage(conversation=first.conversation, usages=(used, used), sent_tokens=70)
        told = await conversations.carry_out(report)
        order = Append(
            conversation=first.conversation, length=5, messages=ann[5:9], outside=None, used=report
        )
        together = await conversations.append_together([order])
        again = await conversations.carry_out(opening(ann[:9]))
        return first, again, told, *together

    first, again, *answers = run(settings, work, most_bytes=1)
    assert answers == [NotOpen(), NotOpen()]
    assert again.conversation == first.conversation
    assert logs(url)[first.conversation] == ann[:9]
    store = open_store(url)
    booked = store.usage(session_id=first.conversation)
    assert [row.usage for row in booked] == [used] * 4
    assert {row.model for row in booked} == {OUTSIDE.model}
    store.close()


def test_usage_that_waited_while_its_conversation_was_let_go_is_booked(settings, url):
    """The conversation was open when the orders came, and is not any more when their turn comes."""
    messages = talk(3)
    used = Usage(input_tokens=70, output_tokens=5)

    async def work(conversations):
        opened = await conversations.carry_out(opening(messages[:5]))
        name = opened.conversation
        report = TakeUsage(conversation=name, usages=(used,), sent_tokens=70)
        first = Append(conversation=name, length=5, messages=messages[5:7], outside=None)
        last = Append(conversation=name, length=7, messages=messages[7:9], outside=None, used=report)
        _, _, told, (logged,) = await asyncio.gather(
            conversations.carry_out(first),
            conversations.carry_out(Forget(conversation=name)),
            conversations.carry_out(report),
            conversations.append_together([last]),
        )
        return name, told, logged

    name, *answers = run(settings, work)
    assert answers == [NotOpen(), NotOpen()]
    store = open_store(url)
    assert [row.usage for row in store.usage(session_id=name)] == [used, used]
    store.close()


def test_usage_that_cannot_be_booked_leaves_no_other_order_without_an_answer(settings, url, monkeypatch):
    ann, bob = talk(3), talk(3, name="b")
    used = Usage(input_tokens=70, output_tokens=5)

    def fail(_self, _session_id):
        raise StoreUnavailable("the store is locked")

    async def work(conversations):
        first = await conversations.carry_out(opening(ann[:5]))
        other = await conversations.carry_out(opening(bob[:5], owner="bob"))
        await conversations.carry_out(Forget(conversation=first.conversation))
        monkeypatch.setattr(Store, "tip", fail)
        report = TakeUsage(conversation=first.conversation, usages=(used,), sent_tokens=70)
        orders = [
            Append(conversation=first.conversation, length=5, messages=ann[5:9], outside=None, used=report),
            Append(conversation=other.conversation, length=5, messages=bob[5:9], outside=None),
        ]
        told = await conversations.carry_out(report)
        return told, *await conversations.append_together(orders)

    assert [type(answer) for answer in run(settings, work)] == [NotOpen, NotOpen, Appended]


def test_a_message_that_cannot_be_read_fails_without_being_quoted(settings, url):
    async def work(conversations):
        return await conversations.carry_out(opening([*talk(1), b'{"secret": "s3cr3t-value"}']))

    answer = run(settings, work)
    assert isinstance(answer, Failed)
    assert "s3cr3t" not in answer.text
    assert logs(url) == {}


def test_compaction_that_is_switched_off_only_books(url):
    settings = settings_from({"store.url": url, "compression.enabled": False})
    messages = talk(60, words=400)

    async def work(conversations):
        opened = await conversations.carry_out(opening(messages))
        fit = Fit(conversation=opened.conversation, length=len(messages), messages=(), outside=None)
        return opened, await conversations.carry_out(fit)

    opened, fitted = run(settings, work)
    assert opened.standing.ask_from_tokens > 10**9
    assert not fitted.compacted


def test_with_digests_alone_a_restart_gives_the_same_bytes_and_no_word_is_kept(settings, tmp_path):
    messages = talk(140, words=300)
    half = 4 * 70 + 1

    async def grow(conversations):
        first = await conversations.carry_out(opening(messages[:half], store="digests"))
        name, fitted = first.conversation, []
        for start, end in ((half, half), (half, len(messages))):
            order = Fit(conversation=name, length=start, messages=messages[start:end], outside=None)
            fitted.append(await conversations.carry_out(order))
            report = Usage(input_tokens=fitted[-1].standing.tokens * 11 // 10)
            await conversations.carry_out(
                TakeUsage(conversation=name, usages=(report,), sent_tokens=fitted[-1].standing.tokens)
            )
        return fitted

    first, second = run(settings, grow)
    assert first.compacted
    assert second.compacted
    assert "no recall, no undo" in second.notice

    async def resume(conversations):
        whole = await conversations.carry_out(opening(messages, store="digests"))
        stranger = await conversations.carry_out(opening(messages, "bob", store="digests"))
        return whole, stranger

    whole, stranger = run(settings, resume)
    rewound = opening(messages[: half + 4], store="digests")
    middle = run(settings, lambda conversations: conversations.carry_out(rewound))
    assert middle.prefix == first.prefix
    assert whole.prefix == second.prefix
    assert stranger.prefix.covers == 0
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"compactions by digest" in kept
    store = open_store(settings.store.url)
    store.delete_owner("ann")
    store.close()
    forgotten = run(settings, lambda conversations: conversations.carry_out(rewound))
    assert forgotten.prefix.covers == 0
    assert b"of the file" not in kept
    assert b"look at" not in kept


class _Priced:
    """A client whose requests are cached and billed, and the gateway in front of it; time is told by hand."""

    def __init__(self, conversations, clock, *, always):
        self.conversations, self.clock, self.always = conversations, clock, always
        self.compacted, self.asked, self.known, self.cached = [], 0, 0, 0

    async def send(self, step, messages, gap):
        self.clock[0] += gap
        new = {"length": self.known, "messages": tuple(messages), "outside": None}
        if not self.known:
            answer = await self.conversations.carry_out(opening(messages))
            self.name = answer.conversation
        elif self.always or self.must_ask(sum(map(len, messages)), gap):
            self.asked += 1
            answer = await self.conversations.carry_out(Fit(conversation=self.name, **new))
            self.compacted += [step] if answer.compacted else []
        else:
            answer = await self.conversations.carry_out(Append(conversation=self.name, **new))
        self.known += len(messages)
        tokens = answer.standing.tokens
        read = 0 if gap > 300 or self.compacted[-1:] == [step] else min(self.cached, tokens)
        self.cached = tokens
        usage = Usage(cache_read_tokens=read, cache_write_tokens=tokens - read, output_tokens=100)
        used = TakeUsage(conversation=self.name, usages=(usage,), sent_tokens=tokens, names_cache=True)
        self.standing = (await self.conversations.carry_out(used)).standing

    def must_ask(self, size, gap):
        standing = self.standing
        tokens = standing.tokens + size / standing.bytes_per_token
        cold = gap >= standing.cold_seconds and tokens >= standing.cold_from_tokens
        return cold or tokens >= standing.ask_from_tokens


def test_asking_where_the_standing_says_so_compacts_as_asking_each_time_does(tmp_path, monkeypatch):
    clock = [1_000_000.0]
    monkeypatch.setattr("penstock.context.bookkeeping.Bookkeeper.now", staticmethod(lambda: clock[0]))
    sizes = [(7 * step * step) % 11 for step in range(45)]
    clients = []
    for always in (True, False):
        clock[0] = 1_000_000.0
        url = f"sqlite:///{tmp_path}/{always}.db"
        settings = settings_from({"store.url": url, "model.context_length": 60_000})

        async def work(conversations, always=always):
            client = _Priced(conversations, clock, always=always)
            for step, size in enumerate(sizes):
                said = f"line {step} of src/module_{step}.py says port = {8000 + step}\n" * (20 + 25 * size)
                turn = [{"role": "assistant", "content": f"Step {step}."}, {"role": "user", "content": said}]
                raws = [json.dumps(wire).encode() for wire in turn[step == 0 :]]
                await client.send(step, raws, 400 if step % 13 == 12 else 5)
            return client

        clients.append(run(settings, work))
    always, seldom = clients
    assert len(always.compacted) >= 3
    assert seldom.compacted == always.compacted
    assert seldom.asked < always.asked / 2


def test_a_view_that_another_process_has_compacted_and_gone_on_from_is_not_sent(settings, url):
    """The compaction of this process comes too late, and meets the other's: it stands for messages that are not ours."""
    messages = talk(60, words=400)

    async def work(conversations):
        opened = await conversations.carry_out(opening(messages))
        other = Session.resume(open_store(url), opened.conversation)
        other.append([{"role": "user", "content": "from elsewhere"}])
        other.compact(target_tokens=20_000)
        fit = Fit(conversation=opened.conversation, length=len(messages), messages=(), outside=None)
        return opened, await conversations.carry_out(fit), await conversations.carry_out(opening(messages))

    opened, late, anew = run(settings, work)
    assert late == NotOpen()
    assert anew.conversation != opened.conversation
    assert anew.prefix.covers == 0

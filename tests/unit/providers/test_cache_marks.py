"""Where cache marks go, and where none does."""

from __future__ import annotations

import copy

import pytest

import penstock
from penstock.errors import SettingsError
from penstock.providers.cache_marks import caching_for, mark_cache, marks_of, restore_marks

FIVE, HOUR = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}


def user(content, **more):
    return {"role": "user", "content": content, **more}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def text(words, **more):
    return {"type": "text", "text": words, **more}


def calling(call_id):
    return assistant(
        [{"type": "tool_use", "id": call_id, "name": "terminal", "input": {"cache_control": {}}}]
    )


def result(call_id, words="exit 0"):
    return user([{"type": "tool_result", "tool_use_id": call_id, "content": [text(words)]}])


def work(rounds=4):
    """A request in which a user asked for something and tools were called."""
    messages = [user("Fix the tests.")]
    for number in range(rounds):
        messages += [calling(f"t{number}"), result(f"t{number}")]
    return {"model": "claude-x", "system": "Be brief.", "tools": [{"name": "terminal"}], "messages": messages}


def marked(request):
    """The messages that carry a mark, by their place."""
    return [
        at
        for at, message in enumerate(request["messages"])
        if marks_of({"messages": [message]}, dialect="anthropic")
    ]


def test_the_system_prompt_and_the_last_three_messages():
    request = work()
    result_ = penstock.mark_cache(request, dialect="anthropic")
    assert result_["system"] == [text("Be brief.", cache_control=FIVE)]
    assert marked(result_) == [6, 7, 8]
    assert marks_of(result_, dialect="anthropic") == ("5m",) * 4
    assert result_["messages"][8]["content"][0] == {
        **request["messages"][8]["content"][0],
        "cache_control": FIVE,
    }


def test_only_what_is_marked_is_copied():
    request = work()
    before = copy.deepcopy(request)
    done = mark_cache(request, dialect="anthropic")
    assert request == before
    assert done["tools"] is request["tools"]
    assert all(done["messages"][at] is request["messages"][at] for at in range(6))
    inner = done["messages"][8]["content"][0]
    assert inner["content"] is request["messages"][8]["content"][0]["content"]


def test_an_hour_has_its_wire_form():
    done = mark_cache(work(), dialect="anthropic", ttl="1h")
    assert done["system"][0]["cache_control"] == HOUR
    assert marks_of(done, dialect="anthropic") == ("1h",) * 4


def test_off_is_off():
    request = work()
    assert mark_cache(request, dialect="anthropic", ttl="off") is request


def test_an_unknown_life_is_refused_by_name():
    with pytest.raises(SettingsError, match="'2h'; allowed: 5m, 1h, off"):
        mark_cache(work(), dialect="anthropic", ttl="2h")


def test_the_known_cut_gets_a_mark_and_the_ends_of_transactions():
    done = mark_cache(work(rounds=6), dialect="anthropic", prefix_end=3)
    assert marked(done) == [2, 10, 12]
    assert marks_of(done, dialect="anthropic") == ("5m",) * 4


def test_a_cut_at_a_transaction_end_is_marked_once():
    assert marked(mark_cache(work(rounds=2), dialect="anthropic", prefix_end=5)) == [0, 2, 4]


def test_a_cut_behind_the_end_is_the_end():
    assert marked(mark_cache(work(rounds=2), dialect="anthropic", prefix_end=99)) == [0, 2, 4]


def test_without_a_system_prompt_the_tools_carry_the_mark():
    request = {**work(), "system": ""}
    request["tools"] = [{"name": "terminal"}, {"name": "rare", "defer_loading": True}]
    done = mark_cache(request, dialect="anthropic")
    assert done["tools"] == [{"name": "terminal", "cache_control": FIVE}, request["tools"][1]]
    assert done["system"] == ""


def test_no_mark_where_none_can_stand():
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    messages = [
        user("First."),
        assistant([text("Yes."), thinking]),
        user([]),
        user("  "),
        user(None),
        {"role": "system", "content": "A reminder."},
        assistant([thinking]),
        user([text("Last."), text("")]),
        "no message",
    ]
    done = mark_cache({"messages": messages, "system": [text("")]}, dialect="anthropic")
    assert marked({"messages": done["messages"][:-1]}) == [0, 1, 7]
    assert done["messages"][1]["content"] == [text("Yes.", cache_control=FIVE), thinking]
    assert done["messages"][7]["content"] == [text("Last.", cache_control=FIVE), text("")]
    assert done["system"] == [text("")]


@pytest.mark.parametrize(
    "own",
    [
        {"cache_control": FIVE},
        {"tools": [{"name": "terminal", "cache_control": HOUR}]},
        {"system": [text("Be brief.", cache_control=FIVE)]},
        {"messages": [user([text("Hello.", cache_control=FIVE)])]},
        {"messages": [user([{"type": "tool_result", "content": [text("x", cache_control=FIVE)]}])]},
    ],
)
def test_marks_of_the_caller_are_the_only_ones(own):
    request = {**work(), **own}
    assert mark_cache(request, dialect="anthropic") is request


@pytest.mark.parametrize("dialect", ["responses", "sharegpt", "gemini"])
def test_other_dialects_know_no_marks(dialect):
    request = {"input": [user("Hello.")], "messages": [user("Hello.")]}
    assert mark_cache(request, dialect=dialect) is request
    assert restore_marks(request, request, dialect=dialect) is request


@pytest.mark.parametrize("request_", [{}, {"messages": None}, {"messages": []}, {"messages": [user("")]}])
def test_nothing_to_mark(request_):
    assert mark_cache(request_, dialect="anthropic") is request_
    assert mark_cache(request_, dialect="chat") is request_


def test_chat_marks_parts_and_never_a_message_or_a_picture():
    call = {"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{}"}}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Really."},
        user("Fix it."),
        user([text("Like this."), picture]),
        assistant(None, tool_calls=[call]),
        {"role": "tool", "tool_call_id": "c1", "content": "exit 0"},
    ]
    done = mark_cache({"messages": messages}, dialect="chat", ttl="1h")["messages"]
    assert done[0] is messages[0]
    assert done[1]["content"] == [text("Really.", cache_control=HOUR)]
    assert done[2]["content"] == [text("Fix it.", cache_control=HOUR)]
    assert done[3]["content"] == [text("Like this.", cache_control=HOUR), picture]
    assert done[4] is messages[4]
    assert done[5] == {**messages[5], "content": [text("exit 0", cache_control=HOUR)]}
    assert not any("cache_control" in message for message in done)


def test_marks_that_a_compaction_removed_are_placed_again():
    before = {**work(rounds=6), "system": [text("Be brief.", cache_control=FIVE)]}
    for at in (3, 12):
        before["messages"][at] = {**before["messages"][at], "content": [text("x", cache_control=FIVE)]}
    handoff = user("What happened so far.")
    after = {
        **before,
        "messages": [before["messages"][0], assistant("So."), handoff, *before["messages"][9:]],
    }
    done = restore_marks(before, after, dialect="anthropic", prefix_end=3)
    assert marked(done) == [2, 6]
    assert marks_of(done, dialect="anthropic") == ("5m",) * 3
    assert done["messages"][6] is after["messages"][6]
    assert restore_marks(before, done, dialect="anthropic", prefix_end=3) is done


def test_where_nothing_was_removed_nothing_is_placed():
    before = mark_cache(work(), dialect="anthropic")
    assert restore_marks(before, before, dialect="anthropic", prefix_end=2) is before
    unmarked = work()
    assert restore_marks(unmarked, unmarked, dialect="anthropic", prefix_end=2) is unmarked


@pytest.mark.parametrize(
    ("first", "lost", "last", "placed"),
    [("1h", "5m", "1h", "1h"), ("5m", "1h", "5m", "5m"), ("1h", "1h", "5m", "1h")],
)
def test_an_hour_never_follows_five_minutes(first, lost, last, placed):
    wire = {"5m": FIVE, "1h": HOUR}
    system, end = (
        [text("Be brief.", cache_control=wire[first])],
        user([text("End.", cache_control=wire[last])]),
    )
    gone = user([text("Gone.", cache_control=wire[lost])])
    before = {"system": system, "messages": [user("a"), gone, assistant("b"), end]}
    after = {"system": system, "messages": [user("a"), assistant("b"), end]}
    assert marks_of(restore_marks(before, after, dialect="anthropic", prefix_end=1), dialect="anthropic") == (
        first,
        placed,
        last,
    )


@pytest.mark.parametrize(
    ("model", "base_url", "provider", "dialect"),
    [
        ("claude-opus-4-8", "", "anthropic", "anthropic"),
        ("claude-opus-4-8", "https://api.anthropic.com", "", "anthropic"),
        ("claude-opus-4-8", "http://127.0.0.1:8000", "anthropic", "anthropic"),
        ("anthropic/claude-sonnet-4.5", "", "openrouter", "chat"),
        ("anthropic/claude-sonnet-4.5", "https://openrouter.ai/api/v1", "", "chat"),
    ],
)
def test_claude_gets_marks_by_the_two_routes(model, base_url, provider, dialect):
    plan = caching_for(model, base_url, provider, ttl="1h")
    assert (plan.on, plan.dialect, plan.ttl) == (True, dialect, "1h")
    assert f"on for {model} by" in str(plan)
    assert str(plan).endswith("held for 1 hour")


@pytest.mark.parametrize(
    ("model", "base_url", "provider", "words"),
    [
        ("gpt-5", "", "openai", "no marks for gpt-5 by openai, because it takes none"),
        ("claude-opus-4-8", "https://proxy.example/v1", "", "by proxy.example, because it takes none"),
        ("claude-opus-4-8", "https://openrouter.ai.example/v1", "", "because it takes none"),
        ("glm-5", "", "anthropic", "because it is not a Claude model"),
        ("openai/gpt-5", "", "openrouter", "because it is not a Claude model"),
        ("some", "not an address", "", "by an unknown endpoint"),
    ],
)
def test_everybody_else_gets_none(model, base_url, provider, words):
    plan = caching_for(model, base_url, provider)
    assert not plan.on
    assert words in str(plan)
    request = work()
    assert mark_cache(request, dialect=plan.dialect, ttl=plan.ttl) is request


def test_the_setting_turns_it_off():
    plan = caching_for("claude-opus-4-8", "", "anthropic", ttl="off")
    assert str(plan) == (
        "prompt caching: no marks for claude-opus-4-8 by Anthropic's API, because model.cache_ttl is off"
    )

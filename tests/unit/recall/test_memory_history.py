"""A history in memory: what is found, what is not, and what it costs to add to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.conversation.message import Image, Message, Opaque, Reasoning, Role, Summary, Text
from penstock.conversation.message import ToolCall as Call
from penstock.conversation.message import ToolResult as Result
from penstock.errors import UnknownHandle
from penstock.recall import Wish
from penstock.recall.memory_history import MemoryHistory
from penstock.recall.originals import write_original, write_title
from penstock.redaction import Redactor

if TYPE_CHECKING:
    from penstock.recall.history import History

FILLER = "The tests of this part pass and nothing else was changed in the meantime."


def user(text):
    return Message(Role.USER, (Text(text),))


def history_of(*messages, **wishes):
    return MemoryHistory(messages, range(1, len(messages) + 1), **wishes)


def found(history, query, **wishes):
    return "\n".join(finding.excerpt for finding in history.search(query, Wish(**wishes)))


def test_it_is_a_history():
    def takes(history: History) -> int:
        return len(history.search("a", Wish()))

    assert takes(MemoryHistory()) == 0


def test_a_message_in_the_view_is_not_found():
    messages = [user("The harbour key is hk-4417."), user("The harbour lamp is hl-9021.")]
    history = history_of(*messages, in_view={1})
    assert "hk-4417" not in found(history, "harbour")
    assert "hl-9021" in found(history, "harbour")
    assert history.describe("m1").in_view
    assert not history.describe("m2").in_view


def test_the_view_may_change_either_way():
    messages = [user("The harbour key is hk-4417."), user("The harbour lamp is hl-9021.")]
    history = history_of(*messages)
    history.see(messages, [1, 2])
    assert found(history, "harbour") == ""
    history.see([user("[stub of m1]"), messages[1]], [1, 2])
    assert "hk-4417" in found(history, "harbour")
    history.see(messages[:1], [1])
    assert "hl-9021" in found(history, "harbour")


@pytest.mark.parametrize(("place", "port"), [("harbour", "4417"), ("airfield", "9021")])
def test_what_is_talked_about_decides_what_the_query_leaves_open(place, port):
    history = history_of(
        user("The gateway of the harbour listens on port 4417."),
        *[user(f"{FILLER} {n}") for n in range(20)],
        user("The gateway of the airfield listens on port 9021."),
    )
    history.see([user(f"Connect to the {place} now.")], [23])
    assert port in history.search("gateway port", Wish())[0].excerpt
    assert history.search("quicksilver", Wish()) == []  # what is talked about alone finds nothing


def test_a_value_that_stands_in_a_stub_or_handoff_is_not_what_is_found_first():
    old = user("The build of candidate one is rc1-a77f0.")
    other = user("The build of candidate two is rc2-b88e1.")
    history = history_of(old, *[user(f"{FILLER} {n}") for n in range(30)], other)
    handoff = Message(Role.USER, (Summary("The build of candidate one is rc1-a77f0.", 1),))
    history.see([handoff], [0])
    assert "rc2-b88e1" in history.search("build of the candidate", Wish())[0].excerpt
    history.see([Message(Role.USER, (Summary("The build is rc2-b88e1.", 1),))], [0])
    assert "rc1-a77f0" in history.search("build of the candidate", Wish())[0].excerpt


def test_messages_added_later_are_found_and_read_once():
    seen = []

    def redact(text):
        seen.append(text)
        return text

    history = MemoryHistory(redact=redact)
    for number in range(1, 41):
        history.add(number, user(f"At dock d{number * 37} stands crate c-{number * 7919}."))
        assert f"c-{number * 7919}" in found(history, f"crate at dock d{number * 37}", hits=1)
    assert len(seen) == 40
    assert len(history) == 40


def test_a_number_keeps_its_first_message():
    history = history_of(user("The harbour key is hk-4417."))
    history.add(1, user("[user] The harbour… (m1)"))
    history.add(0, user("a handoff has no number"))
    assert history.text("m1") == "The harbour key is hk-4417."
    assert len(history) == 1


def test_half_a_secret_is_never_quoted():
    pieces = "Qm9vdHN0cmFwU2VjcmV0S2V5TWF0ZXJpYWw" * 40
    block = f"-----BEGIN RSA PRIVATE KEY-----\n{pieces}\n{pieces[::-1]}\n-----END RSA PRIVATE KEY-----"
    history = history_of(user(f"The harbour host has this key:\n{block}\nKeep it."), redact=Redactor().redact)
    assert found(history, "harbour host key", characters=300)
    assert pieces[:30] not in found(history, f"harbour key {pieces[:60]}")
    assert pieces in history.text("m1")


def test_what_the_recall_tools_gave_is_not_found_again():
    call = Message(Role.ASSISTANT, (Call("c1", "history_search", '{"query": "harbour key"}'),))
    result = Message(Role.TOOL, (Result("c1", '{"found": [{"excerpt": "The harbour key is hk-4417."}]}'),))
    history = history_of(user("The harbour key is hk-4417."), call, result)
    findings = history.search("harbour key", Wish())
    assert [finding.handles for finding in findings] == [("m1",)]
    assert "hk-4417" in history.text("m3")


def test_ids_of_calls_may_be_used_again():
    def turn(name, arguments, text):
        call = Message(Role.ASSISTANT, (Call("call_0", name, arguments),))
        return call, Message(Role.TOOL, (Result("call_0", text),))

    history = history_of(
        *turn("terminal", '{"command": "cat quay.txt"}', "The harbour key is hk-4417."),
        *turn("history_search", '{"query": "harbour"}', "The harbour lamp is hl-9021."),
        *turn("read_file", '{"path": "lamp.txt"}', "The harbour mast is hm-3300."),
    )
    excerpts = found(history, "harbour key lamp mast")
    assert ["hk-4417" in excerpts, "hl-9021" in excerpts, "hm-3300" in excerpts] == [True, False, True]
    assert history.describe("m2").title == "[terminal] cat quay.txt → 1 line"
    assert history.describe("m6").title == "[read_file] lamp.txt from line 1, 28 chars"


def test_a_result_belongs_to_the_turn_of_its_call():
    call = Message(Role.ASSISTANT, (Call("c1", "ls", "{}"), Call("c2", "ls", "{}")))
    history = history_of(
        user("Look."), call, *[Message(Role.TOOL, (Result(c, "a\nb"),)) for c in ("c1", "c2")]
    )
    assert [history.describe(f"m{n}").turn for n in (1, 2, 3, 4)] == [1, 2, 2, 2]


def test_a_message_of_the_view_that_was_never_added_can_be_read():
    history = history_of(user("First."))
    history.see([user("First."), user("Second.")], [1, 2])
    assert history.text("m2") == "Second."
    assert history.describe("m2").in_view


@pytest.mark.parametrize("handle", ["m0", "m2", "s1", "n1", "m", "", "1", "handoff", "m१"])
def test_a_handle_that_names_nothing_is_refused(handle):
    history = history_of(user("Only this."))
    with pytest.raises(UnknownHandle, match="no original"):
        history.describe(handle)
    with pytest.raises(UnknownHandle, match="no original"):
        history.text(handle)


def test_summaries_may_hold_summaries():
    messages = [user(f"{FILLER} {n}") for n in range(9)]
    history = history_of(*messages)
    history.add_summary("n1", "one", ["m3", "m4"], kind="segment", at=5.0)
    history.add_summary("n5", "all", ["n1", "m5"], kind="segment")
    history.see(messages[5:], [6, 7, 8, 9], summaries=["n5"])
    assert [history.describe(handle).in_view for handle in ("n1", "n5")] == [False, True]
    place = history.describe("n5")
    assert (place.kind, place.turn, place.inside) == ("segment", 3, ("n1", "m5"))
    assert place.title == "segment of n1 to m5"
    assert history.describe("n1").at == 5.0
    assert history.text("n1") == "one"


class TestOriginals:
    def test_a_single_part_is_itself(self):
        text = "  two\n\n lines \r\n"
        assert write_original(user(text)) == text
        assert write_original(Message(Role.TOOL, (Result("c", text),))) == text

    def test_every_part_is_there(self):
        picture = Image("image/png", 12_345, "d")
        parts = (
            *(Reasoning("why"), Text("what"), Call("c", "run", '{"a": 1}'), picture),
            *(Opaque("x", '{"type": "x"}'), Result("c", "out", images=(picture,)), Summary("sum", 1)),
        )
        text = write_original(Message(Role.ASSISTANT, parts))
        assert text.split("\n\n") == [
            *("why", "what", '[run] {"a": 1}', "[image, 12,345 bytes]"),
            *('{"type": "x"}', "out\n[image, 12,345 bytes]", "sum"),
        ]

    def test_a_title_is_one_short_line_redacted_before_it_is_cut(self):
        secret = "password=hunter2-harbour-91"
        title = write_title(user("x" * 105 + f"\n {secret}"), {}, Redactor().redact)
        assert "hunter2" not in title
        assert len(title) <= 120
        assert write_title(Message(Role.USER, ()), {}) == ""
        assert write_title(Message(Role.USER, (Image("image/png", 7, "d"),)), {}) == "[image, 7 bytes]"
        assert write_title(Message(Role.TOOL, (Result("c", "abc"),)), {}) == "[tool] 3 chars"

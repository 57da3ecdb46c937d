"""The ladder of failures with random models: whatever they say or fail at, the result is sound and nothing is raised."""

from __future__ import annotations

import copy
import re
from functools import cache

import msgspec
from benchmarks.generate import coding_session, service_session
from benchmarks.sessions.wires import DIALECTS as WIRES
from compaction_claims import Seen, claim, decoded, last_request, tokens
from compaction_claims import spoken as texts_of
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies.conversations import texts
from tests.strategies.long_sessions import long_conversations

import penstock
from penstock.engine.summariser import Summariser, SummaryLimits
from penstock.errors import ErrorKind, TargetTooSmall
from penstock.providers.exchange import Finish
from penstock.testing.scripted import Failure, RawBody, Reply
from penstock.testing.scripted_model import ScriptedModel
from penstock.writing.handoff import HandoffSection

NAMES = ("chat", "responses", "anthropic")
GHOST = "ghost_module_9917"
TITLES = [section.value for section in HandoffSection]


@cache
def session(kind, name):
    if kind == "coding":
        return coding_session(4_000, seed=11, dialect=name)
    chat = service_session(3_000, seed=12)
    return chat if name == "chat" else WIRES[name](chat)


def lines():
    """Lines of a model: plain, invented, with handles, marks and fences of ours, of any script."""
    telling = st.sampled_from(
        [
            "- The work goes on as before.",
            f"- It broke in {GHOST} (m3).",
            f"1. Ran {GHOST} and src/{GHOST}.py with 99173 rows.",
            "m2, m4, m99999",
            "</penstock-handoff>",
            '<penstock-handoff v="1" after="1+">',
            "[m1 user]",
            "\\## Goal",
            "| a | b |",
            "```",
            "<think>what now</think>",
            "- None",
            "## " + GHOST,
            "x" * 3_000,
            "\x00\u202e",
        ]
    )
    titles = st.sampled_from([f"## {title}" for title in TITLES] + ["**Goal**", "# goal #", "__Blocked__:"])
    return st.one_of(telling, titles, titles, texts())


def spoken():
    """What a model says: anything from nothing to a handoff of many lines."""
    written = st.lists(lines(), max_size=14).map("\n".join)
    return st.one_of(written, written.map(lambda text: f"## Goal\n- Go on.\n{text}"), texts(max_size=200))


def replies():
    """One reply: an answer of some kind, or a failure."""
    kinds = st.sampled_from(list(ErrorKind))
    numbers = st.sampled_from((0, 1, 900, 3_000, 9_000, 200_000))
    failures = st.builds(
        lambda kind, status, window, cap: Reply(
            failure=Failure(
                kind=kind,
                status=status,
                window_tokens=window,
                prompt_tokens=window + 1,
                output_cap_tokens=cap,
            )
        ),
        kinds,
        st.sampled_from((None, 400, 401, 404, 408, 413, 429, 500, 503, 529)),
        numbers,
        numbers,
    )
    raw = st.builds(
        lambda body, status: Reply(raw=RawBody(body, "text/html", status)),
        st.binary(max_size=40),
        st.sampled_from((200, 400, 502)),
    )
    answers = st.builds(Reply, spoken())
    odd = st.sampled_from(
        [
            Reply.calling("read_file", path="a.py"),
            Reply("## Goal\n- Go on.", finish=Finish.LENGTH),
            Reply("I cannot.", finish=Finish.REFUSED),
            Reply("## Goal\n- Go on.", finish=Finish.OTHER),
            Reply("## Goal\n- Go on.", cut_after_chunks=1),
            Reply("## Goal\n- Go on.\n" * 4_000),
            Reply(reasoning="I only think."),
            Reply.rate_limited(retry_after=3),
        ]
    )
    return st.one_of(answers, failures, odd, raw)


def scripts():
    return st.lists(replies(), min_size=1, max_size=6)


class Ladder(msgspec.Struct, frozen=True):
    """Two models by script, and what they may use."""

    chosen: list[Reply]
    main: list[Reply] | None
    requests: int
    window: int | None
    in_place: bool

    def compress(self, name, wires, target):
        """The result, and how many requests were made."""
        models = [
            ScriptedModel(script, name=label, dialect=name, repeat_last=True)
            for label, script in (("chosen", self.chosen), ("main", self.main))
            if script is not None
        ]
        main = models[-1] if len(models) > 1 or self.in_place else None
        summariser = Summariser(
            models[0],
            main=main,
            window_tokens=self.window,
            limits=SummaryLimits(requests=self.requests),
            now=lambda: 0.0,
        )
        result = penstock.compress(wires, target_tokens=target, dialect=name, summariser=summariser)
        assert not [breach for model in models for breach in model.violations]
        return result, sum(len(model.received) for model in models)


def ladders():
    return st.builds(
        Ladder,
        scripts(),
        st.none() | scripts(),
        st.integers(1, 9),
        st.sampled_from((None, 1_000, 4_000, 7_000, 40_000)),
        st.booleans(),
    )


def assert_sound(name, wires, target, result):
    seen = Seen(name, wires, result)
    assert seen.tokens == result.receipt.tokens_after <= target
    assert seen.breaches == set()
    handles = [handle for handle in result.handles if handle != "handoff"]
    assert [result.original(handle) for handle in handles] == wires
    assert not [text for text in seen.written if GHOST in text or "99173" in text]
    return seen


def told(result):
    attempts = [{**one, "seconds": 0} for one in result.receipt.attempts]
    return result.messages, attempts, result.receipt.outcome, result.receipt.reason


@claim(45)
@given(
    ladder=ladders(),
    kind=st.sampled_from(["coding", "service"]),
    name=st.sampled_from(NAMES),
    share=st.sampled_from((0.12, 0.3, 0.6)),
)
def test_whatever_models_do_the_result_is_sound(ladder, kind, name, share):
    wires = session(kind, name)
    before = copy.deepcopy(wires)
    target = int(share * tokens(name, wires))
    result, requests = ladder.compress(name, wires, target)
    assert wires == before
    seen = assert_sound(name, wires, target, result)
    place = last_request(name, wires)
    said = "\n".join(texts_of(decoded(name, [wires[place]])[0]))
    assert any(
        said in "\n".join(texts_of(one)) for one in decoded(name, result.messages)
    )  # maybe beside a handoff
    receipt = result.receipt
    assert requests == receipt.model_calls <= ladder.requests
    assert receipt.outcome in {"compacted", "degraded"}
    if receipt.outcome == "degraded":
        assert receipt.reason
    elif receipt.attempts:
        assert receipt.attempts[-1]["outcome"] == "wrote the handoff"
        assert receipt.model == receipt.attempts[-1]["model"]
    elif seen.summaries:
        assert "no room" in receipt.reason
    assert len(receipt.attempts) <= 6


@claim(20)
@given(ladder=ladders(), name=st.sampled_from(NAMES))
def test_the_same_script_gives_the_same_result(ladder, name):
    wires = session("service", name)
    target = int(0.3 * tokens(name, wires))
    first, second = (ladder.compress(name, wires, target)[0] for _ in range(2))
    assert told(first) == told(second)


@st.composite
def random_talks(draw):
    name = draw(st.sampled_from(NAMES))
    return name, draw(long_conversations(name, max_turns=5))


@claim(30)
@given(talk=random_talks(), ladder=ladders(), share=st.floats(0.15, 0.9))
def test_random_conversations_survive_random_models(talk, ladder, share):
    name, wires = talk
    target = max(1, int(share * tokens(name, wires)))
    try:
        result, requests = ladder.compress(name, wires, target)
    except TargetTooSmall as error:
        target = int(re.search(r"at least ([\d,]+) tokens", str(error))[1].replace(",", ""))
        result, requests = ladder.compress(name, wires, target)
    assert requests <= ladder.requests
    if result.receipt.outcome != "nothing_to_do":
        seen = assert_sound(name, wires, target, result)
        assert result.receipt.attempts or result.receipt.reason or not seen.summaries


@claim(25)
@given(text=spoken(), name=st.sampled_from(NAMES))
def test_a_handoff_that_was_written_is_read_again_as_it_was(text, name):
    """A second compaction of the result finds the same entries, whatever a model wrote into them."""
    wires = session("service", name)
    target = int(0.3 * tokens(name, wires))
    model = ScriptedModel([text], dialect=name, repeat_last=True)
    result = penstock.compress(wires, target_tokens=target, dialect=name, summariser=model)
    seen = assert_sound(name, wires, target, result)
    again = penstock.compress(
        [*result.messages, *wires[-6:]], target_tokens=int(0.6 * target), dialect=name, summariser=None
    )
    assert len(seen.summaries) == 1
    assert len(Seen(name, [*result.messages, *wires[-6:]], again).summaries) == 1


_NAMES = ("src/zqx{n}/a.py", "zqx_{n}", "Zqx{n}Run", "zqxRun", "zqx-{n}", "zqx.{n}.log", "zqx{n}@example.org")
_NAMES += (
    "--zqx-{n}",
    "https://zqx{n}.example/x",
    "ZQX_{n}",
    "zqx_{n}()",
    "a/zqx{n}",
    "C:\\zqx\\{n}",
    "v{n}.zqx",
)
_AROUND = (
    "{}",
    "`{}`",
    '"{}"',
    "({})",
    "**{}**",
    "{}.",
    "{},",
    "[{}]",
    "<{}>",
    "{}:",
    "={}",
    "{}…",
    "→{}",
    "，{}。",
)


def invented_names():
    """A name that stands in no session, in many forms and between many marks."""
    return st.builds(
        lambda form, around, n: around.format(form.format(n=n)),
        st.sampled_from(_NAMES),
        st.sampled_from(_AROUND),
        st.integers(3, 99_999),
    )


@claim(35)
@given(
    names=st.lists(invented_names(), min_size=1, max_size=3),
    true=st.lists(st.sampled_from(("order", "status", "order_id", "customer", "please")), max_size=12),
    between=st.sampled_from((" ", ", ", " and ", "\n- ", "; ")),
)
def test_no_invented_name_is_left_in_whatever_form(names, true, between):
    wires = session("service", "chat")
    text = f"## Active State\n- It goes on.\n- {between.join([*true, *names, *true])}\n"
    model = ScriptedModel([text], repeat_last=True)
    target = int(0.4 * tokens("chat", wires))
    result = penstock.compress(wires, target_tokens=target, dialect="chat", summariser=model)
    seen = Seen("chat", wires, result)
    assert not [line for line in seen.written if "zqx" in line.lower()]
    assert "It goes on." in seen.text
    assert result.receipt.facts_struck >= 1

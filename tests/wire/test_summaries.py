"""Handoffs by a model over HTTP, in every dialect: a good one, and seven kinds that must do no harm."""

import asyncio
import json
import threading

import pytest
from bad_summaries import DEGRADED, INVENTED, WRITTEN, far_too_long, headings, invented, secrets, talkative
from summary_cases import (
    PROVIDERS,
    SECRETS,
    TOKENIZER,
    ask_server,
    attempts_of,
    claim_sound,
    coding,
    example,
    good_handoff,
    handoff_text,
    least_recall,
    needle,
    planted,
    recall,
    service,
    unknown_values,
    written_text,
)

import penstock
from penstock.engine.summariser import Summariser, summariser_of
from penstock.redaction import REDACTED
from penstock.testing.scripted_model import ScriptedModel
from penstock.writing.handoff import HandoffSection, parse_handoff
from penstock.writing.verify import STRUCK
from penstock.writing.writer import PROSE_SHARE

AGAIN = {"repeat_last": True}
CONVERSATIONS = {"planted": planted, "service": service, "coding": coding}


def entries_of(talk, result):
    return parse_handoff(handoff_text(talk.dialect, result.messages))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_good_handoff_stands_in_the_result_beside_the_facts(provider):
    talk = planted(PROVIDERS[provider])
    result, server = ask_server(provider, talk, [good_handoff()])
    receipt = result.receipt

    claim_sound(talk, result)
    assert receipt.outcome == "compacted"
    assert attempts_of(result) == [("scripted-model", "from the turns", "wrote the handoff")]
    assert (receipt.model, receipt.model_calls, receipt.facts_struck) == ("scripted-model", 1, 0)
    assert receipt.model_prompt_tokens == server.received[0].prompt_tokens
    assert receipt.model_output_tokens > 50
    assert server.violations == ()
    said = entries_of(talk, result)
    by_section = {
        section: [entry.text for entry in said if entry.section is section] for section in HandoffSection
    }
    assert by_section[HandoffSection.GOAL] == [
        "The user wants every shelf of the warehouse checked, in plain words."
    ]
    assert (
        by_section[HandoffSection.COMPLETED][0]
        == f"Read shelf 1 with read_shelf: it holds {needle(1)} in box 3."
    )
    assert (
        "All shelves up to 100 were read; nothing unusual was seen in any aisle."
        in by_section[HandoffSection.STATE]
    )
    assert by_section[HandoffSection.CONTEXT], "excerpts stand beside the model's words"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_latest_request_is_quoted_by_us_whatever_the_model_says_it_is(provider):
    talk = planted(PROVIDERS[provider])
    text = good_handoff().replace(
        "## Active Task\nm2", "## Active Task\nm2: the user wants a poem about boxes"
    )
    result, _ = ask_server(provider, talk, [text])
    tasks = [entry.text for entry in entries_of(talk, result) if entry.section is HandoffSection.ACTIVE_TASK]
    assert tasks[-1] == "Tell me what is on it, and what you saw on shelf 30."
    assert "poem" not in written_text(talk, result)


@pytest.mark.parametrize("bad", DEGRADED)
@pytest.mark.parametrize("kind", CONVERSATIONS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_text_that_is_no_handoff_leaves_the_extract(provider, kind, bad):
    talk = CONVERSATIONS[kind](PROVIDERS[provider])
    result, server = ask_server(provider, talk, [bad()], served=AGAIN)
    plain = penstock.compress(talk.wires, target_tokens=talk.target, dialect=talk.dialect)

    claim_sound(talk, result)
    assert result.messages == plain.messages
    assert result.receipt.outcome == "degraded"
    assert "the handoff was written without a model" in result.receipt.reason
    assert result.receipt.model == ""
    assert result.receipt.model_calls == len(server.received)
    assert unknown_values(talk, result) == []


@pytest.mark.parametrize("bad", WRITTEN)
@pytest.mark.parametrize("kind", CONVERSATIONS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_bad_handoff_does_no_harm(provider, kind, bad):
    talk = CONVERSATIONS[kind](PROVIDERS[provider])
    result, _ = ask_server(provider, talk, [bad()], served=AGAIN)

    claim_sound(talk, result)
    ours = written_text(talk, result)
    assert not [value for value in (*INVENTED, *SECRETS) if value in ours]
    assert unknown_values(talk, result) == []


@pytest.mark.parametrize("bad", [invented, secrets, talkative, headings, far_too_long])
def test_the_example_session_survives_a_bad_summariser(bad):
    talk = example()
    result, _ = ask_server("openai", talk, [bad()], served=AGAIN)
    claim_sound(talk, result)
    assert not [value for value in (*INVENTED, *SECRETS) if value in written_text(talk, result)]
    assert unknown_values(talk, result) == []


@pytest.mark.parametrize("provider", PROVIDERS)
def test_inventions_are_struck_and_counted_and_what_is_true_stays(provider):
    talk = planted(PROVIDERS[provider])
    result, _ = ask_server(provider, talk, [invented()])
    said = [entry.text for entry in entries_of(talk, result)]
    assert result.receipt.facts_struck >= 25
    assert any(STRUCK in text and text.startswith(f"Shelf 1 holds {needle(1)} in box 3") for text in said)
    assert f"{result.receipt.facts_struck} struck" in str(result.receipt)


@pytest.mark.parametrize(
    ("said", "invented_part"),
    [
        ("src/ghost/phantom.py", "ghost"),
        ("ghost/phantom.py…", "ghost"),
        ("…/phantom.py", "phantom"),
        ("rows 4999…", "4999"),
        ("4,999 rows", "4,999"),
        ("共4999个", "4999"),
        ("第4999号", "4999"),
        ("４９９９", "４９９９"),
        ("$GHOST", "GHOST"),
        ("ghostRun()", "ghostRun"),
        ("**ghost_run**", "ghost_run"),
        ("--ghost-mode", "ghost"),
        ("ghost@phantom.example", "ghost"),
        ("‘the ghost said so’", "ghost said"),
        ("«the ghost said so»", "ghost said"),
        ("rec_07919", "rec_07919 "),  # a part of a value is another value
        ("read_shelf2", "read_shelf2"),
        ("m4999", "m4999"),
        ("`ghost`", "ghost"),
        ("ghost()", "ghost"),
        ("user-processor", "processor"),
    ],
)
def test_an_invention_beside_what_is_true_is_struck(said, invented_part):
    talk = planted("chat")
    true = f"read_shelf, shelf 1, box 3, {', '.join(needle(n) for n in range(1, 6))}"
    model = ScriptedModel([f"## Active State\n- {true} and {said} came up.\n"])
    result = penstock.compress(talk.wires, target_tokens=talk.target, summariser=model)
    (state,) = [entry.text for entry in entries_of(talk, result) if entry.section is HandoffSection.STATE]
    assert state.startswith(f"{true} and ")
    assert invented_part not in state.removeprefix(true)
    assert STRUCK in state
    assert result.receipt.facts_struck >= 1


def test_a_text_of_which_nothing_is_true_counts_as_none():
    talk = planted("chat")
    text = "## Goal\n- Move src/ghost/phantom.py to PhantomBroker.\n## Blocked\n- ORD-88431-Z failed with 99417.\n"
    result = penstock.compress(talk.wires, target_tokens=talk.target, summariser=ScriptedModel([text]))
    claim_sound(talk, result)
    assert result.receipt.outcome == "degraded"
    assert "struck" in result.receipt.reason
    assert result.receipt.facts_struck >= 4


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_model_that_copies_secrets_is_redacted_by_pattern_and_by_what_the_conversation_calls_secret(
    provider,
):
    talk = planted(PROVIDERS[provider])
    assert all(secret in json.dumps(talk.wires) for secret in SECRETS)
    result, server = ask_server(provider, talk, [secrets()])
    said = "\n".join(
        entry.text
        for entry in entries_of(talk, result)
        if entry.section in {HandoffSection.STATE, HandoffSection.CONSTRAINTS}
    )
    assert said.count(REDACTED) >= 6
    assert result.receipt.redacted >= 6
    assert not [secret for secret in SECRETS if secret in server.received[0].text]
    assert not [secret for secret in SECRETS if secret in f"{result.receipt}{result.receipt.to_dict()}"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_models_words_take_no_more_than_their_share(provider):
    talk = planted(PROVIDERS[provider])
    result, _ = ask_server(provider, talk, [talkative()])
    words = [entry.text for entry in entries_of(talk, result) if entry.text.startswith("I obey")]
    share = sum(TOKENIZER.count_many(words)) / result.receipt.handoff_tokens
    assert 0.6 * PROSE_SHARE < share <= PROSE_SHARE
    assert result.receipt.outcome == "compacted"
    assert recall(talk, result.messages) >= least_recall(talk) - 0.01 > 0.2


def test_it_works_without_a_loop_and_from_inside_one():
    talk = planted("chat")

    def compressed():
        model = ScriptedModel([good_handoff()])
        return penstock.compress(talk.wires, target_tokens=talk.target, summariser=model).messages

    async def inside():
        return compressed()

    assert compressed() == asyncio.run(inside())


def test_a_function_may_be_the_summariser():
    talk = planted("chat")
    seen = []

    def write(prompt):
        seen.append(prompt)
        return good_handoff()

    async def write_later(prompt):
        return good_handoff()

    plain = penstock.compress(talk.wires, target_tokens=talk.target, summariser=write)
    later = penstock.compress(talk.wires, target_tokens=talk.target, summariser=write_later)
    assert plain.receipt.model == "write"
    assert plain.messages == later.messages
    assert needle(50) in seen[0]
    claim_sound(talk, plain)


def test_a_function_that_raises_is_a_failure_like_any_other():
    talk = planted("chat")

    def broken(prompt):
        raise RuntimeError(SECRETS[0])

    result = penstock.compress(talk.wires, target_tokens=talk.target, summariser=broken)
    claim_sound(talk, result)
    assert result.receipt.outcome == "degraded"
    assert SECRETS[0] not in str(result.receipt)


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_function_is_bounded_by_the_time_that_is_left(kind):
    talk = planted("chat")
    released, ended = threading.Event(), []

    def plain(prompt):
        released.wait(30)
        ended.append(prompt)
        return good_handoff()

    async def later(prompt):
        await asyncio.sleep(30)
        return good_handoff()

    summariser = summariser_of(plain if kind == "plain" else later)
    summariser = Summariser(summariser.model, timeout_seconds=0.1)
    try:
        result = penstock.compress(talk.wires, target_tokens=talk.target, summariser=summariser)
        assert not ended
    finally:
        released.set()
    claim_sound(talk, result)
    assert result.receipt.outcome == "degraded"
    assert "timeout" in result.receipt.reason


def test_what_is_no_summariser_is_said_so():
    with pytest.raises(penstock.PenstockError, match="summariser is a int"):
        penstock.compress(planted("chat").wires, target_tokens=2_000, summariser=5)


def test_nothing_is_asked_where_nothing_is_to_do():
    talk = planted("chat")
    model = ScriptedModel([])
    result = penstock.compress(talk.wires, target_tokens=50_000, summariser=model)
    assert result.receipt.outcome == "nothing_to_do"
    assert model.received == ()


def test_a_handoff_that_is_too_small_for_words_is_extracted():
    talk = planted("chat")
    model = ScriptedModel([])
    result = penstock.compress(talk.wires, target_tokens=250, summariser=model)
    assert model.received == ()
    assert result.receipt.outcome == "compacted"
    assert "no room for a model's words" in result.receipt.reason

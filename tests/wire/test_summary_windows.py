"""Windows and output caps of summary models: never a prompt that does not fit, and never a cut one."""

import asyncio

import pytest
from client_talk import model_of
from summary_cases import (
    ONCE,
    PROVIDERS,
    ask_server,
    attempts_of,
    claim_sound,
    good_handoff,
    is_notes,
    notes,
    planted,
)

import penstock
from penstock.engine.summariser import Summariser
from penstock.testing.provider_server import ScriptedProvider
from penstock.testing.scripted import Reply

DONE = "wrote the handoff"
UNLISTED = {"models": ("another-model",)}  # its window is in no list, so it is learned or not known


def fits(server, window):
    return all(one.prompt_tokens + one.max_output_tokens <= window for one in server.received)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_work_that_a_listed_window_cannot_hold_is_given_in_parts(provider):
    talk = planted(PROVIDERS[provider])
    result, server = ask_server(provider, talk, notes, served={"window_tokens": 8_192})
    claim_sound(talk, result)
    assert result.receipt.outcome == "compacted"
    assert attempts_of(result) == [("scripted-model", "from the turns", DONE)]
    assert [is_notes(one) for one in server.received] == [True] * (len(server.received) - 1) + [False]
    assert 3 <= len(server.received) <= 9
    assert fits(server, 8_192)
    assert server.violations == ()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_window_that_the_caller_names_goes_before_the_list(provider):
    talk = planted(PROVIDERS[provider])
    result, server = ask_server(
        provider, talk, notes, given={"window_tokens": 6_000}, served={"window_tokens": 50_000}
    )
    assert result.receipt.outcome == "compacted"
    assert len(server.received) > 3
    assert fits(server, 6_000)


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_window_that_an_error_states_is_learned_and_smaller_parts_fit_it(provider):
    talk = planted(PROVIDERS[provider])

    async def run():
        async with (
            ScriptedProvider(notes, window_tokens=7_000, **UNLISTED) as server,
            model_of(server, provider, policy=ONCE) as model,
        ):
            summariser = Summariser(model)
            results = [
                await penstock.acompress(
                    talk.wires, target_tokens=target, dialect=talk.dialect, summariser=summariser
                )
                for target in (talk.target, talk.target + 100)
            ]
            return results, server

    (first, second), server = asyncio.run(run())
    claim_sound(talk, first)
    assert attempts_of(first) == [
        ("scripted-model", "from the turns", "prompt too long (400)"),
        ("scripted-model", "from smaller parts", DONE),
    ]
    assert first.receipt.outcome == "compacted"
    assert attempts_of(second) == [("scripted-model", "from the turns", DONE)]
    refused = [one for one in server.received if one.prompt_tokens > 7_000]
    assert [one.number for one in refused] == [1], "what was learned is not forgotten"


def test_a_window_that_is_too_small_for_any_work_is_not_asked():
    talk = planted("chat")
    result, server = ask_server("openai", talk, [], given={"window_tokens": 1_500})
    claim_sound(talk, result)
    assert server.received == ()
    assert result.receipt.outcome == "degraded"
    assert "a window of 1,500 tokens is too small for the work" in result.receipt.reason


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_output_cap_that_is_too_large_is_lowered_once(provider):
    talk = planted(PROVIDERS[provider])
    replies = [Reply.output_cap(cap=900, asked=5_000), good_handoff()]
    result, server = ask_server(provider, talk, replies)
    claim_sound(talk, result)
    assert result.receipt.outcome == "compacted"
    assert result.receipt.model_calls == 2
    first, second = server.received
    assert first.max_output_tokens > 900
    assert second.max_output_tokens == 900
    assert first.messages == second.messages
    assert attempts_of(result) == [("scripted-model", "from the turns", DONE)]


def test_an_output_that_does_not_fit_beside_the_prompt_is_asked_for_smaller():
    talk = planted("chat")
    window = 13_000
    result, server = ask_server(
        "openai", talk, [good_handoff()], given={"window_tokens": 30_000}, served={"window_tokens": window}
    )
    claim_sound(talk, result)
    assert result.receipt.outcome == "compacted"
    assert len(server.received) == 2
    assert server.received[1].prompt_tokens + server.received[1].max_output_tokens <= window


def test_the_output_cap_leaves_room_for_models_that_think():
    talk = planted("chat")
    result, server = ask_server("openai", talk, [Reply(good_handoff(), reasoning="I ponder. " * 400)])
    cap = server.received[0].max_output_tokens
    assert result.receipt.outcome == "compacted"
    assert 4_096 < cap < 8_000
    assert "I ponder" not in str(result.messages)


def test_a_small_window_does_not_change_the_target():
    talk = planted("chat")
    small, _ = ask_server("openai", talk, notes, served={"window_tokens": 8_192})
    large, _ = ask_server("openai", talk, notes, served={"window_tokens": 100_000})
    assert small.receipt.target_tokens == large.receipt.target_tokens
    assert small.receipt.kept == large.receipt.kept

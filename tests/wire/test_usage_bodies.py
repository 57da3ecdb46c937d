"""Usage out of whole answers as the providers' documents and users show them."""

import json
from pathlib import Path

import pytest

from penstock.measure.usage import Usage, normalise_usage
from penstock.providers import anthropic, chat, responses

BODIES = {
    path.stem: json.loads(path.read_text("utf-8"))
    for path in Path(__file__).parent.glob("usage_bodies/*.json")
}
READERS = {"chat": chat, "responses": responses, "anthropic": anthropic}


def test_each_dialect_and_many_providers_are_here():
    assert {case["dialect"] for case in BODIES.values()} == set(READERS)
    assert len({case["provider"] for case in BODIES.values()}) >= 10
    assert all(case["source"] for case in BODIES.values())


@pytest.mark.parametrize("name", sorted(BODIES))
def test_the_usage_of_a_real_body(name):
    case = BODIES[name]
    answer = READERS[case["dialect"]].answer_from_body(case["body"])
    assert answer.usage == Usage(**case["expected"])
    assert normalise_usage(case["body"]["usage"]) == answer.usage


@pytest.mark.parametrize("name", sorted(BODIES))
def test_the_prompt_is_what_the_provider_counts_as_prompt(name):
    usage = BODIES[name]["body"]["usage"]
    expected = Usage(**BODIES[name]["expected"])
    stated = usage.get("prompt_tokens", usage.get("input_tokens"))
    cached = usage.get("cache_read_input_tokens", 0) + usage.get("cache_creation_input_tokens", 0)
    assert expected.prompt_tokens == stated + cached
    if "total_tokens" in usage:
        assert expected.total_tokens == usage["total_tokens"]
    assert expected.reasoning_tokens <= expected.output_tokens

"""Secrets of a list that was written before a look at the rules: how many are found, and how many look-alikes are hit."""

from __future__ import annotations

import pytest
from tests.strategies.fresh_secrets import make_fresh_secrets, make_harmless

from penstock.redaction import Redactor

REDACTOR = Redactor()
LEAST_FOUND = 0.95


@pytest.mark.parametrize("seed", range(5))
def test_most_of_them_are_found_whole(seed: int):
    fresh = make_fresh_secrets(seed)
    missed = [
        (one.kind, one.text)
        for one in fresh
        if any(
            one.secret[at : at + 6] in REDACTOR.redact(one.text) for at in range(max(1, len(one.secret) - 5))
        )
    ]
    assert (len(fresh), len({one.kind for one in fresh})) == (145, 40)
    assert len(missed) <= (1 - LEAST_FOUND) * len(fresh), missed


@pytest.mark.parametrize("seed", range(5))
def test_what_only_looks_like_one_is_left_alone(seed: int):
    harmless = make_harmless(seed)
    hit = [text for text in harmless if REDACTOR.redact(text) != text]
    assert len(harmless) == 80
    assert len(hit) <= 1, hit


def test_a_template_behind_a_name_is_no_secret():
    for text in ("usa la clave `confirm:<número>` y nada más", "password: order:<id>"):
        assert REDACTOR.redact(text) == text

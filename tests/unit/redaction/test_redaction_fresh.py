"""Secrets of a list that was written before a look at the rules: how many are found, and how many look-alikes are hit."""

from __future__ import annotations

import pytest
from tests.strategies.blind_secrets import (
    make_blind_secrets,
    make_last_look_alikes,
    make_last_secrets,
    make_look_alikes,
)
from tests.strategies.eighth_secrets import make_eighth_look_alikes, make_eighth_secrets
from tests.strategies.final_secrets import make_final_look_alikes, make_final_secrets
from tests.strategies.fresh_secrets import make_fresh_secrets, make_harmless
from tests.strategies.later_secrets import make_later_look_alikes, make_later_secrets
from tests.strategies.seventh_secrets import make_seventh_look_alikes, make_seventh_secrets
from tests.strategies.sixth_secrets import make_sixth_look_alikes, make_sixth_secrets
from tests.strategies.unseen_secrets import make_unseen_look_alikes, make_unseen_secrets

from penstock.redaction import Redactor

REDACTOR = Redactor()
TEST_OUTPUT = "=== RUN   TestRetry\n    --- PASS: TestRetry/back_off_42 (0.00s)\npass: TestLogin1/with_2fa\n"
LEAST_FOUND = 0.95


def shows(text: str, secret: str) -> bool:
    """Six characters of it in a row are too many."""
    return any(secret[at : at + 6] in text for at in range(max(1, len(secret) - 5)))


@pytest.mark.parametrize("seed", range(5))
def test_most_of_them_are_found_whole(seed: int):
    fresh = make_fresh_secrets(seed)
    missed = [(one.kind, one.text) for one in fresh if shows(REDACTOR.redact(one.text), one.secret)]
    assert (len(fresh), len({one.kind for one in fresh})) == (145, 40)
    assert len(missed) <= (1 - LEAST_FOUND) * len(fresh), missed


@pytest.mark.parametrize("seed", range(5))
def test_what_only_looks_like_one_is_left_alone(seed: int):
    harmless = make_harmless(seed)
    hit = [text for text in harmless if REDACTOR.redact(text) != text]
    assert len(harmless) == 80
    assert len(hit) <= 1, hit


@pytest.mark.parametrize(
    ("make", "count", "kinds", "least"),
    [
        (make_blind_secrets, 143, 40, 0.97),
        (make_last_secrets, 60, 19, 0.88),
        (make_unseen_secrets, 174, 40, 0.96),
        (make_later_secrets, 164, 40, 0.95),
        (make_final_secrets, 154, 40, 0.93),
        (make_sixth_secrets, 159, 40, 0.98),
        (make_seventh_secrets, 155, 40, 0.98),
        (make_eighth_secrets, 152, 41, 0.98),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_most_of_the_blind_lists_are_found_whole(make, count: int, kinds: int, least: float, seed: int):
    blind = make(seed)
    missed = [
        (one.kind, one.text)
        for one in blind
        if any(shows(REDACTOR.redact(one.text), secret) for secret in one.secrets)
    ]
    assert (len(blind), len({one.kind for one in blind})) == (count, kinds)
    assert len(missed) <= (1 - least) * len(blind), missed


@pytest.mark.parametrize(
    ("make", "count", "most"),
    [
        (make_look_alikes, 80, 0),
        (make_last_look_alikes, 40, 0),
        (make_unseen_look_alikes, 80, 1),  # the password of postgres://user:password@localhost
        (make_later_look_alikes, 80, 0),
        (make_final_look_alikes, 80, 0),
        (make_sixth_look_alikes, 80, 0),
        (make_seventh_look_alikes, 80, 0),
        (make_eighth_look_alikes, 80, 0),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_the_look_alikes_of_the_blind_lists_are_left_alone(make, count: int, most: int, seed: int):
    look_alikes = make(seed)
    hit = [text for text in look_alikes if REDACTOR.redact(text) != text]
    assert len(look_alikes) == count
    assert len(hit) <= most, hit


def test_a_name_that_ends_in_a_word_that_changes_others_still_tells():
    text = "REDIS_PASSWORD='Kestrel##Loom77'"
    assert REDACTOR.redact(text) == "REDIS_PASSWORD='[REDACTED]'"


def test_a_template_behind_a_name_is_no_secret():
    for text in ("usa la clave `confirm:<número>` y nada más", "password: order:<id>"):
        assert REDACTOR.redact(text) == text


def test_what_passed_in_a_test_is_no_password():
    assert REDACTOR.redact(TEST_OUTPUT) == TEST_OUTPUT


def test_the_rest_of_an_id_is_no_password():
    for text in (
        "toolu_01PW39VuAQjG6yZkTp1jPBtM",
        "restored from key 'lint.cache-Linux-2926-f2c1870c7fe227ac54b5810121a751b0'",
    ):
        assert REDACTOR.redact(text) == text


def test_a_table_at_the_very_start_of_a_text_that_ends_in_a_line_break():
    assert REDACTOR.redact("name,passwd\nMaria,Kestrel77x\n") == "name,passwd\nMaria,[REDACTED]\n"


def test_a_find_further_on_hides_no_anchor_before_it():
    """`secret` speaks of the second value first; the password between must not be passed over."""
    text = "secret notes, password: hunter#77x! and Kestrel#Loom77"
    assert "hunter#77x!" not in REDACTOR.redact(text)
    assert "Kestrel#Loom77" not in REDACTOR.redact(text)


def test_an_identifier_with_an_underscore_may_be_a_password():
    for value in ("Winter_2025x", "Lemon2008_x", "kite_77blue"):
        assert value not in REDACTOR.redact(f"password: {value}")
    for value in (
        "sha256_hash2",
        "user_name_22",
        "oauth2_token_10",
        "row12_val",
        "PASSWORD_FIELD_2024",
        "make_password_2",
    ):
        assert value in REDACTOR.redact(f"password: {value}")


def test_a_word_behind_login_is_a_key_only_if_it_was_drawn():
    for text in (
        "the login succeeded_at_first_sight",
        "git login 4f1c9b2e7a6d5f3e8b1c9d2e7a6d5f3e8b1c9d2e",
        "run npm login here",
    ):
        assert REDACTOR.redact(text) == text


def test_a_passphrase_is_one_in_the_middle_of_a_line_too():
    for text in (
        "I look: Passphrase: maple-lantern-orbit-fern",
        "ok. passphrase: maple-lantern-orbit-fern, then enter",
    ):
        assert "lantern" not in REDACTOR.redact(text)
    assert REDACTOR.redact("see passphrase: command-line only") == "see passphrase: command-line only"

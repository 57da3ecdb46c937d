"""Planted secrets go, what stands beside them stays, and what only looks like a secret stays too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from planted_clean import CLEAN
from planted_held_out import HELD_OUT
from planted_known import KNOWN

from penstock.redaction import REDACTED, Redactor

if TYPE_CHECKING:
    from planted import Planted

REDACTOR = Redactor()


def fragments(secret: str) -> list[str]:
    """Pieces of six characters: none may be left, or a secret would be half shown."""
    return [secret[start : start + 6] for start in range(max(1, len(secret) - 5))]


@pytest.mark.parametrize("planted", [*KNOWN, *HELD_OUT], ids=lambda planted: planted.name)
def test_a_secret_goes_and_its_surroundings_stay(planted: Planted):
    assert all(secret in planted.text for secret in planted.secrets)
    redacted = REDACTOR.redact(planted.text)
    assert REDACTED in redacted
    assert [piece for secret in planted.secrets for piece in fragments(secret) if piece in redacted] == []
    assert [stays for stays in planted.stays if stays not in redacted] == []


@pytest.mark.parametrize("planted", [*KNOWN, *HELD_OUT], ids=lambda planted: planted.name)
def test_redacting_twice_is_redacting_once(planted: Planted):
    once = REDACTOR.redact(planted.text)
    assert REDACTOR.find(once) == []


@pytest.mark.parametrize("planted", [*KNOWN, *HELD_OUT], ids=lambda planted: planted.name)
def test_a_secret_is_found_between_other_text(planted: Planted):
    around = "The build took 12 s and wrote dist/app.js.\n"
    text = around * 3 + planted.text + "\n" + around * 3
    found = REDACTOR.find(text)
    redacted = REDACTOR.redact(text)
    assert found
    assert redacted.startswith(around * 3)
    assert redacted.endswith(around * 3)


@pytest.mark.parametrize("text", CLEAN)
def test_what_only_looks_like_a_secret_is_left_alone(text: str):
    assert REDACTOR.redact(text) == text


def test_there_are_enough_of_each():
    assert len(KNOWN) >= 30
    assert len(HELD_OUT) >= 30
    assert len(CLEAN) >= 40
    assert not {planted.name for planted in KNOWN} & {planted.name for planted in HELD_OUT}


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        ("password=hunter2 ok", "password=[REDACTED] ok"),
        ("Authorization: Bearer abcdEF0123456789xyz", "Authorization: Bearer [REDACTED]"),
        ("postgres://user:hunter2@host/db", "postgres://user:[REDACTED]@host/db"),
        ('{"password": "hunter2"}', '{"password": "[REDACTED]"}'),
        ("postgres://user:p@ss@word@host/db", "postgres://user:[REDACTED]@host/db"),
        ("a password: 'it\\'s-1-secret' b", "a password: '[REDACTED]' b"),
        ("Maple2019! is the password", "[REDACTED] is the password"),  # also at the very beginning
    ],
)
def test_only_the_value_is_replaced(text: str, redacted: str):
    assert REDACTOR.redact(text) == redacted

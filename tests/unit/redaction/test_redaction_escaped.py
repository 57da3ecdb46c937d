"""A secret that JSON has escaped goes, in every way of escaping it, once and twice, before and after decoding."""

from __future__ import annotations

import pytest
from planted_held_out import HELD_OUT
from planted_known import KNOWN
from tests.strategies.escapings import ESCAPINGS, decode_all, escape

from penstock.redaction import REDACTED, Redactor
from penstock.writing.excerpts import lay_out_redacted, redact_readable

REDACTOR = Redactor()
WAYS = [(name,) for name in ESCAPINGS] + [
    (name, again) for name in ESCAPINGS for again in ("ascii", "slashes", "signs")
]
WAYS += [("html", "html", "ascii"), ("every character", "every character")]


def leaks(shown: str, secrets: tuple[str, ...]) -> list[str]:
    """Returns what is left of the secrets, pieces of six characters, in a text and in all that decoding it shows."""
    views = list(decode_all(shown))
    return [
        piece
        for secret in secrets
        for piece in (secret[at : at + 6] for at in range(max(1, len(secret) - 5)))
        for view in views
        if piece in view
    ]


@pytest.mark.parametrize("way", WAYS, ids="-in-".join)
def test_no_escaping_hides_a_secret(way: tuple[str, ...]):
    left = {}
    for planted in (*KNOWN, *HELD_OUT):
        wire = escape(planted.text, *way)
        for shown in (
            REDACTOR.redact(wire),
            redact_readable(wire, REDACTOR.redact),
            lay_out_redacted(wire, REDACTOR.redact).text,
        ):
            if found := leaks(shown, planted.secrets):
                left[planted.name] = (found[:2], shown[:300])
    assert left == {}


def test_what_is_blanked_is_the_value_and_its_escapes():
    wire = escape("password=hunter2 / ok", "every character")
    assert REDACTOR.redact(wire).count("\\u") == len("password= / ok")
    assert escape("DB_PASSWORD=zbJY81xk", "html") == '{"output":"DB_PASSWORD\\u003dzbJY81xk"}'
    assert (
        REDACTOR.redact('{"output":"DB_PASSWORD\\u003dzbJY81xk"}')
        == f'{{"output":"DB_PASSWORD\\u003d{REDACTED}"}}'
    )

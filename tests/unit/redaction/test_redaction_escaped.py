"""A secret that JSON has escaped goes, in every way of escaping it, once and twice, before and after decoding."""

from __future__ import annotations

import json
import random

import pytest
from planted_held_out import HELD_OUT
from planted_known import KNOWN
from tests.strategies.blind_secrets import make_blind_secrets, make_last_secrets
from tests.strategies.eighth_secrets import make_eighth_secrets
from tests.strategies.escapings import ESCAPINGS, decode_all, escape, escape_at_random
from tests.strategies.final_secrets import make_final_secrets
from tests.strategies.later_secrets import make_later_secrets
from tests.strategies.seventh_secrets import make_seventh_secrets
from tests.strategies.sixth_secrets import make_sixth_secrets
from tests.strategies.unseen_secrets import make_unseen_secrets

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


@pytest.mark.sampled(7)
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


@pytest.mark.sampled(6)
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize(
    "make",
    [
        make_blind_secrets,
        make_last_secrets,
        make_unseen_secrets,
        make_later_secrets,
        make_final_secrets,
        make_sixth_secrets,
        make_seventh_secrets,
        make_eighth_secrets,
    ],
)
def test_what_is_found_plain_is_found_in_json(make, depth: int):
    """Rules that were written for plain text, line by line, must see the ends of lines and of strings in JSON, too."""
    rng = random.Random(depth)
    left = []
    for blind in make(depth):
        if leaks(REDACTOR.redact(blind.text), blind.secrets):
            continue
        for _ in range(2):
            wire = escape_at_random(blind.text, rng, depth)
            shown = (REDACTOR.redact(wire), lay_out_redacted(wire, REDACTOR.redact).text)
            left += [(blind.kind, wire, text) for text in shown if leaks(text, blind.secrets)]
    assert left == []


def test_what_is_blanked_is_the_value_and_its_escapes():
    wire = escape("password=hunter2 / ok", "every character")
    assert REDACTOR.redact(wire).count("\\u") == len("password= / ok")
    assert escape("DB_PASSWORD=zbJY81xk", "html") == '{"output":"DB_PASSWORD\\u003dzbJY81xk"}'
    assert (
        REDACTOR.redact('{"output":"DB_PASSWORD\\u003dzbJY81xk"}')
        == f'{{"output":"DB_PASSWORD\\u003d{REDACTED}"}}'
    )


def test_a_text_full_of_secrets_hides_none_behind_escapes():
    told = r"wifi password Maple-2019! \/ "
    hidden = r"export DB_PASSWORD\u003dzbJYq93kd02x"
    shown = REDACTOR.redact(told * 100 + hidden)
    assert "Maple" not in shown
    assert "zbJY" not in shown


def test_a_tab_between_a_word_and_its_value_may_be_escaped():
    for text in ("root pw on the box\tKestrel#Loom77", "password for the box\tKestrel#Loom77"):
        assert "Loom77" not in REDACTOR.redact(text)
        assert "Loom77" not in REDACTOR.redact(json.dumps(text))


def test_a_crowd_of_names_leaves_the_escapes_between_them_whole():
    """Where an escape lost its digits, nobody could decode the text any more."""
    wire = json.dumps({"said": "password  \n\\u003d- .C:\\a " * 200})
    assert json.loads(REDACTOR.redact(wire))

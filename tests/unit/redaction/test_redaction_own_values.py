"""The process's own secrets: which variables hold them, and in which forms they are found."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from planted import alnum

from penstock.redaction import REDACTED, Redactor, secret_variables

VALUE = "Own/" + alnum(9, "own") + "+ä &=" + alnum(9, "own2")


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        quote(VALUE, safe=""),
        quote_plus(VALUE),
        json.dumps(VALUE)[1:-1],
        json.dumps(json.dumps(VALUE))[3:-3],
    ],
)
def test_an_own_value_goes_in_every_form(form: str):
    redacted = Redactor([VALUE]).redact(f"<<{form}>>")
    assert redacted == f"<<{REDACTED}>>"


@pytest.mark.parametrize("user", ["", "a", "ab", "abc"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_an_own_value_goes_inside_base64(user: str, encode):
    encoded = encode(f"{user}:{VALUE}:x".encode()).decode()
    redacted = Redactor([VALUE]).redact(f"<<{encoded}>>")
    shown = redacted.replace(REDACTED, "")
    assert REDACTED in redacted
    assert len(shown) < len(encoded) / 2


def test_an_own_value_goes_though_a_rule_sees_a_part_of_it():
    value = "first1 second2 third3"
    assert Redactor([value]).redact(f"password={value}.") == f"password={REDACTED}."


def test_a_long_own_value_goes_whole_and_only_whole():
    value = alnum(3000, "long")
    redactor = Redactor([value])
    assert redactor.redact(f"a {value} b") == f"a {REDACTED} b"
    assert redactor.redact(f"a {value[:2000]} b") == f"a {value[:2000]} b"


def test_own_values_across_a_block_border_are_found():
    value = alnum(20, "border")
    redactor = Redactor([value])
    text = "x y " * ((1 << 20) - 2) + value + " z" * 100
    assert redactor.redact(text).count(REDACTED) == 1


def test_short_own_values_are_left_alone():
    assert Redactor(["on", "12345", ""]).redact("on 12345") == "on 12345"


def test_secret_variables_are_known_by_name():
    environ = {
        "OPENAI_API_KEY": alnum(20, "v1"),
        "GH_TOKEN": alnum(20, "v2"),
        "DB_PASSWORD": "tr0ub4dor",
        "APP_SECRET_2": alnum(12, "v3"),
        "DATABASE_URL": "postgres://app:" + alnum(10, "v4") + "@db/app",
        "SENTRY_DSN": "https://" + alnum(32, "v5") + "@sentry.example.com/1",
    }
    expected = {*list(environ.values())[:4], alnum(10, "v4"), environ["SENTRY_DSN"]}
    assert set(secret_variables(environ)) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("USE_TOKEN", "true"),
        ("API_KEY", "1"),
        ("PWD", "/home/ann/some/project"),
        ("SSH_AUTH_SOCK", "/tmp/ssh-XXXX/agent.1"),
        ("TLS_KEY", "/etc/ssl/private/server.key"),
        ("DB_PASSWORD", "postgres"),
        ("SECRET", "password"),
        ("API_KEY", "${OTHER}"),
        ("PATH", alnum(20, "path")),
        ("GPG_KEY", alnum(40, "gpg")),
        ("STRIPE_PUBLISHABLE_KEY", alnum(30, "pk")),
        ("HOME_URL", "https://example.com/a"),
    ],
)
def test_other_variables_are_not_secret(name: str, value: str):
    assert secret_variables({name: value}) == []

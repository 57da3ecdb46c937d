"""Redaction takes any text: it never raises, never hangs, and has nothing to do a second time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import alnum
from planted_clean import CLEAN
from planted_held_out import HELD_OUT
from planted_known import KNOWN

from penstock.redaction import REDACTED, Redactor

OWN = alnum(16, "any-own")
REDACTOR = Redactor([OWN])

MARKS = (
    '\n = : " \' \\ \\n \\" @ // :// ? & ; , . - _ ( ) [ ] { } < > $ % # | ` 0 a Z é 密 \0 \ud800 \U0001f600'
)
WORDS = (
    "password PASSWORD api_key token secret Bearer Authorization Cookie eyJ sk- gh p_ AKIA is -----BEGIN -us"
)
PIECES = [
    *(planted.text for planted in (*KNOWN, *HELD_OUT)),
    *(secret for planted in KNOWN for secret in planted.secrets),
    *CLEAN,
    *MARKS.split(" "),
    *WORDS.split(" "),
    " ",
    "\t",
    REDACTED,
    OWN,
]
texts = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=8).map("".join)


@settings(max_examples=300, deadline=None)
@given(texts)
def test_redacting_twice_is_redacting_once(text: str):
    once = REDACTOR.redact(text)
    assert REDACTOR.redact(once) == once


@settings(max_examples=300, deadline=None)
@given(texts)
def test_what_is_found_is_in_order_apart_and_what_is_replaced(text: str):
    found = REDACTOR.find(text)
    borders = [border for secret in found for border in (secret.start, secret.end)]
    assert borders == sorted(borders)
    assert all(0 <= secret.start < secret.end <= len(text) for secret in found)
    rest, done = "", 0
    for secret in found:
        rest += text[done : secret.start] + REDACTED
        done = secret.end
    assert REDACTOR.redact(text) == rest + text[done:]


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(codec=None)))
def test_any_string_is_taken(text: str):
    assert REDACTOR.redact(text) == REDACTOR.redact(text)


def test_lone_surrogates_and_nul_do_not_hide_a_secret():
    assert REDACTOR.redact("\ud800\0password=hunter2 \udfff") == f"\ud800\0password={REDACTED} \udfff"


def test_places_are_characters_whatever_the_text_holds():
    text = "密码 \U0001f600 é password=hunter2 \U0001f600"
    (secret,) = REDACTOR.find(text)
    assert text[secret.start : secret.end] == "hunter2"


@pytest.mark.outside
@pytest.mark.parametrize("size", [1 << 22, (1 << 22) + 1, 9_000_000])
def test_secrets_are_found_in_long_texts_wherever_they_stand(size: int):
    planted = " password=hunter2 "
    for at in (0, (1 << 22) - 5, size - len(planted)):
        text = "x" * at + planted + "x" * (size - at - len(planted))
        assert [text[secret.start : secret.end] for secret in REDACTOR.find(text)] == ["hunter2"]


HOSTILE = [
    "password=", "pwd=", "token:", '"password": "', "password='", "password is ", "password for a ", "secret=\\", "eyJ", "eyJ.",
    "eyJaaaaaaaaaa.", "sk-", "sk-1a1-", "xoxb-", "dp.pt.", "ghp_", "API-", "://", "://a:", "://a:b@", "Authorization: ",
    "Bearer ", "Basic ", "Cookie: a=", "cookie:", "Cookie: a=bbbbbbbbb;", " -u a:", "curl -u a:", " -p", "mysql -p",
    "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n", "LS0tLS1CRUdJTi", "$6$a", "$6$a$", "-us", ":AA", ".atlasv1.",
    "hooks.slack.com/a/", "A3-ABCDEF-ABCDE-", "\\", '\\"', '"', "=", "x", "a1", "A", "密码", "password\n", "api_key: &", "auth = f(",
    "password: &a", "../", "password=a/", "password=a.", "password=$", "{{", "密码是", "密码是 a", "password,", "password|", "a,password\n",
    "| password |\n|---|\n", "\\u003d", "\\\\u003d", "password\\n", "password:\\n", "-----END PRIVATE KEY-----\n", "id_rsa\n", "otpauth://", "MTA",
    "seed phrase abcd ", "pw ", "auth=('a','", "curl -b a=", "://a:b/", "\\/", "net use /user:a", "'AC", "sqlplus a/b",
]  # fmt: skip


def seconds(text: str) -> float:
    best = 1e9
    for _ in range(3):
        fresh = "".join((text[:1], text[1:]))  # what it has just read it does not read again
        start = time.thread_time()
        REDACTOR.find(fresh)
        best = min(best, time.thread_time() - start)
    return best


@pytest.mark.alone
@pytest.mark.parametrize("unit", HOSTILE, ids=repr)
def test_time_grows_with_the_text_and_no_faster(unit: str):
    size = 6_000
    short, long = unit * (size // len(unit)), unit * (4 * size // len(unit))
    # Quadratic growth would be 16-fold; the constant forgives a busy machine where all is fast anyway.
    assert seconds(long) < 9 * seconds(short) + 0.02


def test_a_long_line_takes_no_more_than_its_length():
    line = "A1b2C3d4" * 1_000_000
    assert REDACTOR.find(line) == []
    assert seconds(line[: len(line) // 2]) < 1

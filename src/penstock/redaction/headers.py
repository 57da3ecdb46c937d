"""What HTTP headers carry: authorisation of any scheme, and cookies."""

from __future__ import annotations

import binascii
import re
from typing import TYPE_CHECKING

from penstock.redaction.secret import RedactionRule, Secret
from penstock.redaction.value import is_literal, is_masked, looks_random

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RULES"]

_BETWEEN = r"""[\\"'`\])]{0,8}[ \t]{0,8}(?:=>|[:=,])[ \t]{0,8}(?:[fbr]?\\{0,7}["'`])?"""
_AUTHORIZATION = re.compile(
    rf"""{_BETWEEN}(?:(?P<scheme>[A-Za-z][A-Za-z0-9_-]{{1,24}})[ ]+)?(?P<v>[^\s"'`\\,;<>(){{}}]{{6,}}+)"""
)
_SCHEME = re.compile(r"""[ ]{1,4}(?P<v>[A-Za-z0-9._~+/|:%-]{12,}+={0,2})""")
_PARAMETER = re.compile(r"[A-Za-z]+=")
_COOKIES = re.compile(rf"""{_BETWEEN}(?P<pairs>[^\n\r"'`\\]{{3,}}+)""")
_TELLING_COOKIE = re.compile(
    r"sess|sid\b|auth|token|jwt|csrf|xsrf|remember|login|secret|\bid\b|access|credential", re.IGNORECASE
)
_LONGEST_HEADER = 8192
_ATTRIBUTES = frozenset(
    {"path", "domain", "expires", "max-age", "samesite", "version", "comment", "priority"}
)


def _authorization(text: str, _start: int, end: int) -> Iterator[Secret]:
    match = _AUTHORIZATION.match(text, end)
    if match is None or text[match.end() : match.end() + 1] in {"(", "{"}:
        return
    value = match["v"]
    if match["scheme"] and not _PARAMETER.match(value):
        if not is_masked(value) and not value.startswith(("$", "%")) and any(map(str.isdigit, value)):
            yield Secret(match.start("v"), match.end("v"), "authorization")
    elif looks_random(value) and is_literal(value):
        yield Secret(match.start("v"), match.end("v"), "authorization")


def _bearer(text: str, _start: int, end: int) -> Iterator[Secret]:
    match = _SCHEME.match(text, end)
    if match and looks_random(match["v"]) and is_literal(match["v"]):
        yield Secret(match.start("v"), match.end("v"), "authorization")


def _basic(text: str, _start: int, end: int) -> Iterator[Secret]:
    match = _SCHEME.match(text, end)
    if match is None:
        return
    try:
        decoded = binascii.a2b_base64(match["v"], strict_mode=True)
    except binascii.Error:
        return
    if b":" in decoded and decoded.isascii():
        yield Secret(match.start("v"), match.end("v"), "authorization")


def _cookies(text: str, _start: int, end: int) -> Iterator[Secret]:
    # Up to the next cookie header at most: so no stretch of text is read twice.
    following = text.find("ookie", end, end + _LONGEST_HEADER)
    header = _COOKIES.match(text, end, following if following >= 0 else end + _LONGEST_HEADER)
    if header is None:
        return
    begin = header.start("pairs")
    for pair in header["pairs"].split(";"):
        name, _, value = pair.partition("=")
        start = begin + len(name) + 1
        begin += len(pair) + 1
        value = value.rstrip()
        if name.strip().lower() not in _ATTRIBUTES and len(value) >= 8 and _is_session(name, value[:256]):
            yield Secret(start, start + len(value), "cookie")


def _is_session(name: str, value: str) -> bool:
    if not is_literal(value):
        return False
    return looks_random(value) or (_TELLING_COOKIE.search(name) is not None and any(map(str.isdigit, value)))


RULES = (
    RedactionRule(("Authorization", "authorization", "AUTHORIZATION"), _authorization),
    RedactionRule(("Bearer", "bearer", "BEARER"), _bearer),
    RedactionRule(("Basic", "basic"), _basic),
    RedactionRule(("Cookie", "cookie", "COOKIE"), _cookies),
)

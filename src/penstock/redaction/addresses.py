"""Passwords inside addresses and connection strings, and signatures that make an address a key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.redaction.secret import RedactionRule, Secret
from penstock.redaction.value import is_masked, looks_random

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RULES"]

# The password may hold an unescaped @, never a slash: the last @ before the path ends it.
_USERINFO = re.compile(r"""[^\s:/@?#"'`<>\\,;(){}|]{0,256}+:(?P<v>[^\s/"'`<>\\]{1,256})@(?=[\w\[.$%{-])""")
_ONLY_USER = re.compile(r"(?P<v>[A-Za-z0-9_-]{20,256}+)@(?=\w)")
_USER_AND_PASSWORD = re.compile(r"""[\w.-]{1,64}:(?P<v>[^\s"'`/]{1,80})\Z""")
_SIGNATURE = re.compile(r"(?P<v>[A-Za-z0-9%+/_-]{20,}+={0,2})")


def _userinfo(text: str, _start: int, end: int) -> Iterator[Secret]:
    if match := _USERINFO.match(text, end):
        value = match["v"]
        # A template or a variable has braces that the user part cannot have.
        if not is_masked(value) and value[0] not in "$%{[":
            yield Secret(match.start("v"), match.end("v"), "url-password")
    elif (match := _ONLY_USER.match(text, end)) and looks_random(match["v"]):
        yield Secret(match.start("v"), match.end("v"), "url-password")


def _go_address(text: str, start: int, _end: int) -> Iterator[Secret]:
    """`user:password@tcp(host:3306)/name`: what stands before the anchor."""
    if (match := _USER_AND_PASSWORD.search(text, max(0, start - 160), start)) and not is_masked(match["v"]):
        yield Secret(match.start("v"), match.end("v"), "url-password")


def _signature(text: str, _start: int, end: int) -> Iterator[Secret]:
    if (match := _SIGNATURE.match(text, end)) and not is_masked(match["v"]):
        yield Secret(match.start("v"), match.end("v"), "url-signature")


RULES = (
    RedactionRule(("://",), _userinfo),
    RedactionRule(("@tcp(", "@unix("), _go_address),
    RedactionRule(
        ("?sig=", "&sig=", "-Signature=", "&Signature=", "?Signature=", "SharedAccessSignature=", "&hmac="),
        _signature,
    ),
)

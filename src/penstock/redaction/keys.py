"""Private keys: armoured blocks, whole or cut off, on many lines or on one, and the same in base64."""

from __future__ import annotations

import binascii
import re
from typing import TYPE_CHECKING

from penstock.redaction.secret import RedactionRule, Secret

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RULES"]

_ARMOUR = re.compile(
    r"-BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-{1,5}|- BEGIN SSH2 [A-Z ]{0,20}PRIVATE KEY -{2,5}"
)
# What stands between the lines of a key: breaks, real or escaped, quotes, line numbers, quote marks.
_BETWEEN = r"""(?:[\s"'`,>|#*]|\\{1,4}[nrt]|\\{1,4}(?=["'\s])|[0-9]{1,6}(?:→|[:|\t]|\ (?=[|│])))"""
_FIELDS = r"(?:(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset|MessageID|Subject)\ ?:\ [^\n\\]{0,200})"
_BODY = re.compile(
    rf"""
    (?:{_BETWEEN}{{0,40}}+ {_FIELDS}){{0,8}}+
    {_BETWEEN}{{0,80}}+
    (?P<key> [A-Za-z0-9+/]{{16,}}+={{0,2}}
        (?: {_BETWEEN}{{1,80}}+ [A-Za-z0-9+/]{{16,}}+={{0,2}} )*+
        (?: {_BETWEEN}{{1,80}}+                     # the last line is short, and PGP adds a checksum
            (?: [A-Za-z0-9+/]{{8,15}}+={{0,2}} | [A-Za-z0-9+/]{{1,7}}={{1,2}} | =?[A-Za-z0-9+/]{{1,7}}={{0,2}}(?={_BETWEEN}{{0,80}}+-) )
        ){{0,2}}+
    )
    """,
    re.VERBOSE,
)
_PUTTY = re.compile(
    r"Private-Lines: \d+(?:\s|\\{1,4}[nr])++(?P<key>[A-Za-z0-9+/=]{16,}(?:(?:\s|\\{1,4}[nr])+[A-Za-z0-9+/=]{16,})*)"
)
_ENCODED_HEAD = re.compile(r"[A-Za-z0-9+/]{72}")
_ENCODED = re.compile(r"[A-Za-z0-9+/]*+={0,2}")


def _armoured(text: str, _start: int, end: int) -> Iterator[Secret]:
    armour = _ARMOUR.match(text, end - len("-BEGIN")) or _ARMOUR.match(text, end - len("- BEGIN"))
    if armour and (body := _BODY.match(text, armour.end())):
        yield Secret(body.start("key"), body.end("key"), "private-key")


def _putty(text: str, start: int, _end: int) -> Iterator[Secret]:
    if match := _PUTTY.match(text, start):
        yield Secret(match.start("key"), match.end("key"), "private-key")


def _encoded(text: str, start: int, _end: int) -> Iterator[Secret]:
    match = _ENCODED_HEAD.match(text, start)
    if (
        match
        and b"PRIVATE KEY" in binascii.a2b_base64(match[0])
        and (rest := _ENCODED.match(text, match.end()))
    ):
        yield Secret(start, rest.end(), "private-key")


RULES = (
    RedactionRule(("--BEGIN", "-- BEGIN"), _armoured),
    RedactionRule(("Private-Lines: ",), _putty),
    RedactionRule(("LS0tLS1CRUdJTi",), _encoded),
)

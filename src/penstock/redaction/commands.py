"""Passwords that commands and statements take without a telling name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.redaction.secret import Find, RedactionRule, Secret
from penstock.redaction.value import is_masked

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RULES"]

_WORD = r"""(?:\\{0,7}"(?P<d>[^"\\\n]{1,256})|\\{0,7}'(?P<s>[^'\\\n]{1,256})|(?P<b>[^\s"'\\|;<>()]{1,256}))"""
_ATTACHED = re.compile(_WORD)
_NEXT = re.compile(r"[ \t=]+" + _WORD)
_QUOTED = re.compile(r"""[ \t]+(?:\\{0,7}"(?P<d>[^"\\\n]{1,256})|\\{0,7}'(?P<s>[^'\\\n]{1,256}))""")
_USER_AND_PASSWORD = re.compile(
    r"""[ \t=]+\\{0,7}(?:"[^":\s]{1,128}:(?P<d>[^"\\\n]{1,256})|'[^':\s]{1,128}:(?P<s>[^'\\\n]{1,256})"""
    r"""|[^\s:"'\\]{1,128}:(?P<b>[^\s"'\\|;<>()]{1,256}))"""
)
_PGPASS = re.compile(r"[\w*.-]+:[\w*.@-]+:(?P<b>[^\s:]{4,256}+)(?=\s|$)")


def _after(pattern: re.Pattern[str], *commands: str) -> Find:
    """Finds what the pattern says, where one of the commands stands before it on the same line."""

    def find(text: str, start: int, end: int) -> Iterator[Secret]:
        match = pattern.match(text, end)
        if match is None or match.lastgroup is None:
            return
        value = match[match.lastgroup]
        line = text[max(0, start - 240) : start].rpartition("\n")[2]
        if is_masked(value) or value[0] in "$-" or (commands and not any(map(line.__contains__, commands))):
            return
        yield Secret(*match.span(match.lastgroup), "command-password")

    return find


RULES = (
    RedactionRule((" -u", " --user"), _after(_USER_AND_PASSWORD, "curl", "http ", "wget")),
    RedactionRule((" -p",), _after(_ATTACHED, "mysql", "mariadb")),
    RedactionRule(
        (" -p",), _after(_NEXT, "sshpass", "docker login", "az login", "podman login", "helm registry")
    ),
    RedactionRule((" -P",), _after(_NEXT, "sqlcmd", "bcp ", "tsql")),
    RedactionRule((" -a",), _after(_NEXT, "redis-cli")),
    RedactionRule(("IDENTIFIED BY", "identified by"), _after(_QUOTED)),
    RedactionRule((":5432:",), _after(_PGPASS)),
)

"""Is this literal a secret, or does it only stand where one could?

A redactor that takes every `password = …` for a secret ruins code. These questions are asked of a value
that a telling name, header or address has already put under suspicion.
"""

from __future__ import annotations

import re

__all__ = ["is_literal", "is_masked", "is_placeholder", "looks_chosen", "looks_random"]

_MASKED = re.compile(
    r"""
      \[?REDACTED | \[?\bMASKED\b | \[?FILTERED\]? | \[?HIDDEN\] | \[secret   # someone redacted it before us
    | \*{3} | •{3} | …| \.{3} | [xX]{6} | _{4} | \#{4} | ─{3}         # filled in with something
    | ^[xX]{3,}$ | ^[-.*_•#]+$
    | \$\{ | \$\( | \{\{ | \}\} | \#\{ | <%                          # templates
    | ^\$[A-Za-z_]\w*$ | ^%\w+%$ | ^%[sdr]$ | ^%\( | ^@\w+@$ | ^\{[\w.!:\[\]'"() ]*\}$ | ^\$\d$
    | ^\\?<[^<>]*\\?>?$ | ^<\|                                        # <your-key>
    """,
    re.VERBOSE,
)
_REFERENCE = re.compile(
    r"""
      ^[A-Za-z_$][\w$]*(?:(?:\.|->|::|\?\.|\#)[A-Za-z_$][\w$]*)+\.?$  # settings.API_KEY, user?.password
    | ^(?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w.@~-]+(?:[/\\][\w.@ ~-]*)*$    # a path
    | ^[\w.@-]+(?:/[\w.@-]+)*/[\w-]+\.[a-z]{1,5}$                     # a path without a leading slash
    | ^[a-z][a-z0-9+.-]*://                                           # an address: its own rule looks at it
    | ^(?:arn|env|file|op|vault|ref|secretref|aws-ssm|gcp|ssm|sops|urn|keyring|cmd|sha(?:1|256|512)|md5)[:+]
    | ^![A-Za-z]\w*$ | ^\*\w+$ | ^&\w+$                               # YAML tags, anchors
    | ^[A-Z][A-Z]*(?:_[A-Z]+)+$                                       # the name of a variable
    | ^\d{4}-\d\d-\d\d | ^v?\d+\.\d+(?:\.\d+)*                        # a date, a version
    | ^\d{1,2}:\d\d
    """,
    re.VERBOSE,
)
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")
_PLAIN_WORDS = frozenset(
    """
    a an and any api app apikey auth authorization authtoken bar base bearer basic baz boolean bool bytes change
    changed changeme char client cookie credential credentials current custom db default demo digest disabled dummy
    empty enabled enter env error example expired fail failed fake false file foo for form from has header here
    hidden id in incorrect input insert int invalid is it jwt key len length login me missing mock must my name nil
    no none not null number oauth obj object of ok old on one optional option or out param pass passed passphrase
    passwd password passwords passwort path placeholder private prompt public put pw pwd random read replace
    required reset sample secret secrets set signing some str string stub test tested testing text that the this
    to todo token tokens true type undefined unknown unset url use user username val valid value varchar via void
    was weak with wrong xxx yes you your yours contraseña senha пароль 密码 パスワード
    secretstr strings optionalstr any self new kennwort wachtwoord redacted access service account session
    """.split()
)
_WORD_BREAK = re.compile(r"[^A-Za-z0-9\u0080-\U0010ffff]+|(?<=[a-z])(?=[A-Z])")
_NOT_ALNUM = re.compile(r"[^A-Za-z0-9]+")
_CHUNK = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_SYMBOL = re.compile(r"[!@#$%^&*+=?~|:/\\]")


def is_masked(value: str) -> bool:
    """Whether the value is a blank, a mask or a template: by its form alone, nobody's secret."""
    return not value or _MASKED.search(value) is not None or len(set(value)) < 2


def is_placeholder(value: str) -> bool:
    """Whether the value is masked or says, in words, that a secret belongs here: `your-api-key`, `changeme`."""
    if is_masked(value):
        return True
    words = [word for word in _WORD_BREAK.split(value) if word]
    return all(word.lower() in _PLAIN_WORDS or (word.isdigit() and len(word) < 2) for word in words)


def is_literal(value: str) -> bool:
    """Whether the value is neither a placeholder nor a reference to where the secret really is."""
    return len(value) >= 4 and not is_placeholder(value) and _REFERENCE.search(value) is None


def looks_chosen(value: str) -> bool:
    """Whether the value looks like a password that a person chose: not a plain word, not an identifier."""
    letters = any(map(str.isalpha, value))
    digits = sum(map(str.isdigit, value))
    if not letters:
        return digits >= 4 and digits == len(value)
    if _SYMBOL.search(value):
        return True
    if _IDENTIFIER.fullmatch(value) and not value.rstrip("0123456789").isalpha():
        return looks_random(value) or (digits >= 2 and "_" not in value)
    return digits > 0


def looks_random(value: str) -> bool:
    """Whether the value looks like something that a machine drew, not like words that somebody wrote.

    Words, also camel-cased ones with numbers, fall into few long chunks of one kind of character; drawn
    characters fall into many short ones.
    """
    return len(value) >= 10 and any(_is_drawn(segment) for segment in _NOT_ALNUM.split(value))


def _is_drawn(segment: str) -> bool:
    size = len(segment)
    if size < 8 or len(set(segment)) < 6:
        return False
    chunks = len(_CHUNK.findall(segment))
    if segment.isalpha():
        return size >= 12 and not segment.islower() and not segment.isupper() and size <= 2.3 * chunks
    if segment.isdigit():
        return False
    return size <= (3.6 if size >= 20 else 2.9) * chunks

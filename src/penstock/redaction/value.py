"""Is this literal a secret, or does it only stand where one could?

A redactor that takes every `password = …` for a secret ruins code. These questions are asked of a value
that a telling name, header or address has already put under suspicion.
"""

from __future__ import annotations

import re

__all__ = ["is_literal", "is_masked", "looks_chosen", "looks_random"]

# What nobody puts into a secret: someone else's redaction, a filler, a template.
_MASKS = (
    "REDACTED", "MASKED", "FILTERED", "[HIDDEN]", "[secret", "***", "•••", "…", "...", "xxxxxx", "XXXXXX", "____", "####",
    "${", "$(", "{{", "}}", "#{", "<%", "%s",
)  # fmt: skip
_ANY_MASK = re.compile("|".join(map(re.escape, _MASKS)))
_MASKED = re.compile(
    r"""
      [xX]{3,} | [-.*_•\#]+
    | \$[A-Za-z_]\w* | \$[0-9] | %\w+% | %[sdr] | %\(.* | @\w+@ | \{[\w.!:\[\]'"()\ ]*\}
    | \\?<[^<>]*>? | <\|.* | [\w.:/-]+<[^\W\d][\w\ -]*>
    """,
    re.VERBOSE,
)
_REFERENCE = re.compile(
    r"""
      [A-Za-z_$][\w$]*(?:(?:\.|->|::|\?\.|\#)[A-Za-z_$][\w$]*)+\.?\Z  # settings.API_KEY, user?.password
    | (?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w.@~-]+(?:[/\\][\w.@\ ~-]*)*\Z    # a path
    | (?:[\w.@-]+/)+[\w-]+\.[a-z]{1,5}\Z                              # a path without a leading slash
    | [a-z][a-z0-9+.-]*://                                            # an address: its own rule looks at it
    | (?:arn|env|file|op|vault|ref|secretref|aws-ssm|gcp|ssm|sops|urn|keyring|cmd|sha(?:1|256|512)|md5)[:+]
    | ![A-Za-z]\w*\Z | \*\w+\Z | &\w+\Z                               # YAML tags, anchors
    | [A-Z]+(?:_[A-Z]+)+\Z                                            # the name of a variable
    | [0-9]{4}-[0-9]{2}-[0-9]{2} | v?[0-9]+\.[0-9]+ | [0-9]{1,2}:[0-9]{2}   # a date, a version, a time
    """,
    re.VERBOSE,
)
_KEY_LIKE_PATH = re.compile(r"(?=.{0,40}[0-9])(?=.{0,40}[A-Z])[A-Za-z0-9+/]{40}|[A-Za-z0-9+/]{42,}={1,2}")
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")
_WORD_AND_YEAR = re.compile(r"[A-Z][a-z]{2,}_[0-9]{2,4}")
# Words that stand where a secret would: placeholders, types, labels, and what error messages say of one.
_PLAIN = """
    a access account an and any api apikey app auth authorization authtoken bar base basic baz
    bearer bool boolean bytes change changed changeme char client contraseña cookie credential
    credentials current custom db default demo digest disabled dummy empty enabled enter env error
    example expired fail failed fake false file foo for form from has header here hidden id in
    incorrect input insert int invalid is it jwt kennwort key len length login me missing mock must
    my name new nil no none not null number oauth obj object of ok old on one option optional
    optionalstr or out param pass passed passphrase passwd password passwords passwort path
    placeholder private prompt public put pw pwd random read redacted replace required reset sample
    secret secrets secretstr self senha service session set signing some str string strings stub
    test tested testing text that the this to todo token tokens true type undefined unknown unset
    url use user username val valid value varchar via void wachtwoord was weak with wrong xxx yes
    you your yours пароль パスワード 密码
"""
_PLAIN_WORDS = frozenset(_PLAIN.split())
_WORD_BREAK = re.compile(r"[^A-Za-z0-9\u0080-\U0010ffff]+|(?<=[a-z])(?=[A-Z])")
_WORDS_READ = 6  # of a value, to tell whether it is made of plain words
_NOT_ALNUM = re.compile(r"[^A-Za-z0-9]+")
_CHUNK = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_HEX = re.compile(r"[0-9a-f]+")
_SYMBOL = re.compile(r"[!@#$%^&*+=?~|:/\\]")


def is_masked(value: str) -> bool:
    """Returns True if the value is a blank, a mask or a template: no secret, by its form alone."""
    if len(set(value)) < 2 or _MASKED.fullmatch(value):
        return True
    return _ANY_MASK.search(value) is not None


def _is_placeholder(value: str) -> bool:
    """Returns True if the value says, in words, that a secret belongs here: `your-api-key`, `changeme`."""
    for word in _WORD_BREAK.split(value, _WORDS_READ)[:_WORDS_READ]:
        stem = word[:-1] if word[-1:].isdigit() else word
        if stem and stem.lower() not in _PLAIN_WORDS:
            return False
    return True


def is_literal(value: str) -> bool:
    """Returns True if the value is neither a mask, a placeholder nor a reference to where the secret really is."""
    if len(value) < 4 or is_masked(value) or _is_placeholder(value):
        return False
    # A key of base64 that begins with a slash is no path.
    return _REFERENCE.match(value) is None or (
        value[0] == "/" and _KEY_LIKE_PATH.fullmatch(value) is not None
    )


def looks_chosen(value: str) -> bool:
    """Returns True if the value looks like a password that a person chose: not a plain word, not an identifier."""
    letters = any(map(str.isalpha, value))
    digits = sum(map(str.isdigit, value))
    if not letters:
        return digits >= 4 and digits == len(value)
    if _SYMBOL.search(value):
        return True
    if _WORD_AND_YEAR.fullmatch(value):
        return True
    if _IDENTIFIER.fullmatch(value) and not value.rstrip("0123456789").isalpha():
        return looks_random(value) or (digits >= 2 and "_" not in value)
    return digits > 0


def looks_random(value: str) -> bool:
    """Returns True if the value looks generated by a machine, not written by a person.

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
        mixed = not segment.islower() and not segment.isupper()
        return size >= 12 and mixed and size <= (3.2 if size >= 20 else 2.3) * chunks
    if segment.isdigit():
        return False
    if size >= 32 and _HEX.fullmatch(segment):
        return True
    return size <= (3.6 if size >= 20 else 2.9) * chunks

"""Defines `Secret` and `RedactionRule`, and judges whether a literal is a secret or only stands where one could.

A redactor that takes every `password = …` for a secret ruins code. `is_literal` and its kin judge a value that a telling
name, header or address has already put under suspicion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeAlias

import msgspec

__all__ = [
    "REDACTED",
    "Detector",
    "Find",
    "RedactionRule",
    "Secret",
    "ends_escape",
    "is_literal",
    "is_made_of_words",
    "is_made_up",
    "is_masked",
    "looks_chosen",
    "looks_random",
]

REDACTED = "[REDACTED]"


class Secret(msgspec.Struct, frozen=True, order=True):
    """A secret's value in a text: the characters from `start` up to `end`, and what kind of secret it is."""

    start: int
    end: int
    kind: str


Find: TypeAlias = Callable[[str, int, int], Iterable[Secret]]
"""Looks around one anchor, which stands from the first to the second number, for secrets."""

Detector: TypeAlias = Callable[[str], Iterable[Secret]]
"""A detector from elsewhere: all the secrets that it sees in a text."""


class RedactionRule(msgspec.Struct, frozen=True):
    """A kind of secret: the literal strings that always stand near one, and the search around each of them.

    `find` looks only near the anchor and reads a bounded number of characters unless it finds something, so
    that a text costs no more than its length. It takes `REDACTED` for no secret.
    """

    anchors: tuple[str, ...]
    find: Find
    stands_free: bool = False
    """Nothing is found where a letter, a digit, `_` or `-` stands right before the anchor, unless it ends an escape."""
    ends_word: bool = False
    """Nothing is found where small letters go on right behind the anchor, unless they begin an ending of `named`."""


def ends_escape(text: str, place: int) -> bool:
    """Returns True if the character before this place is the letter of an escape: of a line break, a tab and so on."""
    return place > 1 and text[place - 2] == "\\" and text[place - 1] in "nrtbf"


# Is this literal a secret?

# Never part of a secret: another program's redaction, a filler, a template.
_MASKS = (
    "REDACTED", "MASKED", "FILTERED", "[HIDDEN]", "[secret", "***", "•••", "…", "...", "xxxxxx", "XXXXXX", "____", "####",
    "${", "$(", "{{", "}}", "#{", "<%", "%s",
)  # fmt: skip
_ALNUM_MASK = re.compile("|".join(mask for mask in _MASKS if mask.isalnum()))
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
    | x:[0-9]+:[0-9]+:                                                # the rest of a line of /etc/passwd
    | ![A-Za-z]\w*\Z | \*\w+\Z | &\w+\Z                               # YAML tags, anchors
    | [A-Z]+(?:_[A-Z]+)+\Z                                            # the name of a variable
    | [0-9]{4}-[0-9]{2}-[0-9]{2} | v?[0-9]+\.[0-9]+ | [0-9]{1,2}:[0-9]{2}   # a date, a version, a time
    """,
    re.VERBOSE,
)
_NAME_IN_FOLDERS = re.compile(r"(?:[\w.@-]+/){3,16}[\w.-]+")  # projects/shop/secrets/db/versions/3
_DOTTED_KEY = re.compile(
    r"[a-z]\.(?=[A-Za-z]{0,20}[0-9])[A-Za-z0-9]{24,}"
)  # one letter and a drawn run: a Vault token
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
# Two words and a number, as people make passwords of them: `maple_Harbour42`, `Maple.harbour1999`. Code looks alike, and
# is told by its words.
_WORDS_AND_NUMBER = re.compile(r"([A-Za-z]{3,16})[._#!-]([A-Za-z]{3,16})[0-9]{2,6}[!?*]?")
_WORD_NUMBER_MARK = re.compile(
    r"[0-9]{2,6}[!_#-][a-zA-Z][a-z]{2,11}[A-Z][a-z]{2,11}|[A-Za-z]{4,24}[0-9]{1,6}[!?*#$%&+@]{1,3}|[A-Za-z]{3,20}(?:[!*$%]|[@&+](?=[0-9]{4}))[0-9]{2,6}[!?*#$%&+]{0,3}"
)
# Capitals, small letters, digits and a mark, as the rules for passwords ask for; and what else has all four.
_MARKED = re.compile(
    r"(?=[^A-Z]{0,63}[A-Z])(?=[^a-z]{0,63}[a-z])(?=[^0-9]{0,63}[0-9])(?=[\w.-]{0,63}[!#$%^&*+~@])"
    r"(?![@&+.-])[\w!#$%^&*+~.?@-]{7,64}"
)
_MARKED_CODE = re.compile(
    r"[\w.-]+@[\w-]*(?:\.[\w-]+)+|@?[\w.-]+@[v^~]?[0-9][\w.-]*"  # an address, a package and its version
    r"|[A-Za-z.-]+\#[A-Za-z]*[0-9]*|\#[0-9A-Za-z]{3,8}|[A-Za-z_][A-Za-z]*(?:\$[A-Za-z]*[0-9]*)+"  # issue#12, Outer$Inner2
    r"|\$\w+|(?:[A-Za-z_][\w.]*|[0-9.]+)(?:[*+%&](?:[A-Za-z_][\w.]*|[0-9.]+))+|[\w.]+\+\+[\w.]*|(?:[\w.-]*%[0-9A-F]{2})+[\w.-]*|%[\w.-]+%?"
)
_CODE = """
    abs aes args argon array assert async attr await base batch bcrypt blob body bin block buf buffer build byte cache call
    case cert cfg check chunk class code col column cols command compute conf config const content context copy count crypto
    ctx cur data date day dest dev dict dir dist doc dst elem email encode encrypt entry err event exp expr fetch field fields
    find fixture flag float fmt func function gen get group handle hash hex host img index info init inner item iter job
    json kwargs label layer left level line lines list load local log loop map math max md message meta method min mode model
    module month msg next node num nums opt options opts org os outer output page panel param params parse part payload pem
    pkg pos post pre prev process prod prop props query queue raw record ref region release req request res resp response
    result results ret right root row rows rsa rule run salt save schema score scrypt section send server settings sha size slot
    source sql src stage staging start state static step stop store stream struct sub sum sys tab table tag task temp temps
    template tests text tmp top total tree unit update util utf vals var vars vec version view web week width win window worker
    write xml yaml year zone
"""
_CODE_WORDS = _PLAIN_WORDS | frozenset(_CODE.split())
_WORD_BREAK = re.compile(r"[^A-Za-z0-9\u0080-\U0010ffff]+|(?<=[a-z])(?=[A-Z])")
_WORDS_READ = 6  # of a value, to tell whether it is made of plain words
_NOT_ALNUM = re.compile(r"[^A-Za-z0-9]+")
_CHUNK = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_HEX = re.compile(r"[0-9a-f]+")
_UNLIKELY_MARK = re.compile(r"\w[!#%*^~]\w")
_BASE32 = re.compile(r"(?:[A-Z2-7]{8}){2,8}")
_LETTERS = re.compile("[A-Za-z]+")
# Between underscores, digits that letters go on behind, or a word and a year: `2025x`, `lemon2008`.
_MIXED_PIECE = re.compile(r"(?:^|_)(?:[0-9]{2,}[A-Za-z]|[A-Za-z]{4,}(?:19|20)[0-9]{2}(?:_|$))")
_DIGIT, _TWO_DIGITS = re.compile(r"\d"), re.compile(r"\d\D*\d")
_SYMBOL = re.compile(r"[!@#$%^&*+=?~|:/\\]")


_remember = lru_cache(maxsize=512)  # several rules judge the same value, one after the other


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


@_remember
def is_literal(value: str) -> bool:
    """Returns True if the value is neither a mask, a placeholder nor a reference to where the secret really is."""
    if len(value) < 4:
        return False
    if value.isalnum():  # as most values are, and few masks and no references
        if len(set(value)) < 2 or not value.strip("xX"):
            return False
        return _ALNUM_MASK.search(value) is None and not _is_placeholder(value)
    if is_masked(value) or _is_placeholder(value):
        return False
    if _REFERENCE.match(value) is None:
        return _NAME_IN_FOLDERS.fullmatch(value) is None or looks_random(value)
    if value[0] == "/":  # a key of base64 that begins with a slash is no path
        return _KEY_LIKE_PATH.fullmatch(value) is not None
    if "#" in value and looks_random(value):
        return True
    return is_made_of_words(value) or _DOTTED_KEY.fullmatch(value) is not None


def is_made_of_words(value: str) -> bool:
    """Returns True for two words and a number that no code would be made of."""
    match = _WORDS_AND_NUMBER.fullmatch(value)
    return match is not None and not {match[1].lower(), match[2].lower()} & _CODE_WORDS


@_remember
def is_made_up(value: str) -> bool:
    """Returns True for what hardly anything but a password looks like: `Harbour2019!`, `maple#Harbour42`, `H4rb0ur$9`."""
    if is_made_of_words(value) or _WORD_NUMBER_MARK.fullmatch(value):
        return True
    if _MARKED.fullmatch(value) is None:
        return False
    return _MARKED_CODE.fullmatch(value) is None or (
        "." not in value and value[0].isalnum() and _is_drawn(_NOT_ALNUM.sub("", value))
    )


@_remember
def looks_chosen(value: str) -> bool:
    """Returns True if the value looks like a password that a person chose: not a plain word, not an identifier."""
    letters = value.lower() != value.upper() if value.isascii() else any(map(str.isalpha, value))
    if not letters:
        return len(value) >= 4 and value.isdigit()
    if _SYMBOL.search(value):
        return True
    if _WORD_AND_YEAR.fullmatch(value) or is_made_of_words(value):
        return True
    if _IDENTIFIER.fullmatch(value) and not value.rstrip("0123456789").isalpha():
        if looks_random(value):
            return True
        return _TWO_DIGITS.search(value) is not None and ("_" not in value or _is_mixed(value))
    return _DIGIT.search(value) is not None


def _is_mixed(value: str) -> bool:
    """Returns True for an identifier that no code would have: `Winter_2025x`, `lemon2008_x`; not for `sha256_hash2`."""
    if len(value) < 8 or value.isupper() or _MIXED_PIECE.search(value) is None:
        return False
    return all(len(word) < 3 or word.lower() not in _CODE_WORDS for word in _LETTERS.findall(value))


@_remember
def looks_random(value: str) -> bool:
    """Returns True if the value looks generated by a machine, not written by a person.

    Words, also camel-cased ones with numbers, fall into few long chunks of one kind of character; drawn
    characters fall into many short ones.
    """
    if len(value) < 10:
        return False
    segments = _NOT_ALNUM.split(value)
    if any(map(_is_drawn, segments)):
        return True
    # With such marks between, which no path, name or sentence has, short pieces count as one.
    return len(segments) > 2 and _UNLIKELY_MARK.search(value) is not None and _is_drawn("".join(segments))


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
    if size >= 16 and _BASE32.fullmatch(segment):  # it has a digit, or it would have left above
        return True
    return size <= (3.6 if size >= 20 else 2.9) * chunks

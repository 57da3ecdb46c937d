"""Cuts text into terms, in the same way for the index and for queries.

A term is a word in lower case. A name gives itself and its parts: `getUserName` is found by `getusername`,
`get`, `user` and `name`; `src/app/main.py` by the whole path and by each word in it. Chinese, Japanese and
Korean text gives each character and each pair of neighbours. Plurals give the singular, accents are dropped.
Words that occur everywhere are not terms.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

__all__ = [
    "STOP_WORDS",
    "find_terms",
    "fold_word",
    "index_terms",
    "is_unspaced",
    "locate_tokens",
    "split_tokens",
]

_COMMON = """
a about all also am an and are as at be been but by can could did do does for from had has have he her here his how i
if in into is it its just let me more my no not now of on or our out she should so that the their them then there they
this to up us use using was we were what when where which who why will with would you your
"""
STOP_WORDS = frozenset(_COMMON.split())

_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_TOKEN = re.compile(  # control characters and lone surrogates are no text: no database takes them
    r"[^\s\x00-\x1f\x7f\ud800-\udfff\"'`(){}\[\]<>,;=|*!?“”‘’„«»…，。；：！？、（）「」『』【】《》]+"
)
_WORD = re.compile(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])\w)+")
_ASCII_WORD = re.compile(r"\w+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
is_unspaced = re.compile(f"[{_UNSPACED}]").match
_JOINED = re.compile(r"\w[^\w\s]+\w").search
_DIGITS = re.compile(r"\d+")

_LONGEST = 64  # characters of a word that count: what is longer is data
_LONGEST_WHOLE = 120
_MOST_NUMBERS = 2  # in a name that has parts: 3f2a9bc0 is one name, sha256_v2 has four parts
_REMEMBERED = 1 << 16
_QUOTES = "\"'"  # what wide quotes become; no term holds one


def split_tokens(text: str) -> list[str]:
    """Returns the text in runs between spaces, quotes, brackets and commas: a word, a name or a path each."""
    return _TOKEN.findall(text)


def locate_tokens(text: str) -> list[int]:
    """Returns where each token of the text begins."""
    return [found.start() for found in _TOKEN.finditer(text)]


def index_terms(text: str) -> set[str]:
    """Returns every term of the text, once each, for an index."""
    return {term for token in set(split_tokens(text)) for term in find_terms(token)}


@lru_cache(maxsize=_REMEMBERED)
def find_terms(token: str) -> tuple[str, ...]:
    """Returns the terms of one token, each once.

    These are its words and their parts, then the whole token if it joins several words.
    """
    words = _split_words(token)
    if len(words) == 1:
        return _find_terms_of_word(words[0])
    found = [term for word in words for term in _find_terms_of_word(word)]
    if found and len(token) <= _LONGEST_WHOLE and _JOINED(token):
        found.append(fold_word(token.strip("-.:/\\#~+&%$@_")))
    return tuple(dict.fromkeys(found))


def _split_words(token: str) -> list[str]:
    """Returns the words of a token, in order; text without spaces apart from other writing."""
    return (_ASCII_WORD if token.isascii() else _WORD).findall(token)


@lru_cache(maxsize=_REMEMBERED)
def _find_terms_of_word(word: str) -> tuple[str, ...]:
    if is_unspaced(word):
        return tuple(dict.fromkeys([*word, *(word[at : at + 2] for at in range(len(word) - 1))]))
    bare = word.strip("_")
    terms = [fold_word(bare)[:_LONGEST]]
    if len(bare) <= _LONGEST and not (bare.isalpha() and bare[1:].islower()):
        parts = _PART.findall(bare)
        if len(parts) > 1 and len(_DIGITS.findall(bare)) <= _MOST_NUMBERS:
            terms += [fold_word(part) for part in parts]
    singular = dict.fromkeys(_make_singular(term) for term in terms if len(term) > 1)
    return tuple(term for term in singular if term not in STOP_WORDS)


def fold_word(text: str) -> str:
    """Returns the text in lower case, letters without their accents."""
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text.casefold())
    kept = [char for char in apart if not (unicodedata.combining(char) or char.isspace() or char in _QUOTES)]
    return unicodedata.normalize("NFC", "".join(kept))


def _make_singular(term: str) -> str:
    """Returns the singular of a plural: `orders` and `order` are one term; so are `queries` and `query`."""
    if len(term) < 4 or term[-1] != "s" or term[-2] in "us" or not term.isalpha():
        return term
    return term[:-3] + "y" if term.endswith("ies") and len(term) > 4 else term[:-1]

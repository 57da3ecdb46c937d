"""A query, and how rare each word of it is.

The first words of a query say what is wanted. Text after the first 300 characters counts as
surroundings and weighs less, so that a caller may pass on the live request with the words before it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.message import Role, Text
from penstock.recall.terms import find_terms, split_tokens
from penstock.writing.values import PHRASE, values_in_phrase, values_in_token

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.conversation.message import Message

__all__ = [
    "Query",
    "Statistics",
    "add_surroundings",
    "find_phrases",
    "find_subject",
    "find_token_values",
    "find_values",
    "read_query",
    "split_query",
]

_WANTED = 300  # characters
_SURROUNDINGS = 0.2
_MOST_CHARACTERS = 4_000
_SHORTEST_VALUE = 4
_TALKING = (Role.USER, Role.ASSISTANT)
_REMEMBERED = 1 << 16


class Query(msgspec.Struct, frozen=True):
    """`weights` of each term; `pairs` of neighbouring words with their weight; `values` that the asker knows.

    `places` says where in the query each token stands, and `tokens` are all of them.
    """

    weights: dict[str, float]
    pairs: dict[tuple[str, str], float]
    values: frozenset[str]
    tokens: tuple[str, ...] = ()
    places: dict[str, list[int]] = {}


class Statistics(msgspec.Struct, frozen=True):
    """The count of passages, and of those that hold each term of a query."""

    passages: int
    holding: Mapping[str, int]

    def rarity(self, term: str) -> float:
        """Returns the inverse document frequency of BM25; 0 for a term that no passage holds."""
        count = self.holding.get(term, 0)
        return math.log1p((self.passages - count + 0.5) / (count + 0.5)) if count else 0.0

    @property
    def rarest(self) -> float:
        """The rarity of a term that no passage holds, were it to count."""
        return math.log1p(2.0 * self.passages + 1.0)


def read_query(text: str) -> Query:
    """Returns the query in a text.

    A text without a word that could be found gives a query without weights.
    """
    weights: dict[str, float] = {}
    pairs: dict[tuple[str, str], float] = {}
    places: dict[str, list[int]] = {}
    before = ""
    known: list[str] = []
    tokens: list[str] = []
    for part, weight in split_query(text):
        known += [value for _, value in find_phrases(part)]
        for token in split_tokens(part):
            places.setdefault(token, []).append(len(tokens))
            tokens.append(token)
            terms = find_terms(token)
            known += find_token_values(token)
            if not terms:
                continue
            for term in terms:
                weights.setdefault(term, weight)
            if before:
                pairs.setdefault((before, terms[0]), weight)
            before = terms[0]
    return Query(weights, pairs, frozenset(known), tuple(tokens), places)


def split_query(text: str) -> tuple[tuple[str, float], tuple[str, float]]:
    """Splits a query into the wanted words and their surroundings, each with its weight."""
    return (text[:_WANTED], 1.0), (text[_WANTED:_MOST_CHARACTERS], _SURROUNDINGS)


def add_surroundings(wanted: str, surroundings: str) -> str:
    """Returns the text of a query for `wanted` by a caller whose subject is `surroundings`."""
    return f"{wanted:<{_WANTED}} {surroundings}" if surroundings else wanted


def find_subject(newest_first: Iterable[Message]) -> str:
    """Returns the present subject of messages that are given from the last one back; reads no more of them than needed.

    It is the assistant's last text, and the last request.
    """
    said: dict[Role, str] = {}
    for message in newest_first:
        text = "".join(part.text for part in message.parts if isinstance(part, Text))
        if message.role in _TALKING and text.strip():
            said.setdefault(message.role, text)
        if len(said) == len(_TALKING):
            break
    return f"{said.get(Role.ASSISTANT, '')[-_WANTED:]} {said.get(Role.USER, '')[:_WANTED]}".strip()


def find_values(texts: Iterable[str]) -> frozenset[str]:
    """Returns every value in the texts, which their reader need not be shown again."""
    tokens: set[str] = set()
    phrases: set[str] = set()
    for text in texts:
        tokens.update(split_tokens(text))
        phrases.update(phrase for _, phrase in find_phrases(text))
    return frozenset(phrases.union(*map(find_token_values, tokens)))


def find_phrases(text: str) -> list[tuple[int, str]]:
    """Returns phrases in quotes of more than one word, each with the place of its opening quote."""
    return [
        (found.start(), phrase) for found in PHRASE.finditer(text) for phrase in values_in_phrase(found[0])
    ]


@lru_cache(maxsize=_REMEMBERED)
def find_token_values(token: str) -> tuple[str, ...]:
    """Returns the values in one token of at least four characters: shorter ones say nothing by themselves."""
    return tuple(value for value in values_in_token(token.strip(":&")) if len(value) >= _SHORTEST_VALUE)

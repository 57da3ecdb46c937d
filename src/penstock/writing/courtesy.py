"""Knows the sentences that only keep a conversation polite: "Thank you for waiting.", "Good."."""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = ["is_courtesy", "is_praise"]

_WORD = re.compile(r"[^\W_]+(?:[’'][^\W_]+)*")
_LONGEST = 160  # characters: a longer text says something
_LONGEST_PRAISE = 30
_POLITE = frozenset(
    [
        "apologies",
        "apologize",
        "appreciate",
        "appreciated",
        "assist",
        "assistance",
        "assisting",
        "bye",
        "contacting",
        "glad",
        "goodbye",
        "happy",
        "hello",
        "help",
        "helping",
        "hesitate",
        "hi",
        "hold",
        "inconvenience",
        "patience",
        "please",
        "sorry",
        "thank",
        "thanks",
        "understanding",
        "wait",
        "waiting",
        "welcome",
    ]
)
_BESIDE = frozenset(  # words that say nothing beside a polite one
    [
        "a",
        "absolutely",
        "again",
        "all",
        "always",
        "alright",
        "an",
        "and",
        "any",
        "anything",
        "are",
        "as",
        "ask",
        "at",
        "awesome",
        "back",
        "be",
        "bear",
        "can",
        "certainly",
        "come",
        "confirming",
        "contact",
        "could",
        "course",
        "day",
        "delay",
        "details",
        "do",
        "else",
        "enjoy",
        "excellent",
        "feel",
        "fine",
        "for",
        "forward",
        "free",
        "from",
        "further",
        "get",
        "give",
        "go",
        "good",
        "great",
        "have",
        "hear",
        "here",
        "hope",
        "how",
        "i",
        "i'd",
        "i'll",
        "i'm",
        "i've",
        "if",
        "in",
        "information",
        "inquiry",
        "is",
        "it",
        "it's",
        "just",
        "know",
        "later",
        "let",
        "like",
        "looking",
        "may",
        "me",
        "moment",
        "more",
        "much",
        "my",
        "need",
        "nice",
        "no",
        "now",
        "of",
        "ok",
        "okay",
        "on",
        "one",
        "or",
        "our",
        "out",
        "patient",
        "perfect",
        "problem",
        "provide",
        "provided",
        "providing",
        "question",
        "questions",
        "quick",
        "reach",
        "reaching",
        "right",
        "safe",
        "second",
        "see",
        "sharing",
        "so",
        "some",
        "something",
        "soon",
        "sounds",
        "start",
        "sure",
        "take",
        "that",
        "that's",
        "the",
        "there",
        "these",
        "this",
        "time",
        "to",
        "today",
        "understand",
        "understood",
        "us",
        "very",
        "want",
        "wanted",
        "was",
        "we",
        "we'll",
        "we're",
        "well",
        "were",
        "what",
        "when",
        "which",
        "will",
        "with",
        "wonderful",
        "worries",
        "worry",
        "would",
        "you",
        "you'd",
        "you'll",
        "you're",
        "you've",
        "your",
    ]
)

_PRAISE = re.compile(
    r"(?:very )?(?:amazing|awesome|brilliant|cool|excellent|fantastic|good|great|lovely|nice|perfect|splendid|super|superb|"
    r"wonderful)(?: (?:work|job))?|well done"
)


def is_praise(text: str) -> bool:
    """Returns True if a text says no more than that something is good. English only."""
    return (
        len(text) <= _LONGEST_PRAISE and _PRAISE.fullmatch(" ".join(_WORD.findall(text.lower()))) is not None
    )


@lru_cache(maxsize=4_096)  # what people said is looked at in every compaction
def is_courtesy(text: str) -> bool:
    """Returns True if a text says no more than is polite, so that nothing is lost without it. English only."""
    if len(text) > _LONGEST:
        return False
    is_polite = False
    for found in _WORD.finditer(text):  # of most texts the first word says that they are none
        word = found[0].lower().replace("’", "'")
        is_polite |= word in _POLITE
        if word not in _POLITE and word not in _BESIDE:
            return False
    return is_polite

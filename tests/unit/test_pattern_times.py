"""No regular expression of ours can be made to run for ever: each is attacked with text that is made of itself.

Every repeated part of a pattern is pumped: what leads to it, many times what it repeats, then something that fits nowhere.
A pattern that can read such a text in several ways tries all of them before it gives up, which takes twice as long with each
round more. The speeds of whole paths are the matter of `python -m benchmarks hostile`.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
import re
import signal
from re import _constants as ops
from re import _parser as parser

import pytest

import penstock

ATTACKS = 16  # of each repeated part
CHARACTERS = 240
SECONDS = 0.5
NOWHERE = "\x00"
_LETTERS = "aA1_-. /é密\n\t\"'=:<>()[]{}*`|~#"
_CATEGORIES = {
    ops.CATEGORY_DIGIT: "0179",
    ops.CATEGORY_NOT_DIGIT: "a -_",
    ops.CATEGORY_SPACE: " \n\t",
    ops.CATEGORY_NOT_SPACE: "a1-/",
    ops.CATEGORY_WORD: "a_1Zé",
    ops.CATEGORY_NOT_WORD: " -.\n",
}


class TooSlowError(Exception):
    """More than SECONDS of the processor have gone."""


def find_patterns(*, adapters):
    """Returns the patterns that modules of the package hold, by where they stand: adapters for frameworks, or all others."""
    found = {}
    for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if module.name.endswith("__main__") or (".integrations." in module.name) is not adapters:
            continue
        try:
            names = vars(importlib.import_module(module.name))
        except ImportError:  # an integration whose framework is not installed here
            continue
        for name, value in names.items():
            many = value if isinstance(value, tuple | list) else (value,)
            for one in many:
                one = getattr(one, "__self__", one)  # noqa: PLW2901  # of `re.compile(…).match`
                if isinstance(one, re.Pattern) and isinstance(one.pattern, str):
                    found.setdefault((one.pattern, one.flags), f"{module.name}.{name}")
    constraints = importlib.import_module("penstock.writing.constraints")
    for name in ("_ENGLISH", "_BEGINNINGS", "_HAN"):  # which are compiled at their first use
        found.setdefault((getattr(constraints, name), 32), f"{constraints.__name__}.{name}")
    return {where: re.compile(*key) for key, where in found.items()}


def fits(character, spec):
    """Returns whether a set of characters holds this one."""
    negated = spec[0][0] is ops.NEGATE
    held = False
    for kind, value in spec[negated:]:
        if kind is ops.LITERAL:
            held |= ord(character) == value
        elif kind is ops.RANGE:
            held |= value[0] <= ord(character) <= value[1]
        elif kind is ops.CATEGORY:
            held |= re.match({v: k for k, v in _CLASSES.items()}[value], character) is not None
    return held is not negated


_CLASSES = {
    r"\d": ops.CATEGORY_DIGIT,
    r"\D": ops.CATEGORY_NOT_DIGIT,
    r"\s": ops.CATEGORY_SPACE,
    r"\S": ops.CATEGORY_NOT_SPACE,
    r"\w": ops.CATEGORY_WORD,
    r"\W": ops.CATEGORY_NOT_WORD,
}


def sample(nodes, draw, deep=0):
    """Returns a text that the parsed nodes may match; what only looks around is passed over."""
    return "".join(sample_node(kind, value, draw, deep + 1) for kind, value in nodes)


def sample_node(kind, value, draw, deep):
    if kind is ops.BRANCH:
        return sample(draw.choice(value[1]), draw, deep)
    if kind is ops.SUBPATTERN:
        return sample(value[3], draw, deep)
    if kind is ops.ATOMIC_GROUP:
        return sample(value, draw, deep)
    if kind in REPEATS:
        least, most, inner = value
        times = draw.randint(least, min(most, least + 2)) if deep < 12 else least
        return "".join(sample(inner, draw, deep) for _ in range(min(times, 6)))
    return sample_character(kind, value, draw)


def sample_character(kind, value, draw):
    if kind is ops.LITERAL:
        return chr(value)
    if kind is ops.NOT_LITERAL:
        return draw.choice([one for one in _LETTERS if ord(one) != value])
    if kind is ops.ANY:
        return draw.choice("a1 ")
    if kind is ops.CATEGORY:
        return draw.choice(_CATEGORIES[value])
    if kind is not ops.IN:
        return ""
    within = [one for one in _LETTERS if fits(one, value)]
    if value[0][0] is not ops.NEGATE:
        within += [chr(one[1]) for one in value if one[0] is ops.LITERAL]
        within += [chr(draw.randint(*one[1])) for one in value if one[0] is ops.RANGE]
    return draw.choice(within) if within else ""


REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT, ops.POSSESSIVE_REPEAT)


def repeated(nodes, draw, before=""):
    """Yields each part that may repeat many times, after a text that leads to it."""
    for kind, value in nodes:
        if kind in REPEATS:
            if value[1] > 8:
                yield before, value[2]
            yield from repeated(value[2], draw, before)
        elif kind is ops.SUBPATTERN:
            yield from repeated(value[3], draw, before)
        elif kind is ops.ATOMIC_GROUP:
            yield from repeated(value, draw, before)
        elif kind is ops.BRANCH:
            for branch in value[1]:
                yield from repeated(branch, draw, before)
        before += sample([(kind, value)], draw)


def attacks(pattern):
    draw = random.Random(ascii(pattern.pattern))
    parsed = parser.parse(pattern.pattern, pattern.flags)
    for number, (before, inner) in enumerate(repeated(parsed, draw)):
        if number > 24:
            return
        for _ in range(ATTACKS):
            pump = sample(inner, draw)
            for one in {pump, pump + pump[-1:], pump + sample(inner, draw)} - {""}:
                yield before + one * (CHARACTERS // len(one) + 1) + NOWHERE


def give_up(*_):
    raise TooSlowError


@pytest.mark.skipif(not hasattr(signal, "ITIMER_VIRTUAL"), reason="the clock of a process is that of Unix")
@pytest.mark.parametrize(
    "adapters",
    [False, pytest.param(True, marks=pytest.mark.outside)],  # frameworks open sockets when they are loaded
)
def test_none_takes_all_ways_through_a_text_that_fits_nowhere(adapters):
    patterns = find_patterns(adapters=adapters)
    assert adapters or len(patterns) > 300
    slow = {}
    before = signal.signal(signal.SIGVTALRM, give_up)
    try:
        for where, pattern in patterns.items():
            for text in attacks(pattern):
                signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
                try:
                    pattern.match(text)
                except TooSlowError:
                    slow[where] = text[:80]
                    break
                finally:
                    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    finally:
        signal.signal(signal.SIGVTALRM, before)
    assert slow == {}

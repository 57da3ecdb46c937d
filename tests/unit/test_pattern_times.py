"""No regular expression of ours can be made to run for ever: each is attacked with text that is made of itself.

Every repeated part of a pattern is pumped: what leads to it, many times what it repeats, then something that fits nowhere.
A pattern that can read such a text in several ways tries all of them before it gives up, which takes twice as long with each
round more. The speeds of whole paths are the matter of `python -m benchmarks hostile`.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import random
import re
import signal
from functools import cache
from pathlib import Path
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


@cache
def find_patterns(*, adapters):
    """Returns the patterns of the package by where they stand: of adapters for frameworks, or of all other modules.

    These are the ones that modules hold, in containers and records too, those that are compiled at their first use,
    and those that stand in a call of `re`, where what is put into one is taken for a letter.
    """
    found = {}
    for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
        if module.name.endswith("__main__") or (".integrations." in module.name) is not adapters:
            continue
        try:
            loaded = importlib.import_module(module.name)
        except ImportError:  # an integration whose framework is not installed here
            continue
        for name, value in vars(loaded).items():
            for one in held_patterns(value):
                found.setdefault((one.pattern, one.flags), f"{module.name}.{name}")
        for line, pattern in called_patterns(loaded):
            found.setdefault((pattern.pattern, pattern.flags), f"{module.name}:{line}")
    if not adapters:
        constraints = importlib.import_module("penstock.writing.constraints")
        for name in ("_ENGLISH", "_BEGINNINGS", "_HAN"):
            found.setdefault((getattr(constraints, name), 32), f"{constraints.__name__}.{name}")
        tokens = importlib.import_module("penstock.redaction.tokens")
        for shape in held(vars(tokens), tokens._Shape):
            one = tokens._compile(shape.pattern)
            found.setdefault((one.pattern, one.flags), f"{tokens.__name__}: {shape.kind}")
    return {f"{where} {number}": re.compile(*key) for number, (key, where) in enumerate(found.items())}


def held_patterns(value):
    bound = getattr(value, "__self__", None)  # of `re.compile(…).match`
    return [
        one
        for one in held(bound if isinstance(bound, re.Pattern) else value, re.Pattern)
        if type(one.pattern) is str
    ]


def held(value, kind, deep=0):
    """Yields the values of a kind that a value is or holds, directly or within what it holds."""
    if isinstance(value, kind):
        yield value
    elif deep < 4:
        if isinstance(value, dict):
            inner = [*value.keys(), *value.values()]
        elif isinstance(value, tuple | list | set | frozenset):
            inner = list(value)
        else:
            fields = getattr(type(value), "__struct_fields__", None)
            inner = [getattr(value, name, None) for name in fields] if isinstance(fields, tuple) else []
        for one in inner:
            yield from held(one, kind, deep + 1)


def called_patterns(module):
    """Yields the patterns that stand in calls of `re`, with their lines."""
    if not (getattr(module, "__file__", None) or "").endswith(".py"):
        return
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if not (isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute)):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "re"):
            continue
        if node.func.attr in {"escape", "compile"}:
            continue
        first = node.args[0]
        pieces = first.values if isinstance(first, ast.JoinedStr) else [first]
        text = "".join(str(piece.value) if isinstance(piece, ast.Constant) else "a" for piece in pieces)
        yield node.lineno, re.compile(text)


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


def pumps(pattern, most=4):
    """Yields what leads to some of the parts that a pattern repeats, and what such a part may be."""
    draw = random.Random(ascii(pattern.pattern))
    parsed = parser.parse(pattern.pattern, pattern.flags)
    for _, (before, inner) in zip(range(most), repeated(parsed, draw), strict=False):
        if unit := sample(inner, draw):
            yield before[:60], unit[:40]


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
@pytest.mark.outside  # it takes seconds; and frameworks open sockets when they are loaded
@pytest.mark.parametrize("adapters", [False, True])
def test_none_takes_all_ways_through_a_text_that_fits_nowhere(adapters):
    patterns = find_patterns(adapters=adapters)
    assert adapters or len(patterns) > 550
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

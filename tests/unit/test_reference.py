"""The reference of `Session` and of the engines has every public member, and none that there is not."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path

import pytest

import penstock

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "session-and-engine.md"
SHOWN = {
    "Session": (penstock.Session, object),
    "ContextEngine": (penstock.ContextEngine, object),
    "ContextCompressor": (penstock.ContextCompressor, penstock.ContextEngine),
}
MOST_NAMES = {"Session": 36, "ContextEngine": 30, "ContextCompressor": 36}


def list_members(shown, beside):
    """The public members that the class has and `beside` has not, in the order in which they are written."""
    classes = [one for one in reversed(shown.__mro__) if one is not object]
    names = dict.fromkeys(name for one in classes for name in vars(one) if not name.startswith("_"))
    return [name for name in names if not hasattr(beside, name)]


def describe(shown, name):
    """A row of the table; None for a plain attribute, which the text below the table names."""
    member = inspect.getattr_static(shown, name)
    if not isinstance(member, property) and not callable(getattr(shown, name)):
        return None
    text = re.sub(r"\s+", " ", inspect.getdoc(member).split("\n\n")[0]).replace("|", "\\|")
    return f"| `{_sign(shown, name, member)}` | {text} |"


def _sign(shown, name, member):
    if isinstance(member, property):
        return name
    signature = inspect.signature(getattr(shown, name))
    given = [
        one.replace(annotation=inspect.Parameter.empty)
        for one in signature.parameters.values()
        if one.name != "self"
    ]
    shape = signature.replace(parameters=given, return_annotation=inspect.Signature.empty)
    return f"{'await ' if inspect.iscoroutinefunction(member) else ''}{name}{shape}"


def table(shown, beside):
    rows = [row for name in list_members(shown, beside) if (row := describe(shown, name))]
    return "\n".join(["| member | |", "|---|---|", *rows])


def test_the_tables_are_those_of_the_classes():
    text = PAGE.read_text(encoding="utf-8")
    for name, (shown, beside) in SHOWN.items():
        made = f"<!-- {name} -->\n{table(shown, beside)}\n<!-- end -->"
        text, found = re.subn(
            rf"<!-- {name} -->.*?<!-- end -->", lambda _, new=made: new, text, flags=re.DOTALL
        )
        assert found == 1, name
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text


def instances():
    store = penstock.open_store("memory:")
    return {
        "Session": penstock.Session.create(store),
        "ContextCompressor": penstock.ContextCompressor(context_length=100_000),
    }


def test_every_attribute_is_named_in_the_text():
    named = set(re.findall(r"`(\w+)`", PAGE.read_text(encoding="utf-8")))
    for name, (shown, beside) in SHOWN.items():
        plain = {one for one in list_members(shown, beside) if describe(shown, one) is None}
        set_by_init = {one for one in vars(instances().get(name, object)) if not one.startswith("_")}
        assert plain | set_by_init <= named, name


@pytest.mark.parametrize("name", SHOWN)
def test_a_class_that_users_see_stays_small(name):
    shown, _ = SHOWN[name]
    instance = instances().get(name)
    names = {one for one in dir(instance or shown) if not one.startswith("_")}
    assert len(names) <= MOST_NAMES[name], sorted(names)

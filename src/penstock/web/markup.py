"""HTML that its content cannot break: text is escaped everywhere, unless it is HTML already."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Html", "element", "figure_of", "fragment", "table"]

_VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})
_ALLOWED_BLANKS = str.maketrans("\n\t\u00a0\u200d", "    ")


class Html(str):
    """Text that is markup."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: Any) -> Html:
    """Returns an element. Attributes are named as in HTML, with `_` for `-`, and without a last `_`; None leaves one out.

    True stands for an attribute without a value, False for none.
    """
    said = "".join(
        _write_attribute(key, value)
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{said}>")
    return Html(f"<{name}{said}>{fragment(*children)}</{name}>")


def _write_attribute(key: str, value: Any) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(_visible(str(value)))}"'


def fragment(*children: str) -> Html:
    """Joins pieces of HTML."""
    return Html("".join(one if isinstance(one, Html) else html.escape(_visible(one)) for one in children))


def figure_of(value: float, shown: str | None = None, /, **attributes: Any) -> Html:
    """Returns a number, with its exact value for programs."""
    return element("data", shown if shown is not None else f"{value:,}", value=value, **attributes)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> Html:
    """Returns a table, the first cell of each row its head. From the column `numbers` on, all hold numbers; 0 is none."""

    def kind(at: int) -> str | None:
        return "number" if numbers and at >= numbers else None

    head = fragment(*(element("th", one, scope="col", class_=kind(at)) for at, one in enumerate(heads)))
    lines = [
        element(
            "tr",
            element("th", row[0], scope="row"),
            *(element("td", cell, class_=kind(at)) for at, cell in enumerate(row[1:], start=1)),
        )
        for row in rows
    ]
    whole = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", head)),
        element("tbody", *lines),
    )
    return element("div", whole, class_="wide", role="region", aria_label=caption, tabindex="0")


def _visible(text: str) -> str:
    """Returns the text with escapes for characters that no page may contain, or that would reverse its direction."""
    if text.isprintable() or text.translate(_ALLOWED_BLANKS).isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t\u00a0\u200d" else char.encode("unicode_escape").decode()
        for char in text
    )

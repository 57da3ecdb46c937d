"""Turns HTML into readable text: headings, lists, links, tables, code; without hidden content. Pure."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import urljoin

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["extract_text"]

_HIDDEN = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "object", "canvas"})
_BLOCKS = frozenset(
    {
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "details",
        "dialog",
        "dd",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figure",
        "figcaption",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hr",
        "li",
        "main",
        "nav",
        "ol",
        "p",
        "pre",
        "section",
        "summary",
        "table",
        "title",
        "tr",
        "ul",
    }
)
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_SPACES = re.compile(r"[ \t\r\f\v\n]+")


def extract_text(html: str, base: str = "") -> str:
    """Returns the text of a page; `base` is its address, for links that are relative."""
    reader = _Reader(base)
    reader.feed(_escape_unclosed(html))
    reader.close()
    lines = (line.rstrip() for line in "".join(reader.pieces).split("\n"))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _escape_unclosed(html: str) -> str:
    """Returns the page with constructs that are never closed escaped as text.

    The parser looks for the end of each from there to the end of the page: thousands of them would take minutes.
    """
    for opening, closing in (("<!--", "-->"), ("<![", "]"), ("<", ">")):
        at = html.rfind(closing)
        end = at + len(closing) if at >= 0 else 0
        html = html[:end] + html[end:].replace(opening, f"&lt;{opening[1:]}")
    return html


class _Reader(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._base = base
        self._hidden = ""
        self._depth = 0
        self._code = 0
        self._link = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._hidden:
            self._depth += tag == self._hidden
            return
        if tag in _HIDDEN:
            self._hidden, self._depth = tag, 1
            return
        if tag in _BLOCKS:
            self._break(2 if tag in _HEADINGS or tag in {"p", "pre", "table", "blockquote"} else 1)
        self._open(tag, dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        if self._hidden:
            self._depth -= tag == self._hidden
            if not self._depth:
                self._hidden = ""
            return
        if tag == "a" and self._link:
            self.pieces.append(f"]({self._link})")
            self._link = ""
        elif tag == "pre":
            self._code = max(0, self._code - 1)
        if tag in _BLOCKS:
            self._break(2 if tag in _HEADINGS or tag in {"p", "pre", "table", "title"} else 1)

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if self._code:
            self.pieces.append(data)
            return
        text = _SPACES.sub(" ", data)
        if not self.pieces or self.pieces[-1].endswith(("\n", " ")):
            text = text.removeprefix(" ")
        if text:
            self.pieces.append(text)

    def _open(self, tag: str, attributes: Mapping[str, str | None]) -> None:
        if tag in _HEADINGS:
            self.pieces.append(_HEADINGS[tag])
        elif tag == "li":
            self.pieces.append("- ")
        elif tag == "br":
            self.pieces.append("\n")
        elif tag in {"td", "th"} and not self._at_line_start():
            self.pieces.append(" | ")
        elif tag == "pre":
            self._code += 1
        elif tag == "img" and (alt := (attributes.get("alt") or "").strip()):
            self.pieces.append(f"[image: {alt}]")
        elif tag == "a" and not self._link:
            self._link = self._target(attributes.get("href") or "")
            self.pieces.append("[" if self._link else "")

    def _target(self, href: str) -> str:
        """Returns the target of a link, "" if it leads nowhere else."""
        if href.startswith(("#", "javascript:", "data:")):
            return ""
        try:
            return urljoin(self._base, href.strip())
        except ValueError:
            return ""

    def _break(self, count: int) -> None:
        ended = "".join(self.pieces[-2:])
        missing = count - (len(ended) - len(ended.rstrip("\n")))
        if self.pieces and missing > 0:
            self.pieces.append("\n" * missing)

    def _at_line_start(self) -> bool:
        return not self.pieces or self.pieces[-1].endswith("\n")

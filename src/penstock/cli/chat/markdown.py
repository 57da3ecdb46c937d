"""Markdown that is still being written: finds its final blocks, and renders it for a terminal."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from markdown_it import MarkdownIt
from rich.markdown import CodeBlock as RichCodeBlock
from rich.markdown import Heading, Markdown
from rich.syntax import Syntax

from penstock.cli.chat.lines import strip_controls

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

__all__ = ["AnswerMarkdown", "markdown"]

_PARSER = MarkdownIt().enable("table").disable("inline")  # only the beginnings of blocks are needed
_MOST_COLUMNS = 250  # of a row that is redrawn ten times a second
_FENCES = ("```", "~~~")


class AnswerMarkdown:
    """An answer as it arrives. Blocks that can no longer change are taken out; the last one waits."""

    def __init__(self) -> None:
        self._waiting = ""
        self._grown = False  # since the last look for blocks

    def show_waiting(self, rows: int) -> str:
        """Returns the block that may still change; of a long one, only the end that fills `rows`."""
        lines = self._waiting.split("\n")
        if len(lines) <= rows:
            return self._waiting[-rows * _MOST_COLUMNS :]
        opening = lines[:1] if lines[0].lstrip().startswith(_FENCES) else []
        return "\n".join([*opening, *lines[-rows:]])

    def add(self, text: str) -> None:
        """Adds text."""
        self._waiting += strip_controls(text)
        self._grown = True

    def take_final(self) -> list[str]:
        """Takes out the blocks that have become final: all but the last one."""
        if not self._grown:
            return []
        self._grown = False
        *done, last = _split_blocks(self._waiting) or [""]
        if done:
            self._waiting = last
        return done

    def take_all(self) -> list[str]:
        """Takes out the rest, when the answer is complete."""
        done, self._waiting = _split_blocks(self._waiting), ""
        return done


def _split_blocks(text: str) -> list[str]:
    """Splits the text into paragraphs, lists, tables and code. No line is lost."""
    tokens = _PARSER.parse(text)
    starts = [token.map[0] for token in tokens if token.level == 0 and token.nesting >= 0 and token.map]
    lines = text.split("\n")  # as the parser counts them
    bounds = [0, *starts[1:], len(lines)] if starts else []
    return ["\n".join(lines[start:end]) for start, end in pairwise(bounds)]


class _LeftHeading(Heading):
    """Headings at the left, where a reader looks for them."""

    LEVEL_ALIGN: ClassVar = dict.fromkeys(Heading.LEVEL_ALIGN, "left")


class _CodeBlock(RichCodeBlock):
    """Code that can be copied: in the terminal's own colours, indented by two columns, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console, options
        yield Syntax(
            str(self.text).rstrip(),
            self.lexer_name,
            theme=self.theme,
            word_wrap=True,
            padding=(0, 0, 0, 2),
            background_color="default",
        )


class _Markdown(Markdown):
    """Markdown with our headings and code blocks."""

    elements: ClassVar = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
    }


def markdown(text: str) -> Markdown:
    """Returns the text for a console to print."""
    return _Markdown(text, code_theme="ansi_dark", hyperlinks=False)

"""One line that says what a call did: tool, main argument, outcome, size.

The main argument is returned whole; the caller redacts it first and shortens it then, so that no
half of a secret is left.

    [terminal] npm test → exit 0, 47 lines
    [read_file] config.py from line 1, 3,400 chars

Known tools are recognised by what their name says, whatever their maker called them exactly.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.measure.wording import pluralise
from penstock.writing.caseless import CaselessPattern

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.conversation.message import ToolCall, ToolResult

__all__ = [
    "ToolFamily",
    "arguments_of",
    "clip",
    "describe",
    "exit_status",
    "find_path",
    "main_argument",
    "shorten",
    "shows_files",
    "state_outcome",
    "state_result",
    "tool_family",
]


class ToolFamily(StrEnum):
    """The kinds of tools, as far as their names tell."""

    TERMINAL = "terminal"
    READ = "read"
    WRITE = "write"
    PATCH = "patch"
    SEARCH = "search"
    LIST = "list"
    FETCH = "fetch"
    OTHER = "other"


_FAMILIES: tuple[tuple[ToolFamily, re.Pattern[str]], ...] = (
    (ToolFamily.OTHER, re.compile(r"to_?do", re.IGNORECASE)),  # a list of things to do is no file
    (
        ToolFamily.TERMINAL,
        re.compile(r"terminal|bash|shell|exec|run_?command|run_?in|powershell|cmd$", re.IGNORECASE),
    ),
    (ToolFamily.PATCH, re.compile(r"patch|edit|replace|insert|modify_file|update_file", re.IGNORECASE)),
    (ToolFamily.WRITE, re.compile(r"write|create_?file|save_?file", re.IGNORECASE)),
    (ToolFamily.FETCH, re.compile(r"fetch|browse|download|http|web_?search|open_?url", re.IGNORECASE)),
    (ToolFamily.SEARCH, re.compile(r"grep|search|find|glob|\brg\b", re.IGNORECASE)),
    (ToolFamily.LIST, re.compile(r"^ls$|list_?(?:files|dir)|tree", re.IGNORECASE)),
    (ToolFamily.READ, re.compile(r"read|view|^cat$|open_?file|get_?file", re.IGNORECASE)),
)
# Names of arguments, most telling first, as `_spell` writes them: clients spell `file_path`, `filePath` and `FilePath`.
_PATH_KEYS = (
    "filepath",
    "path",
    "filename",
    "file",
    "targetfile",
    "absolutepath",
    "relativeworkspacepath",
    "notebookpath",
    "uri",
)
_MAIN_KEYS: dict[ToolFamily, tuple[str, ...]] = {
    ToolFamily.TERMINAL: ("command", "cmd", "commandline", "script", "code", "input"),
    ToolFamily.READ: _PATH_KEYS,
    ToolFamily.WRITE: _PATH_KEYS,
    ToolFamily.PATCH: (*_PATH_KEYS, "patch", "input"),
    ToolFamily.SEARCH: ("pattern", "query", "regex", "q", "search", "glob"),
    ToolFamily.LIST: ("path", "directory", "dir", "folder"),
    ToolFamily.FETCH: ("url", "uri", "query", "q"),
}
_SHOWS_FILES = frozenset({ToolFamily.READ, ToolFamily.SEARCH, ToolFamily.LIST})
_SHOWING_COMMAND = re.compile(
    r"(?:cd [^;&|]+(?:&&|;)\s*)?(?:echo [^;&|]*(?:&&|;)\s*)?"
    r"(?:cat|nl|head|tail|less|sed -n|grep|rg|find|ls|tree|bat|git (?:--no-pager )?(?:diff|show|log|grep|blame))\b"
)
_EXIT = CaselessPattern(
    r"(?:e(?<![\w.]e)xit(?:ed)?(?: with)?(?:[ _-]?(?:code|status))?|r(?<![\w.]r)eturn ?code)[^\w(-]{0,4}(-?\d{1,3})\b"
)
_PATCHED_FILE = re.compile(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$", re.MULTILINE)
_LONGEST_ARGUMENT = 120


@lru_cache(maxsize=1_000)
def tool_family(name: str) -> ToolFamily:
    """Returns the kind of the tool."""
    return next((family for family, pattern in _FAMILIES if pattern.search(name)), ToolFamily.OTHER)


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """Returns the call's arguments; text that is not a JSON object comes under the key `input`."""
    try:
        arguments = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        arguments = call.arguments
    if isinstance(arguments, dict):
        return arguments
    return {"input": call.arguments} if call.arguments.strip() else {}


def main_argument(family: ToolFamily, arguments: dict[str, Any]) -> str:
    """Returns what the call was about, on one line and whole, or the first arguments of an unknown tool."""
    named = {_spell(key): value for key, value in arguments.items()}
    for key in _MAIN_KEYS.get(family, ()):
        value = named.get(key)
        if isinstance(value, list):
            value = " ".join(map(str, value))
        if isinstance(value, str) and value.strip():
            patched = _PATCHED_FILE.findall(value) if family is ToolFamily.PATCH else []
            return _one_line(" ".join(patched) if patched else value)
    first = [f"{key} {_brief(value)}" for key, value in list(arguments.items())[:3]]
    return _one_line(", ".join(first))


def find_path(arguments: dict[str, Any]) -> str:
    """Returns the file that a call's arguments name; empty where they name none."""
    named = {_spell(key): value for key, value in arguments.items()}
    return next((named[key] for key in _PATH_KEYS if isinstance(named.get(key), str)), "")


@lru_cache(maxsize=1_000)
def _spell(key: str) -> str:
    return key.replace("_", "").lower()


def exit_status(text: str) -> int | None:
    """Returns the exit status that a command's output states, in its first or last lines."""
    for end in (text[:400], text[-400:] if len(text) > 400 else ""):
        lowered = end.lower()
        if ("exit" in lowered or "return" in lowered) and (match := _EXIT.find(end)) is not None:
            return int(match[1])
    return None


def shorten(line: str, longest: int = _LONGEST_ARGUMENT) -> str:
    """Returns the line in at most `longest` characters, cut between words where it has any."""
    if len(line) <= longest:
        return line
    at = line.rfind(" ", longest // 2, longest)
    return line[: at if at > 0 else longest - 1].rstrip() + "…"


def shows_files(call: ToolCall | None) -> bool:
    """Returns whether a call shows what stands in files, so that the word "error" in its result reports none."""
    if call is None:
        return False
    family = tool_family(call.name)
    if family is ToolFamily.TERMINAL:
        return _SHOWING_COMMAND.match(main_argument(family, arguments_of(call))) is not None
    return family in _SHOWS_FILES


def describe(call: ToolCall | None, result: ToolResult, redact: Callable[[str], str]) -> str:
    """Returns the line that stands for a result; arguments go through `redact`."""
    if call is None:
        return f"[tool] {_size(result.text, ToolFamily.OTHER)}"
    family = tool_family(call.name)
    arguments = arguments_of(call)
    about = shorten(redact(main_argument(family, arguments)))
    outcome = state_result(call, result)
    head = f"[{call.name}] {about}".rstrip()
    if family is ToolFamily.READ:
        start = arguments.get("offset", arguments.get("start_line", 1))
        line = start if isinstance(start, int) else 1
        return f"{head} from line {line}, {outcome}"
    return f"{head} → {outcome}"


def state_result(call: ToolCall | None, result: ToolResult) -> str:
    """Returns how a call ended and how long its result is."""
    family = ToolFamily.OTHER if call is None else tool_family(call.name)
    return ", ".join(filter(None, (state_outcome(call, result), _size(result.text, family))))


def state_outcome(call: ToolCall | None, result: ToolResult) -> str:
    """Returns how a call ended, as far as its result says; empty where it says nothing."""
    family = ToolFamily.OTHER if call is None else tool_family(call.name)
    status = exit_status(result.text) if family is ToolFamily.TERMINAL else None
    if status is not None:
        return f"exit {status}"
    return "failed" if result.is_error else ""


def _size(text: str, family: ToolFamily) -> str:
    if family in {ToolFamily.TERMINAL, ToolFamily.SEARCH, ToolFamily.LIST}:
        lines = text.count("\n") + 1 if text.strip() else 0
        return pluralise(lines, "line")
    return f"{len(text):,} chars"


def _brief(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def clip(text: str, limit: int, count: Callable[[str], int], note: str) -> str:
    """Returns the text within `limit` tokens: its head, a note that names the handle, its tail.

    It is cut where a sentence or a line ends, else between words.
    """
    whole = count(text)
    if whole <= limit:
        return text
    middle = f"\n[… {note} …]\n"
    room = limit - count(middle) - 2
    characters = int(len(text) * room / whole) if room >= 8 else 0
    while characters > 0:
        head, tail = _head(text, int(characters * 0.6)), _tail(text, int(characters * 0.4))
        clipped = head + middle + tail
        if count(clipped) <= limit:
            return clipped
        characters = int(characters * 0.92)
    return middle.strip()


_BORDER = re.compile(r"(?<=[.!?。！？])\s|\n")
_GIVEN_UP = 0.35  # of a part, so that it ends where a sentence or a line does


def _head(text: str, length: int) -> str:
    """Returns the start of the text, to the end of a sentence or line where one is near; a word that had to be cut says so."""
    if length >= len(text):
        return text[:length].rstrip()
    least = int(length * (1 - _GIVEN_UP))
    borders = [found.start() for found in _BORDER.finditer(text, least, length + 1)]
    if borders:
        return text[: borders[-1]].rstrip()
    if text[length].isspace():
        return text[:length].rstrip()
    cut = max(text.rfind(" ", 0, length), text.rfind("\n", 0, length))
    return text[:cut].rstrip() if cut > length // 2 else text[:length] + "…"


def _tail(text: str, length: int) -> str:
    """Returns the end of the text, from the start of a sentence or line where one is near; a word that had to be cut says so."""
    start = len(text) - length
    border = _BORDER.search(text, max(0, start - 1), start + int(length * _GIVEN_UP)) if start > 0 else None
    if border is not None and text[border.end() :].strip():
        return text[border.end() :].lstrip()
    if start <= 0 or text[start - 1].isspace():
        return text[max(0, start) :].lstrip()
    cut = min((at for at in (text.find(" ", start), text.find("\n", start)) if at >= 0), default=-1)
    return text[cut:].lstrip() if 0 <= cut < start + length // 2 else "…" + text[start:]

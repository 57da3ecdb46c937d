"""Cuts texts into pieces that can be quoted: whole lines, and whole sentences of long lines.

A reader of half a statement has to guess the rest. So a line is cut between sentences, and inside a sentence only
if it is too long to be quoted at all.

JSON is first laid out in lines of "key value, key value": the same facts in half the tokens. Such a line is a list,
and is cut between its items. Arguments of a call that need no explanation, such as a command or a path, come without
their key, as they were written. Line numbers that tools print before each line, colour codes, reminders that a client
adds to a result, and lines without a letter or digit (rules of tables, bars) are left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    TakeLines: TypeAlias = Callable[[dict[str, Any] | list[Any], str, list[str]], bool]

__all__ = [
    "Laid",
    "excerpts",
    "flatten_json",
    "lay_out",
    "lay_out_call",
    "lay_out_redacted",
    "redact_readable",
    "write_scalar",
]

_WISHED = 85  # characters: short pieces of a long line are joined up to this length
_WISHED_ITEMS = 60
_SLACK = 40
_LEAST = 20
_LONGEST_SENTENCE = 260  # characters: a longer one is cut inside
_LONGEST_SPOKEN = (
    400  # of what a person or the agent says: links make a sentence long, and half of it says little
)
_LONGEST_WORD = 200  # characters: a longer one may be cut
_LONGEST_NUMBERING = 8

_SENTENCE_END = re.compile(r"[.!?][\"'”’)\]*`]*\s+|[。！？][」』”’]*|;\s+")
_ITEM_END = re.compile(r",\s+")
_CLAUSE_END = re.compile(r"[,:]\s+|(?:\\n)+|[；，、]|[,;}\]](?=[\[\"{])")
_COLOURS = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_REMINDER = re.compile(r"<system-reminder>.*?(?:</system-reminder>|\Z)", re.DOTALL)
_REDRAWN = re.compile(r"^[^\n]*\r(?=[^\n])", re.MULTILINE)
# The number at the start of a line, with any blank lines before it. The match only starts at the first blank line: starting
# at each of many would take for ever.
_NUMBER_OF_LINE = r"(?:(?<=\S\n)\s*+|[^\S\n]*+)\d{1,6}[→\t|]\s?"
# From line break to line break, which takes a tenth of the time of trying each character. A number may include the line
# break after it: then the next one follows at once.
_LINE_NUMBERS = re.compile(rf"\n{_NUMBER_OF_LINE}(?:(?<=\n){_NUMBER_OF_LINE})*+")
# By the mark behind the number of a line: where it follows a digit, which is told in a tenth of the time.
_MARKED_NUMBERS = {mark: re.compile(rf"{re.escape(mark)}(?<=\d{re.escape(mark)})") for mark in "→\t|"}
_OPENS_JSON = re.compile(r"\s*[{\[]").match
_has_word = re.compile(r"\w").search
_has_letter = re.compile(r"[^\W\d_]").search
# Names of fields; one with a long number is an id.
_PLAIN_KEY = re.compile(r"[^\W\d]++(?:[- ][^\W\d]++|\d{1,2}+(?!\d)(?:_[^\W\d]++)?+)*+$")

_SAY_THEMSELVES = frozenset(
    {
        "cmd",
        "code",
        "command",
        "content",
        "description",
        "filePath",
        "file_path",
        "input",
        "path",
        "plan",
        "prompt",
    }
    | {"subject", "text", "url"}
)
_DECODER = msgspec.json.Decoder(float_hook=str)  # 3.50 stays 3.50
_INLINE = 80
_INLINE_LIST = 300
_DEEPEST = 24


class Laid(msgspec.Struct, frozen=True):
    """A text in the form for reading, and the keys of its JSON, which name values but are not values."""

    text: str
    keys: frozenset[str] = frozenset()


def lay_out(text: str) -> Laid:
    """Returns JSON as lines of "key value"; any other text without printed line numbers and colour codes."""
    keys: set[str] = set()
    lines = flatten_json(text, keys)
    if lines is not None:
        return Laid("\n".join(lines), frozenset(keys))
    if "<system-reminder>" in text:
        text = _REMINDER.sub("", text)
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    if "\r" in text:
        text = _REDRAWN.sub(
            "", text
        )  # the last state of a line that was drawn again and again, such as a progress bar
    if any(mark in text and marked.search(text) for mark, marked in _MARKED_NUMBERS.items()):
        text = _without_line_numbers(text)
    return Laid(text)


def _without_line_numbers(text: str) -> str:
    """Returns the text without printed line numbers; the very same text if there are none."""
    before = "x\n"  # so that the first line begins like the others
    rest, many = _LINE_NUMBERS.subn("\n", before + text)
    return rest[len(before) :] if many else text


def lay_out_call(arguments: str) -> tuple[str, Laid]:
    """Splits the arguments of a call: returns those that need no explanation, as they were written, and the others.

    The first are commands, paths and descriptions, and texts of several lines with their key above them; empty if there
    are none. The others are lines of "key value", or the whole text if it is not a JSON object.
    """
    try:
        data = _DECODER.decode(arguments) if _OPENS_JSON(arguments) else None
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        data = None
    if not isinstance(data, dict):
        return "", lay_out(arguments)
    said: list[str] = []
    others: dict[str, Any] = {}
    for key, value in data.items():
        says_itself = key in _SAY_THEMSELVES
        if isinstance(value, str) and value.strip() and (says_itself or "\n" in value):
            said += [value] if says_itself else [f"{key}:", value]
        else:
            others[key] = value
    keys = {key for key in data if _PLAIN_KEY.match(key)}
    lines: list[str] = []
    _flatten(others, "", lines, keys, 0, None)
    return _COLOURS.sub("", "\n".join(said)), Laid("\n".join(lines), frozenset(keys))


def lay_out_redacted(text: str, redact: Callable[[str], str]) -> Laid:
    """Returns the text laid out, without secrets: redacts it as it came, and again in the form for reading.

    Before, because the key of a value often says what it is; after, because escapes and colour codes can separate a
    name from its value.
    """
    clean = redact(text)
    laid = lay_out(clean)
    if laid.text is not clean and ("\\" in clean or "\x1b" in clean):
        return Laid(redact(laid.text), laid.keys)
    return laid


def redact_readable(text: str, redact: Callable[[str], str]) -> str:
    """Returns the text without secrets, even for readers who decode it later.

    It stays as it was written, unless laying it out would reveal a secret that was not seen before: then it is laid out.
    """
    clean = redact(text)
    if "\\" not in clean and "\x1b" not in clean:
        return clean
    laid = lay_out(clean).text
    shown = redact(laid)
    return clean if shown == laid else shown


def flatten_json(text: str, keys: set[str], take: TakeLines | None = None) -> list[str] | None:
    """Returns JSON as lines of "key value", and adds its keys to `keys`; None for any other text.

    Calls `take` with each object and list, its name and the lines so far; if it returns True, it has added the lines for
    that object itself. A value of several lines makes one entry with line breaks in it.
    """
    if not _OPENS_JSON(text):
        return None
    try:
        data = _DECODER.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None
    lines: list[str] = []
    _flatten(data, "", lines, keys, 0, take)
    return lines


def excerpts(text: str, *, items: bool = False, spoken: bool = False) -> list[str]:
    """Returns the text in pieces, each with at least one word. Neighbouring short lines share a piece.

    With `items`, lines are lists as `lay_out` makes them from JSON, and long ones are cut between items. With `spoken`,
    sentences may be longer before they are cut inside.
    """
    longest = _LONGEST_SPOKEN if spoken else _LONGEST_SENTENCE
    pieces: list[str] = []
    held = ""
    for raw in text.split("\n"):
        line = raw.strip()
        if not line or not (line[0].isalnum() or line[-1].isalnum() or _has_word(line)):
            continue
        if line[-1] == ":" and line[:-1].isdigit():
            continue  # the printed number of an empty line
        if held and len(held) + len(line) > _WISHED:
            pieces.append(held)
            held = ""
        if len(line) > _WISHED + _SLACK:
            if held:
                pieces.append(held)
                held = ""
            pieces.extend(_long_line(line, items, longest))
            continue
        held = f"{held}\n{line}" if held else line
        if len(held) >= _LEAST:
            pieces.append(held)
            held = ""
    if held:
        pieces.append(held)
    return pieces


def _long_line(line: str, items: bool, longest: int) -> Iterator[str]:
    """Yields a long line in verbatim pieces: sentences or items, short ones joined."""
    wished = _WISHED_ITEMS if items else _WISHED
    start = 0
    held = 0  # the end of the last sentence of the piece, if known
    for match in (_ITEM_END if items else _SENTENCE_END).finditer(line):
        end = match.end()
        if not items and end - start < _LONGEST_NUMBERING and not _has_letter(line, start, end):
            continue  # the number of a point, not a sentence
        if held > start and end - start > wished:
            yield from _within(line, start, held, longest)
            start = held
        held = end
    if held > start and len(line) - start > wished + _SLACK:
        yield from _within(line, start, held, longest)
        start = held
    yield from _within(line, start, len(line), longest)


def _within(line: str, start: int, end: int, longest: int) -> Iterator[str]:
    """Yields the line from `start` up to `end`, in pieces if the sentence is too long to quote."""
    while end - start > longest:
        at = _last_break(line, start, end)
        if end - at < _LEAST:
            break
        piece = line[start:at].strip()
        if _has_word(piece):
            yield piece
        start = at
    piece = line[start:end].strip()
    if _has_word(piece):
        yield piece


def _last_break(line: str, start: int, end: int) -> int:
    """Returns the best end for the piece of a long sentence that begins at `start`."""
    limit = start + _WISHED + _SLACK
    best = 0
    for match in _CLAUSE_END.finditer(line, start + _SLACK, limit):
        best = match.end()
    if best:
        return best
    space = line.rfind(" ", start + _SLACK, limit)
    if space < 0:
        space = line.find(" ", limit, min(end, limit + _LONGEST_WORD))
        if space < 0 and end <= limit + _LONGEST_WORD:
            return end
    return space if space > 0 else _last_joint(line, start, limit)


def _last_joint(line: str, start: int, limit: int) -> int:
    """Returns the best cut in a run without a space: after a mark between its parts, so that no name loses its end."""
    for at in range(limit, start + _SLACK, -1):
        if not line[at - 1].isalnum() and line[at - 1] not in "_-.":
            return at
    return limit


def _flatten(
    data: Any, name: str, lines: list[str], keys: set[str], depth: int, take: TakeLines | None
) -> None:
    """Adds lines for the data: scalars share one line, each nested value has lines of its own."""
    if isinstance(data, (dict, list)) and take is not None and take(data, name, lines):
        return
    if isinstance(data, dict):
        _flatten_object(data, name, lines, keys, depth, take)
    elif isinstance(data, list):
        for item in data:
            if isinstance(item, (dict, list)) and depth < _DEEPEST:
                _flatten(item, name, lines, keys, depth + 1, take)
            else:
                lines.append(f"{name} {write_scalar(item)}" if name else write_scalar(item))
    else:
        lines.append(f"{name} {write_scalar(data)}" if name else write_scalar(data))


def _flatten_object(
    data: dict[str, Any], name: str, lines: list[str], keys: set[str], depth: int, take: TakeLines | None
) -> None:
    inline: list[str] = []
    nested: list[tuple[str, Any]] = []
    for key, value in data.items():
        if key not in keys and _PLAIN_KEY.match(key):
            keys.add(key)
        if value is None or value in ("", [], {}):
            continue  # it says nothing, and takes as much room as anything else
        if not isinstance(value, (dict, list)):
            inline.append(f"{key} {write_scalar(value)}")
        elif (short := _on_one_line(key, value, keys)) is not None:
            inline.append(short)
        elif depth < _DEEPEST:
            nested.append((key, value))
        else:
            inline.append(f"{key} {write_scalar(value)}")
    if inline:
        lines.append((f"{name}: " if name else "") + ", ".join(inline))
    for key, value in nested:
        _flatten(value, key if inline or not name else f"{name} {key}", lines, keys, depth + 1, take)


def _on_one_line(key: str, value: dict[str, Any] | list[Any], keys: set[str]) -> str | None:
    """Returns a small object or list of scalars as one phrase; None if it needs lines of its own."""
    if isinstance(value, dict):
        if len(value) > 8 or any(isinstance(item, (dict, list)) for item in value.values()):
            return None
        phrase = f"{key} " + (", ".join(f"{k} {write_scalar(v)}" for k, v in value.items()) or "none")
        if len(phrase) > _INLINE:
            return None
        keys.update([k for k in value if k not in keys and _PLAIN_KEY.match(k)])
        return phrase
    if any(isinstance(item, (dict, list)) for item in value):
        return None
    phrase = f"{key} " + (" ".join(map(write_scalar, value)) or "none")
    return phrase if len(phrase) <= _INLINE_LIST else None


def write_scalar(value: Any) -> str:
    """Returns a scalar as a person would write it; a long text keeps its lines."""
    if isinstance(value, str):
        return value if "\n" in value else " ".join(value.split())
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return msgspec.json.encode(value).decode()

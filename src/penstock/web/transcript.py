"""A conversation as HTML, to be read: who said what, calls with their outcome in one line, long texts folded.

All of it is untrusted text: it is escaped, nothing becomes a link, and no picture is loaded from another server.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, NamedTuple

from penstock.accounts.display import format_time
from penstock.accounts.timeline import ViewFate
from penstock.measure.wording import pluralise
from penstock.web.markup import Html, element, fragment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from penstock.accounts.talk import TalkCall, TalkEntry, TalkPicture, TalkText

__all__ = ["MessageMarks", "TranscriptLinks", "render_entries", "render_text", "render_time"]

_SHOWN_CHARS = 3_000  # of a text that somebody said
_FOLDED_CHARS = 6_000  # of one that is folded: a result, a reminder, a system prompt
_SHOWN_LINES = 60
_LINE_CHARS = 160
_FENCE = re.compile(
    r"^[ \t]*+(`{3,}+|~{3,}+)[^\n`]*+\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)
_CODE = re.compile(r"`([^`\n]{1,300})`")
_NAMES = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool", "summary": "Summary"}
_PICTURES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))


class TranscriptLinks(NamedTuple):
    """The addresses that a transcript leads to; None if it stands alone in a file, which then has all of every text.

    `message` shows all of a message, `picture` is the address of a picture, `pin` asks whether to pin a message.
    """

    message: Callable[[str], str] | None = None
    picture: Callable[[TalkPicture], str] | None = None
    pin: Callable[[str], str] | None = None


class MessageMarks(NamedTuple):
    """The fate of each message, by position, and the pinned ones."""

    fates: Sequence[ViewFate] = ()
    pins: Collection[int] = ()


_NO_MARKS = MessageMarks()


def render_entries(
    entries: Sequence[TalkEntry], links: TranscriptLinks, marks: MessageMarks = _NO_MARKS
) -> Html:
    """Returns the messages one below the other."""
    return fragment(*(_render_entry(entry, links, marks) for entry in entries))


def render_time(at: float) -> Html:
    """Returns a moment for people, with its exact value for programs."""
    return element("time", format_time(at), datetime=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)))


def _render_entry(entry: TalkEntry, links: TranscriptLinks, marks: MessageMarks) -> Html:
    place = int(entry.handle[1:]) - 1
    about: list[Html] = [
        element("span", _NAMES.get(entry.speaker, entry.speaker), class_="speaker"),
        element("a", entry.handle, href=f"#{entry.handle}", aria_label=f"Link to message {entry.handle}"),
    ]
    if entry.at:
        about.append(render_time(entry.at))
    if place < len(marks.fates) and marks.fates[place] is not ViewFate.VERBATIM:
        about.append(element("span", marks.fates[place].value, class_="badge"))
    if place in marks.pins:
        about.append(element("span", "pinned", class_="badge on"))
    if links.pin is not None:
        word = "Unpin" if place in marks.pins else "Pin"
        about.append(
            element(
                "a", word, href=links.pin(entry.handle), class_="act", aria_label=f"{word} {entry.handle}"
            )
        )
    texts = [_render_said(text, entry, links) for text in entry.texts]
    calls = [_render_call(call, entry.handle, links) for call in entry.calls]
    return element(
        "article",
        element("p", *about, class_="who"),
        *texts,
        *calls,
        id=entry.handle,
        class_=f"message {entry.speaker if entry.speaker in _NAMES else 'other'}",
        tabindex="-1",
        data_stop=True,
        aria_label=f"{entry.handle}, {entry.speaker}",
    )


def _render_said(text: TalkText, entry: TalkEntry, links: TranscriptLinks) -> Html:
    if text.picture is not None:
        return _render_picture(text.picture, links)
    if text.kind:
        return _fold(text.kind, text.text, entry.handle, links)
    if entry.speaker in {"system", "summary"} and len(text.text) > 400:
        return _fold(_first_line(text.text), text.text, entry.handle, links)
    return render_text(text.text, _all_of(entry.handle, links))


def render_text(text: str, more: Html | None = None) -> Html:
    """Returns a text with its code set apart. A long one is cut if `more` leads to the rest."""
    shown = text if more is None else _cut(text, _SHOWN_CHARS)
    parts: list[Html] = []
    end = 0
    for fence in _FENCE.finditer(shown):
        if said := shown[end : fence.start()].strip("\n"):
            parts.append(element("div", *_mark_code(said), class_="words", dir="auto"))
        parts.append(element("pre", element("code", fence[2].rstrip("\n")), tabindex="0"))
        end = fence.end()
    if said := shown[end:].strip("\n"):
        parts.append(element("div", *_mark_code(said), class_="words", dir="auto"))
    if len(shown) < len(text):
        parts.append(_say_more(len(text) - len(shown), more))
    return fragment(*parts)


def _mark_code(text: str) -> list[str]:
    pieces: list[str] = []
    end = 0
    for code in _CODE.finditer(text):
        pieces += [text[end : code.start()], element("code", code[1])]
        end = code.end()
    return [*pieces, text[end:]]


def _render_call(call: TalkCall, handle: str, links: TranscriptLinks) -> Html:
    given = "  ".join(
        f"{name}: {_first_line(value)}" if name else _first_line(value)
        for name, value in call.arguments.items()
    )
    summary = element(
        "summary",
        element("span", call.name, class_="tool"),
        element("span", given[:_LINE_CHARS], class_="given"),
        element(
            "span",
            f"→ {_state_outcome(call)}",
            class_="outcome failed" if call.failed else "outcome",
        ),
    )
    whole = _all_of(handle, links)
    arguments = [
        fragment(element("h3", name or "given"), _render_block(value, whole))
        for name, value in call.arguments.items()
    ]
    result = []
    if call.answer:
        result = [
            element("h3", "result ", _name_answer(call.answer, links)),
            _render_block(call.outcome or "(empty)", _all_of(call.answer, links)),
            *(_render_picture(one, links) for one in call.pictures),
        ]
    return element("details", summary, *arguments, *result, class_="call")


def _state_outcome(call: TalkCall) -> str:
    """Returns the outcome of a call in one line. An error says at its end what went wrong."""
    if not call.answer:
        return "no result yet"
    told = _first_line(
        call.outcome.rstrip()[-_LINE_CHARS:].rpartition("\n")[2] if call.failed else call.outcome
    )
    stated = call.stated.strip(" →,")
    return " · ".join(filter(None, (stated, told))) or "no output"


def _name_answer(handle: str, links: TranscriptLinks) -> Html:
    if links.message is None:
        return element("span", handle, class_="quiet")
    return element("a", handle, href=links.message(handle))


def _fold(label: str, text: str, handle: str, links: TranscriptLinks) -> Html:
    summary = element(
        "summary", label, " ", element("span", pluralise(len(text), "character"), class_="small")
    )
    return element("details", summary, _render_block(text, _all_of(handle, links)), class_="aside-text")


def _render_block(text: str, more: Html | None) -> Html:
    shown = text if more is None else _cut(text, _FOLDED_CHARS)
    block = element("pre", shown, tabindex="0", dir="auto")
    return block if len(shown) == len(text) else fragment(block, _say_more(len(text) - len(shown), more))


def _render_picture(picture: TalkPicture, links: TranscriptLinks) -> Html:
    if not picture.size_bytes:
        return element("p", "[picture on another server; not fetched]", class_="more")
    size = f"{picture.width} × {picture.height}, " if picture.width else ""
    said = f"picture, {picture.media_type or 'of unknown type'}, {size}{picture.size_bytes:,} bytes"
    if links.picture is None:
        return element("p", f"[{said}; left out: a picture cannot be redacted]", class_="more")
    if picture.media_type not in _PICTURES:
        return element("p", f"[{said}; not shown]", class_="more")
    return element("img", src=links.picture(picture), alt=said, class_="picture", loading="lazy")


def _all_of(handle: str, links: TranscriptLinks) -> Html | None:
    return None if links.message is None else element("a", f"all of {handle}", href=links.message(handle))


def _say_more(characters: int, more: Html | None) -> Html:
    return element("p", f"… {pluralise(characters, 'more character')}: ", more or "", class_="more")


def _cut(text: str, most_chars: int) -> str:
    """Returns the beginning of a long text, cut at the end of a line if possible."""
    lines = text.split("\n", _SHOWN_LINES)
    if len(lines) > _SHOWN_LINES:
        text = text[: -len(lines[-1]) - 1]
    if len(text) <= most_chars:
        return text
    end = text.rfind("\n", most_chars // 2, most_chars)
    return text[: end if end > 0 else most_chars]


def _first_line(text: str) -> str:
    beginning = text[: 4 * _LINE_CHARS].strip()
    return " ".join(beginning.split("\n", 1)[0].split())[:_LINE_CHARS]

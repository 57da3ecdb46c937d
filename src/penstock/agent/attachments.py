"""Files that a person attaches to a message, by naming them in it: `@src/main.py`, `@"two words.txt"`, `@shot.png`.

Text files are read as the tool `read_file` reads them, so that one rule holds for both: nothing outside the working folder,
a question before a file that looks like it holds secrets, and one page of a long one. They follow the message, each in a
tag that says what it is. Pictures become parts of the message, if the model takes them.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from penstock.agent.tools.walking import levels_below
from penstock.conversation.wire import json_text
from penstock.errors import InputError, ToolFailure
from penstock.loop.text_files import size_in_words
from penstock.providers.exchange import Called
from penstock.transfer.convert import Picture

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from penstock.loop.calls import ToolCalls
    from penstock.loop.workspace import Workspace

__all__ = [
    "Attached",
    "attach_files",
    "find_dragged",
    "find_mentions",
    "list_matches",
    "name_mention",
    "sniff_picture",
    "takes_pictures",
]

_MENTION = re.compile(r"""(?<![^\s(\[{"'`])@(?:"([^"\n]+)"|((?:\\[^\n]|[^\s"'`\\])+))""")
_ENDS = ".,;:!?)]}>'\"`"
_TAG = "attached_file"
_MOST_FILES, _MOST_PAGES = 20, 3
_MOST_PICTURE_BYTES = 3_750_000  # 5 MB in base64, which every provider takes
_MAGIC = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
_SNIFFED_BYTES = 16
_LONGEST_PATH = 4_096
_LEAST_LETTERS, _MOST_MATCHES = 2, 20
_DEEPEST, _MOST_VISITED = 8, 5_000
_LISTING_SECONDS = 1.0


class Attached(msgspec.Struct, frozen=True):
    """A message with its attachments: its text, which includes attached files, and pictures."""

    text: str
    pictures: tuple[Picture, ...] = ()


def find_mentions(text: str) -> list[str]:
    """Returns the paths that a message names with `@`, each once; they may not exist. Pure."""
    found = (quoted or re.sub(r"\\(.)", r"\1", plain) for quoted, plain in _MENTION.findall(text))
    return list(dict.fromkeys(found))


def name_mention(path: str) -> str:
    """Returns the mention of a path, in quotes if it needs them. Pure."""
    plain = not re.search(r"[\s\\\"'`]", path) and not path.endswith(tuple(_ENDS))
    return f"@{path}" if plain else f'@"{path}"'


async def attach_files(
    text: str,
    calls: ToolCalls,
    workspace: Workspace,
    *,
    typed: str | None = None,
    dragged: Collection[str] = (),
    blind: str = "",
) -> Attached:
    """Returns the message with the files that it names attached; a name that is not a file stays as it is.

    `typed` is the part of the text in which names count; None means all of it. `dragged` are paths of pictures that may be
    anywhere, since the person added them by hand. `blind` says why the model takes no pictures.

    Raises InputError for a file that may not be read or cannot be attached; then nothing should be sent.
    """
    blocks: list[str] = []
    pictures: list[Picture] = []
    room = _MOST_PAGES * calls.page_chars
    names = [
        name
        for said in find_mentions(text if typed is None else typed)
        for name in _find_file(said, workspace)
    ]
    if len(names) > _MOST_FILES:
        raise InputError(
            f"{len(names):,} files are more than the {_MOST_FILES} that can be attached to one message"
        )
    for name in dict.fromkeys(names):
        path = _expand(name, workspace)
        if media_type := sniff_picture(path):
            pictures.append(_read_picture(name, path, media_type, workspace, dragged, blind))
            continue
        block = await _read_block(name, "list_files" if path.is_dir() else "read_file", calls)
        room -= len(block)
        if room < 0:
            raise InputError(
                f"{name} does not fit beside the other attached files; name fewer, and let the agent read the rest"
            )
        blocks.append(block)
    return Attached("\n\n".join([text, *blocks]), tuple(pictures))


def _expand(name: str, workspace: Workspace) -> Path:
    return Path(os.path.expanduser(name)) if name.startswith("~") else workspace.root / name  # noqa: PTH111 - raises nothing


def _find_file(said: str, workspace: Workspace) -> Iterator[str]:
    """Yields the name of the file or folder that is meant, without trailing punctuation.

    A name means a folder only with a trailing `/`: `@app` is more often a decorator.
    """
    name = said
    while name:
        try:
            path = _expand(name, workspace)
            if path.exists() and (name.endswith("/") or not path.is_dir()):
                yield name
                return
        except (OSError, ValueError):  # no permission to look, a name that is too long or holds a null
            return
        if name[-1] not in _ENDS:
            return
        name = name[:-1]


async def _read_block(name: str, tool: str, calls: ToolCalls) -> str:
    outcome = await calls.run(Called("", tool, json_text({"path": name})))
    if outcome.is_error:
        raise InputError(f"{name} was not attached, and nothing was sent: {outcome.text}")
    inside = outcome.text.replace(f"</{_TAG}", f"<\\/{_TAG}")
    shown = name.replace('"', "'").replace("<", "(").replace(">", ")")
    return f'<{_TAG} path="{shown}">\n{inside}\n</{_TAG}>'


# Pictures.


def sniff_picture(path: Path) -> str:
    """Returns the media type of a picture that providers take, by its first bytes; empty for any other file."""
    try:
        if not path.is_file():  # a pipe would have nothing to read, for ever
            return ""
        with path.open("rb") as file:
            head = file.read(_SNIFFED_BYTES)
    except OSError:
        return ""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for magic, media_type in _MAGIC if head.startswith(magic)), "")


def _read_picture(
    name: str, path: Path, media_type: str, workspace: Workspace, dragged: Collection[str], blind: str
) -> Picture:
    if blind:
        raise InputError(f"{name} was not attached, and nothing was sent: {blind}")
    if name not in dragged:
        try:
            workspace.resolve(name)
        except ToolFailure as error:
            raise InputError(f"{error}; a picture from elsewhere can be dragged into the window") from None
    size = path.stat().st_size
    if size > _MOST_PICTURE_BYTES:
        most = size_in_words(_MOST_PICTURE_BYTES)
        raise InputError(f"{name} has {size_in_words(size)}, and {most} can be attached; make it smaller")
    return Picture(media_type, base64.b64encode(path.read_bytes()).decode())


_BLIND = re.compile(
    r"gpt-3\.5|gpt-4(?:-\d{4}|-32k.*)?$|gpt-oss|o1-(?:mini|preview)|o3-mini|claude-(?:1|2|instant)|deepseek|codestral|devstral"
    r"|mixtral|mistral-7b|open-mistral|magistral|coder|codellama|llama-?[23](?!\.2.*vision)|kimi-k2|glm-4(?:\.\d)?(?:-|$)"
    r"|grok-(?:3|code)|command|phi-[34](?!.*(?:vision|multimodal))|gemma-?[12]\b|granite|nemotron"
)
_SEEING = re.compile(
    r"gpt-(?:4o|4\.1|4\.5|4-turbo|[5-9])|chatgpt|(?:^|/)o[134](?:$|-)|claude|gemini|gemma-?3|pixtral|llava|vision|[-_.]vl?\b"
    r"|\d+\.?\d*v\b|-vl|mistral-(?:small|medium|large)|llama-?4|grok-[4-9]|internvl|minicpm-v|moondream|nova-(?:lite|pro|premier)"
)


def takes_pictures(model: str) -> bool | None:
    """Returns True if a model takes pictures; None if its name does not tell. Pure."""
    name = model.lower()
    if _BLIND.search(name) and not re.search(r"vision|-vl|multimodal", name):
        return False
    return True if _SEEING.search(name) else None


def find_dragged(pasted: str) -> str:
    """Returns the path in a paste that is just the path of a picture, as when a file is dragged to a terminal; else empty."""
    text = pasted.strip()
    if not text or "\n" in text or len(text) > _LONGEST_PATH:
        return ""
    try:
        unquoted = shlex.split(text)
    except ValueError:
        return ""
    for name in (text, *(unquoted if len(unquoted) == 1 else ())):
        path = unquote(name.removeprefix("file://")) if name.startswith("file://") else name
        if path.startswith("/") and sniff_picture(Path(path)):
            return path
    return ""


def list_matches(workspace: Workspace, begun: str) -> list[str]:
    """Returns completions of a mention, folders with a `/`: in the folder that is named, else anywhere by name.

    Leaves out ignored files and everything outside the working folder. Takes about a second at most, and returns what it
    has found by then.
    """
    folder, slash, start = begun.rpartition("/")
    try:
        workspace.resolve(folder or ".")
    except ToolFailure:
        return []
    low, until = start.lower(), time.monotonic() + _LISTING_SECONDS
    inside = levels_below(workspace.root, folder, 1, until=until)
    near = [entry for entry in inside if entry.name.lower().startswith(low)]
    if not start.startswith("."):
        near = [entry for entry in near if not entry.name.startswith(".")]
    if not slash and len(start) >= _LEAST_LETTERS:
        known = {entry.path for entry in near}
        far = islice(levels_below(workspace.root, "", _DEEPEST, until=until), _MOST_VISITED)
        near += [entry for entry in far if low in entry.name.lower() and entry.path not in known]
    return [f"{entry.path}/" if entry.is_folder else entry.path for entry in near[:_MOST_MATCHES]]

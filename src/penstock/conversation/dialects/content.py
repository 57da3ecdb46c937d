"""The content of a message on the wire: a string, a list of typed blocks, or nothing.

A text is read in segments, since it may hold handoffs, which we recognise by their mark. A dialect says how it reads and
writes a block that is not text; the rest is the same for all.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from penstock.conversation import mark
from penstock.conversation.message import Image, Opaque, Part, Summary, Text, ToolResult
from penstock.conversation.wire import json_text, parse_json

__all__ = [
    "ReadBlock",
    "Segment",
    "Slot",
    "Slotted",
    "WriteBlock",
    "image_from_base64",
    "image_from_reference",
    "image_from_url",
    "opaque",
    "read_attachment",
    "read_content",
    "read_image",
    "read_result",
    "replace_segments",
    "rewrite_content",
    "rewrite_result",
    "split_marked",
    "text_of",
    "text_segment",
]


# The field that holds the words of a text block, whatever the dialect calls the block.
_TEXT_FIELDS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}


class Segment(NamedTuple):
    """A part and the slice of the text that it was read from.

    Text outside every segment (line ends around a mark, tags) is kept as it is when a segment is replaced.
    """

    part: Part
    start: int
    end: int


def split_marked(text: str) -> list[Segment]:
    """Returns the text in segments: the handoffs in it, found by their mark, and the words between them."""
    found = mark.find(text) if mark.OPENING in text else None
    if found is None:
        return [Segment(Text(text), 0, len(text))]
    segments: list[Segment] = []
    at = 0
    while found is not None:
        segments += text_segment(text, at, found.start)
        summary = Summary(found.text, found.version, found.attributes)
        segments.append(Segment(summary, found.start, found.end))
        at = found.end
        found = mark.find(text, at)
    return segments + text_segment(text, at, len(text))


def text_segment(text: str, start: int, end: int) -> list[Segment]:
    """Returns the words between two other segments, without the line ends around them; nothing if all is blank."""
    for _ in range(2):  # we write two line ends between a mark and the words beside it, and take no more away
        if 0 < start < end and text[start] == "\n":
            start += 1
        if start < end < len(text) and text[end - 1] == "\n":
            end -= 1
    words = text[start:end]
    return [] if not words or words.isspace() else [Segment(Text(words), start, end)]


def replace_segments(text: str, segments: Iterable[Segment], written: Mapping[int, str]) -> str:
    """Returns the text with segment i replaced by written[i]."""
    pieces: list[str] = []
    at = 0
    for number, segment in enumerate(segments):
        if number in written:
            pieces += (text[at : segment.start], written[number])
            at = segment.end
    pieces.append(text[at:])
    return "".join(pieces)


def text_of(part: Part) -> str:
    """Returns the part as plain text on the wire. Raises TypeError for a part that is not text."""
    if isinstance(part, Summary):
        return mark.wrap(part.text, part.attributes, part.version)
    if isinstance(part, Text | ToolResult):
        return part.text
    raise TypeError(f"{type(part).__name__} cannot stand as plain text")


class Slot(NamedTuple):
    """The place of a part: the index of its block, None for a content string, and its segment there."""

    block: int | None
    segment: int


class Slotted(NamedTuple):
    """A part and its place in the content."""

    slot: Slot
    part: Part


ReadBlock: TypeAlias = Callable[[Mapping[str, Any]], Part]
WriteBlock: TypeAlias = Callable[[Any, Part], Any]


def opaque(value: Any, kind: str = "") -> Opaque:
    """Returns the part for a block that we do not understand."""
    if not kind and isinstance(value, Mapping) and isinstance(value.get("type"), str):
        kind = value["type"]
    data = _FILES[kind](value) if kind in _FILES and isinstance(value, Mapping) else None
    return Opaque(kind or "unknown", json_text(value), _size_bytes(data) if isinstance(data, str) else 0)


def _read_field(value: Mapping[str, Any], *path: str) -> Any:
    """Returns the value at the end of the path, or None."""
    found: Any = value
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _read_pdf(value: Mapping[str, Any], *path: str) -> str | None:
    """Returns the base64 of a PDF, alone or in a `data:` URL; None for any other file, which is weighed as text."""
    data = _read_field(value, *path)
    if not isinstance(data, str):
        return None
    data = data.partition(";base64,")[2] if data[:5].lower() == "data:" else data
    return data if data.startswith("JVBER") else None


# Types that hold a file in base64, and the place of it. The table in `protocol` says how each is weighed.
_FILES: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "document": lambda value: _read_pdf(value, "source", "data"),
    "input_file": lambda value: _read_pdf(value, "file_data"),
    "file": lambda value: _read_pdf(value, "file", "file_data"),
    "input_audio": lambda value: _read_field(value, "input_audio", "data"),
    "image_generation_call": lambda value: _read_field(value, "result"),
}


def read_attachment(part: Opaque) -> tuple[str, str]:
    """Returns the title of a document or file, and its text if it is plain text."""
    wire = parse_json(part.text)
    if not isinstance(wire, Mapping):
        return "", ""
    inner = wire.get("file")
    file = inner if isinstance(inner, Mapping) else wire
    title = next((file[name] for name in ("title", "filename") if isinstance(file.get(name), str)), "")
    source = wire.get("source")
    content = _read_field(wire, "source", "content") if isinstance(source, Mapping) else wire.get("content")
    if isinstance(source, Mapping) and source.get("type") == "text":
        content = source.get("data")
    text = content if isinstance(content, str) else ""
    if isinstance(content, list):
        text = "\n".join(filter(None, map(_block_text, content)))
    return title, text


def read_content(content: Any, read_block: ReadBlock) -> list[Slotted]:
    """Returns the parts of a content, each with its place."""
    if content is None:
        return []
    if isinstance(content, str):
        return _in_slots(None, split_marked(content))
    if not isinstance(content, list | tuple):
        return [Slotted(Slot(None, 0), opaque(content, "content"))]
    found: list[Slotted] = []
    for index, block in enumerate(content):
        text = _block_text(block)
        if text is not None:
            found += _in_slots(index, split_marked(text))
        else:
            part = read_block(block) if isinstance(block, Mapping) else opaque(block)
            found.append(Slotted(Slot(index, 0), part))
    return found


def _in_slots(block: int | None, segments: Sequence[Segment]) -> list[Slotted]:
    return [Slotted(Slot(block, number), segment.part) for number, segment in enumerate(segments)]


def _block_text(block: Any) -> str | None:
    if isinstance(block, str):
        return block
    if isinstance(block, Mapping):
        field = _text_field(block)
        if field and isinstance(block.get(field), str):
            return str(block[field])
    return None


def _text_field(block: Mapping[str, Any]) -> str | None:
    kind = block.get("type")
    return _TEXT_FIELDS.get(kind) if isinstance(kind, str) else None


def rewrite_content(content: Any, changes: Mapping[Slot, Part], write_block: WriteBlock) -> Any:
    """Returns the content with the parts at these slots replaced; `write_block(block, part)` writes the others."""
    by_block: dict[int | None, dict[int, Part]] = {}
    for slot, part in changes.items():
        by_block.setdefault(slot.block, {})[slot.segment] = part
    if None in by_block:
        return (
            _rewrite_text(content, by_block[None]) if isinstance(content, str) else text_of(by_block[None][0])
        )
    blocks = list(content)
    for index, parts in by_block.items():
        if index is not None:
            blocks[index] = _rewrite_block(blocks[index], parts, write_block)
    return blocks


def _rewrite_text(text: str, parts: Mapping[int, Part]) -> str:
    written = {number: text_of(part) for number, part in parts.items()}
    return replace_segments(text, split_marked(text), written)


def _rewrite_block(block: Any, parts: Mapping[int, Part], write_block: WriteBlock) -> Any:
    text = _block_text(block)
    if text is None:
        return write_block(block, parts[0])
    changed = _rewrite_text(text, parts)
    return changed if isinstance(block, str) else {**block, _text_field(block) or "text": changed}


def read_image(block: Mapping[str, Any]) -> Image | None:
    """Returns the picture in a block of any dialect; None if it holds none that we can identify."""
    source = block.get("source") if block.get("type") == "image" else block.get("image_url")
    if isinstance(source, Mapping) and isinstance(source.get("data"), str):
        return image_from_base64(str(source.get("media_type") or ""), source["data"])
    if isinstance(source, Mapping):
        source = source.get("url") or source.get("file_id")
    source = source or block.get("file_id")
    if not isinstance(source, str) or block.get("type") not in ("image", "image_url", "input_image"):
        return None
    return image_from_url(source) if ":" in source[:12] else image_from_reference("", source)


def read_result(content: Any) -> tuple[str, tuple[Image, ...]]:
    """Returns the text and the pictures of a tool's output. Anything else is in the text as JSON, so that it counts."""
    if isinstance(content, str):
        return content, ()
    if content is None:
        return "", ()
    if not isinstance(content, list | tuple):
        return json_text(content), ()
    texts: list[str] = []
    images: list[Image] = []
    for block in content:
        text = _block_text(block)
        image = read_image(block) if text is None and isinstance(block, Mapping) else None
        if image is not None:
            images.append(image)
        else:
            texts.append(json_text(block) if text is None else text)
    return "\n".join(texts), tuple(images)


def rewrite_result(content: Any, old: ToolResult, new: ToolResult, text_type: str) -> Any:
    """Returns the content of a tool's output with new text and with only those pictures that `new` still has."""
    if new.text == old.text and new.images == old.images:
        return content
    if not isinstance(content, list | tuple):
        return new.text
    kept = {image.digest for image in new.images}
    images = {index: _image_at(block) for index, block in enumerate(content)}
    if new.text == old.text:
        return [block for index, block in enumerate(content) if _stays(images[index], kept)]
    pictures = [block for index, block in enumerate(content) if images[index] and _stays(images[index], kept)]
    return [{"type": text_type, "text": new.text}, *pictures] if new.text or not pictures else pictures


def _image_at(block: Any) -> Image | None:
    return read_image(block) if isinstance(block, Mapping) and _block_text(block) is None else None


def _stays(image: Image | None, kept: set[str]) -> bool:
    return image is None or image.digest in kept


# What a picture on the wire is: its type, size and dimensions, read from the first bytes alone.

_SNIFF_CHARS = 64  # enough for the header of PNG, GIF and WebP
_JPEG_CHARS = 65_536  # a JPEG may carry a preview before it says its size


def image_from_url(url: str) -> Image:
    """Returns the picture that a `data:` URL holds or another URL points to."""
    if url[:5].lower() == "data:":
        head, comma, data = url.partition(",")
        if comma and head.endswith(";base64"):
            return image_from_base64(head[5:].split(";", 1)[0], data)
    return image_from_reference("", url)


def image_from_reference(media_type: str, reference: str) -> Image:
    """Returns a picture that is not in the message: a URL or the id of a file."""
    return Image(media_type=media_type, size_bytes=0, digest=_digest(reference))


def image_from_base64(media_type: str, data: str) -> Image:
    """Returns a picture in the message. Width and height are 0 if its header does not give them."""
    width, height = _dimensions(data)
    return Image(media_type, _size_bytes(data), _digest(data), width, height)


def _size_bytes(data: str) -> int:
    return max(0, len(data) * 3 // 4 - data.count("=", -2))


def _digest(source: str) -> str:
    return hashlib.blake2b(source.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _first_bytes(data: str, chars: int) -> bytes:
    head = data[:chars]
    try:
        return base64.b64decode(head[: len(head) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


def _dimensions(data: str) -> tuple[int, int]:
    head = _first_bytes(data, _SNIFF_CHARS)
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        width, height = struct.unpack_from(">II", head, 16)
        return width, height
    if head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        width, height = struct.unpack_from("<HH", head, 6)
        return width, height
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _webp_dimensions(head)
    if head.startswith(b"\xff\xd8"):
        return _jpeg_dimensions(_first_bytes(data, _JPEG_CHARS))
    return 0, 0


def _webp_dimensions(head: bytes) -> tuple[int, int]:
    if len(head) < 30:
        return 0, 0
    kind = head[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF
    return 0, 0


def _jpeg_dimensions(head: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", head, at + 5)
            return width, height
        if marker in (0x01, 0xFF) or 0xD0 <= marker <= 0xD8:
            at += 1 if marker == 0xFF else 2  # padding, or a marker that has no length
            continue
        at += 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return 0, 0

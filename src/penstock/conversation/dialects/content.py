"""Content as three of the dialects have it: a string, or a list of typed blocks, or nothing.

A dialect says how it reads a block that is not text and how it writes one; the rest is the same for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from penstock.conversation.dialects.segments import Segment, marked_segments, replace_segments, text_of
from penstock.conversation.images import image_from_base64, image_from_reference, image_from_url
from penstock.conversation.message import Image, Opaque, Part, ToolResult
from penstock.conversation.wire import json_text

__all__ = [
    "ReadBlock",
    "Slot",
    "Slotted",
    "WriteBlock",
    "opaque",
    "read_content",
    "read_image",
    "read_result",
    "rewrite_content",
    "rewrite_result",
]

# The field that holds the words of a text block, whatever the dialect calls the block.
_TEXT_FIELDS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}


class Slot(NamedTuple):
    """Where a part was read: the block's index (None for a content string), and the segment within its text."""

    block: int | None
    segment: int


class Slotted(NamedTuple):
    """A part and its place in the content."""

    slot: Slot
    part: Part


ReadBlock: TypeAlias = Callable[[Mapping[str, Any]], Part]
WriteBlock: TypeAlias = Callable[[Any, Part], Any]


def opaque(value: Any, kind: str = "") -> Opaque:
    """The part for what we do not understand."""
    if not kind and isinstance(value, Mapping) and isinstance(value.get("type"), str):
        kind = value["type"]
    return Opaque(kind or "unknown", json_text(value))


def read_content(content: Any, read_block: ReadBlock) -> list[Slotted]:
    """The parts of a content, each with its place."""
    if content is None:
        return []
    if isinstance(content, str):
        return _in_slots(None, marked_segments(content))
    if not isinstance(content, list | tuple):
        return [Slotted(Slot(None, 0), opaque(content, "content"))]
    found: list[Slotted] = []
    for index, block in enumerate(content):
        text = _block_text(block)
        if text is not None:
            found += _in_slots(index, marked_segments(text))
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
    """The content with the parts at these slots replaced; `write_block(block, part)` writes the others."""
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
    return replace_segments(text, marked_segments(text), written)


def _rewrite_block(block: Any, parts: Mapping[int, Part], write_block: WriteBlock) -> Any:
    text = _block_text(block)
    if text is None:
        return write_block(block, parts[0])
    changed = _rewrite_text(text, parts)
    return changed if isinstance(block, str) else {**block, _text_field(block) or "text": changed}


def read_image(block: Mapping[str, Any]) -> Image | None:
    """The picture that a block of any dialect holds, or None where it holds none that we can name."""
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
    """Text and pictures of a tool's output. What is neither is in the text as its JSON, so that it counts."""
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
    """The content of a tool's output with new text and with only those pictures that `new` still has."""
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

"""Where the pictures of a message are: a part knows a picture by its digest alone, the wire has its data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.conversation.dialects.content import read_image

__all__ = ["Picture", "pictures_of"]


class Picture(msgspec.Struct, frozen=True):
    """A picture: its base64 data with its type, or the URL that it is at. Neither where only its provider has it."""

    media_type: str = ""
    data: str = ""
    url: str = ""

    @property
    def address(self) -> str:
        """A URL of it, with the data inside where there is data; "" where there is none."""
        if self.data:
            return f"data:{self.media_type or 'image/png'};base64,{self.data}"
        return self.url


def pictures_of(wire: Any) -> dict[str, Picture]:
    """Every picture of a wire object, by its digest."""
    found: dict[str, Picture] = {}
    waiting = [wire]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            image = read_image(value) or _screenshot(value)
            if image is not None:
                found[image.digest] = _picture(value)
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return found


def _screenshot(block: Mapping[str, Any]) -> Any:
    """A computer's screenshot is a picture of another type."""
    return (
        read_image({**block, "type": "input_image"}) if block.get("type") == "computer_screenshot" else None
    )


def _picture(block: Mapping[str, Any]) -> Picture:
    source = block.get("source") or block.get("image_url")
    if isinstance(source, Mapping):
        if isinstance(source.get("data"), str):
            return Picture(str(source.get("media_type") or ""), source["data"])
        source = source.get("url")
    if not isinstance(source, str):
        return Picture()
    head, comma, data = source.partition(",")
    if source[:5].lower() == "data:" and comma and head.endswith(";base64"):
        return Picture(head[5:].split(";", 1)[0], data)
    return Picture(url=source) if ":" in source[:12] else Picture()

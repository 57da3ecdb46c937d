"""Reads a picture from the clipboard with the system's own programs: a terminal passes on only text."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.agent.attachments import sniff_picture

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NO_PICTURE", "save_clipboard_picture"]

_READERS = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
_SECONDS = 3.0
NO_PICTURE = "no picture in the clipboard, or none of wl-paste, xclip and pngpaste to read it; @FILE attaches one from a file"


async def save_clipboard_picture(folder: Path) -> Path | None:
    """Saves the picture in the clipboard to a file that only its owner can read; returns its path, None without a picture."""
    for command in _READERS:
        if shutil.which(command[0]) and (data := await _read(*command)) and (path := _save(data, folder)):
            return path
    return None


def _save(data: bytes, folder: Path) -> Path | None:
    path = folder / f"{hashlib.blake2b(data, digest_size=6).hexdigest()}.png"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(data)
        if sniff_picture(path):
            return path
        path.unlink()
    return None


async def _read(*command: str) -> bytes:
    """Returns the program's output; nothing if it fails or takes too long."""
    quiet = asyncio.subprocess.DEVNULL
    with suppress(OSError):
        process = await asyncio.create_subprocess_exec(
            *command, stdin=quiet, stdout=asyncio.subprocess.PIPE, stderr=quiet
        )
        try:
            out, _ = await asyncio.wait_for(process.communicate(), _SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
            return b""
        return out if process.returncode == 0 else b""
    return b""

"""The process's own secrets: which variables hold them, and the forms in which they turn up in text."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from typing import TYPE_CHECKING

from penstock.redaction.value import is_literal

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["forms", "secret_variables"]

_TELLING = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|DSN|COOKIE|JWT|PAT|AUTH|_PWD|_PASS|_PW)"
    r"(?:_?[0-9]{1,2}|_(?:PROD|DEV|TEST|STAGING|LIVE|VALUE|BASE|B64|BASE64))?$",
    re.IGNORECASE,
)
_PUBLIC = re.compile(r"PUBLIC|PUBLISHABLE|GPG_KEY$|HOTKEY|MONKEY|KEYBOARD|SSH_AUTH", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^\s:/@]*:([^\s/]+)@", re.IGNORECASE)
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SHORTEST = 8


def secret_variables(environ: Mapping[str, str]) -> list[str]:
    """The values of the variables whose name says that they are secret, and passwords in their addresses.

    A value that is short, a path, a reference or a plain word is left out: to blank it everywhere would
    ruin text and hide nothing.
    """
    found = set()
    for name, value in environ.items():
        if (address := _URL_PASSWORD.match(value)) is not None:
            found.add(address[1])
        elif _TELLING.search(name) and not _PUBLIC.search(name):
            found.add(value.strip())
    return sorted(value for value in found if _is_secret(value))


def _is_secret(value: str) -> bool:
    if len(value) < _SHORTEST or not is_literal(value):
        return "://" in value and "@" in value
    return len(value) >= 16 or not (value.isalpha() or value.isdigit())


def forms(value: str) -> set[str]:
    """The value itself, JSON-escaped once and twice, percent-encoded, and as it looks inside base64 at each of three offsets."""
    data = value.encode("utf-8", "surrogatepass")
    percent = "".join(chr(byte) if chr(byte) in _UNRESERVED else f"%{byte:02X}" for byte in data)
    found = {value, json.dumps(value, ensure_ascii=False)[1:-1]}
    found |= {once := json.dumps(value)[1:-1], json.dumps(once)[1:-1]}  # arguments are JSON inside JSON
    found |= {percent, percent.replace("%20", "+"), re.sub("%..", lambda match: match[0].lower(), percent)}
    for offset in range(3):
        # The characters that also carry bits of the neighbours are cut off at both ends.
        encoded = b64encode(bytes(offset) + data).decode()
        inner = encoded[(offset * 8 + 5) // 6 : (offset + len(data)) * 8 // 6]
        found |= {inner, inner.replace("+", "-").replace("/", "_")}
    return {form for form in found if len(form) >= _SHORTEST - 2}

"""Decides who may see pages: by a cookie given for a key or a link, and the tokens of forms.

A cookie holds a name and a time, signed with a secret of this process: it is invalid in another process, reveals nothing
about the key that it was given for, and ends with the process.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from penstock.web.site import Visitor

if TYPE_CHECKING:
    from aiohttp import web

__all__ = ["COOKIE", "Door", "LinkDoor", "Seal", "name_of_host"]

COOKIE = "penstock"
_COOKIE_SECONDS = 12 * 3_600


class Seal:
    """Signs cookies and form tokens."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def write(self, name: str) -> str:
        """Returns the cookie for a name."""
        text = f"{name}.{int(time.time()) + _COOKIE_SECONDS}"
        return f"{text}.{self._sign('cookie', text)}"

    def read(self, cookie: str) -> str:
        """Returns the name that a cookie of ours was given for; empty for any other cookie and for an expired one."""
        text, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign("cookie", text).encode()):
            return ""
        name, _, until = text.rpartition(".")
        return name if time.time() < int(until) else ""

    def make_form_token(self, name: str) -> str:
        """Returns the token of all forms on the pages of a reader."""
        return self._sign("form", name)

    def _sign(self, use: str, text: str) -> str:
        return hmac.digest(self._secret, f"{use}\0{text}".encode(), hashlib.sha256).hex()


class Door(Protocol):
    """Decides who reads pages."""

    def admit(self, request: web.BaseRequest) -> Visitor | None:
        """Returns the reader of a request; None for a stranger."""

    def open_with(self, presented: str) -> str:
        """Returns the cookie for a key or token; empty if it is wrong."""

    @property
    def asks_for(self) -> str:
        """The credential that the login page asks for, in words."""


class LinkDoor:
    """Lets in anyone with the link that the command printed, which other users of this machine do not have."""

    def __init__(self) -> None:
        self._seal = Seal()
        self._token = secrets.token_urlsafe(24)

    @property
    def token(self) -> str:
        """The token of the link."""
        return self._token

    @property
    def asks_for(self) -> str:
        """The credential that the login page asks for, in words."""
        return "The token from the link that penstock dashboard printed"

    def admit(self, request: web.BaseRequest) -> Visitor | None:
        """Returns the reader who has our cookie."""
        name = self._seal.read(request.cookies.get(COOKIE, ""))
        return Visitor(form_token=self._seal.make_form_token(name)) if name else None

    def open_with(self, presented: str) -> str:
        """Returns the cookie for the token of the link."""
        fits = hmac.compare_digest(presented.encode(), self._token.encode())
        return self._seal.write("link") if fits else ""


def name_of_host(host: str) -> str:
    """Returns the name in a `Host` header, without its port; empty if there is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""

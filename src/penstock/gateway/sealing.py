"""Seals a handoff for a client that carries it: whoever brings it back gets it opened, unless a bit of it was changed.

    token = seal(keys.current(), owner, Sealed(text=handoff))
    sealed = open_seal(token, owner, keys.find)       # None where it is not what was sealed for this owner

A token is printable text of five parts: version, id of the key, conversation, what was sealed (packed), and an HMAC-SHA256
over all of them and the owner. It is not secret from who holds it, to whom it says nothing new; it cannot be forged or
changed, and opens for nobody else. Any gateway opens it that has the key: keys are never deleted by a rotation.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from penstock.errors import SettingsError
from penstock.stores.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "READ_SEALED",
    "TOKEN_START",
    "FileKeys",
    "SealKey",
    "SealKeys",
    "Sealed",
    "StoreKeys",
    "digest_token",
    "name_conversation",
    "open_seal",
    "read_keys",
    "seal",
]

# What a token of ours begins with, of whatever version, and no provider's does. Every request is looked through for it:
# a long text of characters that are rare in JSON is found in a third of the time.
TOKEN_START: Final = "PENSTOCK~SEALED~HANDOFF~"  # noqa: S105 - not a secret
_VERSION: Final = f"{TOKEN_START}1"
_PURPOSE: Final = b"penstock handoff seal 1\0"
_PARTS: Final = 5
_NO_CONVERSATION: Final = "-"
_NAME: Final = re.compile(r"\A[A-Za-z0-9_-]{1,64}\Z")
_KEY_BYTES: Final = 32
_NOTES: Final = "gateway"  # where `keys` has its own notes
_CURRENT: Final = "seal current"


class Sealed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A handoff, and the conversation in the store whose first `length` messages it stands for."""

    text: str
    conversation: str = ""
    length: int = 0


READ_SEALED: Final = msgspec.msgpack.Decoder(Sealed).decode


class SealKey(msgspec.Struct, frozen=True):
    """A key for seals."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"SealKey({self.id})"


def seal(key: SealKey, owner: str, sealed: Sealed) -> str:
    """Returns the token that opens to this for the same owner alone."""
    packed = zlib.compress(msgspec.msgpack.encode(sealed), 6)
    signed = f"{_VERSION}.{key.id}.{sealed.conversation or _NO_CONVERSATION}.{_write_base64(packed)}"
    return f"{signed}.{_sign(key, owner, signed)}"


def open_seal(token: str, owner: str, find: Callable[[str], SealKey | None]) -> Sealed | None:
    """Returns what was sealed; None where the key is gone, the token was changed, or it is another owner's."""
    parts = token.split(".")
    if len(parts) != _PARTS or parts[0] != _VERSION or not token.isascii():
        return None
    key = find(parts[1]) if _NAME.match(parts[1]) else None
    if key is None:
        return None
    signed, _, signature = token.rpartition(".")
    # Compared as text: base64 has several spellings of the same bytes, and only ours is true.
    if not hmac.compare_digest(_sign(key, owner, signed).encode(), signature.encode()):
        return None
    try:
        return READ_SEALED(zlib.decompress(_read_base64(parts[3])))
    except (binascii.Error, zlib.error, msgspec.DecodeError):  # of a later version
        return None


def digest_token(token: str) -> str:
    """Returns what a token is known by where it is kept."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def name_conversation(token: str) -> str:
    """Returns the conversation that a token names, be it true or not; empty where it names none."""
    parts = token.split(".")
    return parts[2] if len(parts) == _PARTS and parts[2] != _NO_CONVERSATION else ""


def _sign(key: SealKey, owner: str, signed: str) -> str:
    told = owner.encode("utf-8", "surrogatepass")
    lengths = len(told).to_bytes(4, "big")  # so that no owner's name runs into the token
    return _write_base64(
        hmac.digest(key.secret, _PURPOSE + lengths + told + signed.encode("ascii", "replace"), "sha256")
    )


def _write_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _read_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _new_key() -> SealKey:
    return SealKey(secrets.token_hex(4), secrets.token_bytes(_KEY_BYTES))


# Where keys are.


class SealKeys(Protocol):
    """The keys of all gateways that work together."""

    def current(self) -> SealKey:
        """Returns the key to seal with. Raises PenstockError where there can be none."""

    def find(self, key_id: str) -> SealKey | None:
        """Returns the key with this id, however old."""

    def rotate(self) -> SealKey:
        """Makes another key, which is the current one from now on; returns it."""


def read_keys(store: Store, key_file: str | None) -> SealKeys:
    """Returns the keys in the file that `gateway.seal_key_file` names, else those in the store."""
    return StoreKeys(store) if key_file is None else FileKeys(Path(key_file).expanduser())


class StoreKeys:
    """Keys in the store, which all its gateways share. The first is made when it is needed."""

    def __init__(self, store: Store) -> None:
        self._store = Store(store.database)  # one that may write behind and read ahead is not for keys
        self._known: dict[str, SealKey] = {}

    def current(self) -> SealKey:
        """Returns the key to seal with."""
        named = self._store.note(_NOTES, _CURRENT)
        if named is None:
            self._add(_new_key(), replaces=False)
            named = self._store.note(_NOTES, _CURRENT) or b""
        key = self.find(named.decode())
        if key is None:
            raise SettingsError(
                "the store has lost its sealing key; make a new one with `penstock keys rotate-seal`"
            )
        return key

    def find(self, key_id: str) -> SealKey | None:
        """Returns the key with this id, however old."""
        key = self._known.get(key_id)
        if key is None:
            secret = self._store.note(_NOTES, f"seal {key_id}")
            if secret is None:
                return None
            key = self._known[key_id] = SealKey(key_id, secret)
        return key

    def rotate(self) -> SealKey:
        """Makes another key, which is the current one from now on."""
        key = _new_key()
        self._add(key, replaces=True)
        return key

    def _add(self, key: SealKey, *, replaces: bool) -> None:
        kept = "DO UPDATE SET value = excluded.value" if replaces else "DO NOTHING"  # two that begin at once
        insert = "INSERT INTO notes (name, key, value) VALUES (?, ?, ?) ON CONFLICT (name, key)"
        with self._store.database.writing() as do:
            do.run(f"{insert} DO NOTHING", _NOTES, f"seal {key.id}", key.secret)
            do.run(f"{insert} {kept}", _NOTES, _CURRENT, key.id.encode())


class FileKeys:
    """Keys in a file, one in a line: its id, a space, and 64 hexadecimal digits. The first is the current one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[float, list[SealKey]] | None = None

    def current(self) -> SealKey:
        """Returns the key to seal with. Raises SettingsError where the file has none."""
        keys = self._keys()
        if not keys:
            raise SettingsError(
                f"gateway.seal_key_file has no keys: penstock keys rotate-seal makes one ({self._path})"
            )
        return keys[0]

    def find(self, key_id: str) -> SealKey | None:
        """Returns the key with this id, however old."""
        return next((key for key in self._keys() if key.id == key_id), None)

    def rotate(self) -> SealKey:
        """Writes another key in front of the others. Raises SettingsError where the file cannot be written."""
        key = _new_key()
        lines = [f"{one.id} {one.secret.hex()}\n" for one in (key, *self._keys())]
        beside = self._path.with_name(f"{self._path.name}.new")
        try:
            beside.unlink(missing_ok=True)
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
        except OSError as error:
            raise SettingsError(
                f"the keys for seals cannot be written to {self._path}: {error.strerror}"
            ) from None
        self._read = None
        return key

    def _keys(self) -> list[SealKey]:
        try:
            changed = self._path.stat().st_mtime
            if self._read is None or self._read[0] != changed:
                self._read = (
                    changed,
                    [_read_line(line) for line in self._path.read_text().splitlines() if line],
                )
        except FileNotFoundError:
            return []
        except (OSError, UnicodeError) as error:
            raise SettingsError(f"gateway.seal_key_file cannot be read: {type(error).__name__}") from None
        return self._read[1]


def _read_line(line: str) -> SealKey:
    name, _, text = line.strip().partition(" ")
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        secret = b""
    if not _NAME.match(name) or len(secret) < _KEY_BYTES:
        raise SettingsError(
            "a line of gateway.seal_key_file is not a key; allowed: an id, a space, 64 hexadecimal digits"
        )
    return SealKey(name, secret)

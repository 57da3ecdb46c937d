"""What was learned about models, kept in a store: how their providers count, how large windows and answers may be.

By model and endpoint, across restarts. Two processes that learn at the same time both build on what is in the store, and
the last to write wins: of two reports at the very same moment one may be lost, and the next one makes up for it. What
cannot be read or written is as good as not learned, and is told in the log: nothing stops because of it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

import msgspec

from penstock.errors import StoreError, UnknownSession
from penstock.lossless.shelf import StoreShelf
from penstock.measure.calibration import Calibration

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.stores.store import Store

__all__ = ["Learned", "StoredNotes", "notes_for"]

_CALIBRATION, _WINDOW, _OUTPUT_CAP = "calibration", "window", "output cap"
_LEAST_WINDOW, _MOST_WINDOW = 1_024, 10_000_000
_LEAST_CAP = 256  # tokens: no model is limited to less, so a smaller number meant something else
_T = TypeVar("_T")
_log = logging.getLogger("penstock")


class Learned:
    """What a store knows of models."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def calibration(self, model: str, endpoint: str = "") -> Calibration:
        """How the provider counts, in relation to us."""
        note = self._note(_CALIBRATION, model, endpoint)
        try:
            return msgspec.json.decode(note, type=Calibration) if note else Calibration()
        except msgspec.DecodeError:  # of another version
            return Calibration()

    def observe(self, model: str, endpoint: str, counted_tokens: int, reported_tokens: int) -> Calibration:
        """The calibration after one more response, which is kept."""
        before = self.calibration(model, endpoint)
        after = before.observe(counted_tokens, reported_tokens)
        if after != before:
            self._put(_CALIBRATION, model, endpoint, msgspec.json.encode(after))
        return after

    def window(self, model: str, endpoint: str = "") -> int | None:
        """The window that the provider stated in an error, or None."""
        note = self._note(_WINDOW, model, endpoint)
        return int(note) if note and note.isdigit() else None

    def learn_window(self, model: str, endpoint: str, tokens: int) -> None:
        """Keep a window that the provider stated. What cannot be one, and any guess, is not to be kept."""
        if _LEAST_WINDOW <= tokens <= _MOST_WINDOW and tokens != self.window(model, endpoint):
            self._put(_WINDOW, model, endpoint, str(tokens).encode())

    def output_cap(self, model: str, endpoint: str = "") -> int | None:
        """The most tokens of an answer that the provider lets the model be asked for, as it stated in an error; or None."""
        note = self._note(_OUTPUT_CAP, model, endpoint)
        return int(note) if note and note.isdigit() else None

    def learn_output_cap(self, model: str, endpoint: str, tokens: int) -> None:
        """Keep the most tokens of an answer that the provider stated for the model. A guess is not to be kept."""
        if _LEAST_CAP <= tokens <= _MOST_WINDOW and tokens != self.output_cap(model, endpoint):
            self._put(_OUTPUT_CAP, model, endpoint, str(tokens).encode())

    def took_prompt(self, model: str, endpoint: str, prompt_tokens: int) -> None:
        """A prompt of so many tokens was answered: a window that is smaller than that is no longer true."""
        window = self.window(model, endpoint)
        if window is not None and prompt_tokens > window:
            self._put(_WINDOW, model, endpoint, b"")

    def _note(self, name: str, model: str, endpoint: str) -> bytes | None:
        return _tried(lambda: self._store.note(name, _key(model, endpoint)))

    def _put(self, name: str, model: str, endpoint: str, value: bytes) -> None:
        _tried(lambda: self._store.put_note(name, _key(model, endpoint), value))


class StoredNotes:
    """A summariser's notes on parts of one conversation, redacted, kept beside it and deleted with it."""

    def __init__(self, shelf: StoreShelf, redact: Callable[[str], str]) -> None:
        self._shelf = shelf
        self._redact = redact

    def get(self, key: str) -> str | None:
        """The notes, or None."""
        found = _tried(lambda: self._shelf.get(f"notes/{key}"))
        return None if found is None else found.decode("utf-8", "replace")

    def put(self, key: str, notes: str) -> None:
        """Keep the notes."""
        kept = self._redact(notes).encode("utf-8", "replace")
        _tried(lambda: self._shelf.put(f"notes/{key}", kept))


def notes_for(store: Store, session_id: str, redact: Callable[[str], str]) -> StoredNotes | None:
    """The notes on a session's conversation; None where the store does not know it."""
    try:
        return StoredNotes(StoreShelf(store, session_id), redact)
    except UnknownSession:  # the host keeps this one elsewhere
        return None


def _key(model: str, endpoint: str) -> str:
    """No id of a session begins so, or it would take the note with it when it is deleted."""
    return f"model:{model}@{endpoint}"


def _tried(action: Callable[[], _T]) -> _T | None:
    try:
        return action()
    except StoreError as error:
        _log.warning("what was learned about a model is not at hand, or not kept: %s", error)
        return None
